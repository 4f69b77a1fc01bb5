"""What a node at its own pace fetches, keeps and takes, with a clock that a test moves."""

import pytest

from exchange.test_mailbox import announcement, deliver, fetch, offer, texts
from potluck.exchange import WireError
from potluck.exchange.protocol.fetch_queue import FetchQueue
from potluck.exchange.protocol.peers import Peers
from potluck.exchange.protocol.rules import Newest
from potluck.exchange.protocol.signed import MAX_OFFERS

STALENESS = 1
ALL = ("east", "south", "west")


def everybody(round, live):
    return set(live)


def make(members=ALL, partners=everybody, *, staleness=STALENESS, enough=100, taken=None):
    peers, rule = Peers("north", members, quarantine_s=10.0), Newest(staleness, taken or {}, enough)
    return rule.mailbox(peers, FetchQueue("north"), partners, 1000)


def hear(box, author, *rounds, now_s=0.0, **about):
    """Have the author announce these rounds; it joins if it was not there."""
    box.on_join(author)
    box.confirm(announcement(author, *map(offer, rounds), **about), now_s)


def take(box):
    return [(each.author, each.round) for each in box.receive(0, 0.0, waited=False).batches]


# What is fetched.


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_of_an_author_only_the_newest_rounds_are_fetched_and_kept(staleness):
    box = make(staleness=staleness)
    hear(box, "south", *range(20))
    box.begin(0, 0.0)
    assert sorted(fetch(box)) == [("south", r) for r in range(19 - staleness, 20)]
    for newest in range(20, 30):
        hear(box, "south", *range(newest + 1))
        fetch(box)
        assert len(box._here) == staleness + 1
    assert take(box) == [("south", r) for r in range(29, 28 - staleness, -1)]
    assert len(box._here) == 0


def test_nothing_is_taken_twice_however_often_it_is_announced():
    box, taken = make(), []
    for round, newest in enumerate([0, 0, 1, 1, 1, 5, 4, 5]):
        box.begin(round, 0.0)
        hear(box, "south", *range(newest + 1))
        hear(box, "south", *range(newest + 1), session=bytes([round]) * 16)
        fetch(box)
        taken += take(box)
    assert taken == [("south", 0), ("south", 1), ("south", 5)]


def test_a_round_before_the_newest_one_that_was_taken_never_comes():
    box = make(staleness=5, taken={"south": 7})
    box.fetch_queue.settle("south", offer(3), valid=True)  # of before the restart
    hear(box, "south", *range(7))
    box.begin(0, 0.0)
    assert fetch(box) == []
    hear(box, "south", *range(9))
    assert fetch(box) == [("south", 8)]


def test_nothing_is_fetched_from_a_take_to_the_next_round():
    box = make()
    box.begin(0, 0.0)
    hear(box, "south", 0)
    fetch(box)
    hear(box, "east", 0, 1)  # open, and not fetched yet
    assert take(box) == [("south", 0)]
    assert fetch(box) == []
    hear(box, "south", 0, 1)
    hear(box, "west", 0)
    assert fetch(box) == []
    assert take(box) == []
    box.begin(1, 0.0)
    assert sorted(fetch(box)) == [("east", 0), ("east", 1), ("south", 1), ("west", 0)]


def test_what_was_under_way_when_a_newer_one_was_taken_is_not_kept():
    box = make(staleness=3)
    box.begin(0, 0.0)
    hear(box, "south", 3)
    job = box.fetch_queue.take(0.0)
    hear(box, "south", 3, 4)
    fetch(box)
    assert take(box) == [("south", 4)]
    deliver(box, job.author, job.offer.round)
    assert (len(box._here), take(box)) == (0, [])


# How much.


def test_no_more_is_fetched_than_is_enough_and_the_newest_of_each_first():
    box = make(enough=4)
    hear(box, "west", 0)
    fetch(box)
    take(box)  # so that it looks for nothing until its next round begins
    for author in ALL:
        hear(box, author, 5, 6)
    box.begin(0, 0.0)
    came = fetch(box)
    assert {("east", 6), ("south", 6), ("west", 6)} < set(came)
    assert len(came) == 4
    assert len(take(box)) == 4


def test_a_fast_author_costs_only_what_replaces_what_became_old():
    box = make(enough=1)
    box.begin(0, 0.0)
    came = []
    for newest in range(9):
        hear(box, "south", *range(newest + 1))
        came += fetch(box)
    assert came == [("south", r) for r in (0, 2, 4, 6, 8)]
    assert take(box) == [("south", 8)]


