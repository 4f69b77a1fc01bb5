import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.schedule import (
    PLANS,
    Share,
    horizontal,
    problems_of_round,
    unwritten_problems,
    vertical,
)

ids = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=8, unique=True)
unequal = st.dictionaries(
    st.text(min_size=1, max_size=8), st.floats(0.01, 100), min_size=1, max_size=6
)
every_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


def numbered(count):
    return [f"p{i}" for i in range(count)]


def load_of(shares, weights):
    load = Counter(dict.fromkeys(weights, 0))
    for share in shares:
        load[share.node] += share.count
    return load


# Who writes what.


@every_plan
@given(problems=ids, weights=unequal, group_size=st.integers(1, 20))
def test_every_plan_fills_every_group_exactly(plan, problems, weights, group_size):
    written, asked = Counter(), Counter()
    for share in plan(problems, weights, group_size):
        assert share.node in weights
        assert share.count > 0
        written[share.problem_id] += share.count
        asked[share.problem_id, share.node] += 1
    assert written == dict.fromkeys(problems, group_size)
    assert [*written] == problems
    assert {*asked.values()} == {1}, "no node has two shares of one problem"
    assert plan is horizontal or len(asked) == len(problems)  # each problem has one author


@every_plan
@given(weights=unequal, count=st.integers(1, 60), group_size=st.integers(1, 6))
def test_a_node_writes_in_proportion_to_its_weight(plan, weights, count, group_size):
    size = 1 if plan is vertical else group_size  # vertically a group is dealt whole
    load, whole = load_of(plan(numbered(count), weights, size), weights), sum(weights.values())
    for node, weight in weights.items():
        assert abs(load[node] - count * size * weight / whole) < len(weights)


def test_a_node_of_weight_two_writes_twice_as_much_worked_by_hand():
    shares = vertical(numbered(6), {"north": 2, "south": 1}, 12)
    assert "".join(s.node[0] for s in shares) == "nsnnsn"
    shares = horizontal(["p"], {"north": 2, "south": 1}, 12)
    assert shares == [Share("p", "north", 8), Share("p", "south", 4)]


@every_plan
@pytest.mark.parametrize("weights", [{}, {"a": 0.0}, {"a": 1.0, "b": -1.0}])
def test_a_node_without_weight_is_refused(plan, weights):
    with pytest.raises(ValueError, match="every node needs one > 0"):
        plan(["p"], weights, 2)


# Which problems a round has.


@given(st.integers(0, 1000))
def test_every_pass_has_every_problem_once_in_a_new_order(seed):
    passes = [
        [
            id
            for round in range(4 * lap, 4 * lap + 4)
            for id in problems_of_round(numbered(12), seed=seed, round=round, count=3)
        ]
        for lap in range(3)
    ]
    assert [sorted(each) for each in passes] == [sorted(numbered(12))] * 3
    assert len({tuple(each) for each in passes}) == 3


def test_the_order_of_the_task_does_not_enter():
    forth = problems_of_round(numbered(12), seed=0, round=1, count=5)
    assert problems_of_round(numbered(12)[::-1], seed=0, round=1, count=5) == forth


def test_a_round_across_the_end_of_a_pass_takes_the_rest_from_the_next():
    ids = numbered(5)
    first, second = (
        problems_of_round(ids, seed=0, round=lap, count=5) for lap in range(2)
    )  # two whole passes
    across = problems_of_round(ids, seed=0, round=1, count=3)
    assert across[:2] == first[3:]
    assert across[2] == next(id for id in second if id not in across[:2])


@pytest.mark.parametrize("there, count", [(0, 1), (3, 4)])
def test_a_task_with_fewer_problems_than_a_round_is_refused(there, count):
    with pytest.raises(ValueError, match=f"takes {count} problems, but the task has {there}"):
        problems_of_round(numbered(there), seed=0, round=0, count=count)
    with pytest.raises(ValueError, match=f"takes {count} problems, but the task has {there}"):
        unwritten_problems(numbered(there), {}, wanted=(), seed=0, count=count)


def test_the_order_of_problems_does_not_change_by_accident():
    """By SHA-256 of "seed/pass/id". A run that is resumed, or repeated, relies on it."""
    drawn = [problems_of_round(numbered(7), seed=17, round=r, count=3) for r in range(4)]
    assert drawn == [
        ["p3", "p4", "p5"],
        ["p1", "p6", "p0"],
        ["p2", "p3", "p6"],  # the second pass begins
        ["p1", "p0", "p5"],
    ]
    names = ["gsm8k/train/0", "ü"]
    assert problems_of_round(names, seed=-1, round=0, count=2) == ["ü", "gsm8k/train/0"]


@pytest.mark.parametrize("plan", [vertical, horizontal])
def test_what_does_not_divide_evenly_evens_out_over_the_rounds(plan):
    """Three nodes and four problems; and one node whose part is less than a group a round."""
    for weights in ({"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 0.02}):
        written = Counter()
        for round in range(51):
            for share in plan(["p", "q", "r", "s"], weights, 6, round=round):
                written[share.node] += share.count
        for name, weight in weights.items():
            part = 51 * 4 * 6 * weight / sum(weights.values())
            assert abs(written[name] - part) <= 6, (name, written)


@pytest.mark.parametrize("plan", [vertical, horizontal])
def test_the_order_of_the_nodes_in_a_recipe_decides_nothing(plan):
    forth, back = (
        plan(["p", "q", "r"], dict(w), 5, round=1)
        for w in ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)])
    )
    assert set(forth) == set(back)


# Which ones a node at its own pace has.


IDS = numbered(30)


def draws(rounds, wanted=lambda round: (), *, count=4, seed=0):
    times, drawn = Counter(), []
    for round in range(rounds):
        drawn.append(unwritten_problems(IDS, times, wanted=wanted(round), seed=seed, count=count))
        times.update(drawn[-1])
    return drawn


def test_without_others_it_is_the_order_of_the_rounds_that_all_do_together():
    together = [problems_of_round(IDS, seed=0, round=round, count=5) for round in range(12)]
    assert draws(12, count=5) == together  # 30 problems: no round reaches over the end of a pass


def test_what_others_wrote_comes_first_in_its_order():
    (drawn,) = draws(1, lambda round: ["p7", "p3", "p7"])
    assert drawn[:2] == ["p7", "p3"]
    assert len(set(drawn)) == 4
    (drawn,) = draws(1, lambda round: IDS)
    assert drawn == IDS[:4]


def test_a_problem_that_was_written_in_this_pass_is_not_written_again_for_others():
    first, second = draws(2, lambda round: ["p7", "p3"])
    assert {"p7", "p3"} & {*second} == set()
    assert len({*first, *second}) == 8


@pytest.mark.parametrize("seed", range(5))
def test_whatever_others_send_each_pass_has_every_problem_once(seed):
    dice = random.Random(seed)
    others = [dice.choices([*IDS, "unknown"], k=dice.randrange(9)) for _ in range(60)]
    written = [id for drawn in draws(60, lambda round: others[round]) for id in drawn]
    assert set(written) == set(IDS)
    for end in range(4, 241, 4):  # after each round: no problem is two passes ahead of another
        times = Counter(written[:end])
        assert max(times.values()) - min(times.get(id, 0) for id in IDS) <= 1 + (end % 30 < 4)
    assert all(len(set(written[at : at + 4])) == 4 for at in range(0, 240, 4))
