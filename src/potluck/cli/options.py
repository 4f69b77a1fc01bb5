"""Options that several commands share, and completion of words in a shell."""

from collections.abc import Sequence
from glob import escape, glob
from pathlib import Path
from typing import Annotated

import typer

from potluck.config import ConfigError, read_tree

Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a key of the recipe: --set node.small.model=a/folder"),
]
TrustCode = Annotated[
    bool, typer.Option("--trust-code", help="Run the code that the recipe names; read it first")
]
KeyOption = typer.Option("--allow-key", metavar="NAME=HOST", help="Send this variable to this host")
AllowKeys = Annotated[list[str] | None, KeyOption]
Recipe = Annotated[Path, typer.Argument(help="A .toml file; `potluck new` writes one")]
Out = Annotated[Path | None, typer.Option("--out", help="The run's folder (runs/NAME of the run)")]
Displays = Annotated[
    list[str] | None,
    typer.Option("--display", help="Show progress: live, lines (of JSON) or none; may be repeated"),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint")]
Controls = Annotated[
    list[str] | None,
    typer.Option(
        "--control",
        metavar="KIND",
        help="Then train without the others, to compare: half, half-problems, alone or own-part; "
        "may be repeated",
    ),
]
Web = Annotated[bool, typer.Option("--web", help="Show the run in a browser while it goes")]
WebAt = Annotated[
    str,
    typer.Option("--web-at", help="Its address: HOST:PORT (127.0.0.1:8420, or the next free port)"),
]
WebToken = Annotated[
    bool,
    typer.Option("--web-token", help="Let in only visitors with a token, which is made and shown"),
]
Connect = Annotated[
    list[str] | None,
    typer.Option("--connect", help="Another node or a relay: tcp/HOST:PORT or tls/HOST:PORT"),
]


def passed_on(trust_code: bool, allow_keys: Sequence[str] | None) -> list[str]:
    """Return these options as the words of another command."""
    return [*["--trust-code"] * trust_code, *(f"--allow-key={key}" for key in allow_keys or ())]


def run_folders(incomplete: str) -> list[str]:
    """List the run folders, and their nodes' with checkpoints, that begin so or are in ``runs``."""
    begun = [escape(incomplete), "runs/"]
    inside = ("recipe.json", "checkpoints", "*/checkpoints")
    found = {each for start in begun for its in inside for each in glob(f"{start}*/{its}")}
    return sorted({str(Path(each).parent) for each in found})


def names_of_nodes(context: typer.Context, incomplete: str) -> list[str]:
    """List the nodes of the recipe or run that stands before, as far as it can be read."""
    try:
        place = Path(context.args[0])  # an option without its value ends the parsing
        return list(read_tree(place / "recipe.json" if place.is_dir() else place)["node"])
    except (ConfigError, LookupError, TypeError):
        return []
