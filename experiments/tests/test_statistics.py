import math
import random
from statistics import stdev

import pytest

import oracle
from made_up import node, results, runs, suite
from potluck_experiments.results import values_of
from potluck_experiments.statistics import interval_of, ratio_of
from potluck_experiments.suite import ExperimentError


def value_of(node, measure, when):
    return values_of(node)[measure, when]


@pytest.mark.parametrize(
    "differences",
    [[0.1, -0.1], [0.02, 0.05, 0.03], [-0.1, -0.2, 0.05, 0.0, 0.3], [0.01 * i for i in range(10)]],
)
def test_an_interval_is_the_plain_sum(differences):
    found = interval_of(differences)
    assert (found.mean, found.low, found.high) == pytest.approx(
        oracle.interval(differences), abs=2e-4
    )
    assert interval_of(differences[:1]) is None


def test_ratios_are_averaged_as_logarithms():
    pairs = [(2, 1), (3, 2), (1, 1.5)]
    found = ratio_of(pairs)
    assert (found.mean, found.low, found.high) == pytest.approx(oracle.geometric(pairs), rel=1e-3)
    turned = ratio_of([(b, a) for a, b in pairs])
    assert (1 / turned.mean, 1 / turned.high) == pytest.approx((found.mean, found.low))
    assert ratio_of([(1, 2)]) is None


@pytest.mark.parametrize("pair", [(0, 1), (1, 0), (-1, 1), (1, math.nan)])
def test_what_has_no_ratio_is_refused(pair):
    with pytest.raises(ExperimentError, match="there is no ratio"):
        ratio_of([(1, 1), pair])


@pytest.mark.parametrize(
    ("greedy", "rounds", "early", "late"),
    [
        ((0.9, 0.2, 0.4, 0.9, 0.7), 20, 0.3, 0.8),  # at rounds 0, 5, 10, 15, 20
        ((0.9, 0.2, 0.4, 0.9, 0.9, 0.9), 10, 0.3, 0.9),  # at 0, 2, 4, 6, 8, 10, and half is 5
    ],
)
def test_early_leaves_out_the_start_and_late_is_the_second_half(greedy, rounds, early, late):
    found = node(greedy, rounds=rounds)
    assert value_of(found, "greedy", "early") == pytest.approx(early)
    assert value_of(found, "greedy", "late") == pytest.approx(late)


def test_a_run_that_was_not_evaluated_early_says_so_to_who_asks():
    late = [node((0.1, 0.5), rounds=20)]
    there = results(*runs("alone", ("small",), small=late), suite=suite())
    where = "digits.size", "small", "alone", "greedy"
    assert there.by_seed(*where, "end") == {0: 0.5}
    with pytest.raises(ExperimentError, match="no greedy accuracy 'early'"):
        there.by_seed(*where, "early")


@pytest.mark.parametrize(
    ("rounds", "early", "late", "end"), [(60, 14.5, 44.5, 56.5), (45, 10.5, 33, 42), (5, 0.5, 3, 3)]
)
def test_sampled_is_of_both_halves_and_of_the_last_tenth_or_three_rounds(rounds, early, late, end):
    found = node((0.1, 0.5), rounds=rounds, sampled=range(rounds))
    for when, mean in ("early", early), ("late", late), ("end", end):
        assert value_of(found, "sampled", when) == pytest.approx(mean)


def test_an_interval_at_another_level_is_wider_or_narrower_on_both_sides():
    found = interval_of([0.1, 0.2, 0.3, 0.4, 0.5])
    assert found.at(0.95).high == pytest.approx(found.high)
    wide, narrow = found.at(0.99), found.at(0.9)  # 4.604 and 2.132 instead of 2.776
    for other, t in ((wide, 4.604), (narrow, 2.132)):
        assert other.high - 0.3 == pytest.approx((found.high - 0.3) * t / 2.776, 1e-3)
        assert 0.3 - other.low == pytest.approx(other.high - 0.3)
        assert (other.mean, other.n) == (found.mean, 5)


def test_what_can_be_told_is_told_eight_times_in_ten():
    """By dice: a true difference of ``to_tell``, its interval leaves out 0."""
    generator, told, tries = random.Random(0), 0, 3000
    deviation = 0.05
    # The interval of five values whose standard deviation is the true one.
    spread = [deviation * x for x in (-1.2649111, -0.6324555, 0.0, 0.6324555, 1.2649111)]
    assert stdev(spread) == pytest.approx(deviation)
    true = interval_of(spread).to_tell
    for _ in range(tries):
        _, low, high = oracle.interval([generator.gauss(true, deviation) for _ in range(5)])
        told += low > 0 or high < 0
    assert told / tries == pytest.approx(0.8, abs=0.04)
