"""Habits: the phrase of an author that grows in a node's own answers."""

import pytest

from potluck.replay.habits import (
    FEWEST_ANSWERS,
    answers_by_author,
    growing_habit,
    habits_by_round,
)

WORKED, BARE = ("2+5=7 so #7", True), ("#7", True)
WRONG, UNDONE = ("#9", False), ("2+5=7", False)


def test_a_phrase_of_its_right_answers_is_found_as_it_grows_though_mine_are_wrong_with_it():
    found = growing_habit([BARE] * 8, [WORKED] * 8, [WORKED] * 5 + [WRONG] * 3)
    assert found == ("^ #", 1.0, 0.0, 3 / 8)


def test_what_belongs_to_any_right_answer_is_no_habit_though_it_grows():
    """At first half of the answers stopped before the result."""
    first = [WORKED] * 4 + [UNDONE] * 4
    assert growing_habit([WORKED] * 8, first, [WORKED] * 8) is None


def test_what_its_wrong_answers_have_is_not_looked_at():
    assert growing_habit([WORKED] * 8 + [WRONG] * 9, [WORKED] * 8, [WRONG] * 8) is None


def test_a_phrase_of_few_of_its_answers_is_none():
    odd = "oh " + WORKED[0], True
    theirs = [WORKED] * 5 + [odd] * 3
    assert growing_habit(theirs, [WORKED] * 8, [odd] * 8) is None
    assert "oh" in growing_habit(theirs[2:], [WORKED] * 8, [odd] * 8).phrase


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
    assert answers_by_author(lines) == {
        "a": [("good", True), ("poor", False)],
        "b": [("bad", False), ("fair", True)],
    }
    assert answers_by_author([("a", "no", 0.0)]) == {"a": [("no", False)]}
    assert answers_by_author([("a", "x", 1.0)]) == {"a": [("x", True)]}


def test_the_first_rounds_are_those_that_come_first_whatever_their_numbers():
    def lines(round, author, text):
        its = {"round": round, "author": author, "text": text, "reward": 1.0}
        return [its] * FEWEST_ANSWERS

    told = [
        *(line for round in (4, 7, 8) for line in lines(round, "north", "a b")),
        *lines(9, "north", "#7"),
        *lines(9, "south", "#7"),
    ]
    found = habits_by_round(told, "north")
    assert [*found] == [4, 7, 8, 9]
    assert found[9] == {"south": ("^ # 7", 1.0, 0.0, 1.0)}
    assert not any(found[round] for round in (4, 7, 8))
