"""A run on this machine with a process for each node.

The nodes meet on loopback as they would on a network, so one can be killed, and brought back,
without the others stopping. This process trains nothing and imports no torch; it starts them,
shows how far they are, hands Ctrl-C on, and tells how each of them ended.
"""

import json
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from potluck.config import LOCAL_SWARM, RunConfig, as_tree
from potluck.exchange import transport
from potluck.exchange.keys.keys import make_key, roster_text
from potluck.files import sealed, write_atomically
from potluck.launch.signals import interrupts
from potluck.node.storage.folder import (
    LOCK,
    disk_errors_explained,
    exclusive,
    forget_failed_start,
    has_no_round,
    in_the_way,
)
from potluck.reports.events import Display, Event, Notice, Once, Told, decode_event
from potluck.types import RunFolderError

FOR_JOINING = ("listen", "connect", "tls", "roster", "key")
"""Keys of [swarm] that say how nodes of several machines meet."""
ONE_CAUSE_S = 3.0
"""Seconds within which several nodes that fail have failed of one thing."""
ROUND_BEGUN = "recipe.json"
"""File that a node writes when it has looked at everything that can be wrong with a recipe."""
_JOIN = (sys.executable, "-m", "potluck", "join")


@dataclass(frozen=True, slots=True)
class LocalSwarmResult:
    """End of each node of a run."""

    folder: Path
    interrupted: bool
    codes: Mapping[str, int]
    """Exit code of each; below 0: the signal that ended it."""
    complaints: Mapping[str, str]
    """Last words of each that failed."""


@dataclass
class _Child:
    name: str
    process: subprocess.Popen[bytes]
    rest: dict[int, bytes]
    """Part of a line that is not yet whole, of each open stream."""
    said: list[str] = field(default_factory=list)
    """Lines that are no events: those of stderr."""
    begun: bool = False
    """True: it has told what it is doing, so all that can be wrong with a recipe was looked at."""


def run_local_swarm(
    config: RunConfig, folder: Path, *, resume: bool, display: Display, trust_code: bool = False
) -> LocalSwarmResult:
    """Train every node of ``config`` in a process of its own, until all have ended. Raise
    RunFolderError if ``folder`` is in the way."""
    _require_free(folder, resume)
    # Each node locks its own folder: one can be brought back by hand while the others run.
    lock = exclusive(folder, lambda said: display.show(Notice(said)))
    with disk_errors_explained(folder), lock:
        _require_free(folder, resume)  # again: another process may have had it until now
        if not resume:
            forget_failed_start(folder, config.node, lambda said: display.show(Notice(said)))
        return _run(config, folder, resume, display, trust_code)


def _run(
    config: RunConfig, folder: Path, resume: bool, display: Display, trust_code: bool
) -> LocalSwarmResult:
    if aside := ", ".join(key for key in FOR_JOINING if getattr(config.swarm, key)):
        why = "for `potluck join`; these nodes meet on loopback, with keys made for them"
        display.show(Notice(f"[swarm] {aside}: {why}"))
    try:
        _prepare(config, folder)
        with interrupts() as interrupted, ExitStack() as stack:
            children = []
            for name in config.node:
                # A node that never began, as another one could not, begins now.
                again = ["--resume"] if resume and (folder / name).is_dir() else []
                trusts = ["--trust-code"] if trust_code else []
                children.append(_start(stack, config, name, folder, [*again, *trusts]))
            _watch(children, _ShownOnce(display), interrupted, folder)
            stopped = interrupted()
    finally:
        if not (folder / ROUND_BEGUN).exists():
            shutil.rmtree(folder / LOCAL_SWARM, ignore_errors=True)  # nothing was begun
    return LocalSwarmResult(
        folder,
        stopped,
        {child.name: child.process.returncode for child in children},
        {c.name: c.said[-1] for c in children if c.said and c.process.returncode},
    )


def _require_free(folder: Path, resume: bool) -> None:
    if resume and not (folder / "recipe.json").is_file():
        raise RunFolderError(f"{folder} holds no run to resume; leave --resume out to start one")
    # Leftovers of an aborted start may be overwritten.
    names = {each.name for each in folder.iterdir()} if folder.is_dir() else set()
    is_taken = names - {LOCAL_SWARM, LOCK} or (folder.exists() and not folder.is_dir())
    if not resume and is_taken and not has_no_round(folder):
        raise in_the_way(folder)


