"""Commands for whoever runs a swarm: keys, certificates, relay, doctor."""

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from potluck.cli.base import Sets, app, complain, err, out, say
from potluck.cli.joining import Connect, Listen, joining
from potluck.config import ConfigError, load
from potluck.dashboard import printable
from potluck.signals import interrupts
from potluck.types import NODE_NAME

if TYPE_CHECKING:
    import zenoh

LOOK_EVERY_S = 2.0
"""How often the relay looks who is connected; it says so when that has changed."""
COLOURS = {"ok": "green", "warn": "yellow", "FAIL": "red"}


@app.command("keys")
def keys_command(
    name: Annotated[str, typer.Argument(help="The node's name in the recipe")],
    file: Annotated[
        Path | None, typer.Option("--out", help="Where the secret key is, or goes (NAME.key)")
    ] = None,
) -> None:
    """Make a node's key, and print the line that binds it to its name in a roster."""
    from potluck.exchange.identity import make_key, roster_line

    if not NODE_NAME.fullmatch(name):  # before anything is written
        raise ConfigError(f"{name!r} is no name of a node; 1 to 32 of a-z, 0-9 and '-'")
    place = file or Path(f"{name}.key")
    was_there = place.exists()
    line = roster_line(name, make_key(place))
    # Alone on stdout: `potluck keys north >> roster.toml`.
    out.print(line, markup=False, soft_wrap=True)
    shown = printable(str(place))
    err.print(
        f"{shown} {'was there' if was_there else 'is new'}: the secret, which stays on this "
        f"machine ([swarm] key = {shown!r}). The line goes into the roster that all nodes have "
        f"([swarm] roster).",
        markup=False,
        soft_wrap=True,
    )


@app.command("certificates")
def certificates_command(
    folder: Annotated[Path, typer.Argument(help="Where the swarm's authority is, or goes")],
    names: Annotated[list[str], typer.Argument(help="Nodes, and relays: relay, relay-2, ...")],
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", help="DNS name or address at which nodes or relays are reached"),
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="For how long they hold")] = 365,
) -> None:
    """Make a certificate for each node: who has none gets no connection (mutual TLS)."""
    from potluck.exchange.certificates import LOCAL, write_certificates

    places = write_certificates(folder, names, tuple(dict.fromkeys([*LOCAL, *(hosts or [])])), days)
    for name, place in zip(names, places, strict=True):
        say(f"{place}: for {name}; copy it to that machine, there [swarm.tls] folder names it")
    say(f"{folder / 'ca.key'} signs new nodes: keep it, and give it to nobody")


@app.command("relay")
def relay_command(
    listen: Annotated[
        list[str] | None, typer.Option("--listen", help="Where nodes reach it; several are fine")
    ] = None,
    connect: Annotated[
        list[str] | None, typer.Option("--connect", help="Another relay: tcp/HOST:PORT")
    ] = None,
    tls: Annotated[
        Path | None, typer.Option("--tls", help="Its certificate: what `certificates` wrote")
    ] = None,
    name: Annotated[
        str, typer.Option("--as", help="With --tls: the certificate's name: relay, relay-2, ...")
    ] = "relay",
    names: Annotated[
        list[str] | None, typer.Option("--names", help="With --tls: nodes that may take part: a,b")
    ] = None,
) -> None:
    """Pass on what nodes say that cannot reach each other. It trains nothing and trusts nobody."""
    from potluck.exchange.session import Line, Tls, open_router

    nodes = tuple(each for part in names or [] for each in part.split(",") if each)
    if tls and not nodes:
        raise ConfigError("with --tls a relay lets in whom it knows: --names north,south,...")
    if nodes and not tls:
        raise ConfigError("--names is checked by certificates, so it needs --tls FOLDER")
    places = tuple(listen or [f"{'tls' if tls else 'tcp'}/0.0.0.0:7447"])
    line = Line(places, tuple(connect or []), Tls(tls, name, nodes) if tls else None)
    # Whoever starts it may say "end" twice, by two signals: that is no second wish.
    with suppress(KeyboardInterrupt), interrupts() as interrupted, open_router(line) as session:
        say(f"relay at {', '.join(places)}; Ctrl-C ends it. Nodes: potluck join ... --connect")
        seen, looked_s = -1, -LOOK_EVERY_S
        while not interrupted():
            if time.monotonic() - looked_s >= LOOK_EVERY_S:
                looked_s, before, seen = time.monotonic(), seen, _connected(session)
                if seen != before:
                    say(f"{time.strftime('%H:%M:%S')}  {seen} connected")
            time.sleep(0.1)
    say("relay ended")


def _connected(session: "zenoh.Session") -> int:
    return len({str(transport.zid) for transport in session.info.transports()})


@app.command("doctor")
def doctor_command(
    recipe: Annotated[Path | None, typer.Argument(help="What is to be run")] = None,
    name: Annotated[str, typer.Option("--as", help="The node that is to join from here")] = "",
    connect: Connect = None,
    listen: Listen = None,
    model: Annotated[str, typer.Option("--model", help="As for join")] = "",
    set: Sets = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="The run's folder (runs/NAME of the run)")
    ] = None,
) -> None:
    """Look for what would keep this machine from taking part, and say what to do."""
    from potluck.doctor import Patient, examine

    if recipe is None and (name or set or model):
        raise ConfigError("--as, --set and --model need a recipe: potluck doctor RECIPE --as NAME")
    if recipe is None:
        config = None
    elif name:
        config = joining(recipe, name, model=model, connect=connect, listen=listen, overrides=set)
    else:
        config = load(recipe, set or [])
    place = folder or (Path("runs") / config.name if config else Path())
    patient = Patient.of(
        config, name, place, recipe=recipe, connect=tuple(connect or ()), listen=tuple(listen or ())
    )
    failed = 0
    for finding in examine(patient):
        failed += finding.verdict == "FAIL"
        line = Text(f"{finding.verdict:<5} ", style=COLOURS[finding.verdict])
        line.append(f"{finding.name:<14} ", style="bold").append(printable(finding.text, 1000))
        out.print(line, soft_wrap=not out.is_terminal)
    if failed:
        complain(f"{failed} {'check' if failed == 1 else 'checks'} failed; see the lines above")
        raise typer.Exit(1)
