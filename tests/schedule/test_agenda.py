"""Who is asked for what: members by the plan, strangers by their own name."""

from collections import Counter
from dataclasses import replace

import pytest

from potluck.schedule import Agenda, cohort, horizontal, problems_of_round, vertical

IDS = [f"p{i}" for i in range(40)]


def agenda(**changes):
    two = Agenda(IDS, {"north": 1.0, "south": 1.0}, vertical, 4, 6, seed=3, stranger_problems=2)
    return replace(two, **changes)


def test_members_share_out_the_problems_that_everybody_draws():
    shares = agenda().members_shares(5)
    assert [s.problem_id for s in shares] == problems_of_round(IDS, seed=3, round=5, count=6)
    assert [s.node for s in shares] == ["north", "south"] * 3
    assert {s.count for s in shares} == {4}


def test_what_one_node_is_asked_is_its_part_of_what_all_are_asked():
    for plan in (vertical, horizontal):
        one = agenda(plan=plan)
        together = [s for name in ("north", "south") for s in one.shares_of(2, name)]
        assert sorted(map(repr, together)) == sorted(map(repr, one.members_shares(2)))


def test_a_stranger_is_asked_for_whole_groups_of_problems_that_its_name_draws():
    shares = agenda().shares_of(5, "mia")
    assert [(s.node, s.count) for s in shares] == [("mia", 4)] * 2
    assert {s.problem_id for s in shares} <= set(IDS)
    drawn = {
        (name, round): tuple(s.problem_id for s in agenda().shares_of(round, name))
        for name in ("mia", "tom")
        for round in range(4)
    }
    assert len(set(drawn.values())) == 8


@pytest.mark.parametrize("plan", [vertical, horizontal])
def test_a_stranger_takes_nothing_from_the_members_and_stands_behind_them(plan):
    one = agenda(plan=plan)
    alone = one.shares(1, ["north", "south"])
    both = one.shares(1, ["tom", "north", "mia"])
    assert both[: len(alone)] == alone
    assert [s.node for s in both[len(alone) :]] == ["mia", "mia", "tom", "tom"]


def test_where_there_are_no_strangers_an_unknown_name_is_asked_for_nothing():
    assert agenda(stranger_problems=0).shares_of(5, "mia") == []
    assert agenda(stranger_problems=0).shares(5, ["mia"]) == agenda().members_shares(5)


def test_a_swarm_of_strangers_only_has_a_round_all_the_same():
    one = agenda(weights={})
    assert one.members_shares(0) == []
    assert [s.node for s in one.shares(0, ["tom", "mia"])] == ["mia", "mia", "tom", "tom"]


FOUR = {"north": 1.0, "south": 2.0, "east": 0.5, "west": 1.0}


@pytest.mark.parametrize("plan", [vertical, horizontal])
@pytest.mark.parametrize(
    "absent", [("south",), ("east", "west"), ("south", "east", "west"), tuple(FOUR)]
)
def test_those_that_are_here_write_what_absent_members_do_not(plan, absent):
    one = agenda(plan=plan, weights=FOUR)
    here = FOUR.keys() - absent
    written = dict.fromkeys(here, 0)
    for round in range(40):
        shares, whole = one.members_shares(round, absent), one.members_shares(round)
        if not here:
            assert shares == whole
            continue
        of_problem, parts = Counter(), {(s.problem_id, s.node): s.count for s in shares}
        for share in shares:
            of_problem[share.problem_id] += share.count
            written[share.node] += share.count
        full = {share.problem_id: 4 for share in whole}
        assert of_problem == full, "every group is full, and none is new"
        moved = [s for s in whole if s.node in here and parts[s.problem_id, s.node] < s.count]
        assert not moved, "nobody's own part moves"
    if here:  # in the long run each writes by its weight
        heaviest = sum(FOUR[name] for name in here)
        for name, count in written.items():
            assert count / (40 * 24) == pytest.approx(FOUR[name] / heaviest, abs=0.05)


def test_one_that_only_writes_covers_for_nobody_and_is_covered():
    one = agenda(plan=horizontal, weights=FOUR, only_write=frozenset({"west"}))
    own = one.shares_of(1, "west")
    assert one.shares_of(1, "west", {"south", "east"}) == own
    assert sum(s.count for s in one.shares_of(1, "north", {"south", "east", "west"})) == 24


@pytest.mark.parametrize("plan", [vertical, horizontal])
def test_of_an_author_its_own_part_is_taken_and_all_that_absent_members_would_write(plan):
    one = agenda(plan=plan, weights=FOUR)
    asked = {(s.problem_id, s.node): s.count for s in one.members_shares(3)}
    assert one.most(3, ["north", "west"]) == asked
    most = one.most(3, ["north", "west"], {"south"})
    for problem_id in {id for id, _ in asked}:
        missing = asked.get((problem_id, "south"), 0)
        for name in ("north", "west"):
            own = asked.get((problem_id, name), 0)
            assert most.get((problem_id, name), 0) == own + missing
    for name in FOUR:  # whatever an author thinks of others, it writes no more than that
        views = one.shares_of(3, name, {"south"})
        assert all(s.count <= one.most(3, [name], {"south"})[s.problem_id, name] for s in views)


# From whom a node fetches where there are too many to fetch all.


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
