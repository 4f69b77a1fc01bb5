"""The command line: potluck demo | run | evaluate | show | new.

Exit codes: 0 done; 1 the run broke down (a number that is not finite); 2 something its user
can mend, said in one line; 130 ended by Ctrl-C.
"""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from potluck import STARTING_RECIPE
from potluck.config import ConfigError, RunConfig, load
from potluck.dashboard import LiveDisplay, printable, show
from potluck.types import NonFiniteError, PotluckError

if TYPE_CHECKING:
    from potluck.launch import RunResult

app = typer.Typer(
    help="Collaborative GRPO for language models that differ.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out, err = Console(highlight=False), Console(stderr=True, highlight=False)

Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="A key of the recipe: --set node.small.model=some/folder"),
]


@app.command("run")
def run_command(
    recipe: Annotated[Path, typer.Argument(help="A .toml file; `potluck new` writes one")],
    set: Sets = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="The run's folder (runs/NAME of the run)")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Print the resolved run and its cost; start nothing")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint")
    ] = False,
) -> None:
    """Train the nodes of a recipe together."""
    config = load(recipe, set or [])
    prepare_process(config.threads)
    if check:
        from potluck.check import check as check_run

        out.print(check_run(config))
        return
    place = folder or Path("runs") / config.name
    try:
        result = _run(config, place, resume)
    except KeyboardInterrupt:  # typer would end in silence
        err.print("potluck: stopped at once; --resume goes on from the last checkpoint")
        raise typer.Exit(130) from None
    shown = printable(str(result.folder))
    out.print(f"potluck show {shown}", markup=False, soft_wrap=True)
    if result.interrupted:
        # The resolved recipe: what --set changed stays changed.
        kept, where = shlex.quote(str(place / "recipe.json")), shlex.quote(str(place))
        again = printable(f"potluck run {kept} --out {where} --resume", limit=1000)
        out.print(f"stopped after {result.rounds} rounds, saved; go on with:", markup=False)
        out.print(f"  {again}", markup=False, soft_wrap=True)
        raise typer.Exit(130)


def _run(config: RunConfig, place: Path, resume: bool) -> "RunResult":
    with out.status("loading torch and transformers ..."):
        from potluck.assemble import first_round
        from potluck.launch import run
    first = first_round(place, config) if resume else 0
    with LiveDisplay(out, rounds=config.rounds, first_round=first) as display:
        return run(config, place, resume=resume, display=display)


@app.command("evaluate")
def evaluate_command(
    model: Annotated[str, typer.Argument(help="A folder, a Hugging Face id, or builtin:NAME")],
    task: Annotated[str, typer.Option(help="digits or gsm8k")],
    path: Annotated[str, typer.Option(help="The task's data folder, where it has one")] = "",
    problems: Annotated[int, typer.Option(min=1, help="Of each split, the first ones")] = 200,
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 512,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
) -> None:
    """Greedy accuracy of a model by itself, on problems it does not train on."""
    prepare_process(0)
    from potluck.check import evaluate_model

    with LiveDisplay(out, rounds=0, first_round=0) as display:
        table = evaluate_model(
            model,
            task,
            path=path,
            problems=problems,
            max_new_tokens=max_new_tokens,
            device=device,
            progress=lambda split, done, total: display.phase(split, "evaluate", done, total),
        )
    out.print(table)


@app.command("show")
def show_command(run: Annotated[Path, typer.Argument(help="A run's folder")]) -> None:
    """What a run did: accuracy, and what each node made of each author."""
    show(run, out)


@app.command("new")
def new_command(recipe: Annotated[Path, typer.Argument(help="The file to write")]) -> None:
    """Write a commented recipe to start from."""
    try:
        with recipe.open("x", encoding="utf-8") as file:
            file.write(STARTING_RECIPE.read_text(encoding="utf-8"))
    except FileExistsError:
        raise ConfigError(f"{recipe} exists; name another file or remove it") from None
    except OSError as error:
        raise ConfigError(f"cannot write {recipe}: {error.strerror}") from error
    wrote = printable(str(recipe))
    out.print(f"wrote {wrote}; next: potluck run {wrote} --check", markup=False, soft_wrap=True)


@app.command("demo")
def demo_command(
    folder: Annotated[Path, typer.Option("--out", help="Where everything goes")] = Path(
        "potluck-demo"
    ),
    rounds: Annotated[int | None, typer.Option(min=1, help="Shorter or longer")] = None,
    seed: Annotated[int, typer.Option(help="Another seed, other problems and samples")] = 0,
) -> None:
    """Two different models, each alone and together: does sharing hurt, does F-TIS help?"""
    from potluck.demo import demo

    try:
        demo(folder, rounds=rounds, seed=seed, console=out)
    except KeyboardInterrupt:
        err.print(f"potluck: stopped; what there is of it is in {printable(str(folder))}")
        raise typer.Exit(130) from None


def prepare_process(threads: int) -> None:
    """What must be in the environment before torch is imported.

    Threads that spin while they wait cost more than anything else on a busy machine.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if threads:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


@contextmanager
def _one_clear_line() -> Iterator[None]:
    """Whatever a user can mend ends in one line and an exit code, never in a traceback."""
    try:
        yield
    except NonFiniteError as error:
        err.print(f"potluck: {printable(str(error), limit=2000)}", markup=False, soft_wrap=True)
        sys.exit(1)
    except PotluckError as error:
        err.print(f"potluck: {printable(str(error), limit=2000)}", markup=False, soft_wrap=True)
        sys.exit(2)
    except OSError as error:  # a full disk, a folder without permission
        err.print(f"potluck: {printable(str(error), limit=2000)}", markup=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        err.print("potluck: stopped at once; --resume goes on from the last checkpoint")
        sys.exit(130)


def main() -> None:
    with _one_clear_line():
        app()
