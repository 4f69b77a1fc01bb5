"""What all commands share: the app, where it prints, options, and a process fit for torch."""

import logging
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from potluck import __version__
from potluck.dashboard import printable

TEAM = int(os.environ.get("WORLD_SIZE") or 1) > 1
"""Whether torchrun started this process and others: together they are one node."""
# Of several processes that are one run (docs/several-gpus.md) the first one speaks for all.
MUTE = TEAM and os.environ.get("RANK", "0") != "0"
out = Console(highlight=False, quiet=MUTE)
err = Console(stderr=True, highlight=False, quiet=MUTE)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

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
Recipe = Annotated[Path, typer.Argument(help="A .toml file; `potluck new` writes one")]
Out = Annotated[Path | None, typer.Option("--out", help="The run's folder (runs/NAME of the run)")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint")]


def _tell_version(wanted: bool) -> None:
    if wanted:
        out.print(f"potluck {__version__}", markup=False)
        raise typer.Exit


@app.callback()
def _potluck(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Say it, and end"),
    ] = False,
) -> None:
    """Collaborative GRPO for language models that differ."""


def say(text: str) -> None:
    """A line on stdout, as text whatever it holds; whole, so that it can be copied."""
    out.print(printable(text, limit=2000), markup=False, soft_wrap=True)


def complain(text: str) -> None:
    """A line on stderr."""
    err.print(f"potluck: {printable(text, limit=2000)}", markup=False, soft_wrap=True)


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
