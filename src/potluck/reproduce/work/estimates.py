"""What is left to run and what it will take, from the cells that are finished. Imports no torch."""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import msgspec
from msgspec import Struct

from potluck.reproduce.cells import Cell, cells_of
from potluck.reproduce.result import code_digests, read_result
from potluck.reproduce.suite import Experiment, Scale, Suite

State = Literal["to run", "stale", "finished"]
"""Of a cell; one that is stale was finished with other code."""


class _Measured(Struct, frozen=True):
    """What of a result says what it took; one of another recipe is a guide too."""

    family: str
    models: tuple[str, ...]
    setting: str
    cpu_s: float


class Estimates:
    """Of one core's seconds for a cell, from every result that a scale has."""

    def __init__(self, suite: Suite, scale: Scale) -> None:
        found: dict[tuple[object, ...], list[float]] = defaultdict(list)
        for file in sorted((suite.folder / "cells" / scale).glob("*.json")):
            with suppress(OSError, msgspec.MsgspecError):  # whoever reads the result says so
                it = msgspec.json.decode(file.read_bytes(), type=_Measured)
                found[it.family, it.models, it.setting].append(it.cpu_s)
                found[it.family, len(it.models)].append(it.cpu_s)
        self._mean_s = {key: fmean(all_s) for key, all_s in found.items()}

    def of(self, cell: Cell) -> float | None:
        """Seconds: of other seeds, else of as many models of that family; None: not known."""
        like = (cell.family, cell.models, cell.setting), (cell.family, len(cell.models))
        return next((self._mean_s[key] for key in like if key in self._mean_s), None)


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
class Standing:
    """How far an experiment is, or several together."""

    cells: int
    finished: int
    """Stale ones too."""
    stale: int
    total_s: float | None
    """What all of them take one core, finished or not; None: not known."""
    remaining_s: float | None
    """And those that are not finished."""


def states(suite: Suite, cells: Sequence[Cell]) -> list[State]:
    """Of each cell. Raises ExperimentError: a result cannot be read."""
    code, found = code_digests(), list[State]()
    for cell in cells:
        result = read_result(suite.folder, cell)
        is_stale = bool(result and result.changed_since(code))
        found.append("to run" if result is None else "stale" if is_stale else "finished")
    return found


def standing(suite: Suite, cells: Sequence[Cell]) -> Standing:
    """Raises ExperimentError: a result cannot be read."""
    now = states(suite, cells)
    left = [cell for cell, state in zip(cells, now, strict=True) if state == "to run"]
    estimates = {scale: Estimates(suite, scale) for scale in {cell.scale for cell in cells}}

    def seconds(some: Sequence[Cell]) -> float | None:
        known = [estimates[cell.scale].of(cell) for cell in some]
        return None if None in known else sum(each_s for each_s in known if each_s)

    return Standing(
        cells=len(cells),
        finished=len(cells) - len(left),
        stale=now.count("stale"),
        total_s=seconds(cells),
        remaining_s=seconds(left),
    )


def standings(
    suite: Suite, experiments: Sequence[Experiment], scale: Scale, seeds: int
) -> tuple[dict[str, Standing], Standing]:
    """Of each experiment by its name, and of all together: a cell that several share counts once.

    Raises:
        ExperimentError: a result cannot be read.
        ConfigError: a recipe that cannot run.
    """
    each = {e.name: standing(suite, cells_of(suite, [e], scale, seeds)) for e in experiments}
    return each, standing(suite, cells_of(suite, experiments, scale, seeds))
