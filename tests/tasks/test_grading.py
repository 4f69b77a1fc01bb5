"""Answers in numbers: the tags, what a number is, the spellings that models use, a tolerance."""

import time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.tasks.grading import (
    LONGEST_TEXT,
    TAGS,
    answer_in,
    last_box,
    last_number,
    one_number,
    same_number,
)

pieces = st.lists(st.sampled_from([*TAGS, " ", "\n", "18", "x", "<", ">", "\0", "\ud800"]))
numeric = st.text("0123456789+-.,$ \n%*/eE_xNnaifIty", max_size=45)

KEPT = {
    "<think>9+9</think><answer>18</answer>": "18",
    "\n <think>9\n+\n9</think>\n\n<answer>\n18 </answer>\n": "\n18 ",
    "<think></think><answer></answer>": "",
    "<think>a < b > c </ think></think><answer><b>18</b></answer>": "<b>18</b>",
}
BROKEN = (
    "", "18", "<answer>18</answer>", "<answer>18</answer><think>9+9</think>",
    "<think><answer>18</answer></think>", "<think>9</answer></think><answer>18",
    "<think>9</think><answer>18</answer><answer>18</answer>",
    "Sure! <think>9</think><answer>18</answer>", "<think>9</think> so <answer>18</answer>",
    "<think>9</think><answer>18</answer> Done.",
    "<THINK>9</THINK><ANSWER>18</ANSWER>", "<think id='1'>9</think><answer>18</answer>",
)  # fmt: skip
NUMBERS = {
    "18": ("18", " 18\n", "+18", "18.0", "18.", "018", "$18", "18$", "\\$18", "$ 18", "18 \u20ac",
           "$18$", "$18.00"),
    "-18": ("-18", "-$18", "$-18", "- 18", "\u221218", "-\u00a318"),
    "18.5": ("18.50", "$18.50."), "0": ("0", "-0"), "0.5": ("0.5", ".5"), "7": ("007",),
    "1234": ("1,234", "1{,}234"), "12345678.9": ("12,345,678.9",),
    "-" + "9" * 39: ("-" + "9" * 39,),
}  # fmt: skip
NO_NUMBERS = (
    "", " ", ".", "-", "$", "$$", ",", ".", "18..", "--18", "+-18", "-$-18", "-  18", "18-",
    "2*9", "9+9", "20-2", "36/2", "2^4", "=18", "18=18", "18%", "18 %", "17, 18", "17 18", "17\n18",
    "17;18", "1 8", "1e5", "1E5", "1e-5", "3/4", "1 1/2", "\\frac{36}{2}", "\\boxed{18}", "0x12",
    "0b1", "1_000", "1,23", "12,34,567", "1234,567", "1,2345", ",123", "123,", "0,018", "1,,234",
    "18 eggs", "18 dollars", "18 percent", "18 thousand", "minus 18", "half of 18", "eighteen",
    "x = 18", "18k", "18\u00b0", "NaN", "nan", "sNaN", "Infinity", "-inf", "True", "None",
    "\u0661\u0668", "\uff11\uff18", "1\u0968", "\u00b2", "\u2212\u2212" "18", "\u20bd18",
    "1\u200b8", "18\0", "\ud800",
    "9" * 41, "9" * 10_000, "0." + "0" * 10_000 + "1", "__import__('os')",
)  # fmt: skip
SPELLED = [
    ("1080", "1{,}080"), ("1080", r"\boxed{1{,}080}"), ("18", r"\$18"), ("18", r"\(18\)"),
    ("18", "$ 18"), ("0.5", ".5"), ("-5", "\u22125"), ("18", "**18**"), ("-5", "- 5"),
    ("18", "18\u20ac"), ("18", "\u00a318"), ("18", r"\boxed { $18 }"),
    *(("-1234", mark.format(r"\boxed{-1,234.0}")) for mark in (" {} ", "${}$", "$ {} $.", "\n{}.")),
]  # fmt: skip
"""(gold, spelling)"""
NEAR = {
    "1080": ("1.080", "10,80", "1,0800", "1 08 0", "1{,}08", "1{,}{,}080", r"\boxed{1{,}08}",
             "{1080}", "1_080", "1'080", "01,080"),
    "18": ("17", "-18", "18.01", "1.8", "(18)", "18/1", "It is 18", "~18", "18?", "#18", "XVIII",
           "$17$ $18$", "**17** **18**", "**17**18**", "**18", "* 18 *", "`18`",
           r"\(17\) \(18\)", r"\(18", r"\(18\]", r"\boxed{17} \boxed{18}",
           r"\boxed{\boxed{18}}", r"\boxed{18", r"-\boxed{18}", r"\boxed{18}%", r"\boxed{17}18",
           r"\boxed{}", r"\boxed18", r"\fbox{18}", r"\boxed{17, 18}", r"\boxed{2*9}",
           r"18 \boxed{18}", "boxed{18}", r"\boxed{18}" + " " * 80, r"\text{18}", "$$$18",
           r"\$\$18", "\u20ac\u20ac18", "\u20ac18-", "-\u20ac-18", "\u201318", "- - 18", "..18"),
    "-5": ("5", "+5", "-5.5", "\u22126", "5-", "(-5)", "-(5)"),
    "0.5": ("5", ".05", "-.5", "1/2", ".5.0", ".5%", "0,5"), r"\boxed{18}": ("18",),
}  # fmt: skip
LAST_NUMBERS = {
    "18": ("18", "9+9 is 18.", "So $18$", "**18**", "It is 18%", "18 km", "18km", "\\$18 a day",
           "= 20-2 = 18", "saves 18 kg CO2", "17, 18", "Day 2: 18", "...18", "(18)", "x=18",
           "from a \u2013 18", "The answer is 18!", "\\boxed{18}", "the 18th", "ten-18", "* 18\n",
           "5 apples, then 18 apples", "not 17 but 18", "18\n\n", "eggs:\n- 18", "A18. 18",
           "#### 18", "####18", "so 9+9=18 #### 18", "#### $18.\n\nQuestion: 5 eggs, 6 hens",
           "#### 17\nNo.\n#### 18", "#### 1. Add\n9+9=18", "#### Answer\n18", "5 #### is 18"),
    "1080": ("1,080", "$1,080.", "1{,}080", "\\boxed{1{,}080} dollars", "1,\\!080", "#### 1,080"),
    "-5": ("is -5", "is \u22125.", "-$5", "$-5", "(-5)", "x=-5", "#### -5"),
    "0.5": (".5", "is .5.", "0.5"), "18.50": ("$18.50", "18.50."),
}  # fmt: skip
"""(number in which each text ends, by the grading of numbers)"""
NO_LAST_NUMBER = (
    "", "no", "eighteen", "CO2", "x_2", "B12", "36/2", "9 + 9", "9+9", "20-2", "2*9", "2 * 9",
    "9 \u00d7 2", "9 \\times 2", "9 \\cdot 2", "\\frac{36}{2}", "2^4", "2^{4}", "v_{2}",
    "\\sqrt{16}", "1e5", "1E+5", "10:30", "3:2", "3 1/2", "17,18", "1,23", "1.2.3", "12,34,567",
    "$9 + $9", "(9)(2)/3", "17\u201318 or 1/2", "1e-5",
    "\u0661\u0668", "\uff11\uff18", "9" * 41, "#### none",
)  # fmt: skip
LAST_BOXES = {
    "18": (r"\boxed{18}", r"$x = \boxed{18}$.", r"\boxed{17}, no, \boxed{18}", r"\boxed {18}",
           r"\fbox{18}", r"\boxed{\boxed{18}}", "\\boxed{18}\n\nThat is all."),
    r"\frac{1}{2}": (r"\boxed{\frac{1}{2}}", r"so \[ \boxed{\frac{1}{2}} \]"),
    r"\{1, 2\}": (r"\boxed{\{1, 2\}}",), "": (r"\boxed{}", r"\boxed{18} \boxed{}"),
    r"\left\{1": (r"\boxed{\left\{1}",),
}  # fmt: skip
NO_BOX = ("", "18", r"\boxed18", r"\boxed 18", r"\boxed{18", r"\boxed{18\}", r"\boxed{\frac{1}{2}",
          "boxed{18}", r"\boxes{18}", r"\boxed{17} \boxed{18")  # fmt: skip


