"""The command that takes part in a run as one node: join."""

import shlex
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from potluck.cli.base import (
    Out,
    Recipe,
    Resume,
    Sets,
    TrustCode,
    app,
    complain,
    out,
    prepare_process,
)
from potluck.cli.training import rounds_saved, tell_end
from potluck.config import ConfigError, RunConfig, from_tree, read_tree
from potluck.dashboard import LiveDisplay
from potluck.dashboard.events import EventLines

if TYPE_CHECKING:
    from potluck.launch import RunResult

Connect = Annotated[
    list[str] | None,
    typer.Option("--connect", help="Another node or a relay: tcp/HOST:PORT or tls/HOST:PORT"),
]
Listen = Annotated[
    list[str] | None, typer.Option("--listen", help="Where others reach it: tcp/0.0.0.0:7447")
]


@app.command("join")
def join_command(
    recipe: Recipe,
    name: Annotated[str, typer.Option("--as", help="Which node of the recipe this is")],
    connect: Connect = None,
    listen: Listen = None,
    model: Annotated[
        str, typer.Option("--model", help="Of a node that the recipe does not have: a stranger's")
    ] = "",
    set: Sets = None,
    folder: Out = None,
    resume: Resume = False,
    trust_code: TrustCode = False,
    events: Annotated[bool, typer.Option("--events", hidden=True)] = False,
    all_here: Annotated[bool, typer.Option("--all-here", hidden=True)] = False,
) -> None:
    """Train one node; it meets the others on the network, and they may come and go."""
    config = joining(recipe, name, model=model, connect=connect, listen=listen, overrides=set)
    prepare_process(config.threads)
    place = folder or Path("runs") / config.name
    try:
        result = _join(config, name, place, resume, trust_code, events, all_here)
    except KeyboardInterrupt:
        complain("stopped at once; --resume goes on from the last checkpoint")
        raise typer.Exit(130) from None
    if not events:
        command = f"join {shlex.quote(str(place / 'recipe.json'))} --as {name}"
        tell_end(result, command, place, trust_code)
    if result.interrupted:
        raise typer.Exit(130)


def joining(
    recipe: Path,
    name: str,
    *,
    model: str,
    connect: list[str] | None,
    listen: list[str] | None,
    overrides: list[str] | None,
) -> RunConfig:
    """The run as the node ``name`` sees it.

    Raises:
        ConfigError: the recipe cannot run, or ``name`` is in it and brings a model, or is not
            and brings none.
    """
    tree = read_tree(recipe)
    nodes, swarm = _table(tree, "node"), _table(tree, "swarm")
    if name in nodes and model:
        raise ConfigError(
            f"{recipe} has a node {name!r} with a model of its own, so --model is for another "
            f"name; --set node.{name}.model={model} changes it"
        )
    if name not in nodes and not model:
        raise ConfigError(
            f"{recipe} has no node {name!r}; it has {', '.join(nodes)}. A stranger to the recipe "
            f"brings its own model: --model MODEL"
        )
    if model:
        nodes[name] = {"model": model, "stranger": True}
    swarm |= {"connect": connect} if connect else {}
    swarm |= {"listen": listen} if listen else {}
    return from_tree(tree, overrides or [])


def _table(tree: Any, key: str) -> dict[str, Any]:
    """To be changed in place; of a recipe that is none, one that leads nowhere."""
    if isinstance(tree, dict):
        tree.setdefault(key, {})
        if isinstance(tree[key], dict):
            table: dict[str, Any] = tree[key]
            return table
    return {}


def _join(
    config: RunConfig,
    name: str,
    place: Path,
    resume: bool,
    trust_code: bool,
    events: bool,
    all_here: bool,
) -> "RunResult":
    with nullcontext() if events else out.status("loading torch and transformers ..."):
        from potluck.launch import join
    first = rounds_saved(place, config) if resume else 0
    live = nullcontext(EventLines(sys.stdout)) if events else None
    with live or LiveDisplay(out, rounds=config.rounds, first_round=first) as display:
        return join(
            config,
            name,
            place,
            resume=resume,
            display=display,
            trust_code=trust_code,
            all_here=all_here,
        )
