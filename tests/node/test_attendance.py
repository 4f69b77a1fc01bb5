"""Which members a node counts on, from what came to it."""

import pytest

from nouns import completion
from potluck.exchange import Round
from potluck.node.pace.base import Attendance
from potluck.reports import AuthorReport
from potluck.schedule import ALL_UP_TO

OTHERS = ("south", "east")
TAUGHT, NOTHING = AuthorReport(success_weight=0.5), AuthorReport(success_weight=0.01)
RIGHT = {"north": AuthorReport(success_weight=1.0)}


def came(*authors, late=()):
    of = {name: completion(author=name) for name in (*authors, *late)}
    return Round(tuple(of[a] for a in authors), late={0: tuple(of[a] for a in late)})


def attendance(*rounds, members=OTHERS, patience=(1, 2), sources=RIGHT, **changes):
    one = Attendance(members, patience=patience, **changes)
    for round, authors in enumerate(rounds):
        one.note(round, came("north", *authors), sources, me="north")
    return one


def test_one_round_without_a_member_is_forgiven_and_it_is_back_when_something_comes():
    one = attendance(OTHERS, ("south",), ("south",), OTHERS, OTHERS)
    assert [one.absent(round) for round in range(7)] == [
        set(), set(), set(), {"east"}, set(), set(), set()
    ]  # fmt: skip


def test_what_comes_late_came():
    one = Attendance(OTHERS, patience=(1, 2))
    one.note(0, came("north", late=["south"]), RIGHT, me="north")
    assert one.absent(1) == {"east"}


def test_a_node_that_is_patient_needs_more_rounds_and_forgives_more():
    one = attendance((), (), OTHERS, *[()] * 4, patience=(2, 4))
    here = [one.absent(round) == frozenset() for round in range(9)]
    assert here == [True] * 2 + [False] + [True] * 4 + [False] * 2


@pytest.mark.parametrize("pattern", ["11110000", "10"])
def test_a_member_that_brings_several_rounds_at_once_is_counted_on(pattern):
    rounds = [("south", "east") if each == "1" else ("south",) for each in pattern * 5]
    one = attendance(*rounds, patience=(2, 8))
    # A pause of a length that was never seen may pass for absence, once.
    assert all(one.absent(at) == frozenset() for at in range(len(pattern) + 1, len(rounds)))


def test_a_member_that_was_never_silent_is_missed_after_two_rounds():
    one = attendance(*[OTHERS] * 10, *[("south",)] * 12, patience=(2, 8))
    assert [one.absent(at) for at in (11, 12, 21)] == [frozenset(), {"east"}, {"east"}]


def test_what_a_node_has_begun_to_write_by_stays_what_it_reads_by():
    one = attendance(OTHERS, OTHERS)
    assert one.absent(4) == frozenset()
    for round in (2, 3):
        one.note(round, came("north"), RIGHT, me="north")
    assert (one.absent(4), one.absent(5)) == (frozenset(), {*OTHERS})


def test_rounds_that_this_node_left_out_say_nothing():
    one = attendance(OTHERS)
    assert one.absent(20) == frozenset()
    one.note(20, came("north", "south"), RIGHT, me="north")
    assert one.absent(21) == {"east"}


@pytest.mark.parametrize("weight", [None, NOTHING])
def test_untrusted_texts_of_no_use_are_as_none(weight):
    sources = RIGHT | {"south": TAUGHT} | ({"east": weight} if weight else {})
    nobody = attendance(OTHERS, sources=sources, trusts=lambda author: False)
    assert nobody.absent(1) == {"east"}
    assert attendance(OTHERS, sources=sources).absent(1) == frozenset(), "trusted, it is here"


def test_a_node_that_solves_nothing_cannot_tell_whose_texts_are_of_use():
    one = attendance(OTHERS, sources={}, trusts=lambda author: False)
    assert one.absent(1) == frozenset()


def test_lines_of_metrics_bring_the_same_back():
    one = Attendance(OTHERS, patience=(1, 2))
    heard = [one.note(at, came(*names), RIGHT, me="north") for at, names in enumerate([OTHERS, ()])]
    lines = [{"round": at, "heard": list(names)} for at, names in enumerate(heard)]
    again = Attendance(
        OTHERS, patience=(1, 2), lines=[*lines, {"round": 2}, {"round": 3, "heard": None}]
    )
    assert heard == [("east", "south"), ()]
    for round in range(8):
        assert again.absent(round) == one.absent(round)


def test_where_a_node_does_not_fetch_from_all_nobody_is_absent():
    many = [f"node-{at}" for at in range(ALL_UP_TO)]
    assert attendance((), members=many).absent(1) == frozenset()
    assert attendance((), members=many[1:]).absent(1) == {*many[1:]}
