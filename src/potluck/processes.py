"""A run on this machine with a process for each node.

The nodes meet on loopback as they would on a network: each listens on a port of its own and
knows those of all others. So one can be killed, and brought back, without the others stopping.
This process trains nothing and imports no torch; it starts them, shows how far they are, hands
Ctrl-C on, and tells how each of them ended.
"""

import json
import os
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from potluck.config import HERE, RunConfig, as_tree
from potluck.dashboard.events import Shows, show_event
from potluck.exchange.identity import make_key, roster_text
from potluck.signals import interrupts
from potluck.types import RunFolderError

FOR_JOINING = ("listen", "connect", "tls", "roster", "key")
"""Of [swarm], what says how nodes of several machines meet."""
ONE_EVENT_S = 10.0
"""Within which nodes that say the same say it of the same."""
ROUND_BEGUN = "recipe.json"
"""Written by a node when it has looked at everything that can be wrong with a recipe."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How the nodes of a run ended."""

    folder: Path
    interrupted: bool
    codes: Mapping[str, int]
    """Exit code of each; below 0: the signal that ended it."""
    complaints: Mapping[str, str]
    """What each that failed said last."""


@dataclass
class _Child:
    name: str
    process: subprocess.Popen[bytes]
    said: list[str] = field(default_factory=list)
    """On stderr."""
    rest: dict[int, bytes] = field(default_factory=dict)
    """Of each open stream, what came of a line that is not yet whole."""
    begun: bool = False
    """Whether it has told what it is doing: all that can be wrong with a recipe was looked at."""


def run_processes(
    config: RunConfig, folder: Path, *, resume: bool, display: Shows, trust_code: bool = False
) -> Ended:
    """Trains every node of ``config`` in a process of its own, until all have ended.

    Raises:
        RunFolderError: ``folder`` is in the way.
    """
    # What a start left behind that was itself ended is in nobody's way.
    if not resume and folder.exists() and (not folder.is_dir() or _names_in(folder) - {HERE}):
        raise RunFolderError(
            f"{folder} exists; --resume goes on with that run, --out names another folder"
        )
    if resume and not (folder / "recipe.json").is_file():
        raise RunFolderError(f"{folder} holds no run to resume; leave --resume out to start one")
    if aside := [key for key in FOR_JOINING if getattr(config.swarm, key)]:
        display.say(
            f"[swarm] {', '.join(aside)}: for `potluck join`; these nodes meet on loopback, with "
            f"keys made for them"
        )
    try:
        _prepare(config, folder)
        with interrupts() as interrupted, ExitStack() as stack:
            children = []
            for name in config.node:
                # A node that never began, as another one could not, begins now.
                again = ["--resume"] if resume and (folder / name).is_dir() else []
                trusts = ["--trust-code"] if trust_code else []
                children.append(_start(stack, config, name, folder, [*again, *trusts]))
            _watch(children, _Once(display), interrupted, folder)
            stopped = interrupted()
    finally:
        if not (folder / ROUND_BEGUN).exists():
            shutil.rmtree(folder / HERE, ignore_errors=True)  # nothing was begun
            if folder.exists() and not _names_in(folder):
                folder.rmdir()
    return Ended(
        folder,
        stopped,
        {child.name: child.process.returncode for child in children},
        {c.name: c.said[-1] for c in children if c.said and c.process.returncode},
    )


class _Once:
    """Shows what several nodes say of the same event ("'west' left") once."""

    def __init__(self, display: Shows) -> None:
        self._display = display
        self.phase, self.round_done = display.phase, display.round_done
        self.evaluated = display.evaluated
        self._said_s: dict[str, float] = {}

    def say(self, text: str) -> None:
        now_s = time.monotonic()
        self._said_s = {t: s for t, s in self._said_s.items() if now_s - s < ONE_EVENT_S}
        if text not in self._said_s:
            self._display.say(text)
        self._said_s[text] = now_s


