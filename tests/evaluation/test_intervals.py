"""Estimates by hand, against plain loops and fractions, and by how often they hold the truth."""

import random
from fractions import Fraction
from itertools import combinations
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.intervals import (
    Interval,
    difference_interval,
    mean_interval,
    pass_at_k,
    share_interval,
    t_below,
    t_interval,
    t_quantile,
)

shares = st.lists(st.integers(0, 8).map(lambda eighths: eighths / 8), min_size=1, max_size=60)


def bounds(interval, digits=4):
    return round(interval.low, digits), round(interval.high, digits)


# pass@k


def test_pass_at_k_is_the_share_of_choices_that_hold_a_right_answer():
    for samples in range(1, 8):
        for right in range(samples + 1):
            answers = [True] * right + [False] * (samples - right)
            for k in range(1, samples + 1):
                hits = [any(chosen) for chosen in combinations(answers, k)]
                assert pass_at_k(right, samples, k) == sum(hits) / len(hits)


def test_pass_at_k_is_exact_where_floats_would_cancel_or_overflow():
    for samples, right, k in [(10_000, 1, 1), (10_000, 3, 5_000), (4_000, 2_000, 900), (200, 1, 2)]:
        none_right = Fraction(1)
        for i in range(k):  # one answer after another, without putting back
            none_right *= Fraction(max(samples - right - i, 0), samples - i)
        assert pass_at_k(right, samples, k) == float(1 - none_right)


@pytest.mark.parametrize(
    "right, samples, k", [(0, 0, 1), (1, 2, 3), (1, 2, 0), (3, 2, 1), (-1, 2, 1)]
)
def test_pass_at_k_of_no_such_sample_is_refused(right, samples, k):
    with pytest.raises(ValueError, match=f"pass@{k} of {right} right among {samples} samples"):
        pass_at_k(right, samples, k)


# One model's shares


def test_wilsons_interval_is_the_set_of_truths_whose_normal_test_accepts_the_sample():
    # Its definition: |p - truth| <= z sqrt(truth (1 - truth) / N), tried on a fine grid.
    for right, count in [(0, 10), (3, 10), (45, 50), (1, 200)]:
        p, grid = right / count, [i / 50_000 for i in range(50_001)]
        accepted = [t for t in grid if abs(p - t) <= 1.959964 * sqrt(t * (1 - t) / count) + 1e-12]
        interval = share_interval([1.0] * right + [0.0] * (count - right))
        assert interval.value == p
        assert interval.low == pytest.approx(min(accepted), abs=4e-5)
        assert interval.high == pytest.approx(max(accepted), abs=4e-5)


def test_wilsons_interval_by_hand():
    # Newcombe 1998, table I: 81 of 263 gives .2553 to .3662; 0 of 20 gives 0 to .1611.
    assert bounds(share_interval([1.0] * 81 + [0.0] * 182)) == (0.2553, 0.3662)
    assert bounds(share_interval([0.0] * 20)) == (0.0, 0.1611)


def test_shares_that_vary_less_count_as_more_problems():
    # Half the variance of p (1 - p): as sure as twice as many right-or-wrong answers.
    # Shares .5 +- sqrt(1/8): variance 1/8 where right or wrong have 1/4.
    step = sqrt(1 / 8)
    less = share_interval([0.5 - step, 0.5 + step] * 20)
    twice = share_interval([0.0, 1.0] * 40)
    assert bounds(less, 9) == bounds(twice, 9)


@given(shares)
def test_an_interval_of_shares_holds_their_mean_and_only_shares_and_has_a_width(share_N):
    interval = share_interval(share_N)
    assert 0 <= interval.low <= interval.value <= interval.high <= 1
    assert interval.high - interval.low > 1e-4
    mirrored = share_interval([1 - share for share in share_N])
    assert mirrored.low == pytest.approx(1 - interval.high, abs=1e-12)
    assert mirrored.high == pytest.approx(1 - interval.low, abs=1e-12)


@pytest.mark.parametrize("share_N", [[], [1.5], [0.0, -0.1], [float("nan")]])
def test_what_is_no_share_is_refused(share_N):
    with pytest.raises(ValueError, match="expected at least one share"):
        share_interval(share_N)


