"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="A key of the recipe: --set node.small.model=some/folder"),
]
TrustCode = Annotated[
    bool,
    typer.Option("--trust-code", help="Run the reward functions that the recipe names: read them"),
]
Recipe = Annotated[Path, typer.Argument(help="A .toml file; `potluck new` writes one")]
Out = Annotated[Path | None, typer.Option("--out", help="The run's folder (runs/NAME of the run)")]
Displays = Annotated[
    list[str] | None,
    typer.Option("--display", help="How progress is shown: live, lines (of JSON), none; several"),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint")]
Web = Annotated[bool, typer.Option("--web", help="Show the run in a browser while it goes")]
WebAt = Annotated[
    str,
    typer.Option(
        "--web-at", help="Where: HOST:PORT (127.0.0.1:8420, or the next port that is free)"
    ),
]
WebToken = Annotated[
    bool,
    typer.Option("--web-token", help="Let in visitors with a token only; it is made and shown"),
]
Connect = Annotated[
    list[str] | None,
    typer.Option("--connect", help="Another node or a relay: tcp/HOST:PORT or tls/HOST:PORT"),
]
