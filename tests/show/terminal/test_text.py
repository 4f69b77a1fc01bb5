import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from potluck.files import INVISIBLE, printable
from potluck.show.terminal.text import decimal, duration, label, percent, sparkline
from show.terminal.run_folders import STEERS


@given(st.text(st.characters(codec=None), max_size=300), st.integers(1, 250))
def test_no_text_keeps_a_character_that_steers_and_none_passes_the_limit(text, limit):
    shown = printable(text, limit)
    assert len(shown) <= limit
    assert not {unicodedata.category(character) for character in shown} & INVISIBLE


def test_what_steers_is_removed_line_ends_are_drawn_and_tabs_are_spaces():
    assert printable("b".join(STEERS.replace("\r", "") + "\u2066\ufeff\ud800\u2028\xad")) == 9 * "b"
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


def test_a_number_that_rounds_to_0_has_no_sign_and_none_is_a_dash():
    assert [decimal(-0.0001), decimal(None), percent(0.204)] == ["0.000", "-", "20%"]
    assert [label(name) for name in ("f-tis", "mine.py:weight")] == ["F-TIS", "mine.py:weight"]


def test_a_time_is_told_in_the_unit_that_people_take():
    told = [duration(seconds) for seconds in (0.4, 89, 90, 1560, 5399, 9000)]
    assert told == ["0 s", "89 s", "2 min", "26 min", "90 min", "2.5 h"]
