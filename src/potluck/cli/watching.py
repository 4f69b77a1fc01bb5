"""The page: its command, and its options of others."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Annotated

import typer

from potluck.cli.base import MUTE, app, complain, err, out, say
from potluck.cli.options import Connect, WebToken
from potluck.config import ConfigError
from potluck.config.validation import RUN_NAME
from potluck.files import one_line
from potluck.show.web.feed import Feed
from potluck.types import PotluckError

MISSING = "the page needs two more packages: pip install 'potluck[web]'"
START_S = 60.0
"""Time in which a server must have told its address; on a busy machine imports take seconds."""
END_S = 3.0
"""Time that it has for its last messages."""


@app.command("watch")
def watch_command(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Runs, or folders of runs or experiments (runs)", show_default=False),
    ] = None,
    web: Annotated[
        str,
        typer.Option(
            *("--web-at", "--web"),
            help="Address of the page: HOST:PORT (127.0.0.1:8420, or the next free port)",
        ),
    ] = "",
    web_token: WebToken = False,
    connect: Connect = None,
    run: Annotated[str, typer.Option("--run", help="With --connect: name of the run")] = "",
    roster: Annotated[
        Path | None, typer.Option("--roster", help="With --connect: the keys of its nodes")
    ] = None,
    tls: Annotated[
        Path | None, typer.Option("--tls", help="With --connect: a folder of certificates")
    ] = None,
    name: Annotated[str, typer.Option("--as", help="With --tls: name of the certificate")] = "",
    of_run: Annotated[bool, typer.Option("--of-run", hidden=True)] = False,
) -> None:
    """Show runs in a browser, while they go or afterwards; or, with --connect, a swarm that this
    machine has no part in. It changes nothing."""
    try:
        from potluck.show.web.place import Place
        from potluck.show.web.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise PotluckError(MISSING) from None

    def tell(address: str) -> None:
        if of_run:
            print(address, flush=True)
        else:
            say(f"watch it: {address} (Ctrl-C ends it)")
            sys.stdout.flush()

    _check_options(folders, connect, run, {"--roster": roster, "--tls": tls, "--as": name})
    try:
        with (
            _swarm(connect, run, roster, tls, name)
            if connect
            else nullcontext(Place(folders or [Path("runs")], begins=of_run))
        ) as feed:
            serve(feed, web, make_token=web_token, until_stdin_ends=of_run, say=tell)
    except KeyboardInterrupt:
        complain("stopped")


@contextmanager
def shown_in_browser(
    folder: Path, displays: list[str], *, web: bool, at: str, token: bool
) -> Iterator[Callable[[], None]]:
    """Serve the page of a run until the block ends, if it is wanted; yield a function that keeps it
    until Ctrl-C, for a person at the page. Raise PotluckError if it cannot be served."""
    if token and not (web or at):
        raise ConfigError("--web-token is for the page, so it needs --web")
    if MUTE or not (web or at):
        yield lambda: None
        return
    with page_of(folder, at, token=token) as address:
        # Lines of JSON on stdout are for a program.
        shown = err if "lines" in displays else out
        shown.print(f"watch it: {address}", markup=False, soft_wrap=True)
        yield _stay


@contextmanager
def page_of(folder: Path, address: str = "", *, token: bool = False) -> Iterator[str]:
    """Serve the page of a run from a process of its own until the block ends; yield its address. It
    ends when its stdin is closed, so it does not outlive this one. Raise PotluckError if the
    page cannot be served."""
    more = [*(("--web-at", address) if address else ()), *(("--web-token",) if token else ())]
    process = subprocess.Popen(
        [sys.executable, "-m", "potluck", "watch", str(folder), "--of-run", *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # Ctrl-C in a terminal is for the run; the page shows its end.
        process_group=0,
    )
    assert process.stdin
    assert process.stdout
    try:
        address = _told_address(process)
        # What it says later is of no use here, but must not fill the pipe.
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield address
    finally:
        process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _told_address(process: subprocess.Popen[bytes]) -> str:
    """Return the address that the server prints first, or raise its last line."""
    assert process.stdout
    last, too_late = "it said nothing", threading.Timer(START_S, process.kill)
    too_late.start()
    try:
        for line in process.stdout:
            if line.startswith(b"http://"):
                return line.decode().strip()
            last = line.decode(errors="replace").strip() or last
    finally:
        too_late.cancel()
    raise PotluckError(one_line(last).removeprefix("potluck: "))


def _stay() -> None:
    if sys.stdin.isatty() and sys.stdout.isatty():  # else a script waits for the end
        say("the page stays until Ctrl-C; 'potluck watch' shows it again")
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


def _check_options(
    folders: list[Path] | None, connect: list[str] | None, run: str, more: dict[str, object]
) -> None:
    if connect and folders:
        raise ConfigError(f"--connect watches a swarm, and {folders[0]} is a folder; give one")
    if connect and not run:
        raise ConfigError("--connect needs --run NAME: the name in the recipe of that run")
    if connect and not RUN_NAME.fullmatch(run):
        raise ConfigError(f"{run!r} is no name of a run; expected {RUN_NAME.pattern}")
    if bool(more["--tls"]) != bool(more["--as"]):
        raise ConfigError("--tls FOLDER and --as NAME go together: the certificate of NAME in it")
    for option, value in (("--run", run), *more.items()):
        if value and not connect:
            raise ConfigError(f"{option} is of a swarm: it needs --connect tcp/HOST:PORT")


@contextmanager
def _swarm(
    connect: list[str], run: str, roster: Path | None, tls: Path | None, name: str
) -> Iterator[Feed]:
    from potluck.exchange.keys.keys import read_roster
    from potluck.exchange.zenoh.observer import observe
    from potluck.exchange.zenoh.session import RELAYS, Endpoints, Tls
    from potluck.show.web.swarm import swarm_feed

    keys = read_roster(roster) if roster else {}
    names = tuple(sorted({*keys, name} - {*RELAYS}))
    line = Endpoints(connect=tuple(connect), tls=Tls(tls, name, names) if tls else None)
    with observe(line, run, keys) as observer, swarm_feed(observer, run) as feed:
        yield feed