class _ShownOnce:
    """Display that shows equal messages of several nodes ("'west' left") once."""

    def __init__(self, display: Display) -> None:
        self._display, self._once = display, Once()

    def show(self, event: Event) -> None:
        if not isinstance(event, Told) or self._once.is_new(event.text, time.monotonic()):
            self._display.show(event)


def _prepare(config: RunConfig, folder: Path) -> None:
    """Write down what each node needs to meet the others: see ``builder/exchange.py``."""
    place = folder / LOCAL_SWARM
    place.mkdir(parents=True, exist_ok=True)
    tree = as_tree(config)
    for key in FOR_JOINING:
        tree["swarm"].pop(key)
    write_atomically(place / "recipe.json", sealed(tree))
    free = transport(config.swarm.transport).free_endpoints(len(config.node), place)
    addresses = dict(zip(config.node, free, strict=True))
    write_atomically(place / "addresses.json", (json.dumps(addresses, indent=2) + "\n").encode())
    keys = {name: make_key(place / f"{name}.key") for name in config.node}
    roster = {name: key.public for name, key in keys.items()}
    write_atomically(place / "roster.toml", roster_text(roster).encode())


def _start(stack: ExitStack, config: RunConfig, name: str, folder: Path, more: list[str]) -> _Child:
    threads = config.threads or max(1, (os.cpu_count() or 1) // len(config.node))
    # Threads that spin while they wait would take the cores that other nodes need.
    quiet = {"GOMP_SPINCOUNT": "0", "OMP_WAIT_POLICY": "passive"}
    recipe = str(folder / LOCAL_SWARM / "recipe.json")
    options = ["--as", name, "--out", str(folder), "--all-here", "--display", "lines", *more]
    process = subprocess.Popen(
        [*_JOIN, recipe, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **quiet, "OMP_NUM_THREADS": str(threads)},
        # Ctrl-C in a terminal reaches this process alone, which hands it on once.
        process_group=0,
    )
    stack.enter_context(process)  # waits for its end, and shuts its streams
    stack.callback(process.kill)
    assert process.stdout
    assert process.stderr
    return _Child(name, process, {process.stdout.fileno(): b"", process.stderr.fileno(): b""})


def _watch(
    children: list[_Child], display: Display, interrupted: Callable[[], bool], folder: Path
) -> None:
    """Show what the children say until all have ended."""
    stopping = False
    lost: list[tuple[_Child, float]] = []  # nodes that failed, and when
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
                            # A user has to mend something; then no other node need begin.
                            failed |= bool(key.data.process.wait()) and not key.data.begun
                            if _is_lacked(key.data):
                                lost.append((key.data, time.monotonic()))
                # What ends one node often ends all: then there is none to come back to, and the
                # end of the run says why.
                while lost and not stopping and time.monotonic() >= lost[0][1] + ONE_CAUSE_S:
                    _tell_end(lost.pop(0)[0], display, folder)
                # Once: the second one would be "at once" to a node that is about to save.
                if (interrupted() or failed) and not stopping:
                    stopping = True
                    _signal(children, signal.SIGINT)
            except KeyboardInterrupt:  # the second Ctrl-C: at once
                _signal(children, signal.SIGKILL)
                raise
    for child in children:
        child.process.wait()


def _read(child: _Child, fd: int, display: Display) -> bool:
    """Show the lines that are there; return False when there will be no more."""
    came = os.read(fd, 1 << 16)
    *lines, child.rest[fd] = (child.rest[fd] + came).split(b"\n")
    if not came:
        lines.append(child.rest.pop(fd))
    for line in (line.decode(errors="replace") for line in lines):
        if event := decode_event(line):
            display.show(event)
            child.begun |= not isinstance(event, Told)
        elif line.strip():
            child.said.append(line)
            del child.said[:-100]
    return bool(came)


def _is_lacked(child: _Child) -> bool:
    """Return whether the others lack a child, whose streams are shut."""
    return child.begun and child.process.wait() not in (0, 130, -signal.SIGINT)


def _tell_end(child: _Child, display: Display, folder: Path) -> None:
    """Tell how a child ended that the others lack, and the way back."""
    code = child.process.returncode
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    said = f": {child.said[-1]}" if child.said and code > 0 else ""
    display.show(Notice(f"{child.name} {how}{said}"))
    where = shlex.quote(str(folder))
    command = f"potluck join {where}/{LOCAL_SWARM}/recipe.json --as {child.name} --out {where}"
    display.show(Notice(f"the others go on; to bring it back: {command} --resume"))


def _signal(children: list[_Child], number: signal.Signals) -> None:
    for child in children:
        child.process.send_signal(number)  # nothing to one that has ended