def test_the_answer_is_what_stands_between_its_tags_and_a_broken_format_has_none():
    assert {text: answer_in(text) for text in KEPT} == KEPT
    assert [text for text in BROKEN if answer_in(text) is not None] == []


@given(pieces.map("".join))
def test_the_format_is_four_tags_once_each_in_order_and_whitespace_outside(text):
    """Against a plain reading of the rule that shares no code with ours."""
    places = [text.find(tag) for tag in TAGS]
    once = all(text.count(tag) == 1 for tag in TAGS)
    expected = None
    if once and places == sorted(places):
        (think, unthink, open_, close) = places
        outside = text[:think] + text[unthink + 8 : open_] + text[close + 9 :]
        expected = None if outside.strip() else text[open_ + 8 : close]
    assert answer_in(text) == expected


def test_a_text_beyond_the_limit_has_no_answer():
    text = "<think>{}</think><answer>18</answer>"
    room = LONGEST_TEXT - len(text.format(""))
    assert answer_in(text.format("x" * room)) == "18"
    assert answer_in(text.format("x" * (room + 1))) is None


def test_a_number_as_people_write_it_is_read_and_anything_else_refused():
    for value, written in NUMBERS.items():
        assert {t: one_number(t) for t in written} == dict.fromkeys(written, Decimal(value))
        assert [text for text in written if not same_number(value, text)] == []
    assert [text[:40] for text in NO_NUMBERS if one_number(text) is not None] == []


