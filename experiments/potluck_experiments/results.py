"""Finished cells: ``cells/SCALE/NAME.json``, curves and their origin, and the numbers of each.

A cell whose recipe is another one now counts as never run.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct

from potluck_experiments.cells import CellSpec, cells_of, runs_of
from potluck_experiments.suite import Experiment, ExperimentError, Measure, Scale, Suite, When

MOST_BYTES = 1_000_000  # of a file; with 1,000 rounds and four models it has 150,000
Fraction = Annotated[float, Meta(ge=0, le=1)]
Quantity = Annotated[float, Meta(ge=0, le=1e12)]  # beyond any run, so that sums stay finite
IDENTITY = ("scale", "family", "models", "setting", "seed")  # as the CellSpec has them


class NotationCurve(Struct, frozen=True, array_like=True):
    """The answers of a model in one notation, by round. In the file [written, right]."""

    written: tuple[Annotated[int, Meta(ge=0)], ...]
    right: tuple[Annotated[int, Meta(ge=0)], ...]  # Those of them that earn a reward


class NodeResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model's curves. Accuracies 0..1."""

    eval_rounds: tuple[int, ...]
    greedy: tuple[Fraction, ...]  # On the validation problems, at each of ``eval_rounds``
    out_of_distribution: Fraction
    """Greedy, at the end. What follows is by round:"""
    sampled: tuple[Fraction, ...]  # Mean reward of the completions that this model wrote
    tokens: tuple[Annotated[int, Meta(ge=0, le=10**12)], ...]
    seconds: tuple[Quantity, ...]  # Wall time of writing and learning
    filtered_share: tuple[Fraction, ...]
    """Share of the completions with an advantage that the filter silenced."""
    base: str  # Digest of the model's weights at the start; for a model of the Hub its name
    pass_at_8: Fraction | None = None
    """At the end, the first 100 validation problems. None: the cell is older than this."""
    others_k1: float | None = None
    """k1 of the others' successes here, nats a token; None: they came without log-probabilities."""
    others_likelihood: float | None = None  # Mean P of the others' successes here, 0..1
    others_taken: tuple[Quantity | None, ...] = ()
    """Mean weight of their successes by round, the mean over authors; None: there was none;
    empty: nothing was taken, or the cell is older."""
    others_silenced: tuple[Fraction | None, ...] = ()
    """Share of their successes that the habit test silenced, by round; empty: none."""
    notations: Mapping[str, NotationCurve] = msgspec.field(default_factory=dict)
    """What this model wrote, by notation; empty: its task has none, or the cell is older."""


class CellResult(Struct, frozen=True, kw_only=True):
    """One finished cell."""

    scale: Scale
    family: str
    models: tuple[str, ...]
    setting: str
    seed: int
    recipe: str  # Digest, see CellSpec
    commit: str = ""
    """Commit of the code when the run began. Empty: the commit that brought the file."""
    uncommitted: tuple[str, ...] = ()  # Files of the package that differed from that commit
    machine: str
    torch: str
    cpu_s: Quantity  # Core time of the whole run, evaluations included: the run has one thread
    node: Mapping[str, NodeResult]


def result_file(folder: Path, cell: CellSpec) -> Path:
    """Return the place of a cell's result, below ``experiments/``."""
    return folder / "cells" / cell.scale / f"{cell.name}.json"


def read_result(folder: Path, cell: CellSpec) -> CellResult | None:
    """Read the cell's result; None if it was not run, or its recipe was another one then."""
    path = result_file(folder, cell)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES:,} bytes")
        found = msgspec.json.decode(path.read_bytes(), type=CellResult)
    except FileNotFoundError:
        return None
    # MsgspecError is a ValueError; RecursionError: brackets, thousands deep.
    except (OSError, ValueError, RecursionError) as error:
        raise ExperimentError(f"cannot read {path}: {error}; remove it to run it again") from None
    if found.recipe != cell.digest:
        return None
    if wrong := next(_problems(found, cell), ""):
        raise ExperimentError(f"cannot use {path}: {wrong}; remove it to run it again")
    return found


def _problems(found: CellResult, cell: CellSpec) -> Iterator[str]:
    """Yield the reasons why this cannot be the cell's result: files may be made by hand."""
    for name in IDENTITY:
        if getattr(found, name) != getattr(cell, name):
            yield f"{name} is {getattr(found, name)!r:.80}, expected {getattr(cell, name)!r}"
    if set(found.node) != set(cell.models):
        yield f"its nodes are {sorted(found.node)!r:.80}, expected {sorted(cell.models)}"
    rounds = cell.recipe.get("rounds") or cell.config.rounds
    for model, node in found.node.items():
        for name in ("sampled", "tokens", "seconds", "filtered_share"):
            if (its := len(getattr(node, name))) != rounds:
                yield f"{model}: {name} has {its} rounds, expected {rounds}"
        later = {name: getattr(node, name) for name in ("others_taken", "others_silenced")}
        for notation, curve in node.notations.items():
            later |= {f"{notation} written": curve.written, f"{notation} right": curve.right}
        for name, values in later.items():  # older cells have none
            if values and len(values) != rounds:
                yield f"{model}: {name} has {len(values)} rounds, expected {rounds}"
        at = node.eval_rounds
        if len(at) != len(node.greedy):
            yield f"{model}: greedy has {len(node.greedy)} values at {len(at)} eval_rounds"
        if list(at) != sorted({*at}) or not at or at[0] < 0 or at[-1] != rounds:
            yield f"{model}: eval_rounds is {list(at)!r:.80}, expected to rise from 0 to {rounds}"


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
