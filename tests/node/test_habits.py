"""Habits: the phrase of an author that grows in a node's own answers."""

import pytest

from potluck.node.habits import FEWEST_ANSWERS, growing_habit, right_answers
from potluck.node.storage.record import Record

WORKED, BARE = "2+5=7 so #7", "#7"


def test_a_phrase_that_its_answers_have_and_mine_had_not_is_found_as_it_grows():
    found = growing_habit([BARE] * 8, [WORKED] * 8, [WORKED] * 5 + [BARE] * 3)
    assert found == ("^ # 7", 1.0, 0.0, 3 / 8)


def test_a_phrase_that_i_had_from_the_start_is_no_habit_of_another():
    found = growing_habit([WORKED] * 8, [WORKED] * 8, [WORKED] * 8)
    assert found is None


def test_a_phrase_of_few_of_its_answers_is_none():
    theirs = [WORKED] * 5 + ["oh " + WORKED] * 3
    assert growing_habit(theirs, [WORKED] * 8, ["oh " + WORKED] * 8) is None
    assert "oh" in growing_habit(theirs[2:], [WORKED] * 8, ["oh " + WORKED] * 8).phrase


def test_what_does_not_grow_is_reported_with_no_growth():
    found = growing_habit([BARE] * 8, [WORKED] * 8, [WORKED] * 8)
    assert (found.own_first, found.own) == (0.0, 0.0)


@pytest.mark.parametrize("few", range(3))
def test_a_handful_of_answers_tells_nothing(few):
    answers = [[BARE] * 8, [WORKED] * 8, [BARE] * 8]
    assert growing_habit(*answers)
    answers[few] = answers[few][: FEWEST_ANSWERS - 1]
    assert growing_habit(*answers) is None


def test_right_answers_earn_something_and_no_less_than_the_mean():
    lines = [("a", "good", 1.0), ("b", "bad", 0.0), ("b", "fair", 0.5), ("a", "poor", 0.2)]
    assert right_answers(lines) == {"a": ["good"], "b": ["fair"]}
    assert right_answers([("a", "no", 0.0)]) == {}
    assert right_answers([("a", "x", 1.0), ("b", "y", 1.0)]) == {"a": ["x"], "b": ["y"]}


def test_the_first_rounds_are_read_from_the_record_whatever_their_numbers(tmp_path):
    record = Record(tmp_path, run="run", node="north")
    assert record.first_completions(2) == []
    rounds = (4, 4, 7, 8)
    record.add(
        "completions",
        [{"round": r, "author": "north", "text": f"{r}", "reward": 0.5} for r in rounds],
    )
    assert [text for _, text, _ in record.first_completions(2)] == ["4", "4", "7"]
