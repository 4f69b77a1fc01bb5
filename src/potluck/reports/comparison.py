"""Lists of finished runs, compared: what their nodes earned, and by how much they differ.

Measured are the completions that a model sampled in the second half of the rounds. The unit is a
problem: it counts once, with the mean over its completions. Runs of equal seeds are a pair: as far
as they write as many, they draw the same problems. Two pairs or more have Student's interval over
the seeds; a single one, such as a run and its control, has an interval over its problems.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, Self

import msgspec

from potluck import intervals
from potluck.files import printable
from potluck.intervals import Interval
from potluck.reports import right, runs
from potluck.reports.rounds import EvaluationReport, RoundReport
from potluck.reports.tail import DAMAGED, read_small
from potluck.right import RightRule, is_binary, is_full

LEAST_PAIRED = 0.5
"""Share of the problems of the smaller run from which problems are compared one by one."""
K = 4
"""k of the pass@k of the sampled completions; a problem with fewer of them is left out."""
MEAN = "mean of nodes"
Paths = str | PathLike[str] | Iterable[str | PathLike[str]]


@dataclass(frozen=True, slots=True)
class Earned:
    """Rewards of the completions that one node wrote in a run."""

    late: Mapping[str, Sequence[float]]
    """Rewards of the second half of the rounds, by problem."""
    full: Mapping[str, Mapping[str, Sequence[bool]]]
    """Names of the reward functions, each with whether it paid the same completions in full, by
    problem."""
    binary: Mapping[str, bool]
    """Names of them, each with True where it paid nothing but 0 and 1."""
    written: int
    """Completions that it wrote in all rounds."""
    greedy: float | None
    """Mean reward of greedy answers to the validation problems at the end; None: not evaluated."""
    decides: str | None = None
    """Function that decides which of them are right; None: none does."""


Nodes = Mapping[str, Earned]
MEASURES: Mapping[str, Callable[[Earned], Mapping[str, float]]] = {
    "own reward": lambda its: {problem: fmean(each) for problem, each in its.late.items()},
    f"pass@{K}": lambda its: {
        problem: intervals.pass_at_k(sum(each), len(each), K)
        for problem, each in its.full.get(its.decides or "", {}).items()
        if len(each) >= K
    },
    "greedy": lambda its: {} if its.greedy is None else {"": its.greedy},
    "written": lambda its: {"": float(its.written)},
}
"""Numbers of a node by problem; of those that are not of problems, one under no name."""


@dataclass(frozen=True, slots=True)
class Measured:
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
        gap = within(self.difference) if self.difference else plain(self.a - self.b, "+")
        return self.node, self.measure, plain(self.a), plain(self.b), gap


@dataclass(frozen=True, slots=True)
class _Finished:
    path: str
    seed: int
    digest: str
    rule: RightRule
    nodes: Nodes


@dataclass(frozen=True, slots=True)
class Compared:
    """Results of a comparison of A with B."""

    runs: tuple[tuple[str, str], ...]
    """Folders of A and B, pair by pair."""
    rows: tuple[Measured, ...]
    """Measures of each node that all runs have, then of the mean over these nodes."""
    seeds: tuple[tuple[int, int], ...]
    """Seeds of A and B, pair by pair."""
    left_out: tuple[str, ...]
    """Folders of runs whose seed is on one side only."""

    @classmethod
    def of(cls, a: Paths, b: Paths) -> Self:
        """Read finished runs; raise RunReadError where they cannot be compared."""
        sides = _side("A", a), _side("B", b)
        pairs = _pairs(*sides)
        (one, other), *_ = pairs
        names = [n for n in one.nodes if all(n in run.nodes for pair in pairs for run in pair)]
        groups = {name: [name] for name in names} | ({MEAN: names} if len(names) > 1 else {})
        decides = right.function_of(
            [(run.rule, its.binary) for pair in pairs for run in pair for its in run.nodes.values()]
        )
        of_nodes = [(judged(x.nodes, decides), judged(y.nodes, decides)) for x, y in pairs]
        rows = [measured(of_nodes, n, its, m) for n, its in groups.items() for m in MEASURES]
        if not any(row and row.measure == "own reward" for row in rows):
            raise runs.RunReadError(
                f"no node has completions of its own in all runs: {one.path} has the nodes "
                f"{_listed(one.nodes)} and {other.path} has {_listed(other.nodes)}; compare runs "
                f"with a node of the same name"
            )
        paths = tuple((x.path, y.path) for x, y in pairs)
        seeds = tuple((x.seed, y.seed) for x, y in pairs)
        paired = {path for pair in paths for path in pair}
        left_out = (x.path for side in sides for x in side.values() if x.path not in paired)
        return cls(paths, tuple(filter(None, rows)), seeds, tuple(left_out))

    @property
    def main(self) -> Measured:
        """Own reward of the mean over the nodes, or of the only one."""
        return [row for row in self.rows if row.measure == "own reward"][-1]

    @property
    def over(self) -> str:
        """Units of the intervals, in words: pairs of seeds, or problems."""
        if len(self.runs) > 1:
            return f"{len(self.runs)} pairs of seeds"
        (a, b), *_ = self.seeds
        return f"{self.main.problems:,} problems, {'one seed' if a == b else f'seeds {a} and {b}'}"

    @property
    def verdict(self) -> str:
        """Sentence that says what the numbers show, and no more."""
        gap, (*_, a, b, shown) = self.main.difference, self.main.cells
        better = "A" if gap and gap.low > 0 else "B" if gap and gap.high < 0 else ""
        *_, wrote, other_wrote, _ = self.rows[-1].cells
        return (
            f"{f'{better} is better' if better else 'no difference is shown'}: own reward {a} and "
            f"{b}, {shown} over {self.over}; a model wrote {wrote} and {other_wrote} completions"
        )


def read_earned(folder: Path, node: str, rounds: int, recipe: runs.RecipeRead) -> Earned:
    """Read what ``node`` earned from its ``folder``; ``recipe`` is that of the run."""
    # A round that was done again after a crash has its lines twice: the later one counts.
    rewards = dict[tuple[int, str, int], tuple[float, Mapping[str, bool]]]()
    binary = right.binary_of(runs.read_lines(folder / runs.METRICS, RoundReport))
    for line in runs.read_lines(folder / runs.COMPLETIONS, recipe.written):
        if line.author == node and line.round < rounds:
            full = {name: is_full(name, number, line.end) for name, number in line.paid.items()}
            rewards[line.round, line.problem, line.index] = line.reward, full
            for name, number in line.paid.items():
                binary[name] = binary.get(name, True) and is_binary([number])
    late = dict[str, list[float]]()
    full_late = dict[str, dict[str, list[bool]]]()
    for (round, problem, _), (reward, paid) in rewards.items():
        if round >= rounds // 2:
            late.setdefault(problem, []).append(reward)
            for name, its in paid.items():
                full_late.setdefault(name, {}).setdefault(problem, []).append(its)
    evaluations = runs.read_lines(folder / runs.EVALUATION, EvaluationReport)
    graded = {each.round: each.validation for each in evaluations}
    return Earned(late, full_late, binary, written=len(rewards), greedy=graded.get(rounds))


def judged(nodes: Nodes, function: str | None) -> Nodes:
    """Let ``function`` decide which answers are right."""
    return {name: replace(its, decides=function) for name, its in nodes.items()}


def measured(
    pairs: Iterable[tuple[Nodes, Nodes]], name: str, nodes: Sequence[str], measure: str
) -> Measured | None:
    """Compare a measure of ``nodes``; None where a run has too little of it. Where both runs of a
    pair have most problems, each is compared with itself: what is hard for both cancels."""
    means, gap, count = list[tuple[float, float]](), None, 0
    for pair in pairs:
        a, b = (_by_problem(run, nodes, measure) for run in pair)
        common, count = [id for id in a if id in b], min(len(a), len(b))
        if count and len(common) >= LEAST_PAIRED * count:
            a, b = ({id: its[id] for id in common} for its in (a, b))
            gap = intervals.difference_interval([a[id] - b[id] for id in common])
            count = len(common)
        elif count > 1:
            gap = intervals.unpaired_interval([*a.values()], [*b.values()])
        else:
            return None
        means.append((fmean(a.values()), fmean(b.values())))
    if means[1:]:
        gap = intervals.t_interval([one - other for one, other in means])
    elif count == 1:
        gap = None
    a_mean, b_mean = (fmean(side) for side in zip(*means, strict=True))
    return Measured(name, measure, a_mean, b_mean, gap, count)


def _by_problem(run: Nodes, names: Sequence[str], measure: str) -> dict[str, float]:
    """Return a measure by problem: the mean over the nodes that wrote to it."""
    values: dict[str, list[float]] = {}
    for name in names:
        for problem, value in MEASURES[measure](run[name]).items():
            values.setdefault(problem, []).append(value)
    return {problem: fmean(each) for problem, each in values.items()}


def _side(side: str, paths: Paths) -> dict[int, _Finished]:
    """Read the runs of a side, by seed."""
    found: dict[int, _Finished] = {}
    for run in map(_read, [paths] if isinstance(paths, str | PathLike) else paths):
        if (same := found.setdefault(run.seed, run)) is not run:
            raise runs.RunReadError(
                f"{side} has two runs of seed {run.seed}, {same.path} and {run.path}; leave one out"
            )
    return found


def _read(folder: str | PathLike[str]) -> _Finished:
    path, shown, task = Path(folder), printable(str(folder)), dict[str, Any]()
    recipe, nodes = runs.read_recipe(path), dict[str, Earned]()
    for name, node in recipe.node.items():
        if not node.model or not (path / name).is_dir():  # an author, or on another machine
            continue
        lines = runs.read_lines(path / name / runs.METRICS, RoundReport)
        end = runs.end_of(path / name, recipe)
        if (done := max((line.round + 1 for line in lines), default=0)) < end:
            raise runs.RunReadError(
                f"{shown} is not finished: {name} has done {done} of {end} rounds; go on "
                f"with: potluck run {shown}/recipe.json --out {shown} --resume"
            )
        nodes[name] = read_earned(path / name, name, end, recipe)
    data = read_small(path / "task.json", runs.SMALL_BYTES) or b"{}"
    with suppress(*DAMAGED):
        task = msgspec.json.decode(data, type=dict)
    digest = printable(str(task.get("digest", ""))[:12])
    return _Finished(shown, recipe.seed, digest, right.rule_of(recipe), nodes)


def _pairs(
    ours: Mapping[int, _Finished], theirs: Mapping[int, _Finished]
) -> list[tuple[_Finished, _Finished]]:
    """Pair runs by seed, or one with one; raise RunReadError for no pair, or unlike tasks."""
    pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
    if not pairs and len(ours) == len(theirs) == 1:
        pairs = [*zip(ours.values(), theirs.values(), strict=True)]
    if not pairs:
        raise runs.RunReadError(
            f"A has runs of the seeds {_listed(ours)}, B of {_listed(theirs)}, and none is on both "
            f"sides; name runs of equal seeds, or one for each side"
        )
    tasks = {run.digest: run.path for pair in pairs for run in pair if run.digest}
    if len(tasks) > 1:
        (digest, path), (other, elsewhere), *_ = tasks.items()
        raise runs.RunReadError(
            f"{path} has a task of digest {digest} and {elsewhere} one of {other}: rewards of "
            f"different tasks cannot be compared; name runs of one task"
        )
    return pairs


def _listed(names: Iterable[object]) -> str:
    return printable(", ".join(map(str, names)))


def plain(number: float, sign: Literal["", "+"] = "") -> str:
    """Write a number as tables of results do.

    >>> plain(0.72), plain(-0.0301), plain(10.5), plain(0.9996), plain(-0.0001, "+")
    ('.720', '-.030', '10.500', '1.000', '+.000')
    """
    return re.sub(r"\b0\.", ".", f"{number:{sign}z.3f}")


def within(interval: Interval) -> str:
    """Write a difference with its interval: "+.030 [-.010, +.070]"."""
    value, low, high = (plain(x, "+") for x in (interval.value, interval.low, interval.high))
    return f"{value} [{low}, {high}]"
