"""The command line: potluck demo | run | evaluate | show | export | new.

Exit codes: 0 done; 1 the run broke down (a number that is not finite); 2 something its user
can mend, said in one line; 130 ended by Ctrl-C.
"""

import json
import logging
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
from potluck.dashboard import LiveDisplay, printable, show, show_evaluation
from potluck.types import NonFiniteError, PotluckError

if TYPE_CHECKING:
    from potluck.launch import RunResult

app = typer.Typer(
    help="Collaborative GRPO for language models that differ.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
# Of several processes that are one run (docs/several-gpus.md) the first one speaks for all.
MUTE = int(os.environ.get("WORLD_SIZE") or 1) > 1 and os.environ.get("RANK", "0") != "0"
out = Console(highlight=False, quiet=MUTE)
err = Console(stderr=True, highlight=False, quiet=MUTE)

Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="A key of the recipe: --set node.small.model=some/folder"),
]


TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        help="Run the reward functions that the recipe names: read them",
    ),
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
    trust_code: TrustCode = False,
    gpu: Annotated[
        str, typer.Option("--gpu", help="With --check: would it fit? h100, rtx4090, ... or GiB")
    ] = "",
) -> None:
    """Train the nodes of a recipe together."""
    config = load(recipe, set or [])
    if gpu and not check:
        raise ConfigError("--gpu only plans, so it needs --check; [node.NAME] device places a run")
    prepare_process(config.threads)
    if check:
        from potluck.check import check as check_run

        out.print(check_run(config, trust_code=trust_code, gpu=gpu))
        return
    place = folder or Path("runs") / config.name
    try:
        result = _run(config, place, resume, trust_code)
    except KeyboardInterrupt:  # typer would end in silence
        err.print("potluck: stopped at once; --resume goes on from the last checkpoint")
        raise typer.Exit(130) from None
    shown = printable(str(result.folder))
    out.print(f"potluck show {shown}", markup=False, soft_wrap=True)
    if result.interrupted:
        # The resolved recipe: what --set changed stays changed.
        kept, where = shlex.quote(str(place / "recipe.json")), shlex.quote(str(place))
        trusted = " --trust-code" if trust_code else ""
        again = printable(f"potluck run {kept} --out {where} --resume{trusted}", limit=1000)
        out.print(f"stopped after {result.rounds} rounds, saved; go on with:", markup=False)
        out.print(f"  {again}", markup=False, soft_wrap=True)
        raise typer.Exit(130)


def _run(config: RunConfig, place: Path, resume: bool, trust_code: bool) -> "RunResult":
    with out.status("loading torch and transformers ..."):
        from potluck.assemble import first_round
        from potluck.launch import run
    first = first_round(place, config) if resume else 0
    with LiveDisplay(out, rounds=config.rounds, first_round=first) as display:
        return run(config, place, resume=resume, display=display, trust_code=trust_code)


@app.command("evaluate")
def evaluate_command(
    model: Annotated[
        str, typer.Argument(help="A folder, a Hugging Face id, builtin:NAME, or RUN/NODE")
    ],
    against: Annotated[str, typer.Option(help="Another model: which of the two is better?")] = "",
    task: Annotated[str, typer.Option(help="The task's name, without a recipe")] = "",
    path: Annotated[str, typer.Option(help="The task's data, where it has some")] = "",
    recipe: Annotated[
        Path | None, typer.Option(help="Ask as this recipe does (default for RUN/NODE: its run's)")
    ] = None,
    set: Sets = None,
    split: Annotated[str, typer.Option(help="validation, out-of-distribution or both")] = "both",
    problems: Annotated[
        int | None, typer.Option(min=1, help="Of each split, the first ones (200, or the recipe's)")
    ] = None,
    k: Annotated[int, typer.Option("--k", min=0, help="pass@k; 0: greedy only")] = 0,
    samples: Annotated[
        int, typer.Option(min=0, help="Of each problem, for pass@k; 0: k of them")
    ] = 0,
    temperature: Annotated[
        float | None, typer.Option(help="Of the samples (1, or the recipe's)")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", min=0, help="0: all, or the recipe's")
    ] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", help="1: all, or the recipe's")] = None,
    seed: Annotated[int, typer.Option(help="Of the samples")] = 0,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest answer (512, or the recipe's)")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    dtype: Annotated[str, typer.Option(help="Of the writing: float32 or bfloat16")] = "float32",
    rows: Annotated[int, typer.Option(min=0, help="Answers written at once; 0: auto")] = 0,
    trust_code: TrustCode = False,
    file: Annotated[
        str, typer.Option("--json", help="Write everything that was found; - is stdout")
    ] = "",
) -> None:
    """How good a model is by itself, on problems it does not train on; or which of two is."""
    keys = {
        "task.path": json.dumps(path) if path else None,
        "evaluation.problems": problems,
        "evaluation.out_of_distribution": problems,
        "evaluation.max_new_tokens": max_new_tokens,
        "sampling.temperature": temperature,
        "sampling.top_k": top_k,
        "sampling.top_p": top_p,
    }
    chosen = [f"{key}={value}" for key, value in keys.items() if value is not None]
    prepare_process(0)
    from potluck.evaluation import Request, evaluate_models, require_writable, write_report

    request = Request(
        model,
        against=against,
        task=task,
        recipe=recipe,
        overrides=[*(set or []), *chosen],
        split=split,
        k=k,
        samples=samples,
        seed=seed,
        device=device,
        dtype=dtype,
        rows=rows,
        trust_code=trust_code,
    )
    place = Path(file) if file not in ("", "-") else None
    if place:
        require_writable(place)
    shown = err if file == "-" else out  # what is for a program is alone on stdout
    try:
        with LiveDisplay(shown, rounds=0) as display:
            found = evaluate_models(request, progress=display.phase)
    except KeyboardInterrupt:
        err.print("potluck: stopped; an evaluation begins anew each time")
        raise typer.Exit(130) from None
    show_evaluation(found, shown)
    if place:
        write_report(found, place)
    elif file:
        print(json.dumps(found, indent=1, allow_nan=False))


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


@app.command("export")
def export_command(
    checkpoint: Annotated[str, typer.Argument(help="A checkpoint, or any model of a recipe")],
    folder: Annotated[Path, typer.Argument(help="The folder to write; must not exist")],
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16")] = "float32",
) -> None:
    """Write a checkpoint as a model of its own, an adapter merged into its base."""
    if dtype not in ("float32", "bfloat16"):
        raise ConfigError(f"--dtype is {dtype!r}; choose one of float32, bfloat16")
    prepare_process(0)
    with out.status("loading torch and transformers ..."):
        from potluck.export import export
    with out.status(f"writing {printable(str(folder))} ..."):
        export(checkpoint, folder, dtype=dtype)
    out.print(f"wrote {printable(str(folder))}", markup=False, soft_wrap=True)


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
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # its retries; what comes of them is said
    # It looks for kernels of 4-bit weights, which nobody here has, and says so at every start.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)


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
