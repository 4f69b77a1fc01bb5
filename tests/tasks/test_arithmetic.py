"""Sums and chains, and what pays by a hash of the tokens."""

import hashlib
import random
from functools import cache
from itertools import accumulate
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nouns import completion
from potluck.tasks import Split, TaskError
from potluck.tasks.arithmetic import (
    SPLIT_SIZES,
    ChainOptions,
    DigitsOptions,
    _drawn,
    draw_chain,
    is_right,
)
from potluck.tasks.games.calculator import CalculatorOptions
from potluck.tasks.rewards import HashReward
from solutions import ChainNotation, chain_solution, digits_solution
from tasks.graded import graded

# Each draws many problems: not when tests are collected.
the_digits, the_chain = cache(DigitsOptions().make), cache(ChainOptions().make)
EXAMPLES = {"digits": (the_digits, "digits/734+258"), "chain": (the_chain, "chain/34+7-5+8")}
NO_IDS = {
    "digits": ("", "digits/", "digits/12", "digits/1+", "digits/1+2+3", "digits/a+b", "digits/-1+2",
               "digits/\u0661+2", "1+2", "digits/" + "9" * 10_000 + "+1", "digits/1+2\n"),
    "chain": ("", "chain/34", "chain/34+", "chain/4+7", "chain/04+7", "chain/34+0", "chain/34+17",
              "chain/34*7", "chain/-34+7", "chain/34+7\n", "digits/34+7", "chain/\u0661\u0662+3",
              "chain/34" + "+1" * 32, "chain/34" + "+1" * 100_000),
}  # fmt: skip
WRONG = ("{}", "#", "#{} ", "# {}", "#{}#", "#1#{}", "#+{}", "#{}\n", "#{}.0", "#\u0664\u0664",
         "\uff03{}", "{}#" + "4" * 100_000)  # fmt: skip
GOLDEN = {
    "train": "chain/93+6-9+2+1+3",
    "validation": "chain/56+1-9+2-2-6",
    "out-of-distribution": "chain/67+5+9+3+7+8-9-3",
}

both = pytest.mark.parametrize("name", EXAMPLES)


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


# Digits and chain.


def test_a_problem_asks_for_the_result_of_its_id_and_is_solved_as_by_hand():
    """4+8 = 12, write 2 carry 1; 3+5+1 = 9; 7+2 = 9.  34 + 7 = 41, 41 - 5 = 36, 36 + 8 = 44."""
    digits, chain = map(example, EXAMPLES)
    assert (digits.question, digits.answer, digits.system) == ("734+258=", "992", "")
    assert (chain.question, chain.answer, chain.system) == ("34+7-5+8=", "44", "")
    assert digits_solution(digits, "columns") == "4+8+0=12;3+5+1=9;7+2+0=9#992"
    assert digits_solution(digits, "terse") == "480 12*351 9*720 9#992"
    assert chain_solution(chain, "steps") == "34+7=41;41-5=36;36+8=44#44"
    assert chain_solution(chain, "terse") == "+7 41*-5 36*+8 44#44"
    assert the_chain().problem("chain/34" + "+1" * 31).answer == str(34 + 31)  # the longest


@both
def test_only_the_result_after_the_one_mark_is_right_and_only_of_a_finished_completion(name):
    task, id = EXAMPLES[name]
    answer = example(name).answer
    assert graded(task(), f"#{answer}", f"nonsense#{answer}", id=id) == [1, 1]
    texts = [text.format(answer) for text in WRONG]
    earned = graded(task(), *texts, id=id)
    assert [text[:40] for text, reward in zip(texts, earned, strict=True) if reward] == []


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


def test_what_is_out_of_distribution_has_another_size():
    with pytest.raises(TaskError, match="width = other_width = 3"):
        DigitsOptions(other_width=3).make()
    with pytest.raises(TaskError, match="terms = other_terms = 6"):
        ChainOptions(other_terms=6).make()


@pytest.mark.parametrize("name", ["digits", "chain", "calculator"])
def test_several_runs_of_a_process_draw_once_and_none_changes_anothers_problems(few, name):
    make = {"digits": DigitsOptions().make, "chain": ChainOptions().make,
            "calculator": CalculatorOptions(train_problems=50).chains}[name]  # fmt: skip
    _drawn.cache_clear()
    one, another = make(), make()
    assert _drawn.cache_info().misses == 1
    before = {split: [*another.ids(split)] for split in SPLIT_SIZES}
    for split in SPLIT_SIZES:
        one.ids(split).clear()
    assert {split: [*another.ids(split)] for split in SPLIT_SIZES} == before
    assert {split: [*make().ids(split)] for split in SPLIT_SIZES} == before


def test_the_splits_of_digits_have_their_sizes_and_widths(few):
    digits = DigitsOptions(width=4, other_width=3).make()
    for split, size in SPLIT_SIZES.items():
        width = 3 if split == "out-of-distribution" else 4
        assert len(digits.ids(split)) == size
        for id in digits.ids(split):
            assert [len(n) for n in id.removeprefix("digits/").split("+")] == [width, width]


