"""Cells: the runs that experiments are made of. One that several need is one cell.

A cell is one family's models, alone or together, in one setting, with one seed:
``digits.small+large.f-tis.0``. What it runs is an ordinary recipe.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from potluck.config import RunConfig, from_tree, read_tree
from potluck.reproduce.suite import Experiment, ExperimentError, Family, Scale, Setting, Suite


@dataclass(frozen=True, slots=True)
class Cell:
    """One run."""

    scale: Scale
    family: str
    models: tuple[str, ...]
    """Which of the family's; one where it is alone."""
    setting: str
    seed: int
    config: RunConfig
    digest: str
    """Of what its recipe says; the cell is another one if that changes. Defaults are not in it, so
    that a new option leaves it as it is; another default counts as other code."""

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.family}.{'+'.join(self.models)}.{self.setting}.{self.seed}"


def cells_of(
    suite: Suite, experiments: Iterable[Experiment], scale: Scale, seeds: int
) -> list[Cell]:
    """Every cell that the experiments need, once each; all of one seed before the next."""
    wanted = {
        (family, models, setting): None
        for experiment in experiments
        for pair in experiment.pairs.get(scale, ())
        for setting in experiment.settings
        for family, models in runs_of(suite, scale, pair, setting)
    }
    return [
        make_cell(suite, scale, family, models, setting, seed)
        for seed in range(seeds)
        for family, models, setting in wanted
    ]


def runs_of(
    suite: Suite, scale: Scale, pair: str, setting: str
) -> list[tuple[str, tuple[str, ...]]]:
    """(family, models) of each run that a pair needs in a setting."""
    family, models = pair.partition(".")[0], suite.pair(scale, pair)
    if not suite.settings[setting].alone:
        return [(family, models)]
    there = suite.scales[scale].family[family]
    return [(family, (alone_as(there, model),)) for model in models]


def alone_as(family: Family, model: str) -> str:
    """The first model of the family that is the same one: alone, a twin need not run again."""
    return next(name for name, table in family.model.items() if table == family.model[model])


def make_cell(
    suite: Suite, scale: Scale, family: str, models: tuple[str, ...], setting: str, seed: int
) -> Cell:
    """The cell with its recipe.

    Raises:
        ExperimentError: recipes of one family differ in more than their nodes.
        ConfigError: a recipe that cannot run.
    """
    chosen = suite.settings[setting]
    tree = _recipe(suite.folder, suite.scales[scale].family[family], models, family)
    tree |= {"name": f"{family}.{'-'.join(models)}.{setting}", "seed": seed}
    config = from_tree(tree, chosen.set)
    if chosen.problems != 1:
        config = from_tree(tree, [f"problems_per_round={_share(config, chosen)}"])
    digest = hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]
    return Cell(scale, family, models, setting, seed, config, digest)


def _share(config: RunConfig, setting: Setting) -> int:
    fewer = config.problems_per_round * setting.problems
    if fewer != int(fewer):
        raise ExperimentError(
            f"{setting.problems} of problems_per_round = {config.problems_per_round} is {fewer}; "
            f"choose a share that gives whole problems"
        )
    return int(fewer)


def _recipe(
    folder: Path, family: Family, models: tuple[str, ...], family_name: str
) -> dict[str, Any]:
    """The recipe of these models: one file's, with the nodes that they name, under their names."""
    rest: Mapping[str, Any] | None = None
    nodes = {}
    for model in models:
        file, _, node = family.model[model].partition("#")
        tree = read_tree(folder / file)
        tables = tree.get("node") if isinstance(tree, dict) else None
        if not isinstance(tables, dict):
            raise ExperimentError(
                f"[family.{family_name}] {model} is {family.model[model]!r}, but {folder / file} "
                f"has no nodes; a recipe has a table [node.NAME] for each"
            )
        other = {k: v for k, v in tree.items() if k not in ("node", "name")}
        if node not in tables:
            raise ExperimentError(
                f"[family.{family_name}] {model} is {family.model[model]!r}; the nodes of "
                f"{folder / file} are {', '.join(tables)}"
            )
        if rest is not None and other != rest:
            raise ExperimentError(
                f"[family.{family_name}] {model} comes from {folder / file}, which differs from "
                f"the others' recipe in more than its nodes; models that work together share the "
                f"rest"
            )
        rest, nodes[model] = other, tables[node]
    return {**(rest or {}), "node": nodes}
