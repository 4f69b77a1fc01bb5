"""The price of sharing: tokens, core time and rounds of F-TIS over those of each model alone.

Ratios are paired by seed; 1 is what models pay that are trained alone, one after the other.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise, product
from statistics import mean
from typing import NamedTuple

import numpy as np

from potluck_experiments.gains import SHARED, controls_of, shared_pairs
from potluck_experiments.results import NodeResult, PairRuns, Results
from potluck_experiments.statistics import MeanInterval, ratio_of

QUALITY = 0.9  # share of alone's final greedy accuracy: the level at which costs are compared


class SameQuality(NamedTuple):
    """F-TIS until all models have reached their level, over each by itself until it has.

    A seed has a ratio if all get there, both ways, and none starts there. Unless every seed has
    one there is no mean: it would leave out the seeds that tell the most.
    """

    than: str
    tokens: MeanInterval | None
    core: MeanInterval | None
    seeds: int
    used: int
    """Seeds that have a ratio; then those in which a model never has its level, both ways."""
    never: int
    control_never: int


class PairCost(NamedTuple):
    """The price that one pair pays with F-TIS."""

    tokens: Mapping[str, MeanInterval | None]  # Tokens that each model writes in the whole run
    core: MeanInterval | None  # Core seconds of all models in the whole run
    levels: Mapping[str, float]
    """Greedy accuracy to reach, of each model: of the mean over the seeds of alone."""
    reached: Mapping[tuple[str, str], list[float]]
    """Rounds until then by model and setting, of each seed; infinite if it never gets there."""
    same_quality: list[SameQuality]


def costs_of(results: Results) -> dict[str, PairCost]:
    """Compare every pair that was run together."""
    return {pair: cost_of(results, pair) for pair in shared_pairs(results)}


def cost_of(results: Results, pair: str) -> PairCost:
    """Compare tokens, core time and rounds of one pair."""
    models = results.suite.models(results.scale, pair)
    controls = controls_of(results, pair)
    runs = {setting: results.runs.get((pair, setting), {}) for setting in (*controls, SHARED)}
    alone = runs["alone"].values()
    ends = {
        model: [its[model].node.greedy[-1] for its in alone if model in its] for model in models
    }
    levels = {model: QUALITY * mean(its) for model, its in ends.items() if its}
    reached = {
        (m, setting): [rounds_to(its[m].node, levels[m]) for its in seeds.values() if m in its]
        for m, (setting, seeds) in product(levels, runs.items())
    }
    # F-TIS and a control, for each seed that all models have in both, and a level to reach.
    both = {
        than: [
            (shared, runs[than][seed])
            for seed, shared in runs[SHARED].items()
            if len(shared) == len(runs[than].get(seed, ())) == len(levels) == len(models)
        ]
        for than in controls
    }
    whole = both["alone"]
    return PairCost(
        {m: ratio_of([sum(its[m].node.tokens) for its in two] for two in whole) for m in models},
        ratio_of([sum(sum(run.core_s) for run in its.values()) for its in two] for two in whole),
        levels,
        reached,
        [_same_quality(than, its, levels) for than, its in both.items()],
    )


def _same_quality(
    than: str, both: Sequence[tuple[PairRuns, PairRuns]], levels: Mapping[str, float]
) -> SameQuality:
    """Together, all go on until the last has its level; each by itself stops at its own."""
    tokens, core, never, control_never = [], [], 0, 0
    for shared, control in both:
        together, apart = (
            {model: rounds_to(runs[model].node, level) for model, level in levels.items()}
            for runs in (shared, control)
        )
        first, last = min(*together.values(), *apart.values()), max(together.values())
        never += last == math.inf
        control_never += math.inf in apart.values()
        if first > 0 and math.inf not in (last, *apart.values()):
            now, then = _spent(shared, dict.fromkeys(together, last)), _spent(control, apart)
            tokens.append((now[0], then[0]))
            core.append((now[1], then[1]))
    ratios = (ratio_of(tokens), ratio_of(core)) if len(core) == len(both) else (None, None)
    return SameQuality(than, *ratios, len(both), len(core), never, control_never)


def _spent(runs: PairRuns, rounds: Mapping[str, float]) -> tuple[float, float]:
    """Return tokens and core seconds of all models, each over its first ``rounds``."""
    tokens = sum(up_to(stop, runs[model].node.tokens) for model, stop in rounds.items())
    return tokens, sum(up_to(stop, runs[model].core_s) for model, stop in rounds.items())


def rounds_to(node: NodeResult, level: float) -> float:
    """Return the round at which greedy accuracy first reaches ``level``, on the straight line
    between two evaluations; infinite if it never does."""
    curve = list(zip(node.eval_rounds, node.greedy, strict=True))
    if curve[0][1] >= level:
        return curve[0][0]
    for (before, lower), (after, upper) in pairwise(curve):
        if upper >= level:
            return before + (after - before) * (level - lower) / (upper - lower)
    return math.inf


def up_to(rounds: float, amounts: Sequence[float]) -> float:
    """Return the sum over the first ``rounds``, with its part of a begun one."""
    sums = list(accumulate(amounts, initial=0.0))
    return float(np.interp(rounds, range(len(sums)), sums))
