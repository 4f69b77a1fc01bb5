"""What is left to run and what it will take, from the cells that are finished. Imports no torch."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

import msgspec
from msgspec import Struct

from potluck.reproduce.cells import Cell, cells_of
from potluck.reproduce.result import code_digests, read_result
from potluck.reproduce.suite import Experiment, Scale, Suite

State = Literal["to run", "stale", "finished"]
"""Of a cell; one that is stale was finished with other code."""

Keeps = Literal["all", "fresh", "none"]
"""Which finished cells are left as they are: fresh ones are not stale."""


class _Measured(Struct, frozen=True):
    """What of a result says what it took; one of another recipe is a guide too."""

    family: str
    models: tuple[str, ...]
    setting: str
    cpu_s: float
    node: Mapping[str, "_Curve"]

    @property
    def rounds(self) -> int:
        return len(next(iter(self.node.values())).sampled)


class _Curve(Struct, frozen=True):
    sampled: tuple[float, ...]
    """Of each round."""


class Estimates:
    """Of one core's seconds for a cell, from every result that a scale has."""

    def __init__(self, suite: Suite, scale: Scale) -> None:
        self._settings = suite.settings
        found: dict[tuple[object, ...], list[float]] = defaultdict(list)
        for file in sorted((suite.folder / "cells" / scale).glob("*.json")):
            # Whoever reads the result says what is wrong with it.
            with suppress(OSError, msgspec.MsgspecError, StopIteration, ZeroDivisionError):
                it = msgspec.json.decode(file.read_bytes(), type=_Measured)
                found[it.family, it.models, it.setting].append(it.cpu_s)
                per_round_s = it.cpu_s / self._rounds(it.setting, it.rounds)
                found[it.family, len(it.models)].append(per_round_s)
        self._mean_s = {key: fmean(all_s) for key, all_s in found.items()}

    def of(self, cell: Cell) -> float | None:
        """Seconds: of other seeds, else by the rounds of as many models of that family; None: not
        known."""
        same_s = self._mean_s.get((cell.family, cell.models, cell.setting))
        per_round_s = self._mean_s.get((cell.family, len(cell.models)))
        if same_s is not None or per_round_s is None:
            return same_s
        return per_round_s * self._rounds(cell.setting, cell.config.rounds)

    def _rounds(self, setting: str, rounds: int) -> float:
        """As rounds of all problems: one of half the problems is half a round."""
        there = self._settings.get(setting)
        return rounds * (there.problems if there else 1.0)


def work_of(cell: Cell) -> int:
    """Completions that all of its nodes learn from: what time is about proportional to."""
    config = cell.config
    return config.rounds * config.problems_per_round * config.group_size * len(cell.models)


def longest_first(suite: Suite, cells: Sequence[Cell]) -> list[Cell]:
    """Seed by seed, the longest first, so that the cores are done at about the same time."""
    if not cells:
        return []
    estimates = Estimates(suite, cells[0].scale)
    known = [estimates.of(cell) for cell in cells]
    # Where one is not known, none counts: guesses among measurements order nothing.
    lengths = known if None not in known else [work_of(cell) for cell in cells]
    order = sorted(range(len(cells)), key=lambda i: (cells[i].seed, -(lengths[i] or 0.0)))
    return [cells[i] for i in order]


@dataclass(frozen=True, slots=True)
class Time:
    """Of one core."""

    known_s: float
    unknown: int
    """Cells of which nothing is known; they are not in the seconds."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far an experiment is, or several together."""

    cells: int
    finished: int
    """Those that are not to run; stale ones too if they are kept."""
    stale: int
    total: Time
    """What all of them take one core, finished or not."""
    remaining: Time
    """And those that are to run."""


def state_of(experiments: Path, cell: Cell, code: Mapping[str, str]) -> State:
    """Raises ExperimentError: its result cannot be read."""
    result = read_result(experiments, cell)
    if result is None:
        return "to run"
    return "stale" if result.changed_since(code) else "finished"


def is_to_run(state: State, keeps: Keeps) -> bool:
    return state == "to run" or keeps == "none" or (state == "stale" and keeps == "fresh")


def states(suite: Suite, cells: Sequence[Cell]) -> list[State]:
    """Of each cell. Raises ExperimentError: a result cannot be read."""
    code = code_digests()
    return [state_of(suite.folder, cell, code) for cell in cells]


def standing(suite: Suite, cells: Sequence[Cell], keeps: Keeps = "all") -> Standing:
    """Raises ExperimentError: a result cannot be read."""
    now = states(suite, cells)
    left = [cell for cell, state in zip(cells, now, strict=True) if is_to_run(state, keeps)]
    estimates = {scale: Estimates(suite, scale) for scale in {cell.scale for cell in cells}}

    def time(some: Sequence[Cell]) -> Time:
        each_s = [estimates[cell.scale].of(cell) for cell in some]
        known_s = [one_s for one_s in each_s if one_s is not None]
        return Time(sum(known_s), unknown=len(each_s) - len(known_s))

    return Standing(
        cells=len(cells),
        finished=len(cells) - len(left),
        stale=now.count("stale"),
        total=time(cells),
        remaining=time(left),
    )


def standings(
    suite: Suite,
    experiments: Sequence[Experiment],
    scale: Scale,
    seeds: int,
    keeps: Keeps = "all",
) -> tuple[dict[str, Standing], Standing]:
    """Of each experiment by its name, and of all together: a cell that several share counts once.

    Raises:
        ExperimentError: a result cannot be read.
        ConfigError: a recipe that cannot run.
    """
    each = {e.name: standing(suite, cells_of(suite, [e], scale, seeds), keeps) for e in experiments}
    return each, standing(suite, cells_of(suite, experiments, scale, seeds), keeps)
