"""Parts of a round by measured speed: all are done at one time, and nobody is left with nothing."""

from collections import Counter
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.schedule import Agenda, deal, horizontal, parts_by_speed, problems_of_round, vertical
from potluck.types import LONGEST_S, SHORTEST_WRITE_S, Speed

IDS = [f"p{i}" for i in range(40)]
NAMES = ("east", "north", "south", "west")
speeds = st.dictionaries(
    st.sampled_from(NAMES),
    st.builds(Speed, st.floats(SHORTEST_WRITE_S, 1e4), st.floats(0, 1e4)),
    min_size=1,
)
ONE = dict.fromkeys(NAMES, 1.0)


def parts_by_search(speeds, weights, least):
    """The same by halving the time of a round until the parts make 1."""
    low, high = 0.0, 1e9
    for _ in range(200):
        period, total = (low + high) / 2, 0.0
        for name, speed in speeds.items():
            spare = period - speed.learn_s
            total += max(least, weights[name] * spare / speed.write_s)
        if total > 1:
            high = period
        else:
            low = period
    return {
        name: max(least, weights[name] * (low - speed.learn_s) / speed.write_s)
        for name, speed in speeds.items()
    }


def agenda(**changes):
    fields = {
        "ids": IDS, "weights": {"north": 1.0, "south": 1.0, "west": 1.0}, "plan": vertical,
        "group_size": 12, "problems_per_round": 20, "seed": 3, "by_speed": True,
    }  # fmt: skip
    return Agenda(**{**fields, **changes})


def written(shares):
    load = Counter()
    for share in shares:
        load[share.node] += share.count
    return load


# The parts.


@given(speeds, st.floats(0, 0.24))
def test_the_parts_are_those_that_a_plain_search_finds(speeds, least):
    weights = {name: 0.5 + at for at, name in enumerate(NAMES)}
    parts = parts_by_speed(speeds, weights, least=least)
    assert sum(parts.values()) == pytest.approx(1)
    assert parts == pytest.approx(parts_by_search(speeds, weights, least), abs=1e-6)


def test_all_are_done_at_one_time_by_hand():
    """4 s to learn each: 90 p + 4 = 30 (1 - p) + 4 at p = 1/4."""
    known = {"north": Speed(90.0, 4.0), "south": Speed(30.0, 4.0)}
    assert parts_by_speed(known, ONE, least=0.0) == pytest.approx({"north": 0.25, "south": 0.75})


def test_a_node_that_learns_for_long_writes_less():
    """20 p + 6 = 20 (1 - p) + 2 at p = .4."""
    known = {"north": Speed(20.0, 6.0), "south": Speed(20.0, 2.0)}
    assert parts_by_speed(known, ONE, least=0.0) == pytest.approx({"north": 0.4, "south": 0.6})


def test_a_node_that_is_too_slow_for_it_has_the_least_all_the_same():
    known = {"north": Speed(1e4, 4.0), "south": Speed(30.0, 4.0), "west": Speed(30.0, 4.0)}
    assert parts_by_speed(known, ONE, least=0.1) == {"north": 0.1, "south": 0.45, "west": 0.45}


def test_a_node_of_weight_two_writes_for_twice_as_long():
    known = {"north": Speed(30.0, 4.0), "south": Speed(60.0, 4.0)}
    parts = parts_by_speed(known, {"north": 1.0, "south": 2.0}, least=0.0)
    assert parts == pytest.approx({"north": 0.5, "south": 0.5})
    assert 60.0 * parts["south"] == 2 * 30.0 * parts["north"]


@given(st.lists(st.sampled_from([SHORTEST_WRITE_S, 1.0, LONGEST_S]), min_size=4, max_size=4),
       st.lists(st.sampled_from([0.0, 1.0, LONGEST_S]), min_size=4, max_size=4),
       st.sampled_from([0.0, 0.1, 0.25, 1 / 3]))  # fmt: skip
def test_the_worst_that_anybody_can_claim_leaves_the_least_to_all(write_s, learn_s, least):
    known = dict(zip(NAMES, map(Speed, write_s, learn_s), strict=True))
    parts = parts_by_speed(known, ONE, least=least)
    assert min(parts.values()) >= min(least, 0.25)
    for turn in range(5):
        dealt = deal(parts, 12, least=int(least * 12) if least <= 0.25 else 3, turn=turn)
        assert sum(dealt.values()) == 12
        assert min(dealt.values()) >= int(min(least, 0.25) * 12)


# Whole numbers.


@given(speeds, st.integers(0, 40), st.integers(0, 2), st.integers(0, 10**6))
def test_all_is_dealt_and_the_least_to_each(speeds, spare, least, turn):
    slots = least * len(speeds) + spare
    parts = parts_by_speed(speeds, ONE, least=least / slots) if slots else dict.fromkeys(speeds, 1)
    dealt = deal(parts, slots, least=least, turn=turn)
    assert sum(dealt.values()) == slots
    assert min(dealt.values()) >= least
    assert all(abs(dealt[name] - parts[name] * slots) < 1 + 1e-6 for name in speeds if slots)


def test_fractions_even_out_over_the_turns():
    parts = {"east": 0.07, "north": 0.61, "west": 0.32}
    dealt = [deal(parts, 12, least=0, turn=turn) for turn in range(300)]
    for name, part in parts.items():
        counts = [each[name] for each in dealt]
        assert mean(counts) == pytest.approx(12 * part, abs=0.02)
        assert max(counts) - min(counts) <= 2


