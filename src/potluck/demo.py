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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from potluck import STARTING_RECIPE
from potluck.config import as_tree, from_tree
from potluck.dashboard import CellsDisplay, demo_table, draw, printable, read_run, write_report
from potluck.dashboard.runs import NodeRun
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

    def node_of(node: str, method: str) -> NodeRun:
        run = runs[f"alone-{node}" if method == "alone" else f"together-{method}"]
        return next(there for there in run.nodes if there.name == node)

    def table(value: Callable[[NodeRun], Any]) -> dict[str, dict[str, Any]]:
        return {n: {m: value(node_of(n, m)) for m in METHODS} for n in nodes}

    return {
        "nodes": table(lambda node: [e.validation for e in node.evaluations]),
        "eval_rounds": [e.round for e in node_of(nodes[0], "alone").evaluations],
        "out_of_distribution": table(lambda node: node.evaluations[-1].out_of_distribution),
        "filtered_share": table(
            lambda node: sum(m.filtered_share or 0.0 for m in node.rounds) / len(node.rounds)
        ),
        "samples": {n: _samples(node_of(n, "f-tis")) for n in nodes},
        "seed": plan[0].recipe["seed"],
        "seconds": round(seconds, 1),
    }


def _samples(node: NodeRun) -> list[dict[str, Any]]:
    """The first right and the first wrong completion of the last round, for the report."""
    own = [w for w in node.last_written if w.author == node.name]
    chosen = [next((w for w in own if bool(w.reward) is right), None) for right in (True, False)]
    return [
        {"question": w.problem.removeprefix("digits/"), "text": w.text, "reward": w.reward}
        for w in chosen
        if w is not None
    ]


def _run_side_by_side(plan: list[Cell], folder: Path, rounds: int, console: Console) -> None:
    """Every cell in a process with one thread, as many at a time as there are cores."""
    folder.mkdir(parents=True)
    waiting, running = list(plan), dict[str, subprocess.Popen[bytes]]()
    with CellsDisplay(console, {cell.name: rounds for cell in plan}) as display:
        try:
            while waiting or running:
                while waiting and len(running) < _cores():
                    cell = waiting.pop(0)
                    running[cell.name] = _start(cell, folder)
                time.sleep(0.2)
                for cell in plan:
                    display.update(cell.name, _rounds_done(folder / cell.name, cell.nodes[-1]))
                for name, process in list(running.items()):
                    if process.poll() is not None:
                        del running[name]
                        _require_success(name, process, folder)
        finally:
            for process in running.values():
                process.terminate()
                process.wait()


def _start(cell: Cell, folder: Path) -> subprocess.Popen[bytes]:
    recipe = folder / f"{cell.name}.json"
    recipe.write_text(json.dumps(cell.recipe, indent=1) + "\n", encoding="utf-8")
    with (folder / f"{cell.name}.log").open("wb") as log:
        return subprocess.Popen(
            # In one process each, so that its numbers are the same on every machine.
            [
                *(sys.executable, "-m", "potluck", "run", "--one-process"),
                *(recipe, "--out", folder / cell.name),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _require_success(name: str, process: subprocess.Popen[bytes], folder: Path) -> None:
    if process.returncode:
        log = folder / f"{name}.log"
        words = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = printable(words[-1], 500) if words else "it said nothing"
        raise DemoError(f"{name} ended with exit code {process.returncode}: {last} (all: {log})")


def _rounds_done(folder: Path, node: str) -> int:
    try:
        return (folder / node / "metrics.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
