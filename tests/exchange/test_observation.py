"""What an observer believes, of messages that come in any order, from anybody."""

import pytest

from potluck.exchange import Key
from potluck.exchange.protocol import signed
from potluck.exchange.protocol.announcement import Offer, encode_announcement
from potluck.exchange.protocol.signed import QUIET_S, VERIFIED_PER_S, WRONG_PER_S, encode_status
from potluck.exchange.zenoh import observer
from potluck.exchange.zenoh.observer import LOOKED_AT, Observation
from potluck.reports.status import PeerLine, StatusLine

NORTH, SOUTH, OTHER = Key.new(), Key.new(), Key.new()
SESSION, LATER = b"s" * 16, b"t" * 16


@pytest.fixture
def seen():
    return Observation("run", {"north": NORTH.public})


def nodes(seen, now_s):
    """The nodes at a time that is as far from 1970 as it is from the beginning."""
    return seen.seen(now_s, now_s)


def said(name="north", key=NORTH, *, clock_s=1.0, session=SESSION, rounds=(4, 7), run="run"):
    offers = [Offer(round, 10, bytes(16)) for round in rounds]
    return encode_announcement(
        run, name, key, offers, session=session, task=bytes(16), clock_s=clock_s
    )


def told(name="north", key=NORTH, *, time_s=1.0, session=SESSION, **fields):
    line = StatusLine(node=name, run="run", time_s=time_s, **fields)
    return encode_status(line, key, session=session)


def test_of_a_name_of_the_roster_nothing_is_known_until_its_key_signs(seen):
    assert nodes(seen, 0.0) == {"north": PeerLine()}
    seen.on_presence("north", True)
    assert nodes(seen, 0.0)["north"] == PeerLine(live=True)
    seen.hear("north", [said()], 1.0)
    seen.hear_lines("north", [told(round=5)], 1.0)
    one = nodes(seen, 3.0)["north"]
    assert (one.live, one.heard_s, one.newest_round) == (True, 1.0, 7)
    assert one.line.round == 5
    seen.on_presence("north", False)
    assert not nodes(seen, 3.0)["north"].live


def test_another_key_than_that_of_the_roster_is_dropped_and_counted(seen):
    seen.hear("north", [said(key=OTHER)], 1.0)
    seen.hear_lines("north", [told(key=OTHER)], 1.0)
    one = nodes(seen, 1.0)["north"]
    assert (one.heard_s, one.line, one.refused) == (None, None, {"forged": 2})
    assert seen.refused == {"forged": 2}


def test_a_wrong_signature_by_the_right_name_is_dropped_and_counted(seen):
    broken = bytearray(said())
    broken[10] ^= 1
    line = bytearray(told())
    line[10] ^= 1
    seen.hear("north", [bytes(broken)], 1.0)
    seen.hear_lines("north", [bytes(line)], 1.0)
    assert nodes(seen, 1.0)["north"].refused == {"forged": 2}
    assert nodes(seen, 1.0)["north"].heard_s is None


def test_a_name_that_is_in_no_roster_keeps_its_first_key(seen):
    seen.hear_lines("south", [told("south", SOUTH)], 1.0)
    seen.hear("south", [said("south", OTHER, clock_s=9.0)], 1.0)
    seen.hear_lines("south", [told("south", OTHER, time_s=9.0, round=99)], 1.0)
    one = nodes(seen, 1.0)["south"]
    assert (one.heard_s, one.newest_round, one.line.round) == (1.0, None, 0)
    assert one.refused == {"forged": 2}


def test_presence_alone_which_anybody_can_declare_shows_no_stranger(seen):
    seen.on_presence("eve", True)
    assert set(nodes(seen, 0.0)) == {"north"}


@pytest.mark.parametrize("name", ["<img src=x>", "North", "n" * 33, "", "a/b", "../x"])
def test_a_name_that_no_node_can_have_is_counted_only(seen, name):
    seen.on_presence(name, True)
    seen.hear(name, [said()], 1.0)
    seen.hear_lines(name, [told()], 1.0)
    assert set(nodes(seen, 1.0)) == {"north"}
    assert seen.refused == {"unknown sender": 2}


def test_of_another_run_or_name_nothing_is_believed(seen):
    seen.hear("north", [said(run="other"), said("south", NORTH), b"garbage"], 1.0)
    seen.hear_lines("north", [told("south", NORTH), b"garbage"], 1.0)
    assert nodes(seen, 1.0)["north"].heard_s is None
    assert seen.refused == {"other run": 1, "forged": 2, "malformed": 2}


def test_what_is_repeated_keeps_nobody_alive(seen):
    seen.hear("north", [said(clock_s=5.0)], 1.0)
    seen.hear_lines("north", [told(time_s=5.0)], 1.0)
    for later_s in (2.0, 90.0):
        seen.hear("north", [said(clock_s=4.0), said(clock_s=5.0)], later_s)
        seen.hear_lines("north", [told(time_s=4.0), told(time_s=5.0)], later_s)
    assert nodes(seen, 91.0)["north"].heard_s == 1.0


def test_a_node_that_was_started_again_with_a_clock_set_back_is_believed_after_silence(seen):
    seen.hear("north", [said(clock_s=500.0)], 1.0)
    back = said(clock_s=1.0, session=LATER, rounds=(9,))
    seen.hear("north", [back], 1.0 + QUIET_S)
    assert nodes(seen, 40.0)["north"].newest_round == 7
    seen.hear("north", [back], 2.0 + QUIET_S)
    assert nodes(seen, 40.0)["north"].newest_round == 9


def test_made_up_names_push_out_neither_the_roster_nor_those_that_are_here(monkeypatch):
    monkeypatch.setattr(observer, "MOST_NAMES", 3)
    seen = Observation("run", {"north": NORTH.public})
    seen.on_presence("south", True)
    seen.hear("south", [said("south", SOUTH)], 0.0)
    for at in range(20):
        seen.hear(f"x{at}", [said(f"x{at}", OTHER)], 1.0 + at)
    assert set(nodes(seen, 30.0)) == {"north", "south", "x18", "x19"}
    for name in ("x18", "x19"):
        seen.on_presence(name, True)
    seen.hear("x99", [said("x99", OTHER)], 40.0)
    assert "x99" not in nodes(seen, 40.0)
    assert seen.refused == {"unknown sender": 1}


def test_a_flood_costs_a_bounded_number_of_verifications(seen, monkeypatch):
    looked = []

    def verify(*_):
        looked.append(1)

    monkeypatch.setattr(signed, "verify", verify)
    for at in range(2 * VERIFIED_PER_S + 50):
        seen.hear(f"x{at}", [said(f"x{at}", OTHER)], 1.0)
    assert len(looked) == 2 * VERIFIED_PER_S
    seen.hear("y", [said("y", OTHER)], 2.0)
    assert len(looked) == 2 * VERIFIED_PER_S + 1


def test_wrong_signatures_under_one_name_leave_verifications_for_others(seen):
    broken = bytearray(said())
    broken[10] ^= 1
    for _ in range(9):
        seen.hear("north", [bytes(broken)] * LOOKED_AT, 1.0)
    assert seen.refused == {"forged": WRONG_PER_S}
    seen.hear("south", [said("south", SOUTH)], 1.0)
    assert nodes(seen, 1.0)["south"].heard_s == 1.0


def test_a_flood_of_presences_keeps_no_name_of_the_roster_away(seen, monkeypatch):
    monkeypatch.setattr(observer, "MOST_NAMES", 2)
    for at in range(9):
        seen.on_presence(f"s{at}", True)
    seen.on_presence("north", True)
    assert nodes(seen, 0.0)["north"].live
