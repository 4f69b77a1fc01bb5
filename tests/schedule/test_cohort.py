"""From whom a node fetches where there are too many to fetch all."""

from collections import Counter

import pytest

from potluck.schedule import cohort

MANY = [f"n{i}" for i in range(200)]


def of(me="n0", names=MANY, members=MANY, run="run", round=0, size=32):
    members = frozenset(members)
    return cohort(names, members=members, me=me, run=run, round=round, size=size)


@pytest.mark.parametrize("count", [1, 2, 64])
def test_up_to_64_nodes_each_fetches_from_every_other(count):
    assert of(names=MANY[:count], size=3) == set(MANY[1:count])


def test_of_more_than_64_as_many_as_the_cohort_has():
    assert len(of(names=MANY[:65])) == 32
    assert len(of(size=7)) == 7
    assert "n0" not in of()


@pytest.mark.parametrize("change", [{"me": "n1"}, {"round": 1}, {"run": "other"}])
def test_it_is_another_one_for_another_node_round_and_run(change):
    assert of(**change) != of()


def test_it_is_the_same_for_the_same_whatever_the_order_of_the_names():
    assert of(names=MANY[::-1]) == of()


def test_when_one_node_goes_the_others_stay():
    before = of()
    gone = min(before)
    after = of(names=[name for name in MANY if name != gone])
    assert before - {gone} < after
    assert len(after - before) == 1


def test_everybody_is_read_by_about_as_many_as_it_reads():
    read = Counter(name for me in MANY for name in of(me=me))
    assert set(read) == set(MANY)
    # Binomial(199, 32/199) has a standard deviation of 5.2: five of them either way.
    assert 32 - 26 < min(read.values()) <= max(read.values()) < 32 + 26


def test_what_one_node_knows_reaches_all_within_a_few_rounds():
    knows = {"n0"}
    for round in range(4):
        knows |= {me for me in MANY if knows & of(me=me, round=round)}
    assert knows == set(MANY)


def test_a_crowd_of_strangers_pushes_no_member_out():
    members = set(MANY[:10])
    for round in range(5):
        drawn = of(members=members, round=round)
        assert members - {"n0"} <= drawn
        assert len(drawn) == 32
    assert of(members=members, size=5) < members
