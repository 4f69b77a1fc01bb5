"""The price of sharing: tokens, core time and rounds of F-TIS over those of each model alone.

Over the whole run, and up to the same quality. Ratios are paired by seed; 1 is what the
models pay when they are trained by themselves, one after the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean

from potluck_experiments.gains import SHARED, controls_of
from potluck_experiments.results import NodeResult, PairRuns, Results
from potluck_experiments.statistics import MeanInterval, interval_of, ratio_of

QUALITY = 0.9  # share of alone's final greedy accuracy: the level at which costs are compared


@dataclass(frozen=True, slots=True)
class LevelReached:
    """Rounds that a model needs to QUALITY times the accuracy that alone ends at; None unless all
    seeds reach it: the mean of those that do would be of the lucky ones."""

    rounds: MeanInterval | None
    seeds: int
    never: int


@dataclass(frozen=True, slots=True)
class SameQuality:
    """F-TIS until all models have reached their level, over each by itself until it has.

    A seed has a ratio if all get there, both ways, and none starts there. Unless every seed has
    one there is no mean: it would leave out the seeds that tell the most.
    """

    than: str
    tokens: MeanInterval | None = None
    core: MeanInterval | None = None
    seeds: int = 0
    used: int = 0
    """Seeds that have a ratio; then those in which a model never has its level, both ways."""
    never: int = 0
    control_never: int = 0


@dataclass(frozen=True, slots=True)
class PairCost:
    """The price that one pair pays with F-TIS. Ratio 1: each alone, one after the other."""

    tokens: Mapping[str, MeanInterval | None]  # Tokens that each model writes in the whole run
    core: MeanInterval | None  # Core seconds of all models in the whole run
    levels: Mapping[str, float]
    """Greedy accuracy to reach, of each model: of the mean over the seeds of alone."""
    reached: Mapping[tuple[str, str], LevelReached]  # By model and setting
    same_quality: tuple[SameQuality, ...]


def cost_of(results: Results, pair: str) -> PairCost:
    """Compare tokens, core time and rounds of one pair."""
    models = results.suite.models(results.scale, pair)
    controls = controls_of(results.suite, models)
    by_setting = {s: results.runs.get((pair, s), {}) for s in (*controls, SHARED)}
    nodes = {
        (model, setting): [its[model].node for its in seeds.values() if model in its]
        for model in models
        for setting, seeds in by_setting.items()
    }
    ends = {model: [node.greedy[-1] for node in nodes[model, "alone"]] for model in models}
    levels = {model: QUALITY * mean(its) for model, its in ends.items() if its}
    both: dict[str, list[tuple[PairRuns, PairRuns]]] = {
        than: [  # F-TIS and a control for each seed that all models have in both
            (shared, control)
            for seed, shared in by_setting[SHARED].items()
            for control in [by_setting[than].get(seed, {})]
            if len(shared) == len(control) == len(models)
        ]
        for than in controls
    }
    whole = both["alone"]
    core = [[sum(sum(run.core_s) for run in runs.values()) for runs in two] for two in whole]
    return PairCost(
        {
            m: ratio_of([[sum(runs[m].node.tokens) for runs in two] for two in whole])
            for m in models
        },
        ratio_of(core),
        levels,
        {key: _reached(its, levels[key[0]]) for key, its in nodes.items() if key[0] in levels},
        tuple(_same_quality(than, its, levels, models) for than, its in both.items()),
    )


def _reached(nodes: Sequence[NodeResult], level: float) -> LevelReached:
    needed = [rounds_to(node, level) for node in nodes]
    reached = [rounds for rounds in needed if rounds is not None]
    never = len(needed) - len(reached)
    return LevelReached(None if never else interval_of(reached), len(needed), never)


def _same_quality(
    than: str, both: Sequence[tuple[PairRuns, PairRuns]], levels: Mapping[str, float],
    models: Sequence[str],
) -> SameQuality:  # fmt: skip
    """Together, all go on until the last has its level; each by itself stops at its own."""
    if len(levels) < len(models):  # not all were run alone: there is no level to reach
        return SameQuality(than)
    tokens, core, never, control_never = [], [], 0, 0
    for shared, control in both:
        together, apart = (_rounds_to_levels(runs, levels) for runs in (shared, control))
        never += not together
        control_never += not apart
        if together and apart and min(*together.values(), *apart.values()) > 0:
            now = _spent(shared, dict.fromkeys(models, max(together.values())))
            then = _spent(control, apart)
            tokens.append((now[0], then[0]))
            core.append((now[1], then[1]))
    ratios = (ratio_of(tokens), ratio_of(core)) if len(core) == len(both) else (None, None)
    return SameQuality(than, *ratios, len(both), len(core), never, control_never)


def _rounds_to_levels(runs: PairRuns, levels: Mapping[str, float]) -> dict[str, float]:
    """Return the rounds that each model needs; nothing if one never has its level."""
    found = {model: rounds_to(runs[model].node, level) for model, level in levels.items()}
    reached = {model: rounds for model, rounds in found.items() if rounds is not None}
    return reached if len(reached) == len(found) else {}


def _spent(runs: PairRuns, rounds: Mapping[str, float]) -> tuple[float, float]:
    """Return tokens and core seconds of all models, each over its first ``rounds``."""
    tokens = sum(up_to(stop, runs[model].node.tokens) for model, stop in rounds.items())
    return tokens, sum(up_to(stop, runs[model].core_s) for model, stop in rounds.items())


def rounds_to(node: NodeResult, level: float) -> float | None:
    """Return the round at which greedy accuracy first reaches ``level``, on the straight line
    between two evaluations; None if it never does."""
    curve = list(zip(node.eval_rounds, node.greedy, strict=True))
    if curve and curve[0][1] >= level:
        return float(curve[0][0])
    for (before, lower), (after, upper) in pairwise(curve):
        if upper >= level:
            return before + (after - before) * (level - lower) / (upper - lower)
    return None


def up_to(rounds: float, amounts: Sequence[float]) -> float:
    """Return the sum over the first ``rounds``, with its part of a begun one."""
    whole = int(rounds)
    return sum(amounts[:whole]) + (rounds - whole) * sum(amounts[whole : whole + 1])
