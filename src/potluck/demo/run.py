"""The demo: two models that write in different notations, alone and together.

Four runs with the same seed and problems: each model alone (it writes every completion itself),
both together with naive sharing (NoIS), and both together with F-TIS. They run side by side, each
in a process with one thread, so that the numbers do not depend on the machine's load.
"""

import json
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from potluck import STARTING_RECIPE
from potluck.config import as_tree, from_tree
from potluck.demo.picture import draw
from potluck.demo.report import compare, write_report
from potluck.display.live import LiveDisplay
from potluck.display.runs import NodeRun, read_run
from potluck.display.text import decimal, label, new_table, printable
from potluck.events import PhaseProgress
from potluck.files import available_cores
from potluck.types import PotluckError

METHODS = ("alone", "nois", "f-tis")


class DemoError(PotluckError):
    """A demo that cannot start, or a run of it that broke down."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of the demo."""

    name: str
    recipe: dict[str, Any]

    @property
    def nodes(self) -> list[str]:
        return list(self.recipe["node"])


def cells(*, rounds: int | None, seed: int) -> list[Cell]:
    """Return the runs, longest first, so that the cores are done at about the same time."""
    start = tomllib.loads(STARTING_RECIPE.read_text(encoding="utf-8"))
    start |= {"seed": seed, "rounds": rounds or start["rounds"], "threads": 1, "plan": "vertical"}

    def cell(name: str, nodes: dict[str, Any], method: str) -> Cell:
        objective = {**start["objective"], "method": method}
        tree = {**start, "name": name, "node": nodes, "objective": objective}
        return Cell(name, as_tree(from_tree(tree)))

    together = [cell(f"together-{method}", start["node"], method) for method in METHODS[1:]]
    # Alone, every completion is one's own: the method makes no difference to speak of.
    alone = [cell(f"alone-{name}", {name: node}, "f-tis") for name, node in start["node"].items()]
    return together + alone


def demo(folder: Path, *, rounds: int | None, seed: int, console: Console) -> dict[str, Any]:
    """Run the four cells and write summary.json, accuracy.png and report.html; raise DemoError if
    a run breaks down, or the folder is in use."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DemoError(f"{folder} exists; name another folder with --out, or remove it")
    began, plan = time.monotonic(), cells(rounds=rounds, seed=seed)
    total = plan[0].recipe["rounds"]
    console.print(
        "Two models that add numbers in different notations,",
        f"{total} rounds each: {', '.join(cell.name for cell in plan)}",
        markup=False,
    )
    _run_side_by_side(plan, folder / "cells", total, console)
    summary = summarise(plan, folder / "cells", seconds=time.monotonic() - began)
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    draw(summary, folder / "accuracy.png")
    write_report(summary, folder / "accuracy.png", folder / "report.html")
    console.print("\naccuracy (greedy, problems not trained on)", style="italic")
    console.print(demo_table(summary, console))
    for name in ("report.html", "accuracy.png", "summary.json"):
        console.print(f"  {folder / name}", markup=False, highlight=False)
    return summary


def demo_table(summary: Mapping[str, Any], console: Console) -> Table:
    """Return a row for each node: accuracy at the start, and at the end under each method."""
    comparison = compare(summary)
    labels = [printable(label(method), 12) for method in comparison.methods]
    made = new_table(console, ["node"], ["start", *labels])
    for node in comparison.curves:
        shares = [comparison.start(node), *(comparison.end(node, m) for m in comparison.methods)]
        made.add_row(Text(printable(node, 32), style="bold"), *(decimal(s, 2) for s in shares))
    return made


def summarise(plan: list[Cell], folder: Path, *, seconds: float) -> dict[str, Any]:
    """Return the contents of summary.json: every curve, and what explains it."""
    runs = {cell.name: read_run(folder / cell.name) for cell in plan}
    nodes = [name for cell in plan if cell.name.startswith("alone-") for name in cell.nodes]

    def node_of(node: str, method: str) -> NodeRun:
        run = runs[f"alone-{node}" if method == "alone" else f"together-{method}"]
        return next(there for there in run.nodes if there.name == node)

    def by_node(value: Callable[[NodeRun], Any]) -> dict[str, dict[str, Any]]:
        return {n: {m: value(node_of(n, m)) for m in METHODS} for n in nodes}

    return {
        "nodes": by_node(lambda node: [e.validation for e in node.evaluations]),
        "eval_rounds": [e.round for e in node_of(nodes[0], "alone").evaluations],
        "out_of_distribution": by_node(lambda node: node.evaluations[-1].out_of_distribution),
        "filtered_share": by_node(
            lambda node: sum(m.filtered_share or 0.0 for m in node.rounds) / len(node.rounds)
        ),
        "samples": {n: _samples(node_of(n, "f-tis")) for n in nodes},
        "seed": plan[0].recipe["seed"],
        "seconds": round(seconds, 1),
    }


def _samples(node: NodeRun) -> list[dict[str, Any]]:
    """Pick the first right and the first wrong completion of the last round."""
    own = [w for w in node.last_written if w.author == node.name]
    first = {bool(w.reward): w for w in reversed(own)}
    return [
        {"question": w.problem.removeprefix("digits/"), "text": w.text, "reward": w.reward}
        for right in (True, False)
        if (w := first.get(right))
    ]


def _run_side_by_side(plan: list[Cell], folder: Path, rounds: int, console: Console) -> None:
    """Run each cell in a process with one thread, as many at a time as there are cores."""
    folder.mkdir(parents=True)
    waiting, running = list(plan), dict[str, subprocess.Popen[bytes]]()
    with LiveDisplay(console) as display:
        try:
            while waiting or running:
                while waiting and len(running) < available_cores():
                    cell = waiting.pop(0)
                    running[cell.name] = _start(cell, folder)
                for cell in plan:
                    metrics = folder / cell.name / cell.nodes[-1] / "metrics.jsonl"
                    done = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
                    display.show(PhaseProgress(cell.name, "rounds", done, rounds))
                time.sleep(0.2)
                for name, process in list(running.items()):
                    if process.poll() is not None:
                        del running[name]
                        _require_success(name, process.returncode, folder)
        finally:
            for process in running.values():
                process.terminate()
                process.wait()


def _start(cell: Cell, folder: Path) -> subprocess.Popen[bytes]:
    recipe, command = folder / f"{cell.name}.json", [sys.executable, "-m", "potluck", "run"]
    recipe.write_text(json.dumps(cell.recipe, indent=1) + "\n", encoding="utf-8")
    with (folder / f"{cell.name}.log").open("wb") as log:
        return subprocess.Popen(
            # In one process each, so that its numbers are the same on every machine.
            [*command, "--one-process", recipe, "--out", folder / cell.name],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _require_success(name: str, code: int, folder: Path) -> None:
    if code:
        log = folder / f"{name}.log"
        words = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = printable(words[-1], 500) if words else "it said nothing"
        raise DemoError(f"{name} ended with exit code {code}: {last} (all: {log})")
