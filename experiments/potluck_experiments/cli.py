"""``potluck reproduce``, an entry point in pyproject.toml. ``potluck`` imports this with every
command, so pandas and the like are imported in functions."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from potluck_experiments.cell_files import join, require_lines
from potluck_experiments.cells import CellSpec, cells_of
from potluck_experiments.suite import SCALES, ExperimentError, Scale, Suite, read_suite

RUNS = Path("runs") / "reproduce"
CLONE = Path(__file__).resolve().parents[2]
"""Folder of the clone that this package is installed from."""
Flag = typer.Option


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="fig04, table2 ...")
    ] = None,
    all: Annotated[bool, Flag("--all", help="Every experiment")] = False,
    scale: Annotated[
        str, Flag(help="tiny, drawn, words (seconds a cell), real (minutes), paper (GPUs)")
    ] = "tiny",
    seeds: Annotated[int, Flag(min=0, help="Seeds of every cell (0: as the scale says)")] = 0,
    jobs: Annotated[int, Flag(min=0, help="Cells at a time (0: one a core, or one a GPU)")] = 0,
    check: Annotated[bool, Flag("--check", help="Print the cells to run, and their time")] = False,
    again: Annotated[bool, Flag("--again", help="Also run finished cells, as it is here")] = False,
    keep_runs: Annotated[bool, Flag("--keep-runs", help=f"Leave the runs in {RUNS}")] = False,
    render: Annotated[bool, Flag("--render", help="Only write the pages")] = False,
    other: Annotated[
        Path | None, Flag("--join", help="Only add the cells of another clone's experiments/")
    ] = None,
    trust_code: Annotated[bool, Flag("--trust-code", help="Run the code of another clone")] = False,
    folder: Annotated[Path, Flag("--experiments", help="Their folder")] = Path("experiments"),
) -> None:
    """Run the paper's experiments and say whether its claims hold; goes on where it stopped.

    A cell is one run: a model or a pair, in one setting, with one seed. It is in
    runs/reproduce while it runs, and leaves a line in experiments/cells/SCALE/FAMILY.jsonl.
    The results are written into docs/results.md and each RESULTS.md.
    """
    about = {"names": bool(names), "--all": all, "--render": render, "--join": other is not None}
    looks = {"--check": check, "--render": render, "--join": other is not None}
    for wanted in (looks, about):
        given = [name for name, is_given in wanted.items() if is_given]
        if len(given) > 1:
            raise ExperimentError(f"{' and '.join(given)} do not go together; give one of them")
    of = next((known for known in SCALES if known == scale), None)
    if of is None:
        raise ExperimentError(f"there is no scale {scale!r}; there are {', '.join(SCALES)}")
    if (render or other) and (again or keep_runs):
        raise ExperimentError("--again and --keep-runs are for cells that run; leave them out")
    suite = read_suite(folder)
    require_lines(folder)
    if render:
        return _render(suite)
    if other:
        return _join(suite, other)
    if not (names or all):
        raise ExperimentError(
            f"name an experiment, as in 'potluck reproduce fig04', or --all; there are "
            f"{', '.join(experiment.name for experiment in suite.experiments)}"
        )
    named = map(suite.find, names) if names else suite.experiments
    found = {experiment.name: experiment for experiment in named}  # once each
    chosen, count = tuple(found.values()), seeds or suite.scales[of].seeds
    cells = cells_of(suite, chosen, of, count)
    if not cells:
        raise ExperimentError(
            f"{', '.join(found)}: no cells at scale {of}; [pairs] of "
            f"experiment.toml says which pairs it has there"
        )
    if check:
        return _print_check(suite, cells, again)
    if not trust_code:
        _require_own(folder)
    _run(suite, cells, jobs or _jobs(of), again, keep_runs)


def _require_own(folder: Path) -> None:
    """Refuse a folder that came from elsewhere: cells run its scripts, and the code that its
    recipes name."""
    place = folder.resolve()
    if place.parent != CLONE:
        raise ExperimentError(
            f"{place} holds experiments of another clone than {CLONE}, from which this command is "
            f"installed; cells run its scripts and the code that its recipes name: read them, and "
            f"add --trust-code"
        )


def _run(suite: Suite, cells: Sequence[CellSpec], jobs: int, again: bool, keep_runs: bool) -> None:
    from potluck_experiments import run

    try:
        outcome = run.run_cells(
            suite, cells, jobs=jobs, runs=RUNS, console=Console(), again=again, keep_runs=keep_runs
        )
    except KeyboardInterrupt:
        _complain("stopped at once; finished cells stay, the same command goes on")
        raise typer.Exit(130) from None
    _render(suite)
    for name, why in outcome.failed.items():
        _complain(f"{name}: {why}")
    if outcome.interrupted:
        _say("stopped; finished cells stay, the same command goes on")
        raise typer.Exit(130)
    if outcome.busy:
        _complain(f"{len(outcome.busy)} cells are being run by another command; wait for that one")
    if outcome.failed:
        _complain(f"{len(outcome.failed)} cells failed; the same command tries them again")
    if outcome.failed or outcome.busy:
        raise typer.Exit(1)


def _render(suite: Suite) -> None:
    from potluck_experiments import render

    _say(f"results: {render.render(suite)[0]}")


def _join(suite: Suite, other: Path) -> None:
    joined = join(suite, other)
    _say(f"cells added: {len(joined.added)}; potluck reproduce --render writes the pages")
    left = {
        "in both with other numbers, those here stay": joined.differ,
        "of other recipes than the cells here, left out": joined.of_other_recipes,
    }
    for why, names in left.items():
        if names:
            more = " ..." if len(names) > 5 else ""
            _complain(f"cells {why}: {len(names)}, {', '.join(names[:5])}{more}")


def _print_check(suite: Suite, cells: Sequence[CellSpec], again: bool) -> None:
    """Print the finished cells, those that would be run, and the time that takes."""
    from potluck_experiments.origin import missing_bases
    from potluck_experiments.progress import Estimates, finished

    there, scale = finished(suite, cells), cells[0].scale
    left = [cell for cell in cells if again or cell.name not in there]
    for cell in cells:
        _say(f"{'to run' if cell in left else 'finished':8}  {cell.name}")
    bases = missing_bases(suite, left)  # as a run makes them
    for model in bases:
        _say(f"to make   {model}")
    takes = f"{Estimates(suite, scale).minutes(left)} core-minutes"
    if bases:
        making = f"{len(bases) * suite.scales[scale].base_s / 60:.0f} core-minutes"
        takes += f", and {making} before them to make {len(bases)} base models, once"
    _say(f"{len(left)} of {len(cells)} cells to run, {takes}")


def _jobs(scale: Scale) -> int:
    """Return the cells to run at a time: one run fills a GPU; tiny ones take a core each."""
    if scale == "paper" and (any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/kfd").exists()):
        return 1
    has_affinity = hasattr(os, "sched_getaffinity")  # not on every system
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def _say(text: str, *, stderr: bool = False) -> None:
    Console(stderr=stderr, highlight=False).print(text, markup=False, soft_wrap=True)


def _complain(text: str) -> None:
    _say(f"potluck: {text}", stderr=True)
