"""How far others can have come, by the clock that a test moves."""

import pytest

from potluck.node.pace.together import FASTER, SHORTEST_ROUND_S, RoundBound


def test_a_node_that_was_never_in_step_believes_each_round_of_the_run_and_none_after_it():
    assert RoundBound(last=499).furthest(0.0, []) == 499
    assert RoundBound(last=499).furthest(1e9, [2.0]) == 499


def test_the_bound_is_one_round_and_four_for_each_of_its_own_that_would_have_fitted():
    pace = RoundBound(last=10_000, round=20, in_step_s=1000.0)
    assert FASTER == 4
    assert pace.furthest(1000.0, [2.0]) == 21
    assert pace.furthest(1000.4, [2.0]) == 21
    assert pace.furthest(1000.5, [2.0]) == 22
    assert pace.furthest(1010.0, [2.0]) == 41
    assert pace.furthest(1e12, [2.0]) == 10_000


def test_a_few_odd_rounds_do_not_move_the_bound():
    pace = RoundBound(last=10_000, round=0, in_step_s=0.0)
    plain = pace.furthest(10.0, [2.0] * 5)
    assert pace.furthest(10.0, [0.0, 2.0, 2.0, 2.0, 600.0]) == plain == 21
    assert pace.furthest(10.0, [1.0] * 5) == 41


@pytest.mark.parametrize("own_s", [[], [0.0], [SHORTEST_ROUND_S]])
def test_no_round_is_believed_to_be_shorter_than_one_can_be(own_s):
    pace = RoundBound(last=10_000, round=0, in_step_s=0.0)
    assert pace.furthest(10.0, own_s) == 1 + int(10 / SHORTEST_ROUND_S)


def test_after_a_clock_was_set_back_time_counts_from_then_on():
    for in_step_s in (None, 5.0, 10.0):  # it was not
        pace = RoundBound(last=99, round=7, in_step_s=in_step_s)
        assert pace.counted_until(10.0) == pace
    pace = RoundBound(last=99, round=7, in_step_s=1000.0)
    assert pace.furthest(10.0, [2.0]) == 8
    later = pace.counted_until(10.0)
    assert later == RoundBound(last=99, round=7, in_step_s=10.0)
    assert later.furthest(20.0, [2.0]) == 28


@pytest.mark.parametrize("ahead", [50, 300])
def test_a_healthy_majority_that_is_not_believed_will_be(ahead):
    """Both sides of a partition went on; all nodes take 2 s a round."""
    pace = RoundBound(last=10_000, round=100, in_step_s=0.0)
    lived = next(
        lived for lived in range(1000) if 100 + ahead + lived <= pace.furthest(lived * 2.0, [2.0])
    )
    assert ahead / 4 < lived <= ahead / (FASTER - 1) + 1
