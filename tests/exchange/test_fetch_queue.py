"""What is fetched and when, with a clock that stands still until a test moves it."""

import pytest

from potluck.exchange.protocol.fetch_queue import (
    IN_ALL,
    OF_STRANGERS,
    REMEMBERED,
    FetchJob,
    FetchQueue,
)
from potluck.exchange.protocol.signed import Offer


def offers(*rounds, mark=b"d"):
    return [Offer(round, 10, mark * 16) for round in rounds]


def every(round):
    return True


@pytest.fixture
def wanted():
    return FetchQueue("north")


def take_all(wanted, now_s=0.0):
    taken = []
    while (errand := wanted.take(now_s)) is not None:
        taken.append((errand.author, errand.offer.round))
    return taken


def test_the_newest_rounds_first_and_two_of_an_author_at_once(wanted):
    wanted.update_offers("south", offers(1, 2, 3), every, 0.0)
    wanted.update_offers("east", offers(2, 3), every, 0.0)
    assert take_all(wanted) == [("south", 3), ("east", 3), ("south", 2), ("east", 2)]
    wanted.settle("south", offers(3)[0], valid=True)
    assert take_all(wanted) == [("south", 1)]


def test_sixteen_are_fetched_at_once_in_all(wanted):
    for at in range(IN_ALL):
        wanted.update_offers(f"author-{at}", offers(1, 2), every, 0.0)
    taken = take_all(wanted)
    assert len(taken) == IN_ALL
    author, round = taken[0]
    wanted.settle(author, offers(round)[0], valid=True)
    assert len(take_all(wanted)) == 1


def test_each_reader_begins_with_the_authors_after_itself():
    wanted = FetchQueue("m")
    for author in ("a", "n", "z"):
        wanted.update_offers(author, offers(0), every, 0.0)
    assert [author for author, _ in take_all(wanted)] == ["n", "z", "a"]


def test_what_is_heard_again_is_fetched_once(wanted):
    for _ in range(3):
        wanted.update_offers("south", offers(1), every, 0.0)
    assert take_all(wanted) == [("south", 1)]
    wanted.settle("south", offers(1)[0], valid=True)
    assert wanted.update_offers("south", offers(1), every, 0.0) == []
    assert take_all(wanted) == []


def test_what_is_no_longer_offered_is_no_longer_wanted(wanted):
    wanted.update_offers("south", offers(1, 2), every, 0.0)
    wanted.update_offers("south", offers(2, 3), every, 0.0)
    assert take_all(wanted) == [("south", 3), ("south", 2)]


@pytest.mark.parametrize(("jitter", "first_s"), [(1.0, 0.5), (0.0, 0.1)])
def test_a_failure_is_tried_again_after_a_pause_that_doubles_three_times(wanted, jitter, first_s):
    wanted.update_offers("south", offers(1), every, 0.0)
    now_s = 0.0
    for pause_s in (first_s * 2 ** min(at, 3) for at in range(6)):
        errand = wanted.take(now_s)
        assert errand == FetchJob("south", offers(1)[0])
        wanted.again(errand, now_s, jitter=jitter)
        assert wanted.take(now_s + pause_s - 0.01) is None
        now_s += pause_s + 1e-9


def test_the_first_valid_batch_stays_and_a_change_is_told_once(wanted):
    wanted.update_offers("south", offers(1), every, 0.0)
    take_all(wanted)
    assert wanted.settle("south", offers(1)[0], valid=True)
    (changed,) = offers(1, mark=b"e")
    assert wanted.update_offers("south", [changed], every, 0.0) == [changed]
    assert wanted.update_offers("south", [changed], every, 0.0) == []
    assert take_all(wanted) == []
    assert not wanted.settle("south", changed, valid=True)
    assert wanted.has_arrived("south", 1)


