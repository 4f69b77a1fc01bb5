"""Cells: the runs that experiments are made of. A run that several need is one cell.

A cell is one family's models, alone or together, in one setting, with one seed.
"""

import hashlib
import json
import tomllib
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import potluck
from potluck.objective.methods import METHODS
from potluck_experiments.suite import INDEX, Experiment, ExperimentError, Family, Scale, Suite

Run = tuple[str, tuple[str, ...], str]
"""Family, models and setting."""


@dataclass(frozen=True, slots=True)
class CellSpec:
    """One run."""

    scale: Scale
    family: str
    models: tuple[str, ...]
    setting: str
    seed: int
    recipe: dict[str, Any]  # Plain data, so that it can be sent to another process

    @property
    def name(self) -> str:
        """Name, as that of its run's folder: ``digits.small+large.f-tis.0``."""
        return name_of(self.family, self.models, self.setting, self.seed)

    @property
    def config(self) -> potluck.RunConfig:
        return potluck.from_tree(_as_they_ran(self.recipe))

    @property
    def digest(self) -> str:
        """Digest of the recipe. Defaults are not in it, so that a new option leaves it as it is."""
        text = json.dumps(self.recipe, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def name_of(family: str, models: Iterable[str], setting: str, seed: int) -> str:
    """Return the name of a cell."""
    return f"{family}.{'+'.join(models)}.{setting}.{seed}"


def runs_of(suite: Suite, experiments: Iterable[Experiment], scale: Scale) -> list[Run]:
    """Return every run that the experiments need, once each."""
    wanted: list[Run] = []
    for experiment in experiments:
        for pair, setting in product(experiment.pairs.get(scale, ()), experiment.settings):
            family, models = suite.family(scale, pair), suite.models(scale, pair)
            each = family.runs(suite.settings[setting], models)
            wanted += [(pair.partition(".")[0], tuple(run.values()), setting) for run in each]
    return list(dict.fromkeys(wanted))


def cells_of(
    suite: Suite, experiments: Iterable[Experiment], scale: Scale, seeds: int
) -> list[CellSpec]:
    """Return the cells of all their runs, all of one seed before the next."""
    first = [make_cell(suite, scale, *run, 0) for run in runs_of(suite, experiments, scale)]
    return [
        replace(cell, seed=seed, recipe=cell.recipe | {"seed": seed})
        for seed in range(seeds)
        for cell in first
    ]


def make_cell(
    suite: Suite, scale: Scale, family: str, models: tuple[str, ...], setting: str, seed: int
) -> CellSpec:
    """Build the cell with its recipe. Raises ConfigError: it cannot run."""
    chosen = suite.settings[setting]
    tree = _recipe(suite.folder, suite.scales[scale].family[family], models, family)
    tree |= {"name": f"{family}.{'-'.join(models)}.{setting}", "seed": seed}
    if chosen.beside:
        _, name, table = _node(suite.folder, chosen.beside, f"[{setting}] beside")
        tree["node"] |= {name: table}
    if (factor := suite.scales[scale].rate.get(setting)) is not None:
        for name in models:
            table = tree["node"][name]
            tree["node"][name] = table | {"learning_rate": table["learning_rate"] * factor}
    problems = potluck.from_tree(tree, chosen.set).problems_per_round  # sets values in the tree
    if (fewer := problems * chosen.problems) != int(fewer):
        raise ExperimentError(
            f"{chosen.problems} of problems_per_round = {problems} is {fewer}; "
            f"choose a share that gives whole problems"
        )
    if chosen.problems != 1:
        potluck.from_tree(tree, [f"problems_per_round={int(fewer)}"])
    return CellSpec(scale, family, models, setting, seed, tree)


def _recipe(folder: Path, family: Family, models: tuple[str, ...], name: str) -> dict[str, Any]:
    """Return one file's recipe with the nodes of these models, under their names."""
    rest: dict[str, Any] = {}
    nodes: dict[str, Any] = {}
    for model in models:
        place, where = family.model[model], f"[family.{name}] {model}"
        tree, _, table = _node(folder, place, where)
        tree.pop("name", None)
        if nodes and tree != rest:
            raise ExperimentError(
                f"{where} comes from {folder / place.partition('#')[0]}, which differs from the "
                f"others' recipe in more than its nodes; models that work together share the rest"
            )
        rest, nodes[model] = tree, table
    return {**rest, "node": nodes}


def _node(folder: Path, place: str, where: str) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """Return the recipe without its nodes, and the name and the table of the node ``FILE#NODE``.

    A node ``small-{index}`` of the file is small-0, small-1 and so on, and so are its texts.
    """
    file, _, node = place.partition("#")
    path = folder / file
    try:
        tree = deepcopy(_parsed(path, path.stat().st_mtime_ns))
    except (OSError, ValueError, RecursionError) as error:
        raise ExperimentError(f"cannot read the recipe {path}: {error}") from None
    tables = tree.pop("node", None)
    index = node.rpartition("-")[2]
    pattern = node.removesuffix(index) + INDEX
    if isinstance(tables, dict) and pattern in tables and index.isdecimal():
        texts = {k: v.replace(INDEX, index) for k, v in tables[pattern].items() if type(v) is str}
        tables[node] = tables[pattern] | texts
    if not isinstance(tables, dict) or node not in tables:
        raise ExperimentError(
            f"{where} is {place!r}, but the nodes [node.NAME] of {path} "
            f"are {', '.join(tables) if isinstance(tables, dict) else 'missing'}"
        )
    return tree, node, tables[node]


def _as_they_ran(recipe: dict[str, Any]) -> dict[str, Any]:
    """Name what the files of the scales leave out, which was the default when their cells were
    run. The digests are of the files' own keys, so they stay."""
    objective = recipe.get("objective", {})
    if not {"method", "importance"} & objective.keys():
        objective = METHODS["f-tis"].fields | objective
    return {"plan": "vertical", **recipe, "objective": objective}


@lru_cache
def _parsed(path: Path, changed_ns: int) -> dict[str, Any]:
    """Parse a recipe once, unless it changes."""
    return tomllib.loads(path.read_text(encoding="utf-8"))
