import random
from functools import cache
from itertools import accumulate
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nouns import completion
from potluck.builder.task import make_task
from potluck.config import from_tree
from potluck.tasks import Split, TaskError
from potluck.tasks.arithmetic import LONGEST_CHAIN, SPLIT_SIZES, ChainOptions, draw_chain
from potluck.tasks.rewards import HashReward
from solutions import ChainNotation, chain_solution

the_chain = cache(ChainOptions().make)  # 11,000 problems are drawn: not when tests are collected
NO_IDS = (
    "", "chain", "chain/", "chain/34", "chain/34+", "chain/+7", "chain/4+7", "chain/034+7",
    "chain/04+7", "chain/34+0", "chain/34+17", "chain/34*7", "chain/34+-7", "chain/34++7",
    "chain/-34+7", "chain/34 +7", "chain/34+7\n", "chain/34+7=", "chain/34+7#41", "Chain/34+7",
    "chain/chain/34+7", "34+7", "digits/34+7", "chain/\u0661\u0662+3", "chain/12+\u0663",
    "chain/1\u00b2+3", "chain/34\u22127", "chain/34" + "+1" * LONGEST_CHAIN,
    "chain/34" + "+1" * 100_000,
)  # fmt: skip
GOLDEN = {
    "train": "chain/93+6-9+2+1+3",
    "validation": "chain/56+1-9+2-2-6",
    "out-of-distribution": "chain/67+5+9+3+7+8-9-3",
}


def numbers_of(id):
    """The chain as numbers, read sign by sign: shares no code with the task."""
    numbers, sign, digits = [], 1, ""
    for character in [*id.removeprefix("chain/"), "+"]:
        if character in "+-":
            numbers.append(sign * int(digits))
            sign, digits = (1 if character == "+" else -1), ""
        else:
            digits += character
    return numbers


def totals_of(id):
    """The sums of the first two numbers, the first three, and so on."""
    return [*accumulate(numbers_of(id))][1:]


def ids_of(chain):
    return [(split, id) for split in get_args(Split) for id in chain.ids(split)]


def is_right(problem, text):
    (reward,) = the_chain().rewards([problem], [completion(problem=problem.id)], [text])
    return reward == 1


@pytest.fixture
def problem():
    return the_chain().problem("chain/34+7-5+8")


def test_a_problem_asks_for_the_last_total_of_its_id(problem):
    assert (problem.question, problem.answer, problem.system) == ("34+7-5+8=", "44", "")


def test_the_solutions_worked_by_hand(problem):
    """34 + 7 = 41, 41 - 5 = 36, 36 + 8 = 44."""
    assert chain_solution(problem, "steps") == "34+7=41;41-5=36;36+8=44#44"
    assert chain_solution(problem, "terse") == "+7 41*-5 36*+8 44#44"


def test_the_problems_are_those_that_models_were_brought_up_on():
    """Golden: with another draw, answer or rule of grading it is another task."""
    assert the_chain().digest == "f2dd866248912113d8e8a732d3e57ce38b04b1ff7483af23a4e5ee9f7e7cd22f"
    assert {split: the_chain().ids(split)[0] for split in get_args(Split)} == GOLDEN


def test_every_answer_is_the_sum_and_every_solution_in_either_notation_is_right():
    ids = [id for _, id in ids_of(the_chain())][::7]
    problems = [the_chain().problem(id) for id in ids]
    assert [problem.answer for problem in problems] == [str(totals_of(id)[-1]) for id in ids]
    for notation in get_args(ChainNotation):
        texts = [chain_solution(problem, notation) for problem in problems]
        completions = [completion(problem=id) for id in ids]
        assert the_chain().rewards(problems, completions, texts) == [1.0] * len(ids)


def test_every_step_of_a_solution_is_true_and_begins_where_the_one_before_ended():
    for id in the_chain().ids("out-of-distribution")[:100]:
        numbers, totals, problem = numbers_of(id), totals_of(id), the_chain().problem(id)
        with_sign = [f"{'-' if number < 0 else '+'}{abs(number)}" for number in numbers[1:]]
        before = [numbers[0], *totals[:-1]]
        steps = zip(before, with_sign, totals, strict=True)
        assert chain_solution(problem, "steps") == (
            ";".join(f"{a}{b}={c}" for a, b, c in steps) + f"#{totals[-1]}"
        )
        terse = zip(with_sign, totals, strict=True)
        assert chain_solution(problem, "terse") == (
            "*".join(f"{b} {c}" for b, c in terse) + f"#{totals[-1]}"
        )


