"""``potluck reproduce --check --scale paper``: GPU-hours, and which cards hold a cell.

Needs neither the Hub nor data nor a GPU, and starts nothing.
"""

from collections.abc import Sequence
from dataclasses import fields

from rich.console import Console
from rich.table import Table
from rich.text import Text

from potluck.check.cards import Bench, card_gib, verdict
from potluck.reproduce.cells import Cell
from potluck.reproduce.gpu.hours import (
    FACTOR,
    GPUS,
    Assumed,
    Cost,
    Gpu,
    bench_of,
    cost_of,
    fits,
    shapes_of,
)
from potluck.reproduce.suite import Suite
from potluck.reproduce.work.estimates import Keeps, is_to_run, states

UNFIT = "*"
"""Marks the hours of a cell that its card cannot hold: they say how fast it would be."""


def check_cells(
    suite: Suite, cells: Sequence[Cell], console: Console, keeps: Keeps = "all"
) -> None:
    """Prints what each distinct cell costs on each card, and all of them together.

    Cells that differ in their seed alone are a line.

    Raises:
        ExperimentError: a result cannot be read.
        ModelError: a model whose shape is not known.
    """
    seeds: dict[str, list[Cell]] = {}
    for cell in cells:
        seeds.setdefault(cell.name.rpartition(".")[0], []).append(cell)
    console.print(_table(seeds))
    _tell_left(suite, cells, console, keeps)
    for gpu in GPUS:
        _tell_fit(gpu, [alike[0] for alike in seeds.values()], console)
    console.print(
        Text(
            f"\n{UNFIT} does not fit as it is. Estimated, and held against no run: we expect it "
            f"within a factor of {FACTOR} either way; nodes take turns on one card. "
            f"Assumed: {_assumed()}.\nnothing was started"
        )
    )


def _table(seeds: dict[str, list[Cell]]) -> Table:
    """A line for each run, with the tokens written and hours of one cell; then all together."""
    table = Table(box=None, pad_edge=False)
    table.add_column("cell", overflow="fold")
    for column in ("seeds", "tokens", *(f"{gpu.title}, h" for gpu in GPUS)):
        table.add_column(column, justify="right")
    for name, alike in seeds.items():
        one = alike[0]
        hours = [f"{_cost(one, gpu).hours:.2f}{_mark(one, gpu)}" for gpu in GPUS]
        tokens = _millions(_cost(one, GPUS[0]).tokens)
        table.add_row(Text(name), str(len(alike)), tokens, *hours)
    every = [cell for alike in seeds.values() for cell in alike]
    tokens = _millions(sum(_cost(cell, GPUS[0]).tokens for cell in every))
    sums = [_hours(every, gpu) for gpu in GPUS]
    fit = [_hours([c for c in every if not _mark(c, gpu)], gpu) for gpu in GPUS]
    table.add_row("all together", str(len(every)), tokens, *sums)
    table.add_row("those that fit", "", "", *fit)
    return table


def _cost(cell: Cell, gpu: Gpu) -> Cost:
    return cost_of(cell.config, shapes_of(cell.config), gpu)


def _hours(cells: Sequence[Cell], gpu: Gpu) -> str:
    return f"{sum(_cost(cell, gpu).hours for cell in cells):,.0f}"


def _mark(cell: Cell, gpu: Gpu) -> str:
    return "" if fits(cell.config, shapes_of(cell.config), gpu) else UNFIT


def _millions(tokens: float) -> str:
    return f"{tokens / 1e6:,.1f}M"


def _tell_left(suite: Suite, cells: Sequence[Cell], console: Console, keeps: Keeps) -> None:
    now = states(suite, cells)
    left = [cell for cell, state in zip(cells, now, strict=True) if is_to_run(state, keeps)]
    hours = ", ".join(f"{_hours(left, gpu)} h on {gpu.title}" for gpu in GPUS)
    console.print(Text(f"{len(left)} of {len(cells)} cells are to be run: {hours}"))


def _tell_fit(gpu: Gpu, cells: Sequence[Cell], console: Console) -> None:
    """For the models that a card does not hold with ease, how it would. The largest cell speaks."""
    gib, largest = card_gib(gpu.card), dict[str, Bench]()
    for cell in cells:
        bench, models = bench_of(cell.config, shapes_of(cell.config)), " + ".join(cell.models)
        if models not in largest or bench.needs() > largest[models].needs():
            largest[models] = bench
    said: dict[str, list[str]] = {}
    for models, bench in largest.items():
        said.setdefault(verdict(bench, gib), []).append(models)
    for text, those in said.items():
        if not text.startswith("fits"):
            console.print(Text(f"\n{gpu.title}: {', '.join(those)}: {text}"))


def _assumed() -> str:
    """Every assumption with its value, so that none is hidden."""
    now = Assumed()
    return ", ".join(f"{f.name.replace('_', ' ')} {getattr(now, f.name):g}" for f in fields(now))
