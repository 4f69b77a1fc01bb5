"""The finished cells of a scale, as the pages read them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from potluck.reproduce.cells import cells_of, runs_of
from potluck.reproduce.result import CellResult, read_result
from potluck.reproduce.suite import Experiment, Scale, Suite


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
    asked = suite.scales[scale].seeds
    seeds = max([asked, *_seeds_there(suite, scale)])
    cells = cells_of(suite, suite.experiments, scale, seeds)
    results = {cell.name: result for cell in cells if (result := read_result(suite.folder, cell))}
    planned = frozenset(cell.name for cell in cells if cell.seed < asked)
    return of_results(suite, scale, planned, results, code)


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


def _seeds_there(suite: Suite, scale: Scale) -> Iterable[int]:
    """How many seeds the files' names tell of; somebody may have run more than were asked for."""
    for file in (suite.folder / "cells" / scale).glob("*.*.*.*.json"):
        seed = file.name.split(".")[-2]
        if seed.isdecimal():
            yield int(seed) + 1
