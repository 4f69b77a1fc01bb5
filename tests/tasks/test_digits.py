from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nouns import completion
from potluck.tasks import TaskError
from potluck.tasks.arithmetic import SPLIT_SIZES, DigitsOptions, is_right
from solutions import digits_solution

the_digits = cache(DigitsOptions().make)  # 11,000 problems are drawn: not when tests are collected
number = st.integers(100, 999)
NO_IDS = (
    "", "digits", "digits/", "digits/12", "digits/1+", "digits/+1", "digits/1+2+3", "digits/a+b",
    "digits/-1+2", "digits/1 +2", "digits/\u0661+2", "digits/\u00b2+2", "1+2", "gsm8k/train/1",
    "digits/" + "9" * 10_000 + "+1", "digits/1+2\n",
)  # fmt: skip


@pytest.fixture
def problem():
    return the_digits().problem("digits/734+258")


def test_a_problem_asks_for_the_sum_of_its_id(problem):
    assert (problem.question, problem.answer, problem.system) == ("734+258=", "992", "")


def test_the_solutions_worked_by_hand(problem):
    """4+8 = 12, write 2 carry 1; 3+5+1 = 9; 7+2 = 9."""
    assert digits_solution(problem, "columns") == "4+8+0=12;3+5+1=9;7+2+0=9#992"
    assert digits_solution(problem, "terse") == "480 12*351 9*720 9#992"


@given(number, number, st.sampled_from(["columns", "terse"]))
def test_every_solution_is_right(a, b, notation):
    problem = the_digits().problem(f"digits/{a}+{b}")
    assert is_right(problem, digits_solution(problem, notation))


def test_only_the_sum_after_the_one_mark_is_right(problem):
    assert is_right(problem, "#992")
    assert is_right(problem, "nonsense#992")
    for text in ("", "992", "#", "#991", "#0992", "#992 ", "# 992", "#992#", "##992", "#1#992"):
        assert not is_right(problem, text), text


@given(st.text())
def test_no_text_raises(text):
    problem = the_digits().problem("digits/734+258")
    assert is_right(problem, text) in (True, False)


def test_an_unfinished_completion_earns_nothing(problem):
    completions = [completion(end="stop"), completion(end="length"), completion(end="stop")]
    texts = ["#992", "#992", "#99"]
    assert the_digits().rewards([problem] * 3, completions, texts) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("id", NO_IDS, ids=lambda id: ascii(id[:20]))
def test_an_id_of_another_form_is_no_problem(id):
    with pytest.raises(TaskError, match="they look like 'digits/734\\+258'"):
        the_digits().problem(id)


def test_the_splits_have_their_sizes_and_widths():
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


def test_equal_widths_leave_nothing_out_of_distribution():
    with pytest.raises(TaskError, match="width = other_width = 3"):
        DigitsOptions(width=3, other_width=3).make()


def test_too_narrow_a_width_has_too_few_problems():
    with pytest.raises(TaskError, match="digits of width 2 have 7100 problems, 20000 are needed"):
        DigitsOptions(width=2, other_width=3).make()
    with pytest.raises(TaskError, match="digits of width 1 have 81 problems, 1000 are needed"):
        DigitsOptions(width=3, other_width=1).make()
