"""The experiments of the paper: reproduce."""

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from potluck.cli.base import app, complain, out, prepare_process, say
from potluck.reproduce.cells import Cell, cells_of
from potluck.reproduce.reading import read_suite
from potluck.reproduce.suite import SCALES, Experiment, ExperimentError, Scale, Suite
from potluck.reproduce.work.bases import missing_bases
from potluck.reproduce.work.estimates import (
    Keeps,
    Standing,
    Time,
    is_to_run,
    standing,
    standings,
    states,
)

if TYPE_CHECKING:
    from potluck.reproduce.work.runner import Outcome

RUNS = Path("runs") / "reproduce"


@app.command("reproduce")
def reproduce_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="fig04, table2 ...: figures, tables")
    ] = None,
    all: Annotated[bool, typer.Option("--all", help="Every experiment")] = False,
    scale: Annotated[
        str, typer.Option(help="tiny (6 to 30 seconds of one core a cell) or paper (needs GPUs)")
    ] = "tiny",
    seeds: Annotated[
        int, typer.Option(min=0, help="Of every cell: 0, 1, ... (0: as many as the scale says)")
    ] = 0,
    jobs: Annotated[
        int,
        typer.Option(min=0, help="Cells at a time (0: one a core; paper with a GPU, one)"),
    ] = 0,
    list: Annotated[
        bool, typer.Option("--list", help="Say what there is, how far it is and what it takes")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Say which cells would be run, at paper scale with GPU-hours; start nothing",
        ),
    ] = False,
    stale: Annotated[
        bool, typer.Option("--stale", help="Run cells again whose code has changed since")
    ] = False,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Run cells again that are finished, with the code and base models as they are "
            "here",
        ),
    ] = False,
    keep_runs: Annotated[
        bool, typer.Option("--keep-runs", help=f"Leave the run folders in {RUNS}")
    ] = False,
    render: Annotated[
        bool, typer.Option("--render", help="Only write the pages, from what is finished")
    ] = False,
    folder: Annotated[
        Path, typer.Option("--experiments", help="The folder of the experiments")
    ] = Path("experiments"),
) -> None:
    """Run the paper's experiments and say whether its claims hold; goes on where it stopped.

    A cell is one run: a model or a pair, in one setting, with one seed. It is in
    runs/reproduce while it runs, and leaves experiments/cells/SCALE/NAME.json.
    What came out is written into docs/results.md and each RESULTS.md.
    """
    _require_one({"--list": list, "--check": check, "--render": render})
    _require_one({"names": bool(names), "--all": all, "--render": render})
    suite, of = read_suite(folder), _scale(scale)
    if render:
        _render(suite)
        return
    chosen = _chosen(suite, names or [], all=all or (list and not names))
    count = seeds or suite.scales[of].seeds
    keeps: Keeps = "none" if again else "fresh" if stale else "all"
    if list:
        _tell_standings(suite, chosen, of, count, keeps)
        return
    cells = cells_of(suite, chosen, of, count)
    if not cells:
        raise ExperimentError(
            f"{', '.join(e.name for e in chosen)}: no cells at scale {of}; [pairs] of "
            f"experiment.toml says which pairs it has there"
        )
    if check:
        _tell_cells(suite, cells, keeps)
        if of == "paper":
            _tell_gpu_hours(suite, cells, keeps)
        return
    prepare_process(1)
    _run(suite, cells, jobs or _jobs(of), keeps=keeps, keep_runs=keep_runs)


def _require_one(wanted: Mapping[str, bool]) -> None:
    asked = [name for name, is_asked in wanted.items() if is_asked]
    if len(asked) > 1:
        raise ExperimentError(f"{' and '.join(asked)} do not go together; give one of them")


def _scale(name: str) -> Scale:
    for scale in SCALES:
        if scale == name:
            return scale
    raise ExperimentError(f"there is no scale {name!r}; there are {', '.join(SCALES)}")


def _chosen(suite: Suite, names: Sequence[str], *, all: bool) -> Sequence[Experiment]:
    if all:
        return suite.experiments
    if not names:
        raise ExperimentError(
            "name an experiment, as in 'potluck reproduce fig04'; --list shows what there is, "
            "--all runs every one"
        )
    return tuple({suite.chosen(name).name: suite.chosen(name) for name in names}.values())


