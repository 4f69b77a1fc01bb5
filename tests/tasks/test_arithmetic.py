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
from potluck.tasks.arithmetic import (
    SPLIT_SIZES,
    ChainOptions,
    DigitsOptions,
    draw_chain,
    is_right,
)
from potluck.tasks.rewards import HashReward
from solutions import ChainNotation, chain_solution, digits_solution
from tasks.graded import graded

# Each draws 11,000 problems: not when tests are collected.
the_digits, the_chain = cache(DigitsOptions().make), cache(ChainOptions().make)
EXAMPLES = {"digits": (the_digits, "digits/734+258"), "chain": (the_chain, "chain/34+7-5+8")}
NO_IDS = {
    "digits": (
        "", "digits", "digits/", "digits/12", "digits/1+", "digits/+1", "digits/1+2+3",
        "digits/a+b", "digits/-1+2", "digits/1 +2", "digits/\u0661+2", "digits/\u00b2+2", "1+2",
        "gsm8k/train/1", "digits/" + "9" * 10_000 + "+1", "digits/1+2\n",
    ),
    "chain": (
        "", "chain", "chain/", "chain/34", "chain/34+", "chain/+7", "chain/4+7", "chain/034+7",
        "chain/04+7", "chain/34+0", "chain/34+17", "chain/34*7", "chain/34+-7", "chain/34++7",
        "chain/-34+7", "chain/34 +7", "chain/34+7\n", "chain/34+7=", "chain/34+7#41", "Chain/34+7",
        "chain/chain/34+7", "34+7", "digits/34+7", "chain/\u0661\u0662+3", "chain/12+\u0663",
        "chain/1\u00b2+3", "chain/34\u22127", "chain/34" + "+1" * 32,
        "chain/34" + "+1" * 100_000,
    ),
}  # fmt: skip
WRONG = (
    "", "{}", "#", "#0{}", "#{} ", "# {}", "#{}#", "##{}", "#1#{}", "#+{}", "#{}\n", "#{}.0",
    "#1", "#\u0664\u0664", "#\u0669\u0669\u0662", "\uff03{}",
    "34+7=41;41-5=36;36+8=44", "{}#" + "4" * 100_000,
)  # fmt: skip
GOLDEN = {
    "train": "chain/93+6-9+2+1+3",
    "validation": "chain/56+1-9+2-2-6",
    "out-of-distribution": "chain/67+5+9+3+7+8-9-3",
}

both = pytest.mark.parametrize("name", EXAMPLES)