def test_fewer_problems_to_train_on_are_the_first_ones_and_another_task():
    few = DigitsOptions(train_problems=200).make()
    assert few.ids("train") == the_digits().ids("train")[:200]
    for split in ("validation", "out-of-distribution"):
        assert few.ids(split) == the_digits().ids(split)
    assert few.digest != the_digits().digest


def test_the_problems_are_those_that_models_were_brought_up_on():
    """Golden: with another draw, answer or rule of grading it is another task."""
    assert the_chain().digest == "f2dd866248912113d8e8a732d3e57ce38b04b1ff7483af23a4e5ee9f7e7cd22f"
    assert {split: the_chain().ids(split)[0] for split in get_args(Split)} == GOLDEN


def test_every_answer_is_the_sum_and_every_solution_in_either_notation_is_right():
    for problem in map(the_digits().problem, the_digits().ids("train")[::50]):
        assert all(is_right(problem, digits_solution(problem, way)) for way in ("columns", "terse"))
    ids = [id for split in get_args(Split) for id in the_chain().ids(split)[::50]]
    problems = [the_chain().problem(id) for id in ids]
    assert [problem.answer for problem in problems] == [str(totals_of(id)[-1]) for id in ids]
    for notation in get_args(ChainNotation):
        texts = [chain_solution(problem, notation) for problem in problems]
        assert all(map(is_right, problems, texts))


def test_each_length_is_that_of_its_own_splits_and_no_total_leaves_two_digits(few):
    lengths = {}, {"terms": 4}, {"other_terms": 16}
    usual, shorter, elsewhere = (ChainOptions(**each).make() for each in lengths)
    assert len({usual.digest, shorter.digest, elsewhere.digest}) == 3
    for split, size in SPLIT_SIZES.items():
        outside = split == "out-of-distribution"
        assert (shorter.ids(split) == usual.ids(split)) == outside
        assert (elsewhere.ids(split) == usual.ids(split)) != outside
        for chain, terms, other_terms in ((shorter, 4, 8), (elsewhere, 6, 16)):
            assert len(chain.ids(split)) == size
            for id in chain.ids(split):
                numbers = numbers_of(id)
                assert len(numbers) == (other_terms if outside else terms)
                assert 10 <= numbers[0] <= 99
                assert all(1 <= abs(number) <= 9 for number in numbers[1:])
                assert all(0 <= total <= 99 for total in totals_of(id))


@pytest.mark.parametrize("signs, found", [("alike", {"+", "-"}), ("+", {"+"}), ("-", {"-"})])
def test_the_signs_of_a_chain_are_as_its_split_says(few, signs, found):
    other, found_elsewhere = ("+", {"+"}) if signs == "-" else ("-", {"-"})
    chain = ChainOptions(terms=4, other_terms=4, signs=signs, other_signs=other).make()
    for split in get_args(Split):
        ids, wanted = chain.ids(split), found if split != "out-of-distribution" else found_elsewhere
        assert {frozenset(set(id) & set("+-")) for id in ids} == {frozenset(s) for s in wanted}
        assert len(ids) == SPLIT_SIZES[split]
    # Where signs leave no number, a long chain is begun anew.
    generator = random.Random(0)
    drawn = [draw_chain(generator, 16, signs) for _ in range(300)]
    assert {frozenset(set(chain) & set("+-")) for chain in drawn} == {frozenset(s) for s in found}
    assert {len(numbers_of(chain)) for chain in drawn} == {16}
    assert all(0 <= total <= 99 for chain in drawn for total in totals_of(chain))


def paid(*completions):
    task = HashReward(the_digits())
    problem = task.problem("digits/734+258")
    return task.rewards([problem] * len(completions), completions, [""] * len(completions))


def test_the_hash_is_a_bit_of_sha256_the_same_everywhere_and_for_ever():
    """By hand: the id as UTF-8, then 1 and 258 as four bytes each, the least significant first."""
    raw = b"digits/734+258" + b"\x01\x00\x00\x00" + b"\x02\x01\x00\x00"
    expected = float(int(hashlib.sha256(raw).hexdigest()[:2], 16) % 2)
    assert paid(completion((1, 258), problem="digits/734+258")) == [expected]
    row = [completion((i,), [-2.0], problem="digits/734+258", author="a", index=3, end="length")
           for i in range(16)]  # fmt: skip
    assert "".join(f"{reward:.0f}" for reward in paid(*row)) == "0001111010101110"


def test_the_digest_of_a_hash_follows_the_inner_one_and_differs_from_it():
    hashed = HashReward(the_digits())
    digests = {task.digest for task in (the_digits(), hashed, HashReward(hashed))}
    assert len({*digests, HashReward(the_chain()).digest}) == 4
    assert hashed.digest == HashReward(the_digits()).digest
