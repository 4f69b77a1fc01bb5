"""Does sharing pay? For each pair the gain of F-TIS, and how sure one can be.

There are two controls: *alone*, and *the same generation*, alone with 1/m of the problems, as many
as a node of m writes. An *A/A pair* is one model under two names. See templates/words.md.j2.
"""

import math
from collections.abc import Mapping
from itertools import product
from typing import NamedTuple

from potluck_experiments.results import Results
from potluck_experiments.statistics import MeanInterval, deviation, interval_of, seeds_to_tell
from potluck_experiments.suite import Measure, When
from potluck_experiments.verdicts import out_of_range

SHARED = "f-tis"
SAME_GENERATION = {2: "half", 4: "quarter"}
"""Setting in which one model writes its part of so many."""
SAME = 0.03  # accuracies that differ by no more count as equal
COMPARED: tuple[tuple[Measure, When], ...] = (
    ("greedy", "end"), ("greedy", "early"), ("sampled", "end"), ("sampled", "early"),
    ("out-of-distribution", "end"),
)  # fmt: skip


def shared_pairs(results: Results) -> list[str]:
    """Return the pairs that were run together with F-TIS, in the order of the scale."""
    pairs = results.suite.pairs(results.scale)
    return [pair for pair in pairs if (pair, SHARED) in results.runs]


def controls_of(results: Results, pair: str) -> list[str]:
    """Return alone, and the same generation where settings.toml has it for so many models."""
    same = SAME_GENERATION.get(len(results.suite.models(results.scale, pair)), "")
    return [setting for setting in ("alone", same) if setting in results.suite.settings]


class PairGain(NamedTuple):
    """F-TIS minus a control, of one model of a pair, in one measure."""

    pair: str
    model: str
    than: str
    measure: Measure
    when: When
    difference: MeanInterval | None
    """Difference of accuracies paired by seed; None for fewer than two seeds."""
    word: str
    """"pays", "costs", "no difference" (within SAME), "too wide", "floor", "2 of 5 seeds"."""


def gains_of(results: Results) -> dict[tuple[str, ...], PairGain]:
    """Compare F-TIS with every control, by pair, model, control, measure and when."""
    gains: dict[tuple[str, ...], PairGain] = {}
    for pair in shared_pairs(results):
        models = results.suite.models(results.scale, pair)
        for model, than, key in product(models, controls_of(results, pair), COMPARED):
            sides = results.by_seed(pair, model, *key, [SHARED, than]).dropna()
            difference = interval_of(sides[SHARED] - sides[than])
            word = results.too_few(len(sides)) or out_of_range(key[0], sides[than])
            word = word or (word_of(difference) if difference else "")
            gains[pair, model, than, *key] = PairGain(pair, model, than, *key, difference, word)
    return gains


def chance_of(results: Results, gains: Mapping[tuple[str, ...], PairGain]) -> list[MeanInterval]:
    """Return what A/A pairs gain over alone, of the first model: they stay equal to the bit."""
    suite, scale = results.suite, results.scale
    return [
        gain.difference
        for gain in gains.values()
        if gain.than == "alone" and suite.is_same_model(scale, gain.pair)
        if gain.difference and gain.model == suite.models(scale, gain.pair)[0]
    ]


def word_of(difference: MeanInterval) -> str:
    """Tell whether sharing pays. It may pay, or cost, less than SAME."""
    if difference.low > 0:
        return "pays"
    if difference.high < 0:
        return "costs"
    return "no difference" if max(-difference.low, difference.high) <= SAME else "too wide"


class ModelSpread(NamedTuple):
    """How far the seeds of a model lie apart: standard deviations of final greedy accuracy."""

    title: str  # Its family's
    model: str
    seeds: int  # Seeds of alone
    alone: float
    half: float | None
    paired: float | None  # Of F-TIS minus alone, the largest of the model's pairs but A/A ones
    needed: int
    """Seeds to tell TO_TELL by the spread of alone; then by that of the paired differences."""
    needed_paired: int | None


def spread_of(results: Results) -> list[ModelSpread]:
    """Measure each model that was run alone with two seeds or more."""
    found, suite = [], results.suite
    for name, family in suite.scales[results.scale].family.items():
        for model in dict.fromkeys(map(family.alone_as, family.model)):
            pairs = [f"{name}.{pair}" for pair, models in family.pair.items() if model in models]
            columns = ["alone", "half", SHARED]
            tables = [results.by_seed(pair, model, "greedy", "end", columns) for pair in pairs]
            paired = [
                deviation(table[SHARED] - table.alone)
                for pair, table in zip(pairs, tables, strict=True)
                if not suite.is_same_model(results.scale, pair)
            ]
            widest = max((spread for spread in paired if spread is not None), default=None)
            by_pairs = None if widest is None else seeds_to_tell(widest)
            # A model alone is the same cells in each of its pairs.
            if tables and (alone := deviation(tables[0].alone)) is not None:
                seeds, half = tables[0].alone.count(), deviation(tables[0].half)
                row = (seeds, alone, half, widest, seeds_to_tell(math.sqrt(2) * alone), by_pairs)
                found.append(ModelSpread(family.title, model, *row))
    return found
