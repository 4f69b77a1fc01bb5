"""The finished cells of one pair, by model, setting and seed."""

from collections.abc import Mapping
from dataclasses import dataclass

from potluck.reproduce.cells import alone_as
from potluck.reproduce.judge.statistics import Measure, When, value_of
from potluck.reproduce.result import CellResult, NodeResult
from potluck.reproduce.suite import Scale, Suite

Results = Mapping[str, CellResult]
"""By the name of the cell."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The finished cells of one pair."""

    suite: Suite
    scale: Scale
    pair: str
    """FAMILY.PAIR."""
    results: Results

    @property
    def family(self) -> str:
        return self.pair.partition(".")[0]

    @property
    def models(self) -> tuple[str, ...]:
        return self.suite.pair(self.scale, self.pair)

    @property
    def seeds_required(self) -> int:
        return self.suite.scales[self.scale].seeds

    def of(self, model: str, setting: str) -> dict[int, NodeResult]:
        """By seed, what a model did in a setting: in the pair's cell, or in its own if alone.

        Of the seeds that the scale asks for: running more until a verdict pleases is none.
        """
        models, node = self.models, model
        if self.suite.settings[setting].alone:
            node = alone_as(self.suite.scales[self.scale].family[self.family], model)
            models = (node,)
        wanted = (self.scale, self.family, models, setting)
        found = {
            cell.seed: cell.node[node]
            for cell in self.results.values()
            if (cell.scale, cell.family, cell.models, cell.setting) == wanted
            and cell.seed < self.seeds_required
        }
        return dict(sorted(found.items()))

    def values(self, model: str, setting: str, measure: Measure, when: When) -> dict[int, float]:
        """By seed, one number of each."""
        return {s: value_of(node, measure, when) for s, node in self.of(model, setting).items()}

    def too_few(self, seeds: int) -> str:
        """ "2 of 5 seeds"; empty if there are enough."""
        need = self.seeds_required
        return f"{seeds} of {need} seeds" if seeds < need else ""
