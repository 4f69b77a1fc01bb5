"""The page: its command, and its options of others."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from potluck.cli.base import MUTE, app, complain, err, out, say
from potluck.cli.options import WebToken
from potluck.config import ConfigError
from potluck.files import one_line
from potluck.launch.children import COMMAND, variables_of_child
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
    of_run: Annotated[bool, typer.Option("--of-run", hidden=True)] = False,
) -> None:
    """Show runs in a browser, while they go or afterwards. It changes nothing."""
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

    try:
        place = Place(folders or [Path("runs")], begins=of_run)
        serve(place, web, make_token=web_token, until_stdin_ends=of_run, say=tell)
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
    ends when its stdin is closed. Raise PotluckError if it cannot be served."""
    more = [*(("--web-at", address) if address else ()), *(("--web-token",) if token else ())]
    process = subprocess.Popen(
        [*COMMAND, "watch", str(folder), "--of-run", *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=variables_of_child({}),
        # Ctrl-C in a terminal is for the run; the page shows its end.
        process_group=0,
    )
    assert process.stdin
    assert process.stdout
    try:
        yield _told_address(process)
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
                # What it says later is of no use here, but must not fill the pipe.
                threading.Thread(target=process.stdout.read, daemon=True).start()
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
