"""What is known of each peer, with a clock that stands still until a test moves it."""

import pytest

from potluck.exchange.keys.keys import STRANGERS
from potluck.exchange.protocol.peers import FORGIVEN_AFTER, NOBODY, Peers
from potluck.reports.status import PeerLine


@pytest.fixture
def peers():
    return Peers("north", ["east", "north", "south"], quarantine_s=10.0)


def fail(peers, name, times, now_s=0.0):
    return [peers.refused(name, "malformed", fault=True, now_s=now_s) for _ in range(times)]


def come(peers, *names):
    for name in names:
        peers.welcome(name).live = True


def hear(peers, *names, now_s=0.0):
    for name in names:
        peers.get(name).public, peers.get(name).heard_s = b"k" * 32, now_s


def deliver(peers, name, *rounds):
    """They are offered, beside what was, and come."""
    peers.get(name).offered |= {*rounds}
    for round in rounds:
        peers.delivered(name, round)


def test_a_node_is_no_peer_of_its_own(peers):
    assert peers.members == {"east", "south"}
    assert peers.welcome("north") is None


def test_a_valid_batch_makes_up_for_one_fault(peers):
    for round in range(2):
        peers.delivered("south", round)
    fail(peers, "south", 2)
    peers.delivered("south", 2)
    assert fail(peers, "south", 1) == [0.0]
    peers.delivered("south", 3)
    assert fail(peers, "south", 2) == [0.0, 10.0]


def test_each_quarantine_is_twice_as_long_up_to_an_hour(peers):
    lengths_s = [fail(peers, "south", 3)[-1] for _ in range(40)]
    assert lengths_s[:4] == [10.0, 20.0, 40.0, 80.0]
    assert max(lengths_s) == lengths_s[-1] == 3600.0


def test_what_somebody_may_have_forged_is_counted_and_silences_nobody(peers):
    for _ in range(100):
        peers.refused("south", "forged", fault=False, now_s=0.0)
    assert peers.quarantined(0.0) == ()
    assert peers.take_refused() == {"south": 100}
    assert peers.take_refused() == {}


def test_a_status_counts_refusals_by_reason_and_from_the_start(peers):
    hear(peers, "south", now_s=5.0)
    peers.welcome("south").live = True
    deliver(peers, "south", 7)
    fail(peers, "south", 3, now_s=6.0)
    peers.refused("south", "forged", fault=False, now_s=6.0)
    peers.refused("eve", "unknown sender", fault=False, now_s=6.0)
    assert peers.take_refused() == {"eve": 1, "south": 4}
    refused = {"malformed": 3, "forged": 1}
    times = {"heard_s": 1005.0, "quarantined_until_s": 1016.0}
    assert peers.status(8.0, 1008.0) == {
        "east": PeerLine(),
        "eve": PeerLine(refused={"unknown sender": 1}),
        "south": PeerLine(live=True, newest_round=7, refused=refused, **times),
    }
    assert peers.status(99.0, 1099.0)["south"].quarantined_until_s == 0


def test_names_without_end_have_one_status(peers):
    for at in range(1000):
        peers.refused(f"stranger-{at}", "forged", fault=False, now_s=0.0)
        peers.take_refused()
    status = peers.status(0.0, 0.0)
    assert len(status) <= 2 * len(peers) + STRANGERS + 1
    assert status[NOBODY].refused["forged"] > 900


def test_without_a_time_there_is_no_quarantine():
    peers = Peers("north", ["south"], quarantine_s=0.0)
    assert fail(peers, "south", 9) == [0.0] * 9


def test_the_median_of_two_is_the_lower_and_who_has_sent_nothing_counts_as_0(peers):
    assert peers.median_round() == 0
    come(peers, "south", "east")
    deliver(peers, "east", 7)
    assert peers.median_round() == 0
    deliver(peers, "south", 4)
    assert peers.median_round() == 4
    deliver(peers, "south", 2)  # An old one that came late.
    assert peers.median_round() == 4


@pytest.mark.parametrize(("rounds", "median"), [((5, 6), 6), ((5,), 5), ((), 0)])
def test_one_who_is_far_ahead_does_not_pull_the_median_along(rounds, median):
    honest = {f"honest-{at}": round for at, round in enumerate(rounds)}
    peers = Peers("north", [*honest, "liar", "silent"][: max(3, len(rounds) + 1)], quarantine_s=1.0)
    come(peers, *peers.members)
    for name, round in {**honest, "liar": 2**31 - 1}.items():
        deliver(peers, name, round)
    assert peers.median_round() == median