def test_only_the_result_after_the_one_mark_is_right(problem):
    assert is_right(problem, "#44")
    assert is_right(problem, "nonsense#44")
    wrong = (
        "", "44", "#", "#43", "#044", "#44 ", "# 44", "#44#", "##44", "#1#44", "#+44", "#44\n",
        "#44.0", "#\u0664\u0664", "\uff0344", "34+7=41;41-5=36;36+8=44", "44#" + "4" * 100_000,
    )  # fmt: skip
    for text in wrong:
        assert not is_right(problem, text), text[:40]


@given(st.text() | st.text("#4 5\u0664"))
def test_no_text_raises_nor_earns_by_chance(text):
    assert is_right(the_chain().problem("chain/34+7-5+8"), text) == (
        text.endswith("#44") and text.count("#") == 1
    )


def test_an_unfinished_completion_earns_nothing(problem):
    completions = [completion(end="stop"), completion(end="length"), completion(end="stop")]
    assert the_chain().rewards([problem] * 3, completions, ["#44", "#44", "#4"]) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("id", NO_IDS, ids=lambda id: ascii(id[:20]))
def test_an_id_of_another_form_is_no_problem(id):
    with pytest.raises(TaskError, match=r"they look like 'chain/34\+7-5\+8'"):
        the_chain().problem(id)


def test_the_longest_chain_is_a_problem():
    longest = "chain/34" + "+1" * (LONGEST_CHAIN - 1)
    assert the_chain().problem(longest).answer == str(34 + LONGEST_CHAIN - 1)


@pytest.mark.parametrize("terms, other_terms", [(6, 8), (4, 5), (5, 16)])
def test_the_splits_have_their_sizes_and_lengths_and_no_total_leaves_two_digits(terms, other_terms):
    chain = ChainOptions(terms=terms, other_terms=other_terms).make()
    ids = ids_of(chain)
    assert len({id for _, id in ids}) == len(ids)
    assert {split: len(chain.ids(split)) for split in SPLIT_SIZES} == SPLIT_SIZES
    for split, id in ids:
        numbers = numbers_of(id)
        assert len(numbers) == (other_terms if split == "out-of-distribution" else terms)
        assert 10 <= numbers[0] <= 99
        assert all(1 <= abs(number) <= 9 for number in numbers[1:])
        assert all(0 <= total <= 99 for total in totals_of(id))


def test_each_length_changes_its_own_splits_and_nothing_else():
    longer, elsewhere = ChainOptions(terms=7).make(), ChainOptions(other_terms=9).make()
    assert len({the_chain().digest, longer.digest, elsewhere.digest}) == 3
    for split in get_args(Split):
        outside = split == "out-of-distribution"
        assert (longer.ids(split) == the_chain().ids(split)) == outside
        assert (elsewhere.ids(split) == the_chain().ids(split)) != outside


signs_and_those_found = pytest.mark.parametrize(
    "signs, found", [("alike", {"+", "-"}), ("+", {"+"}), ("-", {"-"})]
)


@signs_and_those_found
def test_the_signs_of_a_chain_are_as_its_split_says(signs, found):
    other, found_elsewhere = ("+", {"+"}) if signs == "-" else ("-", {"-"})
    chain = ChainOptions(terms=4, other_terms=4, signs=signs, other_signs=other).make()
    for split in get_args(Split):
        ids, wanted = chain.ids(split), found if split != "out-of-distribution" else found_elsewhere
        assert {frozenset(set(id) & set("+-")) for id in ids} == {frozenset(s) for s in wanted}
        assert all(0 <= total <= 99 for id in ids for total in totals_of(id))
        assert len(ids) == SPLIT_SIZES[split]
    assert len({id for _, id in ids_of(chain)}) == sum(SPLIT_SIZES.values())


@signs_and_those_found
def test_where_signs_leave_no_number_a_long_chain_is_begun_anew(signs, found):
    generator = random.Random(0)
    drawn = [draw_chain(generator, 16, signs) for _ in range(300)]
    assert {frozenset(set(chain) & set("+-")) for chain in drawn} == {frozenset(s) for s in found}
    assert {len(numbers_of(chain)) for chain in drawn} == {16}
    assert all(0 <= total <= 99 for chain in drawn for total in totals_of(chain))


def test_equal_lengths_leave_nothing_out_of_distribution():
    with pytest.raises(TaskError, match="terms = other_terms = 6"):
        ChainOptions(terms=6, other_terms=6).make()


def test_a_recipe_names_the_task_and_its_lengths():
    def made(**table):
        node = {"node": {"small": {"model": "builtin:digits-small"}}}
        return make_task(from_tree({"name": "x", "task": {"name": "chain", **table}} | node))

    assert made().digest == the_chain().digest
    changed = {"terms": 5, "other_terms": 4, "signs": "alike", "other_signs": "-"}
    assert made(**changed).digest == ChainOptions(**changed).make().digest != the_chain().digest
    assert isinstance(made(reward="hash"), HashReward)
