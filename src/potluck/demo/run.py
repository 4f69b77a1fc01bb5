"""The demo: two sizes of model that learn from each other's right answers, and each by itself.

Five runs with the same seed: both together with LWS, where each writes half of the completions;
each alone; and each alone with half of the problems, which is what it writes together. They run
side by side, each in a process with one thread, so that the numbers do not depend on the machine's
load.
"""

import json
import time
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from potluck import STARTING_RECIPE
from potluck.config import as_tree, from_tree
from potluck.demo.picture import draw
from potluck.demo.report import COLUMNS, Outcome, Result, write_report
from potluck.launch.side_by_side import WholeRun, run_side_by_side
from potluck.reports.runs import NodeRun, read_run
from potluck.show.terminal.text import label, new_table
from potluck.types import PotluckError

NODES = ("large", "small")
"""Nodes of the demo and, behind ``builtin:digits-``, their models."""
SETTINGS = ("alone", "half", "lws")
TOLD = """
sampled reward: right answers among those that a model samples, second half of
the rounds; greedy: accuracy at the end on problems not trained on, and on longer ones"""


class DemoError(PotluckError):
    """A demo that cannot start."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of the demo."""

    name: str
    recipe: dict[str, Any]

    @property
    def nodes(self) -> list[str]:
        return list(self.recipe["node"])


def cells(*, rounds: int | None, seed: int) -> list[Cell]:
    """List the runs, longest first, so that the cores are done at about the same time."""
    start = tomllib.loads(STARTING_RECIPE.read_text(encoding="utf-8"))
    # To evaluate between the rounds would be a tenth of the time.
    start["evaluation"] |= {"every": 0}
    start |= {"seed": seed, "rounds": rounds or start["rounds"], "threads": 1}
    options, problems = next(iter(start["node"].values())), start["problems_per_round"]

    def cell(name: str, nodes: tuple[str, ...], problems: int) -> Cell:
        node = {name: {**options, "model": f"builtin:digits-{name}"} for name in nodes}
        tree = {**start, "name": name, "node": node, "problems_per_round": problems}
        return Cell(name, as_tree(from_tree(tree)))

    # With one author LWS is GRPO, and so is every other method.
    alone = [cell(f"alone-{name}", (name,), problems) for name in NODES]
    half = [cell(f"half-{name}", (name,), problems // len(NODES)) for name in NODES]
    return [cell("lws", NODES, problems), *alone, *half]


def demo(folder: Path, *, rounds: int | None, seed: int, console: Console) -> Result:
    """Run the cells and write summary.json, accuracy.png and report.html; raise DemoError if a run
    breaks down, or the folder is in use."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DemoError(f"{folder} exists; name another folder with --out, or remove it")
    began, plan = time.monotonic(), cells(rounds=rounds, seed=seed)
    total = plan[0].recipe["rounds"]
    console.print(
        "Two sizes of model that add numbers,",
        f"{total} rounds each: {', '.join(cell.name for cell in plan)}",
        markup=False,
    )
    made = [WholeRun(from_tree(each.recipe), folder / "cells" / each.name) for each in plan]
    if not run_side_by_side(made, console):
        raise KeyboardInterrupt
    seconds = round(time.monotonic() - began, 1)
    result = summarise(plan, folder / "cells", seconds=seconds)
    (folder / "summary.json").write_text(json.dumps(asdict(result), indent=1) + "\n", "utf-8")
    draw(result, folder / "accuracy.png")
    runs = {cell.name: folder / "cells" / cell.name for cell in plan}
    write_report(result, runs, folder / "report.html")
    console.print(TOLD)
    console.print(demo_table(result, console))
    for name in ("report.html", "accuracy.png", "summary.json"):
        console.print(f"  {folder / name}", markup=False, highlight=False)
    return result


def demo_table(result: Result, console: Console) -> Table:
    """Make a table with a row for each node under each setting."""
    made = new_table(console, ["node", "setting"], COLUMNS)
    for node, outcomes in result.nodes.items():
        for setting, outcome in outcomes.items():
            made.add_row(Text(node, style="bold"), label(setting), *outcome.cells)
    return made


def summarise(plan: list[Cell], folder: Path, *, seconds: float) -> Result:
    """Read from the run folders what the demo tells."""
    runs = {
        (cell.name, node.name): node for cell in plan for node in read_run(folder / cell.name).nodes
    }

    def outcome(name: str, setting: str) -> Outcome:
        return _outcome(runs["lws" if setting == "lws" else f"{setting}-{name}", name])

    return Result(
        seed=plan[0].recipe["seed"],
        rounds=plan[0].recipe["rounds"],
        seconds=seconds,
        nodes={name: {each: outcome(name, each) for each in SETTINGS} for name in NODES},
    )


def _outcome(node: NodeRun) -> Outcome:
    end = node.evaluations[-1]
    return Outcome(
        written=sum(each.sources[node.name].completions for each in node.rounds),
        sampled=tuple(r for each in node.rounds if (r := each.own_reward_mean) is not None),
        greedy=end.validation,
        out_of_distribution=end.out_of_distribution,
    )
