"""Commands of a swarm: join, keys, relay, doctor."""

import shlex
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from potluck.builder.consent import require_consent
from potluck.builder.task import require_trusted
from potluck.cli import options
from potluck.cli.base import (
    app,
    complain,
    err,
    loading_libraries,
    out,
    prepare_process,
    say,
    stoppable,
)
from potluck.cli.training import AT_ONCE, opened, skipped_text, tell_end, telling_what_is_saved
from potluck.cli.watching import shown_in_browser
from potluck.collector import without_collector
from potluck.config import ConfigError, RunConfig, from_tree, load, read_tree
from potluck.files import JOINED, printable
from potluck.launch.children import interrupts
from potluck.node.storage.same_run import require_folder
from potluck.reports.events import Notice
from potluck.types import NODE_NAME

COLOURS = {"ok": "green", "warn": "yellow", "FAIL": "red"}


@app.command("join")
def join_command(
    recipe: options.Recipe,
    name: Annotated[str, typer.Option("--as", help="Name of this node in the recipe")],
    connect: options.Connect = None,
    listen: options.Listen = None,
    model: Annotated[
        str, typer.Option("--model", help="Model of a node that is not in the recipe (a stranger)")
    ] = "",
    set: options.Sets = None,
    folder: options.Out = None,
    resume: options.Resume = False,
    trust_code: options.TrustCode = False,
    allow_key: options.AllowKeys = None,
    display: options.Displays = None,
    web: options.Web = False,
    web_at: options.WebAt = "",
    web_token: options.WebToken = False,
    all_here: Annotated[bool, typer.Option("--all-here", hidden=True)] = False,
) -> None:
    """Train one node; it meets the others on the network, and they may come and go."""
    config = joining(recipe, name, model=model, connect=connect, listen=listen, overrides=set)
    place, displays = folder or Path("runs") / config.name, display or ["live"]
    require_trusted(config, trust_code)
    if resume and (place / "recipe.json").is_file():  # before the consent is noted in it
        require_folder(place, config, resume, name)
    require_consent(config, [name], place, allow_key or (), trust_code)
    prepare_process(config.threads)
    loading = loading_libraries(out)
    page = shown_in_browser(place, displays, web=web, at=web_at, token=web_token)
    with stoppable(AT_ONCE):
        with without_collector() if "lines" in displays else loading:
            from potluck.launch.in_process import join
        with page as stay:
            # Its own: the run's recipe.json is also that of other nodes in this folder.
            command = f"join {shlex.quote(str(place / name / JOINED))} --as {name}"
            with (
                telling_what_is_saved(command, place, displays, trust_code),
                opened(displays, place, config, resume) as shown,
            ):
                result = join(
                    config, name, place, resume=resume, display=shown, trust_code=trust_code,
                    allow_keys=allow_key or (), all_here=all_here,
                    watches_status=web or bool(web_at),
                )  # fmt: skip
                if "lines" in displays and result.skipped:
                    shown.show(Notice(f"{name}: {skipped_text(result)}"))
            if "lines" not in displays:
                tell_end(result, command, place, trust_code)
            if not result.interrupted:
                stay()
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
    """Read the run as the node ``name`` sees it: it is in the recipe, or brings a model."""
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
    """Find a table to change in place; one that leads nowhere if the recipe is malformed."""
    table: Any = tree.setdefault(key, {}) if isinstance(tree, dict) else {}
    return table if isinstance(table, dict) else {}


@app.command("keys")
def keys_command(
    name: Annotated[str, typer.Argument(help="The node's name in the recipe")],
    file: Annotated[Path | None, typer.Option("--out", help="Secret key's file (NAME.key)")] = None,
) -> None:
    """Make a node's key, and print the line that binds it to its name in a roster."""
    from potluck.exchange.keys.keys import make_key, roster_line

    if not NODE_NAME.fullmatch(name):  # before anything is written
        raise ConfigError(f"{name!r} is no name of a node; 1 to 32 of a-z, 0-9 and '-'")
    place = file or Path(f"{name}.key")
    was_there = place.exists()
    line = roster_line(name, make_key(place))
    # Alone on stdout: `potluck keys north >> roster.toml`.
    out.print(line, markup=False, soft_wrap=True)
    shown, state = printable(str(place)), "was there" if was_there else "is new"
    note = f"the secret, which stays on this machine ([swarm] key = {shown!r}). The line goes into"
    roster = "the roster that all nodes have ([swarm] roster)."
    err.print(f"{shown} {state}: {note} {roster}", markup=False, soft_wrap=True)


@app.command("relay")
def relay_command(
    listen: options.Listen = None,
    connect: options.Connect = None,
    tls: Annotated[
        Path | None,
        typer.Option("--tls", help="Folder of its certificate (deploy/certificates.sh)"),
    ] = None,
    name: Annotated[
        str, typer.Option("--as", help="With --tls: the certificate's name: relay, relay-2, ...")
    ] = "relay",
    names: Annotated[
        list[str] | None, typer.Option("--names", help="With --tls: nodes that may take part: a,b")
    ] = None,
) -> None:
    """Pass on messages between nodes that cannot reach each other; train and check nothing."""
    from potluck.exchange.zenoh.session import Endpoints, Tls, open_router

    nodes = tuple(each for part in names or [] for each in part.split(",") if each)
    if tls and not nodes:
        raise ConfigError("with --tls a relay lets in the nodes of a list: --names north,south,...")
    if nodes and not tls:
        raise ConfigError("--names is checked by certificates, so it needs --tls FOLDER")
    places = tuple(listen or [f"{'tls' if tls else 'tcp'}/0.0.0.0:7447"])
    line = Endpoints(places, tuple(connect or []), Tls(tls, name, nodes) if tls else None)
    # A parent may send "end" twice, by two signals: that is no second request.
    with suppress(KeyboardInterrupt), interrupts() as interrupted, open_router(line):
        say(f"relay at {', '.join(places)}; Ctrl-C ends it. Nodes: potluck join ... --connect")
        while not interrupted():
            time.sleep(0.1)
    say("relay ended")


@app.command("doctor")
def doctor_command(
    recipe: Annotated[Path | None, typer.Argument(help="Recipe that is to be run")] = None,
    name: Annotated[str, typer.Option("--as", help="Node that is to join from here")] = "",
    connect: options.Connect = None,
    listen: options.Listen = None,
    model: Annotated[str, typer.Option("--model", help="As for join")] = "",
    set: options.Sets = None,
    folder: options.Out = None,
) -> None:
    """Check whether this machine can take part, and print what to do if not."""
    from potluck.doctor.checks import Target
    from potluck.doctor.examine import examine

    if recipe is None and (name or set or model):
        raise ConfigError("--as, --set and --model need a recipe: potluck doctor RECIPE --as NAME")
    config = load(recipe, set or []) if recipe and not name else None
    if recipe and name:
        config = joining(recipe, name, model=model, connect=connect, listen=listen, overrides=set)
    place = folder or (Path("runs") / config.name if config else Path())
    target = Target(config, name, place, tuple(listen or ()), tuple(connect or ()))
    failed = 0
    for finding in examine(target):
        failed += finding.verdict == "FAIL"
        line = Text(f"{finding.verdict:<5} ", style=COLOURS[finding.verdict])
        line.append(f"{finding.name:<14} ", style="bold").append(printable(finding.text, 1000))
        out.print(line, soft_wrap=not out.is_terminal)
    if failed:
        complain(f"{failed} {'check' if failed == 1 else 'checks'} failed; see the lines above")
        raise typer.Exit(1)
