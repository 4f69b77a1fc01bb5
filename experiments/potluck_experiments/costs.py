"""The price of sharing: tokens and core time of a pair, over those of its models one by one.

Ratios are of a pair: 1 is what its models pay that are trained alone, one after the other. A
model's curve is its sampled reward, the mean over the seeds and over SMOOTHED rounds: greedy
accuracy is measured too seldom to tell when a level is reached."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import NamedTuple

from potluck_experiments.results import PairRuns, Results
from potluck_experiments.statistics import MeanInterval, ratio_of

QUALITY = 0.9  # Share of alone's sampled reward at the end: the level at which costs are compared
SMOOTHED = 5  # Rounds that a point of a curve is the mean of, those before it and its own


Spans = tuple[tuple[float, float], tuple[float, float]]
"""Tokens and core seconds of a pair together, and of its models alone."""


class Course(NamedTuple):
    """One model in one setting, by round: means over the seeds."""

    reward: tuple[float, ...]  # Smoothed
    tokens: tuple[float, ...]
    core_s: tuple[float, ...]


class Cost(NamedTuple):
    """The price that pairs pay in one setting: geometric means over the pairs."""

    core: MeanInterval | None  # Core time of the whole run
    tokens_to_level: MeanInterval | None
    """Together, all go on until the last model has its level; alone each stops at its own. A model
    that never has it counts as if it had it at the end, so that its cost is a lower bound."""
    core_to_level: MeanInterval | None
    never: int  # Models that never have their level together


def cost_of(
    results: Results, pairs: Sequence[str], setting: str, than: str = "alone"
) -> Cost | None:
    """Compare the pairs that ran in both settings; None where there are none."""
    whole: list[Spans] = []
    to_level: list[Spans] = []
    never = 0
    for pair in pairs:
        both = [courses_of(results.runs.get((pair, its), {})) for its in (setting, than)]
        shared, alone = both
        if not shared or shared.keys() != alone.keys():
            continue
        rounds = len(next(iter(alone.values())).reward)
        levels = {model: QUALITY * course.reward[-1] for model, course in alone.items()}
        reached = [{m: rounds_to(levels[m], its[m].reward) for m in its} for its in both]
        never += list(reached[0].values()).count(None)
        together, apart = ({m: stop or rounds for m, stop in its.items()} for its in reached)
        last = dict.fromkeys(shared, max(together.values()))
        every = dict.fromkeys(shared, rounds)
        whole.append((spent(shared, every), spent(alone, every)))
        to_level.append((spent(shared, last), spent(alone, apart)))
    if not whole:
        return None
    tokens, core = (ratio_of((a[i], b[i]) for a, b in to_level) for i in (0, 1))
    return Cost(ratio_of((a[1], b[1]) for a, b in whole), tokens, core, never)


def courses_of(seeds: Mapping[int, PairRuns]) -> dict[str, Course]:
    """Average each model over the seeds; those that lack one are left out."""
    every = list(seeds.values())
    return {
        model: Course(
            smoothed(_mean([its[model].node.sampled for its in every])),
            _mean([its[model].node.tokens for its in every]),
            _mean([its[model].core_s for its in every]),
        )
        for model in (every[0] if every else ())
        if all(model in its for its in every)
    }


def _mean(curves: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(map(mean, zip(*curves, strict=True)))


def smoothed(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(mean(values[max(0, end - SMOOTHED) : end]) for end in range(1, len(values) + 1))


def rounds_to(level: float, reward: Sequence[float]) -> int | None:
    """Return the number of rounds after which a curve first has the level."""
    return next((at for at, value in enumerate(reward, 1) if value >= level), None)


def spent(courses: Mapping[str, Course], stops: Mapping[str, int]) -> tuple[float, float]:
    """Return tokens and core seconds of all models, each over its first rounds."""
    return (
        sum(sum(courses[model].tokens[:stop]) for model, stop in stops.items()),
        sum(sum(courses[model].core_s[:stop]) for model, stop in stops.items()),
    )
