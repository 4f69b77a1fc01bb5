"""Which cells are finished, and the time that they take. Imports no torch."""

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Self

import msgspec

from potluck.files import write_atomically
from potluck_experiments.cell_files import Lines, read_lines, read_result
from potluck_experiments.cells import CellSpec
from potluck_experiments.suite import ExperimentError, Scale, Suite

TELL_EVERY_S = 15.0
"""Time after which progress.json is written again: an old one is what a killed command left."""


def finished(suite: Suite, cells: Sequence[CellSpec]) -> set[str]:
    """Return the names of the cells that have a result; raise ExperimentError for one that cannot
    be read."""
    return {cell.name for cell in cells if read_result(suite.folder, cell)}


class ToldProgress:
    """A file beside the cells as long as they run, for ``potluck watch``: progress.json."""

    def __init__(self, folder: Path, cells: Sequence[CellSpec]) -> None:
        self.running: set[str] = set()
        """Names of the cells that run; their threads change it."""
        place = folder / "cells" / cells[0].scale
        self._file = place / "progress.json"
        names = {cell.name for cell in cells}
        for file in place.glob("*.jsonl"):
            with suppress(ExperimentError):  # what is needed of it, reading a result tells
                names |= {name for name, _ in read_lines(file)}
        self._total = Counter(name.partition(".")[0] for name in names)
        self._told: tuple[set[str], float] = (set(), 0.0)

    def __enter__(self) -> Self:
        self.write()
        return self

    def __exit__(self, *error: object) -> None:
        self._file.unlink(missing_ok=True)

    def write(self) -> None:
        """Write it if it has changed, or is older than TELL_EVERY_S."""
        now_s, running = time.time(), self.running.copy()
        if running == self._told[0] and now_s - self._told[1] < TELL_EVERY_S:
            return
        self._told = (running, now_s)
        tree = {"total": self._total, "running": sorted(running), "time_s": now_s}
        with suppress(OSError):  # the cells matter more
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file, msgspec.json.encode(tree))


class Estimates:
    """Core time of cells, from every result that a scale has. A round of half the problems counts
    as half a round."""

    def __init__(self, suite: Suite, scale: Scale) -> None:
        self._share = {name: setting.problems for name, setting in suite.settings.items()}
        found: dict[object, list[float]] = {}
        for file in sorted((suite.folder / "cells" / scale).glob("*.jsonl")):
            lines: Lines = {}
            with suppress(ExperimentError):
                lines = read_lines(file)
            for it in (line.result for line in lines.values() if line.result.node):
                sampled = next(iter(it.node.values())).sampled
                rounds = len(sampled) * self._share.get(it.setting, 1.0)
                found.setdefault((it.family, it.models, it.setting), []).append(it.cpu_s)
                found.setdefault((it.family, len(it.models)), []).append(it.cpu_s / max(rounds, 1))
        self._mean_s = {key: fmean(all_s) for key, all_s in found.items()}

    def seconds(self, cell: CellSpec) -> float | None:
        """Return the mean over other seeds, else scale runs of as many models; None: unknown."""
        same_s = self._mean_s.get((cell.family, cell.models, cell.setting))
        per_round_s = self._mean_s.get((cell.family, len(cell.models)))
        if same_s is not None or per_round_s is None:
            return same_s
        return per_round_s * cell.config.rounds * self._share[cell.setting]

    def minutes(self, cells: Sequence[CellSpec]) -> str:
        """Return the sum: "14", ">= 7" where some are unknown, or "?"."""
        known_s = [one_s for one_s in map(self.seconds, cells) if one_s is not None]
        least = ">= " if len(known_s) < len(cells) else ""
        return f"{least}{sum(known_s) / 60:.0f}" if known_s or not cells else "?"


def longest_first(suite: Suite, cells: Sequence[CellSpec]) -> list[CellSpec]:
    """Order seed by seed, the longest first, so that all cores are done at about the same time."""
    estimates = Estimates(suite, cells[0].scale)
    known = {cell.name: estimates.seconds(cell) for cell in cells}
    if None in known.values():  # guesses among measurements order nothing
        known = {cell.name: len(cell.models) * cell.config.rounds for cell in cells}
    return sorted(cells, key=lambda cell: (cell.seed, -(known[cell.name] or 0.0)))