# The agenda.


@pytest.mark.parametrize("plan", [vertical, horizontal])
def test_a_node_that_is_three_times_as_fast_writes_three_times_as_much(plan):
    one = agenda(plan=plan, weights={"north": 1.0, "south": 1.0})
    known = {"north": Speed(90.0, 4.0), "south": Speed(30.0, 4.0)}
    assert written(one.members_shares(4, known)) == {"north": 60, "south": 180}
    assert written(one.members_shares(4)) == {"north": 120, "south": 120}
    assert {s.node for s in one.shares_of(4, "north", known)} == {"north"}


@pytest.mark.parametrize("plan", [vertical, horizontal])
def test_every_problem_of_the_round_is_written_whole(plan):
    known = {"north": Speed(90.0, 4.0), "south": Speed(31.0, 4.0), "west": Speed(7.0, 1.0)}
    for round in range(5):
        counts = Counter()
        for share in agenda(plan=plan).members_shares(round, known):
            counts[share.problem_id] += share.count
        drawn = problems_of_round(IDS, seed=3, round=round, count=20)
        assert counts == dict.fromkeys(drawn, 12)


@pytest.mark.parametrize(
    "plan, group_size, least", [(vertical, 12, 12), (horizontal, 12, 40), (horizontal, 5, 20)]
)
def test_the_slowest_writes_a_group_or_two_completions_of_each_if_there_are_so_many(
    plan, group_size, least
):
    known = {"north": Speed(LONGEST_S, 0.0), "south": Speed(1.0, 0.0), "west": Speed(1.0, 0.0)}
    one = agenda(plan=plan, group_size=group_size)
    for round in range(5):
        assert written(one.shares_of(round, "north", known)) == {"north": least}


def test_a_weight_counts_beside_the_speed():
    known = {"north": Speed(30.0, 4.0), "south": Speed(30.0, 4.0)}
    one = agenda(weights={"north": 3.0, "south": 1.0})
    assert written(one.members_shares(4, known)) == {"north": 180, "south": 60}


def test_one_known_speed_is_compared_with_nothing():
    one = agenda()
    for known in (
        {},
        {"south": Speed(1.0, 0.0)},
        {"south": Speed(1.0, 0.0), "mia": Speed(9.0, 9.0)},
    ):
        assert one.members_shares(7, known) == agenda(by_speed=False).members_shares(7)


def test_a_member_that_has_told_nothing_counts_as_one_in_the_middle():
    known = {"north": Speed(90.0, 4.0), "south": Speed(30.0, 2.0)}
    whole = known | {"west": Speed(60.0, 3.0)}
    assert agenda().members_shares(2, known) == agenda().members_shares(2, whole)


def test_speeds_are_nothing_to_strangers():
    one = agenda(stranger_problems=2)
    known = {"north": Speed(90.0, 4.0), "south": Speed(30.0, 2.0), "mia": Speed(0.1, 0.0)}
    assert one.shares_of(3, "mia", known) == one.shares_of(3, "mia") != []
    assert "mia" not in {s.node for s in one.members_shares(3, known)}


def test_where_speeds_change_a_little_most_stays_with_its_author():
    a = {"north": Speed(90.0, 4.0), "south": Speed(30.0, 4.0), "west": Speed(20.0, 4.0)}
    b = a | {"north": Speed(85.0, 4.1)}
    same = [
        set(agenda().members_shares(r, a)) & set(agenda().members_shares(r, b)) for r in range(9)
    ]
    assert mean(map(len, same)) > 0.9 * 20


def test_any_whole_group_of_the_round_is_taken_of_a_member_and_no_more():
    one = agenda(plan=horizontal, stranger_problems=2)
    drawn = problems_of_round(IDS, seed=3, round=5, count=20)
    most = one.most(5, ["south", "mia", "north"])
    members = {(id, name): 12 for id in drawn for name in ("north", "south")}
    strangers = {(s.problem_id, "mia"): 12 for s in one.strangers_shares(5, "mia")}
    assert most == members | strangers
    assert [*most][:2] == [(drawn[0], "north"), (drawn[0], "south")]
    by_weight = agenda(plan=horizontal, by_speed=False).most(5, ["south"])
    assert set(by_weight.values()) == {4}


@pytest.mark.parametrize("plan", [vertical, horizontal])
@pytest.mark.parametrize("fixed_s", [0.0, 3.0])
def test_rounds_get_as_short_as_they_can_where_writing_has_a_fixed_cost_too(plan, fixed_s):
    """What a node measures, seconds over its part, then depends on that part."""
    one, known, rounds = agenda(plan=plan), {}, []
    per_round_s = {"north": 80.0, "south": 40.0, "west": 30.0}
    learn_s = {"north": 4.0, "south": 4.0, "west": 1.0}
    for round in range(40):
        part = {n: c / 240 for n, c in written(one.members_shares(round, known)).items()}
        write_s = {n: fixed_s + per_round_s[n] * part[n] for n in part}
        rounds.append({n: write_s[n] + learn_s[n] for n in part})
        known = {n: Speed(write_s[n] / part[n], learn_s[n]) for n in part}
    first, last = rounds[0], {n: mean(r[n] for r in rounds[-10:]) for n in rounds[0]}
    assert max(first.values()) > 2 * min(first.values())
    assert max(last.values()) == pytest.approx(min(last.values()), rel=0.06)
    assert max(last.values()) < 0.75 * max(first.values())
