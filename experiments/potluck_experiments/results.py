"""The finished cells of a scale, arranged by pair and setting, and the numbers of each."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean
from typing import NamedTuple

from potluck_experiments.cell_files import CellResult, NodeResult, read_result
from potluck_experiments.cells import cells_of, runs_of
from potluck_experiments.suite import Experiment, ExperimentError, Measure, Scale, Suite, When


class ModelRun(NamedTuple):
    node: NodeResult
    values: "Mapping[tuple[Measure, When], float]"  # of ``node``
    core_s: tuple[float, ...]  # of its rounds


PairRuns = dict[str, ModelRun]
"""The models of a pair in one setting with one seed; some may be missing."""


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """The finished cells of a scale. Pages and pictures are made of this and nothing else."""

    suite: Suite
    scale: Scale
    planned: int  # Cells that the experiments need
    cells: Mapping[str, CellResult]
    """The finished ones. Further seeds are not read: more until a verdict pleases is no test."""
    runs: Mapping[tuple[str, str], Mapping[int, PairRuns]]
    """By pair and setting, then by seed. A model alone is in all of its pairs."""

    @property
    def of_base_pairs(self) -> bool:
        return self.suite.scales[self.scale].unit == "base pair"

    def of(self, experiment: Experiment) -> dict[str, CellResult]:
        """Return the finished cells that one experiment needs."""
        wanted = set(runs_of(self.suite, [experiment], self.scale))
        return {n: c for n, c in self.cells.items() if (c.family, c.models, c.setting) in wanted}

    def by_seed(
        self, pair: str, model: str, setting: str, measure: Measure, when: When
    ) -> dict[int, float]:
        """Return one measure of one model of a pair in one setting, by seed."""
        runs = self.runs.get((pair, setting), {})
        every = {seed: its[model].values for seed, its in runs.items() if model in its}
        found = {seed: its[measure, when] for seed, its in every.items() if (measure, when) in its}
        if not found and any((measure, "end") in its for its in every.values()):
            raise ExperimentError(
                f"{pair} has no {measure} accuracy {when!r}: it was not evaluated in the first "
                f"half of its rounds; evaluate it more often"
            )
        return found

    @property
    def fewest_seeds(self) -> int:
        """Seeds that a pair has at least where it counts."""
        scale = self.suite.scales[self.scale]
        return scale.fewest_seeds or scale.seeds

    def too_few(self, seeds: int) -> str:
        """Return "2 of 5 seeds"; empty if there are enough."""
        return f"{seeds} of {self.fewest_seeds} seeds" if seeds < self.fewest_seeds else ""


def read_results(suite: Suite, scale: Scale) -> Results:
    """Read every cell that the experiments need."""
    planned = cells_of(suite, suite.experiments, scale, suite.scales[scale].seeds)
    found = {cell.name: it for cell in planned if (it := read_result(suite.folder, cell))}
    return results_of(suite, scale, found, len(planned))


def results_of(
    suite: Suite, scale: Scale, cells: Mapping[str, CellResult], planned: int = 0
) -> Results:
    """Arrange finished cells, those of the scale's own seeds, by pair and setting."""
    file = suite.scales[scale]
    wanted = {
        name: cell
        for name, cell in sorted(cells.items(), key=lambda item: (item[1].seed, item[0]))
        if cell.scale == scale and cell.seed < file.seeds and cell.family in file.family
    }
    runs: dict[tuple[str, str], dict[int, PairRuns]] = {}
    for cell in wanted.values():
        family, setting = file.family[cell.family], suite.settings[cell.setting]
        for pair, models in family.pair.items():
            key = f"{cell.family}.{pair}", cell.setting
            for together in family.runs(setting, models):
                if cell.models != tuple(together.values()):
                    continue
                models_of_seed = runs.setdefault(key, {}).setdefault(cell.seed, {})
                for model, node in together.items():
                    its = cell.node[node]
                    models_of_seed[model] = ModelRun(its, values_of(its), core_seconds(cell, node))
    return Results(suite, scale, planned, wanted, runs)


def core_seconds(cell: CellResult, model: str) -> tuple[float, ...]:
    """Share the cell's core time out over its rounds and models as its wall seconds were.

    Wall seconds also tell what else the machine did, so those of two cells are never compared.
    The shares are right as far as the machine was equally busy while the cell ran.
    """
    wall_s = sum(sum(node.seconds) for node in cell.node.values()) or math.inf
    return tuple(cell.cpu_s / wall_s * s for s in cell.node[model].seconds)


def values_of(node: NodeResult) -> dict[tuple[Measure, When], float]:
    """Return the numbers of a node's curves that are compared. Accuracy, 0..1.

    Greedy: the last evaluation; early the mean of those after the start, up to half of the rounds;
    late of the others. Sampled: the mean of the last tenth of the rounds, of three at least; early
    of the first half, late of the second.
    """
    rounds, at = len(node.sampled), list(zip(node.eval_rounds, node.greedy, strict=True))
    early = [accuracy for round, accuracy in at if 0 < round <= rounds / 2]
    late = [accuracy for round, accuracy in at if round > rounds / 2]
    return {
        ("greedy", "end"): node.greedy[-1],
        ("sampled", "end"): mean(node.sampled[-max(3, math.ceil(rounds / 10)) :]),
        ("sampled", "early"): mean(node.sampled[: max(1, rounds // 2)]),
        ("sampled", "late"): mean(node.sampled[rounds // 2 :]),
        ("out-of-distribution", "end"): node.out_of_distribution,
        ("greedy", "late"): mean(late),
        **({} if node.pass_at_8 is None else {("pass@8", "end"): node.pass_at_8}),
        **({("greedy", "early"): mean(early)} if early else {}),
    }