def test_rewards_on_any_scale_have_the_normal_interval():
    # Mean 4, s^2 = (9 + 1 + 4 + 0) / 3: 4 +- 1.95996 sqrt(14/3 / 4) = 4 +- 2.1170.
    interval = mean_interval([1.0, 5.0, 6.0, 4.0])
    assert interval.value == 4
    assert bounds(interval) == (1.883, 6.117)
    with pytest.raises(ValueError, match="at least two rewards"):
        mean_interval([1.0])


# Two models


def test_the_paired_interval_of_right_or_wrong_is_bonetts_and_prices():
    # 16 problems only A solves, 4 only B, of 50: p12 = 17/52, p21 = 5/52,
    # (12/52) +- 1.95996 sqrt((22/52 - (12/52)^2) / 52) = .2308 +- .1653.
    interval = difference_interval([1.0] * 16 + [-1.0] * 4 + [0.0] * 30)
    assert interval.value == 12 / 50
    assert bounds(interval) == (0.0655, 0.3961)
    # No disagreement in 30: 0 +- 1.95996 sqrt((2/32) / 32).
    assert bounds(difference_interval([0.0] * 30)) == (-0.0866, 0.0866)
    # One problem tells no two models apart, but many that agree do.
    assert [difference_interval([1.0] * count).low > 0 for count in (1, 3, 8)] == [0, 0, 1]


@given(shares, st.floats(0.01, 100))
def test_the_paired_interval_has_no_unit_and_no_favourite(share_N, unit):
    difference_N = [share - 0.5 for share in share_N]
    if not any(difference_N):
        return
    interval = difference_interval(difference_N)
    scaled = difference_interval([-unit * difference for difference in difference_N])
    assert scaled.value == pytest.approx(-unit * interval.value)
    assert scaled.low == pytest.approx(-unit * interval.high)
    assert scaled.high == pytest.approx(-unit * interval.low)
    assert interval.low < interval.high


def coverage(truth, interval_of_a_world, worlds=800):
    """How often an interval holds the truth: 95 % is promised, with a standard error of .8 %."""
    generator = random.Random(0)
    inside = (interval_of_a_world(generator) for _ in range(worlds))
    return sum(i.low <= truth <= i.high for i in inside) / worlds


def test_the_interval_of_sampled_shares_holds_the_truth_though_samples_of_a_problem_are_alike():
    # A problem's own rate is uniform on 0..1; 4 samples each. Samples taken for independent
    # (N = 60 x 4 answers) would hold the truth in some 85 %.
    def world(generator):
        rates = [generator.random() for _ in range(60)]
        return share_interval([sum(generator.random() < r for _ in range(4)) / 4 for r in rates])

    assert 0.93 <= coverage(0.5, world) <= 0.97


def test_the_paired_interval_of_samples_holds_the_true_difference():
    # The same problem is easy or hard for both, so their answers go together.
    def world(generator):
        def solved(rate):
            return sum(generator.random() < rate for _ in range(4)) / 4

        rates = [0.9 * generator.random() for _ in range(60)]
        return difference_interval([solved(rate + 0.08) - solved(rate) for rate in rates])

    assert 0.93 <= coverage(0.08, world) <= 0.97


# Student's t


def test_the_quantiles_are_those_of_the_tables():
    printed = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 9: 2.262, 30: 2.042, 120: 1.980}
    assert {n: round(t_quantile(0.975, n), 3) for n in printed} == printed
    assert t_quantile(0.95, 4) == pytest.approx(2.1318, abs=1e-4)
    assert t_quantile(0.025, 4) == pytest.approx(-t_quantile(0.975, 4))
    assert [round(t_below(1.0, n), 4) for n in (1, 2, 5)] == [0.75, 0.7887, 0.8184]


def test_a_paired_interval_by_hand():
    # Mean .02, deviations -.01, .02, -.01: s = sqrt(.0006 / 2) = .017321; 4.3027 s / sqrt(3)
    found = t_interval([0.01, 0.04, 0.01])
    assert found.value == pytest.approx(0.02)
    assert bounds(found) == (-0.023, 0.063)
    assert t_interval([0.1] * 5) == Interval(0.1, 0.1, 0.1)
    with pytest.raises(ValueError, match="at least two"):
        t_interval([0.3])
