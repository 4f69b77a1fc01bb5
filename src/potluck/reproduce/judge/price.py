"""What sharing costs: tokens, core time and rounds of F-TIS over those of each model alone.

Over the whole run, and up to the same quality. Ratios are of pairs by seed; 1 is what the
models pay when they are trained by themselves, one after the other.

Core time is what one core worked. The wall seconds of a cell also tell what else the machine
did meanwhile, so those of two cells are never compared: they only share out a cell's core
time over its rounds, see in_core_time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from msgspec.structs import replace

from potluck.reproduce.judge.runs import Results, Runs
from potluck.reproduce.judge.sharing import SHARED, controls_of
from potluck.reproduce.judge.statistics import Interval, interval_of, ratio_of, rounds_to
from potluck.reproduce.result import CellResult, NodeResult
from potluck.reproduce.suite import Scale, Suite

QUALITY = 0.9
"""Of alone's final greedy accuracy: the level at which costs are compared."""


@dataclass(frozen=True, slots=True)
class Reached:
    """How many rounds a model needs to QUALITY times what alone ends at."""

    model: str
    setting: str
    level: float
    """Greedy accuracy: of the mean over the seeds of alone, so one for all settings."""
    rounds: Interval | None
    """In the mean over the seeds; None unless all reach it: the mean of those that do would be
    of the lucky ones."""
    seeds: int
    never: int
    """Of ``seeds``, those that do not reach it."""


@dataclass(frozen=True, slots=True)
class SameQuality:
    """F-TIS until all models have reached their level, over each by itself until it has.

    A seed has a ratio if all get there, both ways, and none starts there. Unless every seed has
    one there is no mean: it would be that of the seeds that went well, and leave out just those
    that tell the most.
    """

    than: str
    """The control."""
    tokens: Interval | None
    """Of all models in the sum."""
    core: Interval | None
    """Core seconds, of all models in the sum."""
    seeds: int
    used: int
    """Of ``seeds``, those that have a ratio."""
    never: int
    """Those in which a model never has its level with F-TIS."""
    control_never: int
    """And by itself."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one pair pays with F-TIS. Ratios: 1 is what each alone, one after the other, pays."""

    pair: str
    tokens: Mapping[str, Interval | None]
    """Of each model, those that it writes in the whole run."""
    core: Interval | None
    """Core seconds of all models, the whole run with its start and its evaluations."""
    reached: tuple[Reached, ...]
    same_quality: tuple[SameQuality, ...]


def cost_of(suite: Suite, scale: Scale, pair: str, results: Results) -> Cost:
    """Tokens, core time and rounds of one pair.

    Raises:
        ExperimentError: a run took no tokens, or no time.
    """
    family = pair.partition(".")[0]
    own = {name: in_core_time(c) for name, c in results.items() if c.family == family}
    runs = Runs(suite, scale, pair, own)
    controls, both = controls_of(suite, runs.models), _side_by_side(runs, "alone")
    return Cost(
        pair,
        {
            model: ratio_of([(sum(s[i].tokens), sum(a[i].tokens)) for s, a in both])
            for i, model in enumerate(runs.models)
        },
        ratio_of([(_core_s(shared), _core_s(alone)) for shared, alone in both]),
        tuple(
            _reached(runs, model, setting, level)
            for model, level in _levels(runs).items()
            for setting in (*controls, SHARED)
        ),
        tuple(_same_quality(runs, than) for than in controls),
    )


def in_core_time(cell: CellResult) -> CellResult:
    """The cell, with core seconds in place of the wall seconds of each node's rounds.

        core_s[node][r] = cpu_s * seconds[node][r] / sum over all nodes n, rounds q: seconds[n][q]

    In the sum they are cpu_s, so each round also bears its part of the start and of the
    evaluations. That is right as far as the machine was equally busy while the cell ran:
    then all of its rounds were slowed by one factor, which cancels.

    Returns:
        Of a cell that took no wall seconds: no core seconds.
    """
    wall_s = sum(sum(node.seconds) for node in cell.node.values())
    core_of_wall = cell.cpu_s / wall_s if wall_s else 0.0
    node = {
        model: replace(node, seconds=tuple(core_of_wall * s for s in node.seconds))
        for model, node in cell.node.items()
    }
    return replace(cell, node=node)


Nodes = tuple[NodeResult, ...]
"""One seed's, a node for each model of the pair; its seconds are core seconds."""


def _side_by_side(runs: Runs, than: str) -> list[tuple[Nodes, Nodes]]:
    """Of each seed that all models have: the nodes with F-TIS, and those of the control."""
    sides = [[runs.of(model, setting) for model in runs.models] for setting in (SHARED, than)]
    seeds = sorted(set.intersection(*(set(by_seed) for side in sides for by_seed in side)))
    return [(tuple(n[s] for n in sides[0]), tuple(n[s] for n in sides[1])) for s in seeds]


def _core_s(nodes: Nodes) -> float:
    return sum(sum(node.seconds) for node in nodes)


def _levels(runs: Runs) -> dict[str, float]:
    """Of each model that was run alone, the greedy accuracy that it is to reach."""
    ends = {model: runs.values(model, "alone", "greedy", "end") for model in runs.models}
    return {model: QUALITY * mean(found.values()) for model, found in ends.items() if found}


def _reached(runs: Runs, model: str, setting: str, level: float) -> Reached:
    needed = [rounds_to(node, level) for node in runs.of(model, setting).values()]
    reached = [rounds for rounds in needed if rounds is not None]
    never = len(needed) - len(reached)
    rounds = None if never else interval_of(reached)
    return Reached(model, setting, level, rounds, len(needed), never)


def _same_quality(runs: Runs, than: str) -> SameQuality:
    """Together, all go on until the last has its level; each by itself stops at its own."""
    levels, both = _levels(runs), _side_by_side(runs, than)
    if len(levels) < len(runs.models):  # not all were run alone: there is no level to reach
        return SameQuality(than, None, None, 0, 0, 0, 0)
    tokens, core, never, control_never = [], [], 0, 0
    for shared, control in both:
        together, apart = _rounds_to(levels, shared), _rounds_to(levels, control)
        never += together is None
        control_never += apart is None
        if together and apart and min(*together, *apart) > 0:
            now, then = _spent(shared, [max(together)] * len(shared)), _spent(control, apart)
            tokens.append((now[0], then[0]))
            core.append((now[1], then[1]))
    every = len(core) == len(both)
    ratios = (ratio_of(tokens), ratio_of(core)) if every else (None, None)
    return SameQuality(than, *ratios, len(both), len(core), never, control_never)


def _rounds_to(levels: Mapping[str, float], nodes: Nodes) -> list[float] | None:
    """Of each model; None if one never has its level."""
    found = [rounds_to(node, level) for node, level in zip(nodes, levels.values(), strict=True)]
    reached = [rounds for rounds in found if rounds is not None]
    return reached if len(reached) == len(found) else None


def _spent(nodes: Nodes, rounds: Sequence[float]) -> tuple[float, float]:
    """Tokens and core seconds of all, each over its first ``rounds``."""
    each = list(zip(nodes, rounds, strict=True))
    return (
        sum(up_to(stop, node.tokens) for node, stop in each),
        sum(up_to(stop, node.seconds) for node, stop in each),
    )


def up_to(rounds: float, amounts: Sequence[float]) -> float:
    """The sum of what the first ``rounds`` took, of a begun one its part.

    >>> up_to(1.5, [1, 10, 100])
    6.0
    """
    whole = int(rounds)
    return sum(amounts[:whole]) + (rounds - whole) * sum(amounts[whole : whole + 1])
