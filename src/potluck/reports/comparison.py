"""Two lists of finished runs, compared: what their nodes earned, and by how much they differ.

Runs of equal seeds are a pair: as far as they write as many, they draw the same problems. Two pairs
or more have Student's interval over the seeds; a single one has an interval over its problems.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from statistics import fmean
from typing import Self

import msgspec

from potluck.files import printable
from potluck.intervals import Interval, t_interval
from potluck.reports.earned import MEASURES, Earned, between, plain, read_earned, signed, within
from potluck.reports.rounds import RoundReport
from potluck.reports.runs import METRICS, SMALL_BYTES, RunReadError, read_lines, read_recipe
from potluck.reports.tail import DAMAGED, read_small

SMOOTHED = 5
"""Rounds in the mean of one point of a curve."""
MEAN = "mean of nodes"
Place = str | PathLike[str]


@dataclass(frozen=True, slots=True)
class Row:
    """One measure of one node: means over the runs of each side."""

    node: str
    measure: str
    a: float
    b: float
    difference: Interval | None
    """``a`` less ``b``; None: one number of one seed has no interval."""
    problems: int

    @property
    def cells(self) -> tuple[str, ...]:
        if self.measure == "written":
            return self.node, "completions written", f"{self.a:,.0f}", f"{self.b:,.0f}", ""
        gap = within(self.difference) if self.difference else signed(self.a - self.b)
        return self.node, self.measure, plain(self.a), plain(self.b), gap


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a side's curve: means over its nodes and runs."""

    written: float
    """Completions that a node has written by then."""
    reward: float
    interval: Interval | None
    """Of ``reward``, over the seeds."""


@dataclass(frozen=True, slots=True)
class _Finished:
    path: str
    seed: int
    digest: str
    nodes: Mapping[str, Earned]


@dataclass(frozen=True, slots=True)
class Compared:
    """Results of a comparison of A with B."""

    runs: tuple[tuple[str, str], ...]
    """Folders of A and B, pair by pair."""
    rows: tuple[Row, ...]
    """Of each node that all runs have, then of the mean over them."""
    curves: tuple[tuple[Point, ...], ...]
    """Of A and of B."""

    @classmethod
    def of(cls, a: Place | Iterable[Place], b: Place | Iterable[Place]) -> Self:
        """Read finished runs; raise RunReadError where they cannot be compared."""
        pairs = _pairs(_read_side("A", a), _read_side("B", b))
        (first, other), *_ = pairs
        names = [n for n in first.nodes if all(n in run.nodes for pair in pairs for run in pair)]
        groups = {name: [name] for name in names} | ({MEAN: names} if len(names) > 1 else {})
        rows = [_row(pairs, name, its, m) for name, its in groups.items() for m in MEASURES]
        if not any(rows):
            raise RunReadError(
                f"no node has completions of its own in all runs: {first.path} has the nodes "
                f"{_listed(first.nodes)} and {other.path} has {_listed(other.nodes)}; compare runs "
                f"with a node of the same name"
            )
        curves = tuple(_curve(side, names) for side in zip(*pairs, strict=True))
        return cls(tuple((x.path, y.path) for x, y in pairs), tuple(filter(None, rows)), curves)

    @property
    def main(self) -> Row:
        """Own reward of the mean over the nodes, or of the only one."""
        return [row for row in self.rows if row.measure == "own reward"][-1]

    @property
    def over(self) -> str:
        """What the intervals are over."""
        several, problems = len(self.runs), self.main.problems
        return f"{several} pairs of seeds" if several > 1 else f"{problems:,} problems, one seed"

    @property
    def verdict(self) -> str:
        """Sentence that says what the numbers show, and no more."""
        gap, (*_, a, b, shown) = self.main.difference, self.main.cells
        how = "A is better" if gap and gap.low > 0 else "no difference is shown"
        how = "B is better" if gap and gap.high < 0 else how
        *_, wrote, other_wrote, _ = self.rows[-1].cells
        return (
            f"{how}: own reward {a} and {b}, {shown} over {self.over}; a model wrote {wrote} and "
            f"{other_wrote} completions"
        )


def _read_side(side: str, paths: Place | Iterable[Place]) -> dict[int, _Finished]:
    """Read the runs of a side, by seed."""
    found: dict[int, _Finished] = {}
    for path in [paths] if isinstance(paths, str | PathLike) else paths:
        run = _read(Path(path))
        if (same := found.setdefault(run.seed, run)) is not run:
            raise RunReadError(
                f"{side} has two runs of seed {run.seed}, {same.path} and {run.path}; leave one out"
            )
    return found


