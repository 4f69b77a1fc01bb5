"""Does sharing pay? For each pair what F-TIS gains, and how sure one can be.

A node of m writes 1/m of the completions and learns from all. So there are two controls:
*alone*, which writes everything itself, and its *fair share*, alone with 1/m of the
problems, which writes as much as the node does and learns from no more. What sharing costs
is in price.py.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import stdev

from potluck.reproduce.cells import alone_as
from potluck.reproduce.judge.statistics import (
    Interval,
    Measure,
    When,
    interval_of,
    t_975,
    value_of,
)
from potluck.reproduce.judge.verdict import Results, Runs, out_of_range
from potluck.reproduce.suite import Scale, Suite

SHARED = "f-tis"
FAIR_SHARE = {2: "half", 4: "quarter"}
"""Of so many models, the setting in which one writes what it would write among them."""

SAME = 0.03
"""Accuracies that differ by no more count as equal."""
TO_TELL = 0.05
"""The difference of accuracy that the seeds should be able to tell."""

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
    """The control: alone, or the fair share."""
    measure: Measure
    when: When
    difference: Interval | None
    """Of accuracies, paired by seed; None of fewer than two seeds."""
    word: str
    """"pays", "costs", "no difference" (within SAME), "too wide", "floor", "2 of 5 seeds"."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How far the seeds of one model alone lie apart."""

    family: str
    model: str
    seeds: int
    deviation: float
    """Standard deviation over the seeds of the final greedy accuracy."""
    half_width: float
    """Of a difference's 95 % interval with the scale's seeds, see ``half_width_of``."""
    needed: int
    """Seeds with which it is TO_TELL or less."""


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
    """Alone, and the fair share where settings.toml has one for so many models."""
    return [s for s in ("alone", FAIR_SHARE.get(len(models))) if s in suite.settings and s]


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
    file = suite.scales[scale]
    found = []
    for name, family in file.family.items():
        for model in dict.fromkeys(alone_as(family, model) for model in family.model):
            wanted = (scale, name, (model,), "alone")
            ends = [
                value_of(cell.node[model], "greedy", "end")
                for cell in results.values()
                if (cell.scale, cell.family, cell.models, cell.setting) == wanted
            ]
            if len(ends) >= 2:
                deviation = stdev(ends)
                half_width = half_width_of(deviation, file.seeds)
                needed = seeds_to_tell(deviation)
                found.append(Spread(name, model, len(ends), deviation, half_width, needed))
    return found


def half_width_of(deviation: float, seeds: int) -> float:
    """Of the 95 % interval of a difference between two runs whose seeds are independent.

        t(.975, n - 1) sqrt(2) s / sqrt(n)

    Differences paired by seed are narrower as far as a seed moves both alike.
    """
    return t_975(seeds - 1) * math.sqrt(2) * deviation / math.sqrt(seeds)


def seeds_to_tell(deviation: float) -> int:
    """The fewest seeds, two at least, whose half width is TO_TELL or less."""
    tried = range(2, 10_000)
    return tried[bisect_left(tried, True, key=lambda n: half_width_of(deviation, n) <= TO_TELL)]