def test_a_text_ends_in_its_last_number_or_in_that_of_its_last_mark():
    for value, texts in LAST_NUMBERS.items():
        assert {text: last_number(text) for text in texts} == dict.fromkeys(texts, value)
    assert [text[:40] for text in NO_LAST_NUMBER if last_number(text) is not None] == []


def test_a_text_ends_in_what_its_last_box_holds():
    for value, texts in LAST_BOXES.items():
        assert {text: last_box(text) for text in texts} == dict.fromkeys(texts, value)
    assert [text for text in NO_BOX if last_box(text) is not None] == []


def test_numbers_are_compared_exactly():
    many = "1" + "0" * 36
    for sign in ("", "-"):
        assert same_number(f"{sign}{many}1", f"{sign}{many}1")
        assert not same_number(f"{sign}{many}1", f"{sign}{many}2")
    assert not same_number("0.1", "0.10000000000000001")


def test_a_number_is_right_in_the_spellings_that_models_use_and_nothing_near_it():
    assert [case for case in SPELLED if not same_number(*case)] == []
    near = [(gold, answer) for gold, answers in NEAR.items() for answer in answers]
    assert [case for case in near if same_number(*case)] == []


@given(st.text() | numeric)
def test_no_text_raises_and_only_a_finite_number_comes_back(text):
    answer_in(text)
    number = one_number(text)
    assert number is None or number.is_finite()
    assert same_number(text, text) == (number is not None)
    last_box(text)
    last = last_number(text)
    assert last is None or one_number(last) is not None


def test_a_tolerance_is_a_share_of_the_gold():
    for gold, answer, tolerance, right in (
        ("3244047.0999999996", "3244047.1", 1e-6, True),
        ("3244047.0999999996", "3244047.1", 0.0, False),
        ("100", "101", 0.01, True), ("100", "101.0001", 0.01, False), ("-100", "-99", 0.01, True),
        ("100", "-100", 0.01, False), ("0", "0.000001", 0.5, False), ("0", "-0", 0.5, True),
        ("2e-6", "0.000002", 0.5, False), ("18", "eighteen", 0.5, False),
    ):  # fmt: skip
        assert same_number(gold, answer, tolerance=tolerance) == right, (gold, answer, tolerance)


HOSTILE = (
    "<think>", "<think></think>", "<think></think><answer>", "<", " ", "\n<answer>", "9", "-", "$",
    "1,", ".", "####", "####\n", "\\boxed{", "{", "\\", "1e", "}{",
)  # fmt: skip


@pytest.mark.parametrize(
    "frame", ["{}", "<think>{}</think>", "<think></think>{}<answer>1</answer>"]
)
def test_the_longest_hostile_text_takes_no_time(frame):
    for unit in HOSTILE:
        text = frame.format(unit * (LONGEST_TEXT // len(unit)))[:LONGEST_TEXT]
        start_s = time.process_time()
        answer_in(text)
        one_number(text)
        last_number(text)
        last_box(text)
        # A pattern that backtracks takes hours; a loaded machine takes 5 ms.
        assert time.process_time() - start_s < 1, unit