def test_a_refused_batch_is_not_fetched_again_but_a_better_one_is(wanted):
    wanted.update_offers("south", offers(1), every, 0.0)
    take_all(wanted)
    assert wanted.settle("south", offers(1)[0], valid=False)
    assert not wanted.settle("south", offers(1)[0], valid=False)
    wanted.update_offers("south", offers(1), every, 0.0)
    assert take_all(wanted) == []
    assert not wanted.has_arrived("south", 1)
    assert wanted.update_offers("south", offers(1, mark=b"e"), every, 0.0) == []
    assert take_all(wanted) == [("south", 1)]
    assert wanted.settle("south", offers(1, mark=b"e")[0], valid=True)
    assert wanted.has_arrived("south", 1)


def test_an_offer_that_changes_while_it_is_under_way_waits_until_that_one_failed(wanted):
    wanted.update_offers("south", offers(1), every, 0.0)
    old = wanted.take(0.0)
    for mark in (b"e", b"f", b"g"):
        wanted.update_offers("south", offers(1, mark=mark), every, 0.0)
        assert wanted.take(0.0) is None
    wanted.again(old, 0.0, jitter=1.0)
    assert wanted.take(0.5) == old
    wanted.again(old, 0.5, jitter=1.0)
    wanted.update_offers("south", offers(1, mark=b"e"), every, 0.5)
    assert wanted.take(0.5) == FetchJob("south", offers(1, mark=b"e")[0])


def test_two_of_an_author_at_once_though_it_left_and_came_back(wanted):
    taken = []
    for mark in (b"d", b"e", b"f"):
        wanted.update_offers("south", offers(1, 2, 3, mark=mark), every, 0.0)
        while (errand := wanted.take(0.0)) is not None:
            taken.append(errand)
        wanted.forget("south")
    assert [errand.offer.round for errand in taken] == [3, 2]
    wanted.update_offers("south", offers(1, 2, 3), every, 0.0)
    wanted.again(taken[0], 0.0, jitter=1.0)
    assert take_all(wanted) == [("south", 1)]  # The third waits for its pause.
    wanted.settle("south", taken[1].offer, valid=True)
    assert take_all(wanted, now_s=1.0) == [("south", 3)]


def test_members_come_before_strangers_who_together_get_a_quarter():
    strangers = [f"stranger-{at}" for at in range(OF_STRANGERS)]
    wanted = FetchQueue("north", {"south", "east"}.__contains__)
    for author in (*strangers, "south"):
        wanted.update_offers(author, offers(7, 8), every, 0.0)
    wanted.update_offers("east", offers(1), every, 0.0)
    taken = take_all(wanted)
    assert taken[:3] == [("south", 8), ("south", 7), ("east", 1)]
    assert len(taken) == OF_STRANGERS + 3
    assert take_all(wanted) == []
    wanted.again(FetchJob(taken[-1][0], offers(taken[-1][1])[0]), 0.0, jitter=1.0)


def test_who_is_forgotten_is_fetched_from_when_it_is_heard_again(wanted):
    wanted.update_offers("south", offers(1, 2), every, 0.0)
    gone = wanted.take(0.0)
    wanted.forget("south")
    wanted.again(gone, 0.0, jitter=0.0)
    assert take_all(wanted) == []
    wanted.update_offers("south", offers(1, 2), every, 0.0)
    assert take_all(wanted) == [("south", 2), ("south", 1)]


def test_what_is_remembered_of_an_author_has_an_end_and_is_not_fetched_again(wanted):
    for (offer,) in map(offers, range(REMEMBERED + 50)):
        wanted.update_offers("south", [offer], every, 0.0)
        take_all(wanted)
        assert wanted.settle("south", offer, valid=True)
    assert len(wanted._settled["south"]) == REMEMBERED
    wanted.update_offers("south", offers(3, 30), every, 0.0)
    assert take_all(wanted) == []


def test_others_than_the_known_are_dropped(wanted):
    for author in ("south", "mallory"):
        wanted.update_offers(author, offers(1), every, 0.0)
        wanted.settle(author, offers(0)[0], valid=True)
    wanted.only({"south"})
    assert take_all(wanted) == [("south", 1)]
    assert not wanted.has_arrived("mallory", 0)
    wanted.drop(lambda author, round: author == "south")
    assert not wanted.to_come("south")
