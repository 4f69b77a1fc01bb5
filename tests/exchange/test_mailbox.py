"""What is waited for, what is fetched and what is kept, with a clock that a test moves."""

import itertools

import pytest

from nouns import completion
from potluck.exchange import WireError
from potluck.exchange.base import Delivery
from potluck.exchange.protocol.fetch_queue import FetchQueue
from potluck.exchange.protocol.mailbox import AT_THE_DOOR, MOST_NEWS
from potluck.exchange.protocol.peers import HEARD_S, Peers
from potluck.exchange.protocol.rules import InStep
from potluck.exchange.protocol.signed import Announcement, Offer

KEPT_ROUNDS, MAX_STALENESS = 4, 1
CLOCK = itertools.count(1.0)


def texts(box):
    return [news.text for news in box.drain_news()]


def make(members=("east", "south"), partners=lambda round, names: names, quarantine_s=10.0):
    peers = Peers("north", members, quarantine_s=quarantine_s)
    return InStep(MAX_STALENESS, KEPT_ROUNDS).mailbox(peers, FetchQueue("north"), partners, 1000)


@pytest.fixture
def box():
    return make()


def offer(round, size_bytes=10, mark=b"d"):
    return Offer(round, size_bytes, mark * 16)


def announcement(author, *offers, session=b"s" * 16, clock_s=None):
    """Each is later than the one before."""
    packed = b"".join(
        o.round.to_bytes(4, "little") + o.size_bytes.to_bytes(4, "little") + o.digest
        for o in offers
    )
    clock_s = next(CLOCK) if clock_s is None else clock_s
    return Announcement(2, "run", author, b"k" * 32, session, b"t" * 16, clock_s, packed)


def hear(box, author, *rounds, now_s=0.0, mark=b"d"):
    offers = tuple(offer(round, mark=mark) for round in rounds)
    box.confirm(announcement(author, *offers), now_s)


def fetch(box, now_s=100.0):
    """Everything that is wanted comes; returns what it was, in its order."""
    came = []
    while (errand := box.fetch_queue.take(now_s)) is not None:
        came.append((errand.author, errand.offer.round))
        deliver(box, *came[-1], errand.offer)
    return came


def deliver(box, author, round, its=None):
    completions = (completion(author=author),)
    box.deliver(Delivery(author, round, b"sealed", completions), its or offer(round))


def take(box, round):
    return box.receive(round, 0.0, waited=False).batches


def come(box, *names, now_s=0.0):
    """They are there, and say that they have nothing yet."""
    for name in names:
        box.on_join(name)
        hear(box, name, now_s=now_s)


def test_who_is_here_when_a_round_begins_is_waited_for(box):
    come(box, "south")
    box.begin(0, 0.0)
    come(box, "east")
    assert box.arrivals(0, 0.0) == (set(), {"south"})
    deliver(box, "south", 0)
    assert box.arrivals(0, 0.0) == ({"south"}, {"south"})
    assert box.missing(0, 0.0) == {"east"}
    deliver(box, "east", 0)
    assert box.missing(0, 0.0) == set()


def test_who_is_quarantined_in_the_middle_of_a_round_is_waited_for_no_longer(box):
    come(box, "south")
    box.begin(0, 0.0)
    for _ in range(3):
        box.refuse("south", WireError("bad"), 0.0, fault=True)
    assert box.arrivals(0, 1.0)[1] == set()
    assert box.missing(0, 1.0) == {"east", "south"}
    assert box.peers.is_quarantined("south", 9.9)
    assert not box.peers.is_quarantined("south", 10.0)


def test_a_stranger_is_waited_for_when_it_sent_the_round_before():
    box = make(members=("south",))
    come(box, "mallory", "south")
    hear(box, "mallory", 0)
    box.begin(0, 0.0)
    assert box.arrivals(0, 0.0)[1] == {"south"}
    assert fetch(box) == [("mallory", 0)]
    take(box, 0)
    box.begin(1, 0.0)
    assert box.arrivals(1, 0.0)[1] == {"mallory", "south"}
    assert box.missing(1, 0.0) == {"mallory", "south"}
    take(box, 1)
    box.begin(2, 0.0)
    assert box.arrivals(2, 0.0)[1] == {"south"}
    assert texts(box) == ["'mallory' joined", "'south' joined"]


