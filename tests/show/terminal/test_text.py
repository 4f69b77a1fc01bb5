import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.files import INVISIBLE, printable
from potluck.show.terminal.text import decimal, duration, percent, sparkline, time_bar
from show.terminal.run_folders import STEERS


@given(st.text(st.characters(codec=None), max_size=300), st.integers(1, 250))
def test_no_text_keeps_a_character_that_steers_and_none_passes_the_limit(text, limit):
    shown = printable(text, limit)
    assert len(shown) <= limit
    assert not {unicodedata.category(character) for character in shown} & INVISIBLE


@pytest.mark.parametrize(
    "character", STEERS.replace("\r", "") + "\u2066\u200f\ufeff\ud800\u2028\xad"
)
def test_a_character_that_steers_is_removed_and_its_neighbours_stay(character):
    assert printable(f"a{character}b") == "ab"


def test_line_ends_are_drawn_and_tabs_are_spaces():
    assert printable("a\nb\r\nc\td\re") == "a⏎b⏎c d⏎e"


def test_a_text_of_exactly_the_limit_is_whole_and_one_longer_is_cut():
    assert printable("x" * 200) == "x" * 200
    assert printable("x" * 201) == "x" * 199 + "…"


def test_a_sparkline_is_from_0_to_1_whatever_the_curve():
    assert sparkline([0.5, 0.5]) == "▅▅"
    assert sparkline([-1.0, 0.0, 1.0, 2.0]) == "▁▁██"


def test_a_long_sparkline_keeps_its_first_and_its_last_value():
    line = sparkline([0.0] + [0.5] * 98 + [1.0], width=10)
    assert len(line) == 10
    assert (line[0], line[-1]) == ("▁", "█")


def test_a_small_negative_number_is_not_minus_zero():
    assert decimal(-0.0001, 2) == "0.00"
    assert percent(-0.001) == "0%"


def test_a_bar_of_time_is_as_wide_as_asked_whatever_the_shares():
    for write_s in (0.0, 0.1, 1 / 3, 7.0):
        seconds = {"write": write_s, "learn": 1 / 3, "wait": 1 / 3, "exchange": 0.01}
        assert len(time_bar(seconds, width=10)) == 10
    assert time_bar({}).plain == ""


def test_a_time_is_told_in_the_unit_that_people_take():
    told = [duration(seconds) for seconds in (0.4, 89, 90, 1560, 5399, 9000)]
    assert told == ["0 s", "89 s", "2 min", "26 min", "90 min", "2.5 h"]
