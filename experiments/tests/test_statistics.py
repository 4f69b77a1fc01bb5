"""Intervals, ratios, and the price of a pair against a bill that is added up by hand. What early,
late and the end are, test_numbers.py recomputes from the cells."""

import math
import random
from statistics import stdev

import msgspec
import pytest

import oracle
from made_up import experiment, node, results, runs, suite
from potluck_experiments.costs import cost_of, rounds_to, smoothed
from potluck_experiments.results import values_of
from potluck_experiments.statistics import interval_of, ratio_of
from potluck_experiments.suite import ExperimentError


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


def test_a_run_that_was_not_evaluated_early_says_so_to_who_asks():
    late = [node((0.1, 0.5), rounds=20)]
    there = results(*runs("alone", ("small",), small=late), suite=suite())
    assert values_of(node((0.9, 0.2, 0.4, 0.9, 0.7)))["greedy", "late"] == pytest.approx(0.8)
    where = "digits.size", "small", "alone", "greedy"
    assert there.by_seed(*where, "end") == {0: 0.5}
    with pytest.raises(ExperimentError, match="no greedy accuracy 'early'"):
        there.by_seed(*where, "early")


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


# The price of a pair

PAIR = ("small", "large")


def rising(by, rounds=20, tokens=100):
    """Sampled reward rises by so much a round, up to .8."""
    reward = [min(0.8, by * round) for round in range(1, rounds + 1)]
    return node((0.1, 0.5), rounds=rounds, sampled=reward, tokens=tokens)


def cells(small, large, *, shared=60.0, tokens=100):
    """Alone both rise by .08 a round and take 60 core seconds; together as is said."""
    seeds = range(2)
    found = runs("alone", PAIR, **{m: [rising(0.08) for _ in seeds] for m in PAIR})
    both = {
        "small": [rising(small, tokens=tokens) for _ in seeds],
        "large": [rising(large, tokens=tokens) for _ in seeds],
    }
    together = runs("f-tis", PAIR, **both)
    return found + [msgspec.structs.replace(cell, cpu_s=shared) for cell in together]


def cost(found, pairs=("digits.size",)):
    return cost_of(results(*found, suite=suite(experiment(), seeds=2)), pairs, "f-tis")


def test_a_curve_is_the_mean_of_five_rounds_and_a_level_is_reached_at_the_first():
    assert smoothed([0, 1, 2, 3, 4, 5, 6]) == (0, 0.5, 1, 1.5, 2, 3, 4)
    assert [rounds_to(level, (0, 3, 1, 2)) for level in (0, 2, 4)] == [1, 2, None]


def first_at(by):
    """Round in which so steep a curve comes to nine tenths of .8, in the mean of five rounds."""
    rewards = rising(by).sampled
    means = (sum(rewards[max(0, at - 5) : at]) / min(at, 5) for at in range(1, 21))
    return 1 + next(at for at, mean in enumerate(means) if mean >= 0.72 - 1e-12)


def two(pairs):
    """Geometric mean of ratios that are equal in two pairs."""
    return oracle.geometric([pairs, pairs])[0]


def test_over_the_whole_run_a_pair_is_held_against_its_models_one_by_one():
    # One pair has no interval; so the pair stands under two names.
    found = cost(cells(0.08, 0.08, shared=90.0, tokens=50), ["digits.size"] * 2)
    assert found.core.mean == pytest.approx(90 / 120)
    assert found.never == 0


def test_to_the_level_the_last_model_counts_together_and_each_for_itself_alone():
    found = cost(cells(0.16, 0.04, shared=90.0, tokens=50), ["digits.size"] * 2)
    alone, last = first_at(0.08), first_at(0.04)
    assert last > alone
    assert found.tokens_to_level.mean == pytest.approx(two((2 * last * 50, 2 * alone * 100)))
    # A round of a model alone takes 60 / 20 core seconds; of the pair together 90 / 20.
    assert found.core_to_level.mean == pytest.approx(two((last * 4.5, 2 * alone * 3)))


def test_a_model_that_never_gets_there_is_counted_and_costs_the_whole_run():
    found = cost(cells(0.16, 0.01), ["digits.size"] * 2)
    alone = first_at(0.08)
    assert found.never == 2  # one model, in the two that are one pair
    assert found.tokens_to_level.mean == pytest.approx(two((2 * 20 * 100, 2 * alone * 100)))


def test_a_pair_without_one_of_the_settings_is_left_out():
    found = cells(0.08, 0.08)
    assert cost([cell for cell in found if cell.setting == "alone"]) is None
    assert cost([cell for cell in found if "large" not in cell.node or len(cell.node) == 2]) is None
    assert cost(found).core is None  # one pair tells nothing of the spread
