"""The demo: two models that write in different notations, alone and together.

Four runs with the same seed and the same problems, side by side on the cores, each in a
process and with a thread of its own so that the numbers do not depend on the machine's
load: each model alone (it writes every completion itself), both together with naive
sharing (NoIS), and both together with F-TIS.
"""

import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from potluck import STARTING_RECIPE
from potluck.config import as_tree, from_tree
from potluck.dashboard import CellsDisplay, Run, demo_table, draw, read_run, write_report
from potluck.types import PotluckError

METHODS = ("alone", "nois", "f-tis")


class DemoError(PotluckError):
    """A run of the demo that broke down, with its last words."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of the demo."""

    name: str
    recipe: dict[str, Any]

    @property
    def nodes(self) -> list[str]:
        return list(self.recipe["node"])


def cells(*, rounds: int | None, seed: int) -> list[Cell]:
    """The runs, longest first, so that the cores are done at about the same time."""
    start = tomllib.loads(STARTING_RECIPE.read_text(encoding="utf-8"))
    start |= {"seed": seed, "rounds": rounds or start["rounds"], "threads": 1}
    found = []
    for method in METHODS[1:]:
        found.append((f"together-{method}", start["node"], method))
    for name, node in start["node"].items():
        # Alone, every completion is one's own: the method makes no difference to speak of.
        found.append((f"alone-{name}", {name: node}, "f-tis"))
    return [
        Cell(
            name,
            as_tree(
                from_tree(
                    {
                        **start,
                        "name": name,
                        "node": nodes,
                        "objective": {**start["objective"], "method": method},
                    }
                )
            ),
        )
        for name, nodes, method in found
    ]


def demo(folder: Path, *, rounds: int | None, seed: int, console: Console) -> dict[str, Any]:
    """Runs the four cells and writes summary.json, accuracy.png and report.html.

    Raises:
        DemoError: the folder is in use, or a run broke down.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DemoError(f"{folder} exists; name another folder with --out, or remove it")
    began, plan = time.monotonic(), cells(rounds=rounds, seed=seed)
    total = plan[0].recipe["rounds"]
    console.print(
        f"Two models that add numbers in different notations, {total} rounds each: "
        f"{', '.join(cell.name for cell in plan)}",
        markup=False,
    )
    _run_side_by_side(plan, folder / "cells", total, console)
    summary = summarise(plan, folder / "cells", seconds=time.monotonic() - began)
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    draw(summary, folder / "accuracy.png")
    write_report(summary, folder / "accuracy.png", folder / "report.html")
    console.print(demo_table(summary))
    for name in ("report.html", "accuracy.png", "summary.json"):
        console.print(f"  {folder / name}", markup=False, highlight=False)
    return summary


def summarise(plan: list[Cell], folder: Path, *, seconds: float) -> dict[str, Any]:
    """What summary.json holds: every curve, and what explains it."""
    runs = {cell.name: read_run(folder / cell.name) for cell in plan}
    nodes = [name for cell in plan if cell.name.startswith("alone-") for name in cell.nodes]

    def run_of(node: str, method: str) -> Run:
        return runs[f"alone-{node}" if method == "alone" else f"together-{method}"]

    def table(value: Any) -> dict[str, dict[str, Any]]:
        return {n: {m: value(run_of(n, m).nodes[n]) for m in METHODS} for n in nodes}

    first = run_of(nodes[0], "alone").nodes[nodes[0]]
    return {
        "nodes": table(lambda node: [e.validation for e in node.evaluations]),
        "eval_rounds": [e.round for e in first.evaluations],
        "out_of_distribution": table(lambda node: node.evaluations[-1].out_of_distribution),
        "filtered_share": table(lambda node: _mean([m.filtered_share for m in node.metrics])),
        "samples": {n: _samples(run_of(n, "f-tis"), n) for n in nodes},
        "seed": plan[0].recipe["seed"],
        "seconds": round(seconds, 1),
    }