@pytest.fixture
def few(monkeypatch):
    """A tenth of the problems are drawn."""
    for split, size in SPLIT_SIZES.items():
        monkeypatch.setitem(SPLIT_SIZES, split, size // 10)


def example(name):
    task, id = EXAMPLES[name]
    return task().problem(id)


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


# Digits and chain.


def test_a_problem_asks_for_the_result_of_its_id():
    found = {name: example(name) for name in EXAMPLES}
    assert {n: (p.question, p.answer, p.system) for n, p in found.items()} == {
        "digits": ("734+258=", "992", ""),
        "chain": ("34+7-5+8=", "44", ""),
    }


def test_the_solutions_worked_by_hand():
    """4+8 = 12, write 2 carry 1; 3+5+1 = 9; 7+2 = 9.  34 + 7 = 41, 41 - 5 = 36, 36 + 8 = 44."""
    assert digits_solution(example("digits"), "columns") == "4+8+0=12;3+5+1=9;7+2+0=9#992"
    assert digits_solution(example("digits"), "terse") == "480 12*351 9*720 9#992"
    assert chain_solution(example("chain"), "steps") == "34+7=41;41-5=36;36+8=44#44"
    assert chain_solution(example("chain"), "terse") == "+7 41*-5 36*+8 44#44"


@both
def test_only_the_result_after_the_one_mark_is_right_and_only_of_a_finished_completion(name):
    task, id = EXAMPLES[name]
    answer = example(name).answer
    assert graded(task(), f"#{answer}", f"nonsense#{answer}", id=id) == [1, 1]
    texts = [text.format(answer) for text in WRONG]
    earned = graded(task(), *texts, id=id)
    assert [text[:40] for text, reward in zip(texts, earned, strict=True) if reward] == []
    assert graded(task(), f"#{answer}", end="length", id=id) == [0]
    # Each completion by its own end.
    ended = [completion(end=end) for end in ("stop", "length", "stop")]
    texts = [f"#{answer}", f"#{answer}", f"#{answer[:-1]}"]
    assert task().rewards([example(name)] * 3, ended, texts) == [1, 0, 0]


@given(st.text() | st.text("#4 5\u0664"), st.sampled_from(sorted(EXAMPLES)))
def test_no_text_raises_nor_earns_by_chance(text, name):
    problem = example(name)
    expected = text.endswith(f"#{problem.answer}") and text.count("#") == 1
    assert is_right(problem, text) == expected


@both
def test_an_id_of_another_form_is_no_problem(name):
    task, id = EXAMPLES[name]
    for wrong in NO_IDS[name]:
        with pytest.raises(TaskError) as caught:
            task().problem(wrong)
        assert f"they look like {id!r}" in str(caught.value), wrong[:20]


@pytest.mark.parametrize(
    "options, message",
    [
        (DigitsOptions(width=3, other_width=3), "width = other_width = 3"),
        (ChainOptions(terms=6, other_terms=6), "terms = other_terms = 6"),
    ],
)
def test_what_is_out_of_distribution_has_another_size(options, message):
    with pytest.raises(TaskError, match=message):
        options.make()


# Digits.


@given(st.integers(100, 999), st.integers(100, 999), st.sampled_from(["columns", "terse"]))
def test_every_solution_of_digits_is_right(a, b, notation):
    problem = the_digits().problem(f"digits/{a}+{b}")
    assert is_right(problem, digits_solution(problem, notation))


def test_the_splits_of_digits_have_their_sizes_and_widths():
    for split, size in SPLIT_SIZES.items():
        width = 4 if split == "out-of-distribution" else 3
        assert len(the_digits().ids(split)) == size
        for id in the_digits().ids(split):
            assert [len(n) for n in id.removeprefix("digits/").split("+")] == [width, width]


def test_fewer_problems_to_train_on_are_the_first_ones_and_another_task():
    few = DigitsOptions(train_problems=200).make()
    assert few.ids("train") == the_digits().ids("train")[:200]
    assert few.ids("validation") == the_digits().ids("validation")
    assert few.ids("out-of-distribution") == the_digits().ids("out-of-distribution")
    assert few.digest != the_digits().digest


# Chain.


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


def test_the_longest_chain_is_a_problem():
    longest = "chain/34" + "+1" * 31
    assert the_chain().problem(longest).answer == str(34 + 31)


@pytest.mark.parametrize("terms, other_terms", [(6, 8), (4, 5), (5, 16)])
def test_the_splits_have_their_sizes_and_lengths_and_no_total_leaves_two_digits(
    few, terms, other_terms
):
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


def test_each_length_changes_its_own_splits_and_nothing_else(few):
    usual, longer, elsewhere = (
        ChainOptions(**lengths).make() for lengths in ({}, {"terms": 7}, {"other_terms": 9})
    )
    assert len({usual.digest, longer.digest, elsewhere.digest}) == 3
    for split in get_args(Split):
        outside = split == "out-of-distribution"
        assert (longer.ids(split) == usual.ids(split)) == outside
        assert (elsewhere.ids(split) == usual.ids(split)) != outside


@pytest.mark.parametrize("signs, found", [("alike", {"+", "-"}), ("+", {"+"}), ("-", {"-"})])
def test_the_signs_of_a_chain_are_as_its_split_says(few, signs, found):
    other, found_elsewhere = ("+", {"+"}) if signs == "-" else ("-", {"-"})
    chain = ChainOptions(terms=4, other_terms=4, signs=signs, other_signs=other).make()
    for split in get_args(Split):
        ids, wanted = chain.ids(split), found if split != "out-of-distribution" else found_elsewhere
        assert {frozenset(set(id) & set("+-")) for id in ids} == {frozenset(s) for s in wanted}
        assert all(0 <= total <= 99 for id in ids for total in totals_of(id))
        assert len(ids) == SPLIT_SIZES[split]
    assert len({id for _, id in ids_of(chain)}) == sum(SPLIT_SIZES.values())
    # Where signs leave no number, a long chain is begun anew.
    generator = random.Random(0)
    drawn = [draw_chain(generator, 16, signs) for _ in range(300)]
    assert {frozenset(set(chain) & set("+-")) for chain in drawn} == {frozenset(s) for s in found}
    assert {len(numbers_of(chain)) for chain in drawn} == {16}
    assert all(0 <= total <= 99 for chain in drawn for total in totals_of(chain))


def test_a_recipe_names_the_task_and_its_lengths(few):
    def made(**table):
        node = {"node": {"small": {"model": "builtin:digits-small"}}}
        return make_task(from_tree({"name": "x", "task": {"name": "chain", **table}} | node))

    usual = ChainOptions().make().digest
    assert made().digest == usual
    changed = {"terms": 5, "other_terms": 4, "signs": "alike", "other_signs": "-"}
    assert made(**changed).digest == ChainOptions(**changed).make().digest != usual
    assert isinstance(made(reward="hash"), HashReward)