def miss(box, *rounds):
    """Rounds that end at their deadline; returns those that waited for somebody."""
    waited = []
    for round in rounds:
        box.begin(round, 0.0)
        here, awaited = box.arrivals(round, 0.0)
        waited += [round] * (here != awaited)
        box.receive(round, 0.0, waited=True)
    return waited


NOT_IN_TIME = "'south' was not in time in round 1: it is not waited for until it is"


@pytest.mark.parametrize("offers", [True, False])
def test_a_member_that_sends_nothing_costs_one_deadline_and_stays_missing(box, offers):
    come(box, "south")
    assert miss(box, 0) == [0]
    for round in range(1, 50):
        hear(box, "south", *[round] * offers, now_s=round / 100)
        assert miss(box, round) == []
        assert box.missing(round, 0.0) == {"east", "south"}
    assert texts(box) == ["'south' joined", NOT_IN_TIME]


def test_who_was_held_up_once_is_waited_for_again_though_its_batches_are_a_little_late(box):
    """Two nodes as fast as each other: the one that went on is always a little ahead."""
    come(box, "south")
    assert miss(box, 0) == [0]
    waited = []
    for round in range(1, 6):
        hear(box, "south", round - 1)
        fetch(box)
        box.begin(round, 0.0)
        if box.arrivals(round, 0.0)[1]:  # So it is not late any more.
            waited.append(round)
            hear(box, "south", round)
            fetch(box)
        assert miss(box, round) == []
    assert waited == [2, 3, 4, 5]
    again = "'south' is waited for again"
    assert texts(box) == ["'south' joined", NOT_IN_TIME, again]


def test_presence_that_anybody_can_declare_makes_no_round_last(box):
    box.on_join("south")
    box.begin(0, 0.0)
    assert box.arrivals(0, 0.0)[1] == set()
    hear(box, "south", now_s=1.0)
    box.begin(1, 1.0)
    assert box.arrivals(1, 1.0)[1] == {"south"}
    box.begin(2, 1.1 + HEARD_S)
    assert box.arrivals(2, 1.1 + HEARD_S)[1] == set()


def test_an_announcement_that_was_held_back_keeps_nobody_alive(box):
    """Somebody on the line has kept one that south made 9 s after it was asked."""
    box.on_join("south")
    box.confirm(announcement("south", clock_s=1000.0), 1.0)
    late = announcement("south", clock_s=1009.0)
    box.on_announcement(late, 500.0)
    assert box.peers.get("south").heard_s == 10.0
    box.begin(0, 500.0)
    assert box.arrivals(0, 500.0)[1] == set()


def test_who_left_a_round_out_is_no_longer_waited_for(box):
    come(box, "east", "south")
    for round in (5, 6):
        box.begin(round, 0.0)
    hear(box, "south", 4)
    hear(box, "east", 5, 6)
    assert box.arrivals(5, 0.0)[1] == {"east", "south"}
    hear(box, "south", 4, 6)
    assert box.arrivals(5, 0.0)[1] == {"east"}
    assert box.missing(5, 0.0) == {"east", "south"}
    assert box.arrivals(6, 0.0)[1] == {"east", "south"}
    box.fetch_queue.settle("south", offer(6), valid=False)
    hear(box, "south", 6, 7)
    assert box.arrivals(6, 0.0)[1] == {"east", "south"}  # It may have a better one.
    errand = box.fetch_queue.take(0.0)
    while errand.offer.round != 5:
        errand = box.fetch_queue.take(0.0)
    hear(box, "east", 6)
    assert box.arrivals(5, 0.0)[1] == {"east"}  # It may still come.
    deliver(box, "east", 5)
    assert box.arrivals(5, 0.0) == ({"east"}, {"east"})