def _read(path: Path) -> _Finished:
    recipe, shown, nodes = read_recipe(path), printable(str(path)), dict[str, Earned]()
    for name, node in recipe.node.items():
        if not node.model or not (path / name).is_dir():  # an author, or on another machine
            continue
        lines = read_lines(path / name / METRICS, RoundReport)
        if (done := max((line.round + 1 for line in lines), default=0)) < recipe.rounds:
            raise RunReadError(
                f"{shown} is not finished: {name} has done {done} of {recipe.rounds} rounds; go on "
                f"with: potluck run {shown}/recipe.json --out {shown} --resume"
            )
        nodes[name] = read_earned(path / name, name, recipe.rounds)
    try:
        task = msgspec.json.decode(read_small(path / "task.json", SMALL_BYTES) or b"{}", type=dict)
    except DAMAGED:
        task = {}
    return _Finished(shown, recipe.seed, str(task.get("digest", ""))[:12], nodes)


def _pairs(
    ours: Mapping[int, _Finished], theirs: Mapping[int, _Finished]
) -> list[tuple[_Finished, _Finished]]:
    """Pair the runs by seed; of one on each side the seeds may differ. Raise RunReadError if none
    can be paired, or their tasks differ."""
    pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
    if not pairs and len(ours) == len(theirs) == 1:
        pairs = [*zip(ours.values(), theirs.values(), strict=True)]
    if not pairs:
        raise RunReadError(
            f"A has runs of the seeds {_listed(ours)}, B of {_listed(theirs)}, and none is on both "
            f"sides; name runs of equal seeds, or one for each side"
        )
    tasks = {run.digest: run.path for pair in pairs for run in pair if run.digest}
    if len(tasks) > 1:
        (digest, path), (other, elsewhere), *_ = tasks.items()
        raise RunReadError(
            f"{path} has a task of digest {digest} and {elsewhere} one of {other}: rewards of "
            f"different tasks cannot be compared; name runs of one task"
        )
    return pairs


def _row(
    pairs: Sequence[tuple[_Finished, _Finished]], name: str, nodes: Sequence[str], measure: str
) -> Row | None:
    """Compare a measure of the ``nodes``; None where a run lacks it."""
    known = []
    for one, other in pairs:
        if not (found := between(_values(one, nodes, measure), _values(other, nodes, measure))):
            return None
        known.append(found)
    problems, interval = known[0].problems, None
    if len(known) > 1:
        interval = t_interval([each.a - each.b for each in known])
    elif problems > 1:
        interval = known[0].difference
    a, b = fmean(each.a for each in known), fmean(each.b for each in known)
    return Row(name, measure, a, b, interval, problems)


def _values(run: _Finished, nodes: Sequence[str], measure: str) -> dict[str, float]:
    """Return a measure by problem: the mean over the nodes that wrote to it."""
    values: dict[str, list[float]] = {}
    for name in nodes:
        for problem, value in MEASURES[measure](run.nodes[name]).items():
            values.setdefault(problem, []).append(value)
    return {problem: fmean(each) for problem, each in values.items()}


def _curve(runs: Sequence[_Finished], nodes: Sequence[str]) -> tuple[Point, ...]:
    lines, points = [_line(run, nodes) for run in runs], list[Point]()
    for round in sorted(set[int].intersection(*map(set, lines))):
        written, rewards = zip(*(line[round] for line in lines), strict=True)
        interval = t_interval(rewards) if len(rewards) > 1 else None
        points.append(Point(fmean(written), fmean(rewards), interval))
    return tuple(points)


def _line(run: _Finished, nodes: Sequence[str]) -> dict[int, tuple[float, float]]:
    """Return, by round, the completions that a node has written so far and its reward, smoothed."""
    by_round: dict[int, list[Sequence[float]]] = {}
    for name in nodes:
        for round, rewards in run.nodes[name].by_round.items():
            by_round.setdefault(round, []).append(rewards)
    line, written, beside = dict[int, tuple[float, float]](), 0.0, SMOOTHED // 2
    for round in sorted(by_round):
        written += sum(map(len, by_round[round])) / len(nodes)
        near = (by_round.get(at, ()) for at in range(round - beside, round + beside + 1))
        line[round] = written, fmean(fmean(each) for every in near for each in every)
    return line


def _listed(names: Iterable[object]) -> str:
    return printable(", ".join(map(str, names)))
