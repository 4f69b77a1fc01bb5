"""The finished cells of a scale, as the pages read them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from potluck.reproduce.cells import Cell, cells_of, make_cell, runs_of
from potluck.reproduce.result import CellResult, read_result
from potluck.reproduce.suite import MOST_SEEDS, Experiment, ExperimentError, Scale, Suite


@dataclass(frozen=True, slots=True)
class Finished:
    """What is there of a scale."""

    suite: Suite
    scale: Scale
    planned: frozenset[str]
    """Names of the cells that the experiments need, with the seeds that the scale asks for."""
    results: Mapping[str, CellResult]
    """By the name of the cell. More seeds than were asked for are here, too."""
    stale: Mapping[str, tuple[str, ...]]
    """Of each cell that ran other code: the rooms that have changed since."""

    @property
    def missing(self) -> int:
        """Of ``planned``."""
        return len(self.planned - self.results.keys())

    def of(self, experiment: Experiment) -> dict[str, CellResult]:
        """The cells that one experiment needs."""
        wanted = {
            (family, models, setting)
            for pair in experiment.pairs.get(self.scale, ())
            for setting in experiment.settings
            for family, models in runs_of(self.suite, self.scale, pair, setting)
        }
        return {
            name: cell
            for name, cell in self.results.items()
            if (cell.family, cell.models, cell.setting) in wanted
        }


def finished(suite: Suite, scale: Scale, code: Mapping[str, str]) -> Finished:
    """Reads every cell that an experiment needs.

    Args:
        code: of today, see ``code_digests``.

    Raises:
        ExperimentError: a result cannot be read.
        ConfigError: a recipe that cannot run.
    """
    asked = cells_of(suite, suite.experiments, scale, suite.scales[scale].seeds)
    cells = [*asked, *_cells_beyond(suite, scale, asked)]
    results = {cell.name: result for cell in cells if (result := read_result(suite.folder, cell))}
    return of_results(suite, scale, [cell.name for cell in asked], results, code)


def of_results(
    suite: Suite,
    scale: Scale,
    planned: Iterable[str],
    results: Mapping[str, CellResult],
    code: Mapping[str, str],
) -> Finished:
    """The same of results that are at hand."""
    changed = {name: tuple(cell.changed_since(code)) for name, cell in results.items()}
    stale = {name: rooms for name, rooms in changed.items() if rooms}
    return Finished(suite, scale, frozenset(planned), results, stale)


def _cells_beyond(suite: Suite, scale: Scale, asked: Sequence[Cell]) -> list[Cell]:
    """Cells of which there is a file, with more seeds than were asked for.

    Files that are no cell's are left alone.
    """
    of = {cell.name.rpartition(".")[0]: cell for cell in asked}
    found = []
    for file in (suite.folder / "cells" / scale).glob("*.json"):
        stem, _, text = file.stem.rpartition(".")
        if stem not in of or not text.isdecimal():
            continue
        if (seed := int(text)) >= MOST_SEEDS:
            raise ExperimentError(
                f"{file} is of seed {seed}; seeds go from 0 to {MOST_SEEDS - 1}, remove it"
            )
        if seed >= suite.scales[scale].seeds:
            cell = of[stem]
            found.append(make_cell(suite, scale, cell.family, cell.models, cell.setting, seed))
    return sorted(found, key=lambda cell: (cell.seed, cell.name))
