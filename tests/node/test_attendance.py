"""What a node believes of others: which members are here, and how far they can have come."""

import pytest

from nouns import completion
from potluck.exchange import Round
from potluck.node.pace.base import Attendance
from potluck.node.pace.together import FASTER, SHORTEST_ROUND_S, RoundBound
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


def test_a_member_is_missed_after_twice_its_longest_gap_and_not_after_once():
    heard = [("south", "east") if at % 3 == 0 else ("south",) for at in range(10)]
    one = attendance(*heard, *[("south",)] * 8, patience=(2, 20))
    # It came last in round 9, and every third round before.
    assert [at for at in range(10, 18) if one.absent(at)] == [16, 17]


def test_what_a_node_has_begun_to_write_by_stays_what_it_reads_by():
    one = attendance(OTHERS, OTHERS)
    assert one.absent(4) == frozenset()
    for round in (2, 3):
        one.note(round, came("north"), RIGHT, me="north")
    assert (one.absent(4), one.absent(5)) == (frozenset(), {*OTHERS})


def test_rounds_that_this_node_left_out_say_nothing_and_what_comes_late_came():
    one = attendance(OTHERS)
    assert one.absent(20) == frozenset()
    one.note(20, came("north", late=["south"]), RIGHT, me="north")
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
    lines += [{"round": 2}, {"round": 3, "heard": None}]
    again = Attendance(OTHERS, patience=(1, 2), lines=lines)
    assert heard == [("east", "south"), ()]
    for round in range(8):
        assert again.absent(round) == one.absent(round)


def test_where_a_node_does_not_fetch_from_all_nobody_is_absent():
    many = [f"node-{at}" for at in range(ALL_UP_TO)]
    assert attendance((), members=many).absent(1) == frozenset()
    assert attendance((), members=many[1:]).absent(1) == {*many[1:]}


# How far others can have come.


def test_a_node_that_was_never_in_step_believes_each_round_of_the_run_and_none_after_it():
    assert RoundBound(last=499).furthest(0.0, []) == 499
    assert RoundBound(last=499).furthest(1e9, [2.0]) == 499


def test_the_bound_is_one_round_and_four_for_each_of_its_own_that_would_have_fitted():
    pace = RoundBound(last=10_000, round=20, in_step_s=1000.0)
    assert FASTER == 4
    assert pace.furthest(1000.0, [2.0]) == 21
    assert pace.furthest(1000.4, [2.0]) == 21
    assert pace.furthest(1000.5, [2.0]) == 22
    assert pace.furthest(1010.0, [2.0]) == 41
    assert pace.furthest(1e12, [2.0]) == 10_000


def test_a_few_odd_rounds_do_not_move_the_bound():
    pace = RoundBound(last=10_000, round=0, in_step_s=0.0)
    plain = pace.furthest(10.0, [2.0] * 5)
    assert pace.furthest(10.0, [0.0, 2.0, 2.0, 2.0, 600.0]) == plain == 21
    assert pace.furthest(10.0, [1.0] * 5) == 41


@pytest.mark.parametrize("own_s", [[], [0.0], [SHORTEST_ROUND_S]])
def test_no_round_is_believed_to_be_shorter_than_one_can_be(own_s):
    pace = RoundBound(last=10_000, round=0, in_step_s=0.0)
    assert pace.furthest(10.0, own_s) == 1 + int(10 / SHORTEST_ROUND_S)


def test_after_a_clock_was_set_back_others_are_one_round_ahead_at_most():
    assert RoundBound(last=99, round=7, in_step_s=1000.0).furthest(10.0, [2.0]) == 8


@pytest.mark.parametrize("ahead", [50, 300])
def test_a_healthy_majority_that_is_not_believed_will_be(ahead):
    """Both sides of a partition went on; all nodes take 2 s a round."""
    pace = RoundBound(last=10_000, round=100, in_step_s=0.0)
    lived = next(
        lived for lived in range(1000) if 100 + ahead + lived <= pace.furthest(lived * 2.0, [2.0])
    )
    assert ahead / 4 < lived <= ahead / (FASTER - 1) + 1