def _run(suite: Suite, cells: Sequence[Cell], jobs: int, *, keeps: Keeps, keep_runs: bool) -> None:
    if find_spec("fcntl") is None:
        raise ExperimentError(
            "running experiments needs Linux or macOS; --list, --check and --render do not"
        )
    from potluck.reproduce.work.progress import CellsShown
    from potluck.reproduce.work.runner import run_cells

    try:
        with CellsShown(out) as shown:
            outcome = run_cells(
                suite,
                cells,
                jobs=jobs,
                runs=RUNS,
                shown=shown,
                keeps=keeps,
                keep_runs=keep_runs,
            )
    except KeyboardInterrupt:
        complain("stopped at once; what is finished stays, the same command goes on")
        raise typer.Exit(130) from None
    _render(suite)
    _tell_end(outcome)


def _tell_end(outcome: "Outcome") -> None:
    for name, why in outcome.failed.items():
        complain(f"{name}: {why}")
    if outcome.interrupted:
        say("stopped; what is finished stays, the same command goes on")
        raise typer.Exit(130)
    if outcome.busy:
        complain(
            f"{len(outcome.busy)} cells are being run by another command, so they are not finished "
            f"yet; the same command goes on when that one has ended"
        )
    if outcome.failed:
        complain(f"{len(outcome.failed)} cells failed; the same command tries them again")
    if outcome.failed or outcome.busy:
        raise typer.Exit(1)


def _render(suite: Suite) -> None:
    """Writes the pages from whatever is finished."""
    from potluck.reproduce.page import render

    for path in render(suite):
        if path.suffix == ".md" and path.parent.name == "docs":
            say(f"results: {path}")


def _tell_standings(
    suite: Suite, experiments: Sequence[Experiment], scale: Scale, seeds: int, keeps: Keeps
) -> None:
    each, together = standings(suite, experiments, scale, seeds, keeps)
    table = Table("name", "figure", "title", box=None, pad_edge=False)
    for number in ("cells", "finished", "stale", "core-minutes", "left"):
        table.add_column(number, justify="right")
    for experiment in experiments:
        row = _numbers(each[experiment.name])
        table.add_row(experiment.name, experiment.figure, experiment.title, *row)
    table.add_row("together", "", "a shared cell counts once", *_numbers(together))
    out.print(table)
    if scale == "paper":
        say("GPU-hours of each: add --check instead of --list")


def _numbers(standing: Standing) -> tuple[str, ...]:
    counts = standing.cells, standing.finished, standing.stale
    return *map(str, counts), _minutes(standing.total), _minutes(standing.remaining)


def _minutes(time: Time) -> str:
    if time.unknown:
        return f">= {time.known_s / 60:.0f}" if time.known_s else "?"
    return f"{time.known_s / 60:.0f}"


def _tell_cells(suite: Suite, cells: Sequence[Cell], keeps: Keeps) -> None:
    """Which are finished, which would be run, and what that takes."""
    for cell, state in zip(cells, states(suite, cells), strict=True):
        say(f"{'to run' if is_to_run(state, keeps) else state:8}  {cell.name}")
    for model in missing_bases(suite, cells):
        say(f"to make   {model}")
    far = standing(suite, cells, keeps)
    # At the paper's scale a core's minutes say nothing; the hours of GPUs follow.
    takes = f", {_minutes(far.remaining)} core-minutes" if cells[0].scale == "tiny" else ""
    say(f"{far.cells - far.finished} of {far.cells} cells to run{takes}")


def _tell_gpu_hours(suite: Suite, cells: Sequence[Cell], keeps: Keeps) -> None:
    from potluck.reproduce.gpu.check import check_cells  # shapes of models need torch

    check_cells(suite, cells, out, keeps)


def _jobs(scale: Scale) -> int:
    """One on a GPU, which one run fills; tiny ones take none, so as many as this process may use
    cores."""
    if scale != "tiny" and _has_gpu():
        return 1
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def _has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/kfd").exists()
