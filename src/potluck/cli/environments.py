"""Commands on environments: env check."""

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from potluck.cli.base import app, complain, err, say, stoppable

env = typer.Typer(no_args_is_help=True, help="Look at an environment before a run does.")
app.add_typer(env, name="env")

LIMITS = 5.0, 4 << 30
"""Values of [task] step_s and memory_gib, if they are not given."""
ACTION = 'A turn to try; a call is {"name": ..., "arguments": {}}; may be repeated'


@env.command("check")
def check_command(
    name: Annotated[str, typer.Argument(metavar="FILE.py:NAME", help="A class, which is run")],
    environment: Annotated[bool, typer.Option("--environment", help="It has tools")] = False,
    action: Annotated[
        list[str] | None, typer.Option("--action", metavar="TEXT", help=ACTION)
    ] = None,
    rows: Annotated[
        Path | None, typer.Option(help="Problems whose rows reset gets, as in task.path")
    ] = None,
) -> None:
    """Play an environment several times over, to see whether it repeats; it ends with 1 if not."""
    from potluck.tasks.environments.check import MOST_ROWS, check
    from potluck.tasks.environments.host import Spec
    from potluck.tasks.sources import FILES, file_rows

    read = islice(file_rows(str(rows), FILES), MOST_ROWS) if rows else [("", {})]
    with stoppable("stopped; nothing was written"), err.status(f"playing {name} ..."):
        spec = Spec("environment" if environment else None, name)
        found = check(spec, LIMITS, [row for _, row in read], action or ())
    say(f"{name} ({found.kind}): {found}")
    for line in found.why:
        say(f"  {line}")
    for line in found.warnings:
        complain(line)
    if found.grade == "own":
        raise typer.Exit(1)
