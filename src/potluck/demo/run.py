"""The demo: two models with one skill each, together and each by itself. The runs go side by side,
each in a process with one thread, so that the numbers do not depend on the machine's load."""

import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import replace
from rich.console import Console
from rich.text import Text

from potluck.config import load
from potluck.config.control import controls_of
from potluck.demo.finding import COLUMNS, NOTE, TOGETHER, OwnAnswers, Result, own_answers
from potluck.files import write_atomically
from potluck.launch.side_by_side import WholeRun, run_side_by_side
from potluck.reports.answers import ControlAnswer, add_answers, answer_of
from potluck.show.terminal.text import new_table
from potluck.show.web.page import keep, kept_page
from potluck.show.web.views import KeptTable
from potluck.types import PotluckError

RECIPE = Path(__file__).with_name("recipe.toml")
LEAD = (
    "Together each model writes half of the answers to every problem, and learns from its own and, "
    "by LWS, from the right ones of the other. By itself it writes half or all of them.",
    "How to go on: `potluck new my-run.toml` writes a recipe to edit; `potluck run my-run.toml "
    "--control half` trains, and tells whether sharing helped.",
)


@dataclass(frozen=True, slots=True)
class Cell:
    seed: int
    setting: str
    run: WholeRun


def cells(folder: Path, *, rounds: int | None, seeds: range) -> list[Cell]:
    """List the runs, longest first, so that the cores are done at about the same time."""
    made, of_rounds = list[Cell](), [f"rounds={rounds}"] if rounds else []
    for seed in seeds:
        config = load(RECIPE, [f"seed={seed}", f"name=demo-{seed}", *of_rounds])
        place, together = folder / "runs" / f"{seed}", replace(config, control=())
        made.append(Cell(seed, TOGETHER, WholeRun(together, place / TOGETHER)))
        for each in controls_of(config):
            made.append(Cell(seed, each.kind, WholeRun(each.config, place / each.folder)))
    return sorted(made, key=lambda cell: (TOGETHER, "alone", "half").index(cell.setting))


def demo(folder: Path, *, rounds: int | None, seeds: range, console: Console) -> Result:
    """Run the cells and write summary.json and report.html; raise PotluckError if the folder is in
    use, or if a run breaks down."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PotluckError(f"{folder} exists; name another folder with --out, or remove it")
    began, plan = time.monotonic(), cells(folder, rounds=rounds, seeds=seeds)
    console.print(f"An adder and a subtractor, together and each by itself: {len(plan)} runs")
    if not run_side_by_side([cell.run for cell in plan], console):
        raise KeyboardInterrupt
    result = summarise(plan, seconds=round(time.monotonic() - began, 1))
    write_atomically(folder / "summary.json", msgspec.json.format(msgspec.json.encode(result)))
    _write_report(result, plan, folder / "report.html")
    table = new_table(console, COLUMNS[:2], COLUMNS[2:])
    for row in result.rows:
        table.add_row(*map(Text, row))
    console.print(*map(str, result.gains), table, NOTE, sep="\n", markup=False, highlight=False)
    files = [f"  {folder / name}" for name in ("report.html", "summary.json")]
    console.print(*files, sep="\n", markup=False, highlight=False)
    return result


def summarise(plan: list[Cell], *, seconds: float) -> Result:
    """Read what the demo tells from the run folders, and keep what the controls told in them."""
    rounds, found = plan[0].run.config.rounds, list[ControlAnswer]()
    nodes: dict[str, dict[str, list[OwnAnswers]]] = {}
    together = {cell.seed: cell.run.folder for cell in plan if cell.setting == TOGETHER}
    for cell in sorted(plan, key=lambda cell: cell.seed):
        for node in cell.run.config.node:
            course = own_answers(cell.run.folder, node, rounds)
            nodes.setdefault(node, {}).setdefault(cell.setting, []).append(course)
            if cell.setting != TOGETHER:
                its = together[cell.seed], cell.run.folder, node, cell.setting, rounds
                if answer := answer_of(*its):
                    add_answers(its[0], [answer])
                    found.append(answer)
    return Result(tuple(together), seconds, nodes, tuple(found))


def _write_report(result: Result, plan: list[Cell], path: Path) -> None:
    """Write the page of the first seed's runs, kept in a file, below the findings of all."""
    first = [cell for cell in plan if cell.seed == result.seeds[0]]
    kept, _ = keep(
        {cell.run.folder.name: cell.run.folder for cell in first},
        title="Does it help to learn from each other?",
        lead=[*map(str, result.gains), *LEAD],
        table=KeptTable(title="In numbers", columns=[*COLUMNS], rows=result.rows, note=NOTE),
        labels={
            cell.run.folder.name: f"{cell.setting}: {', '.join(cell.run.config.node)}"
            for cell in first
        },
    )
    write_atomically(path, kept_page(kept).encode())
