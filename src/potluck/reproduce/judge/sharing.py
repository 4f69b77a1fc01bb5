"""Does sharing pay? For each pair what F-TIS gains, and how sure one can be.

A node of m writes 1/m of the completions and learns from all. So there are two controls:
*alone*, which writes everything itself, and alone with *the same generation*: with 1/m of
the problems it writes as much as the node does. That control does not match what is learned
from: the node learns from all problems of a round, and the control from 1/m of them, with a
learning rate that was tuned for all. What sharing costs is in price.py.

A pair of *twins*, one model under two names, is an A/A test. Both begin with equal weights,
learn from one batch and stay equal to the bit, so with F-TIS they are alone with other dice:
what F-TIS gains there is what chance alone does.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import stdev

from potluck.reproduce.cells import alone_as
from potluck.reproduce.judge.runs import Results, Runs
from potluck.reproduce.judge.statistics import (
    Interval,
    Measure,
    When,
    interval_of,
    t_975,
    t_quantile,
    value_of,
)
from potluck.reproduce.judge.verdict import out_of_range
from potluck.reproduce.suite import Scale, Suite

SHARED = "f-tis"
SAME_GENERATION = {2: "half", 4: "quarter"}
"""Of so many models, the setting in which one writes what it would write among them."""

SAME = 0.03
"""Accuracies that differ by no more count as equal."""
TO_TELL = 0.05
"""The true difference of accuracy that the seeds should be able to tell ..."""
POWER = 0.8
"""... with this probability."""

LOOKED_AT: tuple[tuple[Measure, When], ...] = (
    ("greedy", "end"),
    ("greedy", "early"),
    ("sampled", "end"),
    ("sampled", "early"),
    ("out-of-distribution", "end"),
)


@dataclass(frozen=True, slots=True)
class Gain:
    """F-TIS minus a control, of one model of a pair, in one measure."""

    pair: str
    model: str
    than: str
    """The control: alone, or the same generation."""
    measure: Measure
    when: When
    difference: Interval | None
    """Of accuracies, paired by seed; None of fewer than two seeds."""
    word: str
    """"pays", "costs", "no difference" (within SAME), "too wide", "floor", "2 of 5 seeds"."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How far the seeds of one model lie apart: standard deviations of final greedy accuracy."""

    family: str
    model: str
    seeds: int
    """Of alone."""
    alone: float
    half: float | None
    """With half of the generation; None of fewer than two seeds."""
    paired: float | None
    """Of the differences F-TIS minus alone, seed by seed: the largest of the pairs that the
    model is in, but for twins. None where no pair has two seeds."""
    needed: int
    """Seeds to tell TO_TELL between two runs of which each varies as alone, independently."""
    needed_paired: int | None
    """The same of differences that vary as ``paired``."""


def gains_of(suite: Suite, scale: Scale, pair: str, results: Results) -> list[Gain]:
    """F-TIS against every control, model by model."""
    runs = Runs(suite, scale, pair, results)
    return [
        _gain(runs, model, than, measure, when)
        for model in runs.models
        for than in controls_of(suite, runs.models)
        for measure, when in LOOKED_AT
    ]


def controls_of(suite: Suite, models: Sequence[str]) -> list[str]:
    """Alone, and the same generation where settings.toml has it for so many models."""
    return [s for s in ("alone", SAME_GENERATION.get(len(models))) if s in suite.settings and s]


def are_twins(suite: Suite, scale: Scale, pair: str) -> bool:
    """Whether all names of FAMILY.PAIR are one model's: an A/A test."""
    family = suite.scales[scale].family[pair.partition(".")[0]]
    return len({alone_as(family, model) for model in suite.pair(scale, pair)}) == 1


def _gain(runs: Runs, model: str, than: str, measure: Measure, when: When) -> Gain:
    shared = runs.values(model, SHARED, measure, when)
    control = runs.values(model, than, measure, when)
    seeds = sorted(shared.keys() & control.keys())
    difference = interval_of([shared[s] - control[s] for s in seeds])
    word = runs.too_few(len(seeds)) or out_of_range(measure, [control[s] for s in seeds])
    if not word and difference is not None:
        word = word_of(difference)
    return Gain(runs.pair, model, than, measure, when, difference, word)


def word_of(difference: Interval) -> str:
    """Whether sharing pays. It may pay, or cost, less than SAME."""
    if difference.low > 0:
        return "pays"
    if difference.high < 0:
        return "costs"
    return "no difference" if max(-difference.low, difference.high) <= SAME else "too wide"


def spread_of(suite: Suite, scale: Scale, results: Results) -> list[Spread]:
    """Of each model that was run alone with two seeds or more, once if it has twins."""
    found = []
    for name, family in suite.scales[scale].family.items():
        pairs = [
            Runs(suite, scale, f"{name}.{pair}", results)
            for pair in family.pair
            if not are_twins(suite, scale, f"{name}.{pair}")
        ]
        for model in dict.fromkeys(alone_as(family, model) for model in family.model):
            ends = _ends(suite, scale, name, model, "alone", results)
            alone = _deviation(ends)
            if alone is not None:
                half = _deviation(_ends(suite, scale, name, model, "half", results))
                each = [_paired(runs, model) for runs in pairs]
                paired = max((s for s in each if s is not None), default=None)
                needed = seeds_to_tell(math.sqrt(2) * alone)
                of_pairs = None if paired is None else seeds_to_tell(paired)
                found.append(Spread(name, model, len(ends), alone, half, paired, needed, of_pairs))
    return found


def _ends(
    suite: Suite, scale: Scale, family: str, model: str, setting: str, results: Results
) -> list[float]:
    """Final greedy accuracies of a model by itself, over the seeds that the scale asks for."""
    wanted, asked = (scale, family, (model,), setting), suite.scales[scale].seeds
    return [
        value_of(cell.node[model], "greedy", "end")
        for cell in results.values()
        if (cell.scale, cell.family, cell.models, cell.setting) == wanted and cell.seed < asked
    ]


def _paired(runs: Runs, model: str) -> float | None:
    """Of F-TIS minus alone; None where the model is not in the pair, or has too few seeds."""
    if model not in runs.models:
        return None
    shared, alone = (runs.values(model, s, "greedy", "end") for s in (SHARED, "alone"))
    return _deviation([shared[s] - alone[s] for s in sorted(shared.keys() & alone.keys())])


def _deviation(values: Sequence[float]) -> float | None:
    return stdev(values) if len(values) >= 2 else None


def seeds_to_tell(deviation: float) -> int:
    """The fewest seeds, two at least, with which a true difference of TO_TELL is told.

        (t(.975, n - 1) + t(POWER, n - 1)) s / sqrt(n) <= TO_TELL

    Told: the 95 % interval leaves out 0, with a probability of POWER. An interval whose half
    width is the difference does so only half of the time. The probability is right to within
    .01 from 4 seeds on; with 3 it is .76.

    Args:
        deviation: s of the differences, one per seed. Of two independent runs it is sqrt(2)
            times the s of either.

    Source: the usual approximation of the t-test's power by two quantiles of the central
    distribution, Cochran and Cox, Experimental Designs, on the number of replications.
    """
    tried = range(2, 10_000)
    return tried[bisect_left(tried, True, key=lambda n: detectable(deviation, n) <= TO_TELL)]


def detectable(deviation: float, seeds: int) -> float:
    """The true difference that so many seeds tell with a probability of POWER."""
    one_sided = t_quantile(2 * POWER - 1, seeds - 1)
    return (t_975(seeds - 1) + one_sided) * deviation / math.sqrt(seeds)
