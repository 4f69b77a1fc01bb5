"""Options that several commands share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

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
Plans = Annotated[bool, typer.Option("--check", help="Print the plan and its cost; start nothing")]
Listen = Annotated[
    list[str] | None, typer.Option("--listen", help="Address that others reach: tcp/0.0.0.0:7447")
]
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