def test_who_is_waited_for_is_fetched_from_though_others_are_partners_by_now():
    box = make(partners=lambda round, names: {min(names, default="")})
    come(box, "south")
    box.begin(0, 0.0)
    come(box, "east")
    hear(box, "south", 0, 1)
    assert fetch(box) == [("south", 0)]
    assert box.arrivals(0, 0.0) == ({"south"}, {"south"})


def test_only_partners_are_fetched_from_waited_for_and_missing():
    box = make(partners=lambda round, names: {"east" if round % 2 else "south"} & set(names))
    come(box, "east", "south")
    box.begin(0, 0.0)
    for author in ("east", "south"):
        hear(box, author, 0, 1)
    assert box.arrivals(0, 0.0)[1] == {"south"}
    assert box.missing(0, 0.0) == {"south"}
    assert sorted(fetch(box)) == [("east", 1), ("south", 0)]


def test_all_is_fetched_from_the_first_round_on_and_what_is_stale_before_it(box):
    box.begin(5, 0.0)
    box.begin(8, 0.0)
    hear(box, "south", *range(2, 11))
    assert sorted(fetch(box)) == [("south", round) for round in range(4, 11)]


def test_of_rounds_far_ahead_only_the_newest_is_fetched_and_kept(box):
    box.begin(0, 0.0)
    hear(box, "south", 3, 4, 5, 90)
    assert fetch(box) == [("south", 90), ("south", 4), ("south", 3)]
    hear(box, "south", 4, 5, 90, 91, now_s=1.0)
    assert fetch(box) == [("south", 91)]
    assert {round for round, _ in box._here} == {3, 4, 91}
    box.begin(90, 0.0)
    hear(box, "south", 5, 90, 91, now_s=2.0)
    assert sorted(fetch(box)) == [("south", 5), ("south", 90)]


@pytest.mark.parametrize("name", ["south", "mallory"])
def test_far_claims_without_end_leave_one_batch_and_no_mark(box, name):
    come(box, name)
    box.begin(0, 0.0)
    for round in range(1000, 1100):
        hear(box, name, 0, round)
        fetch(box)
    assert sorted(box._here) == [(0, name), (1099, name)]
    assert box.peers.get(name).newest == 1099
    hear(box, name, 0, 1)
    fetch(box)
    assert box.peers.get(name).newest == 1
    assert box.peers.get(name).came == {1}


def test_before_the_first_round_what_is_held_of_an_author_does_not_grow(box):
    for round in range(20):
        hear(box, "south", round)
        fetch(box)
    assert sorted(box._here) == [(18, "south"), (19, "south")]
    box.begin(20, 0.0)
    assert [d.round for d in take(box, 20)] == [19]


def test_of_a_stranger_no_more_rounds_ahead_are_fetched_than_late_ones_are_used(box):
    box.begin(3, 0.0)
    hear(box, "mia", *range(2, 8), 2**31 - 1)
    hear(box, "south", *range(2, 8))
    assert sorted(fetch(box)) == [
        *(("mia", round) for round in (2, 3, 4, 2**31 - 1)),
        *(("south", round) for round in range(2, 8)),
    ]


def test_what_came_is_taken_once_by_round_and_author_and_no_round_ahead(box):
    box.begin(1, 0.0)
    for author, round in (("south", 2), ("south", 1), ("east", 1), ("south", 0)):
        deliver(box, author, round)
    taken = [(d.round, d.author) for d in take(box, 1)]
    assert taken == [(0, "south"), (1, "east"), (1, "south")]
    assert [(d.round, d.author) for d in take(box, 2)] == [(2, "south")]
    deliver(box, "south", 1)
    assert take(box, 2) == ()


