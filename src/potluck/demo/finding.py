"""The demo's finding: completions that a model writes until it can do what its partner can."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import floor
from pathlib import Path
from statistics import fmean
from typing import Final

import numpy as np

from potluck.reports.answers import ControlAnswer
from potluck.reports.runs import COMPLETIONS, WrittenCompletion, read_lines

SKILLS: Final = {"+": "additions", "-": "subtractions"}
LACKED: Final = {"adder": "-", "subtractor": "+"}
TOGETHER, BY_ITSELF = "together", ("half", "alone")
WINDOW = 480
"""Completions of the model over which a point of a curve is the mean, in every setting."""
PART, STEP = 0.75, 0.05
"""Compared is when a model has PART of what it reaches in every setting, in whole STEPs: where
curves are flat, chance decides when they come to a level."""
NOTE = (
    "To reach: share right of what only the partner could do, and own completions until then.\n"
    "Reward: of all own answers, second half of the rounds: together, and by itself with half and "
    "all of the writing, where a step has twice the completions."
)
COLUMNS = ("model", "to reach", "together", "by itself", "ratio", "reward", "half", "all")


@dataclass(frozen=True, slots=True)
class OwnAnswers:
    """The answers that one model samples in one run."""

    right: tuple[Mapping[str, int], ...]
    """Right ones in each round, by the sign of their problems."""
    written: tuple[Mapping[str, int], ...]
    """All of them."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Completions that a model writes until it has learned of its partner's skill."""

    node: str
    sign: str
    """Sign of what only its partner can do."""
    level: float
    """Share of right answers; 0: there is none to compare at."""
    together: float
    by_itself: float
    way: str

    @property
    def cells(self) -> list[str]:
        """Return the level, completions of both ways, and how many times more one needs."""
        if not self.level:
            return ["-"] * 4
        ratio = f"{self.by_itself / self.together:.1f}"
        goal = f"{self.level:.0%} of {SKILLS[self.sign]}"
        return [goal, _about(self.together), _about(self.by_itself), ratio]

    def __str__(self) -> str:
        if not self.level:
            return f"{self.node}: too few rounds to learn {SKILLS[self.sign]}"
        goal, soon, late, _ = self.cells
        how = f"right after {soon} own completions together, by itself after {late} at best"
        return f"{self.node}: {goal} {how}"


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that the demo has measured: the content of summary.json."""

    seeds: tuple[int, ...]
    seconds: float
    nodes: Mapping[str, Mapping[str, Sequence[OwnAnswers]]]
    """node -> setting -> its answers for each seed; the settings are TOGETHER and BY_ITSELF."""
    answers: tuple[ControlAnswer, ...]
    """Own reward in the second half of the rounds: of each node, control and seed."""

    @property
    def gains(self) -> list[Gain]:
        return [gain_of(node, settings) for node, settings in self.nodes.items()]

    @property
    def rows(self) -> list[list[str]]:
        """The numbers in the order of COLUMNS, a row for each model."""
        return [[of.node, *of.cells, *self._rewards(of.node)] for of in self.gains]

    def _rewards(self, node: str) -> list[str]:
        """Return mean own rewards over the seeds: together, and in each control."""
        its = [each for each in self.answers if each.node == node]
        alone = ([each.alone for each in its if each.control == kind] for kind in BY_ITSELF)
        return [f"{fmean(found):.2f}" for found in ([each.together for each in its], *alone)]


def own_answers(folder: Path, node: str, rounds: int) -> OwnAnswers:
    right, written = ([Counter[str]() for _ in range(rounds)] for _ in range(2))
    for line in read_lines(folder / node / COMPLETIONS, WrittenCompletion):
        if line.author == node:
            sign = "+" if "+" in line.problem else "-"
            written[line.round][sign] += 1
            right[line.round][sign] += line.reward == 1
    return OwnAnswers(tuple(right), tuple(written))


def curve(courses: Sequence[OwnAnswers], sign: str) -> list[tuple[float, float]]:
    """Return (completions written by then, share of right ones around there) over all seeds."""
    rights, writtens = [each.right for each in courses], [each.written for each in courses]
    x = _sums(writtens, lambda its: sum(its.values())) / len(courses)
    middle = (x[1:] + x[:-1]) / 2
    ends = middle + WINDOW / 2, middle - WINDOW / 2
    right, written = (
        np.subtract(*(np.interp(end, x, _sums(its, lambda its: its.get(sign, 0))) for end in ends))
        for its in (rights, writtens)
    )
    return [*zip(middle.tolist(), (right / np.maximum(written, 1)).tolist(), strict=True)]


def _sums(
    seeds: Sequence[Sequence[Mapping[str, int]]], count: Callable[[Mapping[str, int]], int]
) -> np.ndarray:
    """Count over all seeds, up to each round."""
    return np.cumsum([0, *(sum(map(count, its)) for its in zip(*seeds, strict=True))])


def gain_of(node: str, settings: Mapping[str, Sequence[OwnAnswers]]) -> Gain:
    """Compare how soon the model does what only its partner could."""
    sign = LACKED[node]
    curves = {name: curve(courses, sign) for name, courses in settings.items()}
    least = min(max(share for _, share in its) for its in curves.values())
    level = floor(PART * least / STEP) * STEP
    after = {name: _reached(its, level) for name, its in curves.items()}
    way = min(BY_ITSELF, key=lambda name: after[name])
    return Gain(node, sign, level, after[TOGETHER], after[way], way)


def _reached(points: Sequence[tuple[float, float]], level: float) -> float:
    """Return where a curve that comes to the level does so for the first time.

    >>> _reached([(100, 0.0), (300, 0.5)], 0.25)
    200.0
    """
    before = points[0]
    for x, share in points:
        if share >= level:
            break
        before = x, share
    x0, share0 = before
    return x0 + (level - share0) / (share - share0) * (x - x0) if share > share0 else x


def _about(completions: float) -> str:
    """Write a number with two digits that count.

    >>> _about(1949.0), _about(72.4)
    ('1,900', '72')
    """
    return f"{float(f'{completions:.2g}'):,.0f}"