def test_where_one_fails_or_is_worthless_others_are_fetched_instead():
    box = make(enough=1)
    hear(box, "east", 0)
    box.begin(0, 0.0)
    hear(box, "south", 0)
    hear(box, "west", 0)
    job = box.fetch_queue.take(0.0)
    assert (job.author, box.fetch_queue.take(0.0)) == ("east", None)
    box.fetch_queue.again(job, 0.0, jitter=0.5)
    hear(box, "south", 0)  # as it does every second
    job = box.fetch_queue.take(0.0)
    assert job.author == "south"
    box.fetch_queue.settle("south", job.offer, valid=False)
    hear(box, "west", 0)
    assert ("west", 0) in fetch(box)


def test_others_are_read_first_in_other_rounds():
    first = set()
    for round in range(3):
        box = make(enough=1)
        for author in ALL:
            hear(box, author, 0)
        box.fetch_queue.drop(lambda author, round: True)
        box.begin(round, 0.0)
        first |= {author for author, _ in fetch(box)}
    assert first == {*ALL}


# From whom.


@pytest.mark.parametrize("staleness", [0, 1])
def test_partners_change_with_the_round(staleness):
    turns = {0: {"south"}, 1: {"east", "west"}, 2: {"south"}}
    box = make(partners=lambda round, live: turns[round], staleness=staleness)
    box.begin(0, 0.0)
    for author in ALL:
        hear(box, author, 0)
    assert fetch(box) == [("south", 0)]
    take(box)
    box.begin(1, 0.0)  # nobody says anything new
    assert sorted(fetch(box)) == [("east", 0), ("west", 0)]
    take(box)
    box.begin(2, 0.0)
    assert fetch(box) == []


def test_who_is_in_quarantine_is_not_read_until_it_is_over():
    box = make()
    hear(box, "south", 0)
    for _ in range(3):
        box.refuse("south", WireError("bad"), 0.0, fault=True)
    box.begin(0, 1.0)
    hear(box, "south", 0, 1, now_s=1.0)
    assert fetch(box) == []
    box.begin(1, 10.0)
    assert sorted(fetch(box)) == [("south", 0), ("south", 1)]


# Who is hostile.


def test_who_lost_its_folder_and_begins_anew_is_read_from_its_first_round_on():
    box = make(staleness=0)
    for round in (0, 30):
        hear(box, "south", round)
        box.begin(round, 0.0)
        assert fetch(box) == take(box) == [("south", round)]
    texts(box)
    box.begin(31, 0.0)
    box.confirm(announcement("south", offer(0, mark=b"n"), session=b"n" * 16), 0.0)
    assert fetch(box) == take(box) == [("south", 0)]
    assert texts(box) == ["'south' has begun anew: its rounds count from 0 again"]
    box.begin(32, 0.0)
    offers = offer(0, mark=b"n"), offer(1, mark=b"n")
    box.confirm(announcement("south", *offers, session=b"n" * 16), 0.0)
    assert fetch(box) == take(box) == [("south", 1)]
    assert texts(box) == []


def test_rounds_of_any_number_fill_no_memory():
    """64 strangers that each have a new batch whenever they are asked."""
    names = [f"mallory-{at}" for at in range(64)]
    box = make(members=("south",), enough=3)
    box.begin(0, 0.0)
    for newest in range(0, 40 * MAX_OFFERS, 7):
        for name in names[newest % 64 :: 8]:
            hear(box, name, *range(newest, newest + MAX_OFFERS))
        fetch(box)
        assert len(box._here) <= 3 + STALENESS
        assert len(box.fetch_queue.promising()) <= 3
    assert len(take(box)) <= 3 + STALENESS


def test_strangers_keep_no_member_away():
    names = [f"mallory-{at}" for at in range(5)]
    box = make(members=("south", "west"), enough=2)
    box.begin(0, 0.0)
    for name in names:
        hear(box, name, 0)
    assert len(fetch(box)) == 2
    hear(box, "south", 0)
    hear(box, "west", 0)
    assert sorted(fetch(box)) == [("south", 0), ("west", 0)]
    take(box)
    for name in (*names, "south", "west"):
        hear(box, name, 1)
    for round in range(1, 4):
        box.begin(round, 0.0)
        assert sorted(fetch(box)) == [("south", round), ("west", round)]
        take(box)
        for name in (*names, "south", "west"):
            hear(box, name, round + 1)


def test_who_serves_nothing_of_what_it_announces_keeps_few_places():
    names = [f"mallory-{at}" for at in range(8)]
    box, tried = make(members=names, enough=2), set()
    box.begin(0, 0.0)
    for now_s in range(200):
        for name in names:
            hear(box, name, now_s, now_s=float(now_s))
        while (job := box.fetch_queue.take(float(now_s))) is not None:
            tried.add(job.author)
            box.fetch_queue.again(job, float(now_s), jitter=1.0)
    assert tried == {*names}
    open_rounds = [len(box.fetch_queue.to_come(name)) for name in names]
    assert max(open_rounds) <= STALENESS + 1
    assert len(box._here) == 0