def _names_in(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def _prepare(config: RunConfig, folder: Path) -> None:
    """Writes down what each node needs to meet the others: see ``assemble/swarm.py``."""
    place = folder / HERE
    place.mkdir(parents=True, exist_ok=True)
    tree = as_tree(config)
    for key in FOR_JOINING:
        tree["swarm"].pop(key)
    (place / "recipe.json").write_text(json.dumps(tree, indent=2) + "\n")
    addresses = dict(zip(config.node, _free_addresses(len(config.node)), strict=True))
    (place / "addresses.json").write_text(json.dumps(addresses, indent=2) + "\n")
    keys = {name: make_key(place / f"{name}.key") for name in config.node}
    roster = {name: key.public for name, key in keys.items()}
    (place / "roster.toml").write_text(roster_text(roster))


def _free_addresses(count: int) -> list[str]:
    """All are held until all are found, so that no two are one. Somebody else may still take one
    before its node does; that node then says so."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"tcp/127.0.0.1:{one.getsockname()[1]}" for one in sockets]


def _start(stack: ExitStack, config: RunConfig, name: str, folder: Path, more: list[str]) -> _Child:
    threads = config.threads or max(1, (os.cpu_count() or 1) // len(config.node))
    # Threads that spin while they wait would take the cores that other nodes need.
    quiet = {"GOMP_SPINCOUNT": "0", "OMP_WAIT_POLICY": "passive"}
    recipe = str(folder / HERE / "recipe.json")
    process = subprocess.Popen(
        [*_JOIN, recipe, "--as", name, "--out", str(folder), "--all-here", "--events", *more],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **quiet, "OMP_NUM_THREADS": str(threads)},
        # Ctrl-C in a terminal reaches this process alone, which hands it on once.
        process_group=0,
    )
    stack.enter_context(process)  # shuts its streams
    stack.callback(_end, process)
    assert process.stdout
    assert process.stderr
    return _Child(name, process, rest={process.stdout.fileno(): b"", process.stderr.fileno(): b""})


_JOIN = (sys.executable, "-m", "potluck", "join")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()


def _watch(
    children: list[_Child], display: Shows, interrupted: Callable[[], bool], folder: Path
) -> None:
    """Shows what the children say until all have ended."""
    told = False
    with selectors.DefaultSelector() as selector:
        for child in children:
            for fd in child.rest:
                selector.register(fd, selectors.EVENT_READ, child)
        while selector.get_map():
            try:
                failed = False
                for key, _ in selector.select(timeout=0.2):
                    if not _read(key.data, key.fd, display):
                        selector.unregister(key.fd)
                        if not key.data.rest:
                            failed |= _could_not_begin(key.data)
                            _tell_end(key.data, display, folder)
                # Once: the second one would be "at once" to a node that is about to save.
                if (interrupted() or failed) and not told:
                    told = True
                    _signal(children, signal.SIGINT)
            except KeyboardInterrupt:  # the second Ctrl-C: at once
                _signal(children, signal.SIGKILL)
                raise
    for child in children:
        child.process.wait()


def _read(child: _Child, fd: int, display: Shows) -> bool:
    """Shows the lines that are there; False when there will be no more."""
    came = os.read(fd, 1 << 16)
    *lines, child.rest[fd] = (child.rest[fd] + came).split(b"\n")
    if not came:
        lines.append(child.rest.pop(fd))
    for line in (line.decode(errors="replace") for line in lines):
        if event := show_event(line, display):
            child.begun |= event != "say"
        elif line.strip():
            child.said.append(line)
            del child.said[:-100]
    return bool(came)


def _could_not_begin(child: _Child) -> bool:
    """Something is wrong that its user can mend; then the others need not begin either."""
    return bool(child.process.wait()) and not child.begun


def _tell_end(child: _Child, display: Shows, folder: Path) -> None:
    """Of a child whose streams are shut; the others go on without it."""
    code = child.process.wait()
    if code in (0, 130, -signal.SIGINT) or not child.begun:
        return
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    said = f": {child.said[-1]}" if child.said and code > 0 else ""
    display.say(f"{child.name} {how}{said}")
    where = shlex.quote(str(folder))
    display.say(
        f"the others go on; to bring it back: potluck join {where}/{HERE}/recipe.json "
        f"--as {child.name} --out {where} --resume"
    )


def _signal(children: list[_Child], number: signal.Signals) -> None:
    for child in children:
        if child.process.poll() is None:
            child.process.send_signal(number)