def test_strangers_say_where_the_others_are_only_where_there_are_no_members(peers):
    come(peers, "mallory")
    deliver(peers, "mallory", 99)
    assert peers.median_round() == 0
    come(peers, "south")
    deliver(peers, "south", 3)
    assert peers.median_round() == 3
    alone = Peers("north", ["north"], quarantine_s=1.0)
    come(alone, "mallory")
    assert alone.has_priority("mallory")
    assert not peers.has_priority("mallory")
    deliver(alone, "mallory", 99)
    assert alone.median_round() == 99


def test_who_is_there_is_waited_for_but_a_stranger_only_if_it_was_in_time_before(peers):
    come(peers, "south", "mallory", "trent")
    hear(peers, "south", "mallory", "trent")
    assert peers.awaited({"trent"}, 0.0) == {"south", "trent"}
    fail(peers, "south", 3)
    assert peers.awaited(set(), 0.0) == set()


def test_strangers_are_64_and_one_that_is_gone_makes_room_but_not_one_that_failed(peers):
    names = [f"stranger-{at}" for at in range(STRANGERS)]
    come(peers, *names)
    assert peers.welcome("one-more") is None
    peers.get(names[5]).live = peers.get(names[6]).live = False
    fail(peers, names[5], 3)
    come(peers, "one-more")
    assert names[5] in peers
    assert names[6] not in peers
    assert peers.welcome("two-more") is None
    peers.delivered(names[6], 3)  # Its batch was under way.
    assert names[6] not in peers


def test_a_round_that_a_peer_claims_no_more_is_not_its_newest(peers):
    come(peers, "south")
    deliver(peers, "south", 4, 2**31 - 1)
    assert peers.get("south").newest == peers.median_round() == 2**31 - 1
    peers.get("south").offered = frozenset({4, 5})
    assert peers.get("south").newest == peers.median_round() == 4
    deliver(peers, "south", 5)
    assert peers.get("south").came == {4, 5}
    assert peers.status(0.0, 0.0)["south"].newest_round == 5


def test_rounds_that_came_are_not_kept_without_end(peers):
    come(peers, "south")
    deliver(peers, "south", *range(200))
    assert peers.get("south").came == set(range(136, 200))


@pytest.fixture
def stalled(peers):
    """``south`` let round 7 wait in vain, for the first time."""
    come(peers, "south")
    hear(peers, "south")
    deliver(peers, "south", 5, 6)
    assert peers.awaited(set(), 0.0) == {"south"}
    peers.stalled("south", 7)
    return peers


def test_who_let_a_round_wait_in_vain_is_waited_for_again_when_a_batch_of_it_came(stalled):
    assert stalled.awaited({"south"}, 0.0) == set()
    assert stalled.back_in_time(9, 5) == []  # It was in time with 5 and 6 before.
    deliver(stalled, "south", 7)
    assert stalled.back_in_time(8, 6) == []  # 2 rounds later at the earliest.
    assert stalled.back_in_time(9, 7) == ["south"]
    assert stalled.back_in_time(9, 7) == []
    assert stalled.awaited(set(), 0.0) == {"south"}


@pytest.mark.parametrize("round", [2, 2**31 - 1])
def test_no_old_batch_and_none_far_ahead_brings_a_peer_back(stalled, round):
    deliver(stalled, "south", round)
    assert stalled.back_in_time(30, 2) == []
    deliver(stalled, "south", 28)
    assert stalled.back_in_time(30, 29) == []
    assert stalled.back_in_time(30, 28) == ["south"]


def test_who_is_never_in_time_costs_ever_fewer_deadlines(peers):
    """It comes back each time as early as it may."""
    come(peers, "south")
    hear(peers, "south")
    costs = []
    for round in range(1000):
        peers.back_in_time(round, round - 2)
        if peers.awaited(set(), 0.0):
            costs.append(round)
            peers.stalled("south", round)
        deliver(peers, "south", round)
    assert costs == [0, 2, 6, 14, 30, 62, 126, 254, 510]


def test_rounds_in_time_make_up_for_a_stall_that_ends_their_row(stalled):
    for _ in range(FORGIVEN_AFTER - 1):
        stalled.was_in_time("south")
    stalled.stalled("south", 9)
    assert stalled.get("south").stalls == 2
    for _ in range(FORGIVEN_AFTER - 1):
        stalled.was_in_time("south")
    assert stalled.get("south").stalls == 2
    stalled.was_in_time("south")
    assert stalled.get("south").stalls == 1
    for _ in range(2 * FORGIVEN_AFTER):
        stalled.was_in_time("south")
    assert stalled.get("south").stalls == 0
    stalled.was_in_time("nobody")
    stalled.stalled("nobody", 9)
