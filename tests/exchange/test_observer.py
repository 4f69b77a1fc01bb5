"""What an observer believes, of messages that come in any order, from anybody; and an observer of
real nodes: through a relay, and with certificates."""

import time
from collections import Counter
from contextlib import ExitStack

import pytest

from potluck.exchange import Key
from potluck.exchange.protocol import believed
from potluck.exchange.protocol.believed import VERIFIED_PER_S, WRONG_PER_S
from potluck.exchange.protocol.signed import Offer, encode_announcement, encode_status
from potluck.exchange.zenoh import exchange, observer
from potluck.exchange.zenoh.observer import LOOKED_AT, Sightings, observe
from potluck.exchange.zenoh.session import Endpoints, Tls, open_router, open_session
from potluck.reports.status import PeerLine, StatusLine
from town import certify, free_endpoint, live, town, until

NAMES = ("north", "south")
NORTH, SOUTH, OTHER = Key.new(), Key.new(), Key.new()
SESSION, LATER = b"s" * 16, b"t" * 16


@pytest.fixture
def seen():
    return Sightings("run", {"north": NORTH.public})


def nodes(seen, now_s):
    """The nodes at a time that is as far from 1970 as it is from the beginning."""
    return seen.seen(now_s, now_s)


def refused(seen):
    """Counts of the messages that were not believed, under whatever name."""
    lines = seen._peers.status(0.0, 0.0).values()
    return dict(sum((Counter(line.refused) for line in lines), Counter()))


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
    assert refused(seen) == {"forged": 2}


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


@pytest.mark.parametrize("name", ["<img src=x>", ""])
def test_a_name_that_no_node_can_have_is_counted_only(seen, name):
    seen.on_presence(name, True)
    seen.hear(name, [said()], 1.0)
    seen.hear_lines(name, [told()], 1.0)
    assert set(nodes(seen, 1.0)) == {"north"}
    assert refused(seen) == {"unknown sender": 2}


def test_an_announcement_with_malformed_offers_is_not_believed(seen):
    seen.hear("north", [said(clock_s=1.0), said(clock_s=2.0, rounds=(2**31,))], 1.0)
    assert nodes(seen, 1.0)["north"].newest_round == 7
    assert refused(seen) == {"malformed": 1}


def test_made_up_names_push_out_neither_the_roster_nor_those_that_are_here(monkeypatch):
    monkeypatch.setattr(observer, "MOST_NAMES", 3)
    seen = Sightings("run", {"north": NORTH.public})
    seen.on_presence("south", True)
    seen.hear("south", [said("south", SOUTH)], 0.0)
    for at in range(20):
        seen.hear(f"x{at}", [said(f"x{at}", OTHER)], 1.0 + at)
    assert set(nodes(seen, 30.0)) == {"north", "south", "x18", "x19"}
    for name in ("x18", "x19"):
        seen.on_presence(name, True)
    seen.hear("x99", [said("x99", OTHER)], 40.0)
    assert "x99" not in nodes(seen, 40.0)
    assert refused(seen) == {"unknown sender": 1}


def test_a_flood_under_many_names_costs_a_bounded_number_of_verifications(seen, monkeypatch):
    looked = []
    monkeypatch.setattr(believed, "verify", lambda *_: looked.append(1))
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
    assert refused(seen) == {"forged": WRONG_PER_S}
    seen.hear("south", [said("south", SOUTH)], 1.0)
    assert nodes(seen, 1.0)["south"].heard_s == 1.0


def test_a_flood_of_presences_keeps_no_name_of_the_roster_away(seen, monkeypatch):
    monkeypatch.setattr(observer, "MOST_NAMES", 2)
    for at in range(9):
        seen.on_presence(f"s{at}", True)
    seen.on_presence("north", True)
    assert nodes(seen, 0.0)["north"].live


# Real nodes.


@pytest.fixture
def stack(monkeypatch):
    monkeypatch.setattr(exchange, "LINE_PAUSE_S", 0.0)
    with ExitStack() as stack:
        yield stack


def tell(place, nodes, **changes):
    for name, node in nodes.items():
        node.tell(StatusLine(node=name, run=place.run, time_s=time.time(), **changes))


def meet(place, nodes, watcher):
    """All nodes see each other, and the observer sees a line of each."""
    for name, node in nodes.items():
        until(lambda node=node, name=name: live(node) == {*NAMES} - {name}, "the nodes meet")

    def all_told():
        tell(place, nodes, round=3)
        seen = watcher.seen()
        return all((its := seen.get(n)) and its.live and its.line for n in NAMES)

    until(all_told, "all have told their status")


def test_an_observer_sees_a_relay_and_nodes_with_certificates_and_nobody_sees_it(stack, tmp_path):
    certify(tmp_path / "ours", *NAMES, "relay", "watcher")
    endpoint = free_endpoint().replace("tcp", "tls")

    def line(name):
        tls = Tls(tmp_path / "ours", name, (*NAMES, "watcher"))
        return Endpoints(connect=(endpoint,), tls=tls)

    keys = {"north": NORTH.public}
    watcher = stack.enter_context(observe(line("watcher"), "run-of-relay", keys))
    assert not watcher.is_connected()
    stack.enter_context(open_router(Endpoints((endpoint,), (), line("relay").tls)))
    sessions = [stack.enter_context(open_session(line(name), run="*")) for name in NAMES]
    place = stack.enter_context(town(tmp_path, sessions[::-1], *NAMES))
    place.run, place.keys = "run-of-relay", {"north": NORTH}
    nodes = {name: place.node(name) for name in NAMES}
    meet(place, nodes, watcher)
    nodes["south"].send(5, [])
    until(lambda: watcher.seen()["south"].newest_round == 5, "its round is seen")
    seen = watcher.seen()
    assert (set(seen), watcher.roster) == (set(NAMES), {"north"})
    assert seen["north"].line.round == 3
    assert watcher.is_connected()
    assert not any(one.refused for one in seen.values())
    for name, node in nodes.items():
        assert set(node.status().peers) == {*NAMES} - {name}
    nodes["south"].close()
    until(lambda: not watcher.seen()["south"].live, "it is seen to leave")
