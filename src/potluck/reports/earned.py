"""The rewards that a node earned with what it wrote itself, and how two nodes differ in them.

Measured are the completions that a model sampled in the second half of the rounds. The unit is a
problem: a problem counts once, with the mean over its completions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from potluck import intervals
from potluck.intervals import Interval
from potluck.reports.rounds import EvaluationReport
from potluck.reports.runs import COMPLETIONS, EVALUATION, WrittenCompletion, read_lines
from potluck.types import is_right

LEAST_PAIRED = 0.5
"""Share of the problems of the smaller run from which problems are compared one by one."""
K = 4
"""k of the pass@k of the sampled completions; a problem with fewer of them is left out."""


@dataclass(frozen=True, slots=True)
class Earned:
    """Rewards of the completions that one node wrote in a run."""

    late: Mapping[str, Sequence[float]]
    """Rewards of the second half of the rounds, by problem."""
    by_round: Mapping[int, Sequence[float]]
    """Rewards of each round."""
    greedy: float | None
    """Greedy accuracy on the validation problems at the end; None: not evaluated."""

    @property
    def written(self) -> int:
        """Number of completions, of all rounds."""
        return sum(map(len, self.by_round.values()))


MEASURES: Mapping[str, Callable[[Earned], Mapping[str, float]]] = {
    "own reward": lambda its: {problem: fmean(each) for problem, each in its.late.items()},
    f"pass@{K}": lambda its: {
        problem: intervals.pass_at_k(sum(map(is_right, each)), len(each), K)
        for problem, each in its.late.items()
        if len(each) >= K
    },
    "greedy": lambda its: {} if its.greedy is None else {"": its.greedy},
    "written": lambda its: {"": float(its.written)},
}
"""Numbers of a node by problem; of those that are not of problems, one under no name."""


class Between(NamedTuple):
    """Means of two nodes over problems, and their difference."""

    a: float
    b: float
    difference: Interval
    problems: int


def read_earned(folder: Path, node: str, rounds: int) -> Earned:
    """Read the folder of ``node``, of the first ``rounds``."""
    # A round that was done again after a crash has its lines twice: the later one counts.
    rewards = {
        (line.round, line.problem, line.index): line.reward
        for line in read_lines(folder / COMPLETIONS, WrittenCompletion)
        if line.author == node and line.round < rounds
    }
    late, by_round = dict[str, list[float]](), dict[int, list[float]]()
    for (round, problem, _), reward in rewards.items():
        by_round.setdefault(round, []).append(reward)
        if round >= rounds // 2:
            late.setdefault(problem, []).append(reward)
    lines = [*read_lines(folder / EVALUATION, EvaluationReport)]
    greedy = next((each.validation for each in reversed(lines) if each.round == rounds), None)
    return Earned(late, by_round, greedy)


def between(a: Mapping[str, float], b: Mapping[str, float]) -> Between | None:
    """Compare numbers by problem; None where there are too few.

    Where both have most problems, each is compared with itself: what is hard for both cancels.
    """
    common, problems = [id for id in a if id in b], min(len(a), len(b))
    if problems and len(common) >= LEAST_PAIRED * problems:
        problems = len(common)
        a, b = ({id: its[id] for id in common} for its in (a, b))
        found = intervals.difference_interval([a[id] - b[id] for id in common])
    elif problems > 1:
        found = intervals.unpaired_interval([*a.values()], [*b.values()])
    else:
        return None
    return Between(fmean(a.values()), fmean(b.values()), found, problems)


def plain(number: float) -> str:
    """Write a number as tables of results do.

    >>> plain(0.72), plain(-0.0301), plain(1.5)
    ('.720', '-.030', '1.500')
    """
    text = f"{number:z.3f}"
    return text.replace("0.", ".", 1) if abs(number) < 1 and not text.startswith("1") else text


def signed(number: float) -> str:
    text = plain(number)
    return text if text.startswith("-") else f"+{text}"


def within(interval: Interval) -> str:
    """Write a difference with its interval.

    >>> within(Interval(0.03, -0.01, 0.07))
    '+.030 [-.010, +.070]'
    """
    return f"{signed(interval.value)} [{signed(interval.low)}, {signed(interval.high)}]"