def test_too_large_a_claim_is_one_fault_however_often_it_is_made(box):
    for _ in range(5):
        box.confirm(announcement("south", offer(0, 1001)), 0.0)
    assert box.peers.get("south").faults == 1
    assert fetch(box) == []
    assert texts(box) == [
        "refused from 'south': its batch of round 0 is announced with 1001 bytes; at most 1000 are "
        "taken"
    ]


def test_another_batch_of_a_round_is_counted_and_the_first_stays(box):
    hear(box, "south", 0)
    fetch(box)
    hear(box, "south", 0, mark=b"e")
    assert box.peers.take_refused() == {"south": 1}
    assert box.peers.get("south").faults == 0
    assert fetch(box) == []
    assert len(take(box, 0)) == 1


def test_after_another_session_is_confirmed_its_clock_counts(box):
    box.confirm(announcement("south", clock_s=5.0), 0.0)
    assert box.confirm(announcement("south", session=b"o" * 16, clock_s=1.0), 1.0)
    assert box.peers.get("south").announcement.clock_s == 1.0


def test_a_cohort_is_drawn_once_a_round_and_again_when_somebody_comes():
    drawn = []
    box = make(partners=lambda round, names: drawn.append(round) or set(names))
    come(box, "east", "south")
    box.begin(3, 0.0)
    del drawn[:]
    for _ in range(9):
        hear(box, "south", 2, 4)
        hear(box, "east", 2, 4)
    assert sorted(drawn) == [2, 4]
    box.on_leave("east")
    assert [box.cohort(2), box.cohort(2)] == [{"south"}, {"south"}]
    assert sorted(drawn) == [2, 2, 4]


def test_of_who_comes_and_goes_the_last_is_told(box):
    for _ in range(3):
        box.on_join("east")
        box.on_join("south")
        box.on_leave("south")
    assert texts(box) == ["'east' joined", "'south' left"]
    box.on_join("south")
    assert texts(box) == ["'south' joined"]


def test_news_that_nobody_asks_for_have_an_end(box):
    box.on_join("east")
    for at in range(2 * MOST_NEWS):
        box.news.append(at)
    assert len(box.drain_news()) == MOST_NEWS


def test_names_that_may_not_take_part_are_told_once_in_all_and_counted(box):
    for at in range(300):
        error = WireError("it is no member", "unknown sender")
        box.refuse(f"stranger-{at}", error, 0.0, count=2)
    assert texts(box) == [
        "announcements of names that may not take part are ignored; 'stranger-0' is the first: it "
        "is no member"
    ]
    assert sum(box.peers.take_refused().values()) == 600


def test_a_member_has_been_met_when_its_last_batch_is_here(box):
    assert box.absent() == {"east", "south"}
    for name in ("east", "south"):
        box.on_join(name)
    assert box.absent() == {"east", "south"}
    hear(box, "east")
    hear(box, "south", 7)
    assert box.absent() == {"south"}
    fetch(box)
    assert box.absent() == set()
    box.on_leave("east")
    assert box.absent() == {"east"}


def test_names_without_end_leave_nothing_behind(box):
    for at in range(AT_THE_DOOR + 100):
        box.on_join(f"stranger-{at}")
        hear(box, f"other-{at}", 0)
        box.refuse(f"other-{at}", WireError("no"), 0.0)
    assert len(box._at_the_door) <= AT_THE_DOOR
    assert len(box._reported) <= AT_THE_DOOR
    assert len(box.peers) <= 2 + 64
    assert len(box.fetch_queue._settled) <= 2 + 64
    assert len(box.fetch_queue._open) <= 2 + 64


def test_a_name_that_comes_and_goes_all_the_time_is_told_of_a_few_times_and_at_last():
    box, told = make(), []
    for second in range(300):
        box._tell_of("south", "left" if second % 2 else "joined")
        told += [news.text for news in box.drain_news(float(second))]
    assert len(told) == 6
    box._tell_of("north", "joined")
    assert len(box.drain_news(300.0)) == 1  # others are told of
    (last,) = box.drain_news(400.0)
    assert "south" in last.text
    assert "left" in last.text
