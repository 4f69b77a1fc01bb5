"""The demo: two models with one skill each, together and each by itself. The runs go side by side,
each in a process with one thread, so that the numbers do not depend on the machine's load. Its
finding: completions that a model writes until it can do what its partner can."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import floor
from pathlib import Path
from statistics import fmean
from typing import Final, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace
from rich.console import Console
from rich.text import Text

from potluck.config import load
from potluck.config.control import controls_of
from potluck.files import write_atomically
from potluck.launch.side_by_side import WholeRun, run_side_by_side
from potluck.reports.answers import ControlAnswer, add_answers, answer_of
from potluck.reports.runs import COMPLETIONS, WrittenCompletion, read_lines
from potluck.show.terminal.text import new_table
from potluck.show.web.page import keep, kept_page
from potluck.show.web.views import KeptTable
from potluck.types import PotluckError

RECIPE = Path(__file__).with_name("recipe.toml")
LEAD = (
    "Together each model writes half of the answers to every problem, and learns from its own and, "
    "by LWS, from the right ones of the other. By itself it writes half or all of them.",
    "How to go on: `potluck new my-run.toml` writes a recipe to edit; `potluck run my-run.toml "
    "--control half` trains, and tells whether sharing helped.",
)
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
    """Answers that a model samples in a run: in each round, by sign, the right ones and all."""

    right: tuple[Mapping[str, int], ...]
    written: tuple[Mapping[str, int], ...]


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
        return [[of.node, *of.cells, *self._rewards(of.node)] for of in self.gains]

    def _rewards(self, node: str) -> list[str]:
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
    return np.cumsum([0, *(sum(map(count, its)) for its in zip(*seeds, strict=True))])


def gain_of(node: str, settings: Mapping[str, Sequence[OwnAnswers]]) -> Gain:
    sign = LACKED[node]
    curves = {name: curve(courses, sign) for name, courses in settings.items()}
    least = min(max(share for _, share in its) for its in curves.values())
    level = floor(PART * least / STEP) * STEP
    after = {name: _reached(its, level) for name, its in curves.items()}
    way = min(BY_ITSELF, key=lambda name: after[name])
    return Gain(node, sign, level, after[TOGETHER], after[way], way)


def _reached(points: Sequence[tuple[float, float]], level: float) -> float:
    """Return where a curve that comes to the level does so for the first time."""
    at = next(at for at, (_, share) in enumerate(points) if share >= level)
    (x0, share0), (x, share) = points[max(0, at - 1)], points[at]
    return x0 + (level - share0) / (share - share0) * (x - x0) if share > share0 else x


def _about(completions: float) -> str:
    """Write a number with two digits that count."""
    return f"{float(f'{completions:.2g}'):,.0f}"


class Cell(NamedTuple):
    seed: int
    setting: str
    run: WholeRun


def cells(folder: Path, *, rounds: int | None, seeds: range) -> list[Cell]:
    """List the runs, longest first, so that the cores are done at about the same time."""
    made, of_rounds = list[Cell](), [f"rounds={rounds}"] if rounds else []
    for seed in seeds:
        config = load(RECIPE, [f"seed={seed}", f"name=demo-{seed}", *of_rounds])
        place, together = folder / "runs" / f"{seed}", replace(config, control=())
        made.append(Cell(seed, TOGETHER, WholeRun(together, place / TOGETHER)))
        for each in controls_of(config):
            made.append(Cell(seed, each.kind, WholeRun(each.config, place / each.folder)))
    return sorted(made, key=lambda cell: (TOGETHER, "alone", "half").index(cell.setting))


def demo(folder: Path, *, rounds: int | None, seeds: range, console: Console) -> Result:
    """Run the cells and write summary.json and report.html; raise PotluckError if the folder is in
    use, or if a run breaks down."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PotluckError(f"{folder} exists; name another folder with --out, or remove it")
    began, plan = time.monotonic(), cells(folder, rounds=rounds, seeds=seeds)
    console.print(f"An adder and a subtractor, together and each by itself: {len(plan)} runs")
    if not run_side_by_side([cell.run for cell in plan], console):
        raise KeyboardInterrupt
    result = summarise(plan, seconds=round(time.monotonic() - began, 1))
    write_atomically(folder / "summary.json", msgspec.json.format(msgspec.json.encode(result)))
    _write_report(result, plan, folder / "report.html")
    table = new_table(console, COLUMNS[:2], COLUMNS[2:])
    for row in result.rows:
        table.add_row(*map(Text, row))
    console.print(*map(str, result.gains), table, NOTE, sep="\n", markup=False, highlight=False)
    files = [f"  {folder / name}" for name in ("report.html", "summary.json")]
    console.print(*files, sep="\n", markup=False, highlight=False)
    return result


def summarise(plan: list[Cell], *, seconds: float) -> Result:
    """Read what the demo tells from the run folders, and keep what the controls told in them."""
    rounds, found = plan[0].run.config.rounds, list[ControlAnswer]()
    nodes: dict[str, dict[str, list[OwnAnswers]]] = {}
    together = {cell.seed: cell.run.folder for cell in plan if cell.setting == TOGETHER}
    for cell in sorted(plan, key=lambda cell: cell.seed):
        for node in cell.run.config.node:
            course = own_answers(cell.run.folder, node, rounds)
            nodes.setdefault(node, {}).setdefault(cell.setting, []).append(course)
            if cell.setting != TOGETHER:
                its = together[cell.seed], cell.run.folder, node, cell.setting, rounds
                if answer := answer_of(*its):
                    add_answers(its[0], [answer])
                    found.append(answer)
    return Result(tuple(together), seconds, nodes, tuple(found))


def _write_report(result: Result, plan: list[Cell], path: Path) -> None:
    """Write the page of the first seed's runs, kept in a file, below the findings of all."""
    first = [cell for cell in plan if cell.seed == result.seeds[0]]
    labels = {its.folder.name: f"{setting}: {', '.join(its.config.node)}"
              for _, setting, its in first}  # fmt: skip
    kept, _ = keep(
        {cell.run.folder.name: cell.run.folder for cell in first},
        title="Does it help to learn from each other?",
        lead=[*map(str, result.gains), *LEAD],
        table=KeptTable(title="In numbers", columns=[*COLUMNS], rows=result.rows, note=NOTE),
        labels=labels,
    )
    write_atomically(path, kept_page(kept).encode())
