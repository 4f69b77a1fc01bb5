"""A run on this machine with a process for each node. They meet on loopback as on a network: one
can be killed and brought back while the others go on. This process imports no torch."""

import json
import os
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from potluck.config import LOCAL_SWARM, RunConfig, as_tree
from potluck.exchange import transport
from potluck.exchange.keys.keys import make_key, roster_text
from potluck.files import sealed, write_atomically
from potluck.launch.children import STOPPED, Child, Children, interrupts
from potluck.node.storage.folder import (
    disk_errors_explained,
    exclusive,
    forget_failed_start,
)
from potluck.node.storage.same_run import require_folder
from potluck.reports.events import Display, Event, Notice, Once, Told

FOR_JOINING = ("listen", "connect", "tls", "roster", "key")
"""Keys of [swarm] that say how nodes of several machines meet."""
ONE_CAUSE_S = 3.0
"""Seconds within which several nodes that fail have failed of one thing."""


@dataclass(frozen=True, slots=True)
class LocalSwarmResult:
    """Ends of nodes: exit codes (below 0: a signal), and last words of those that failed."""

    interrupted: bool
    codes: Mapping[str, int]
    complaints: Mapping[str, str]


def run_local_swarm(
    config: RunConfig, folder: Path, *, resume: bool, display: Display, trust_code: bool = False
) -> LocalSwarmResult:
    """Train each node in a process of its own; RunFolderError if ``folder`` is in the way."""

    def say(text: str) -> None:
        display.show(Notice(text))

    # Before anything is written: a refused resume leaves the folder as it was.
    require_folder(folder, config, resume)
    # Each node locks its own folder: one can be brought back by hand while the others run.
    with disk_errors_explained(folder), exclusive(folder, say):
        require_folder(folder, config, resume)  # again: another process had it until now
        if not resume:
            forget_failed_start(folder, config.node, say)
        if aside := ", ".join(key for key in FOR_JOINING if getattr(config.swarm, key)):
            why = "for `potluck join`; these nodes meet on loopback, with keys made for them"
            say(f"[swarm] {aside}: {why}")
        with _put_back_if_refused(folder) as nodes:
            prepare_local_swarm(config, folder)
            with interrupts() as interrupted, Children() as children:
                threads = config.threads or max(1, (os.cpu_count() or 1) // len(config.node))
                for name in config.node:
                    recipe = str(folder / LOCAL_SWARM / "recipe.json")
                    words = ["join", recipe, "--as", name, "--out", str(folder), "--all-here"]
                    # A node that never began, as another one could not, begins now.
                    words += ["--resume"] if resume and (folder / name).is_dir() else []
                    words += ["--trust-code"] if trust_code else []
                    nodes.append(children.start(name, words, threads=threads))
                _watch(children, display, interrupted, folder)
                stopped = interrupted()
    codes = {node.name: node.code or 0 for node in nodes}
    complaints = {node.name: node.said[-1] for node in nodes if node.said and node.code}
    return LocalSwarmResult(stopped, codes, complaints)


@contextmanager
def _put_back_if_refused(folder: Path) -> Iterator[list[Child]]:
    """Yield a list for the nodes. If none of them has begun at the end, as each refused the recipe
    or was stopped, make the folder of the local swarm again what it was before."""
    place = folder / LOCAL_SWARM
    nodes: list[Child] = []
    with TemporaryDirectory(prefix="potluck-") as scratch:
        before = Path(scratch) / LOCAL_SWARM
        if place.is_dir():
            shutil.copytree(place, before)
        try:
            yield nodes
        finally:
            if not any(node.begun for node in nodes):
                shutil.rmtree(place, ignore_errors=True)
                if before.is_dir():
                    shutil.copytree(before, place)


def prepare_local_swarm(config: RunConfig, folder: Path) -> None:
    """Write down what each node needs to meet the others (``builder/exchange.py``)."""
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


def _watch(
    children: Children, display: Display, interrupted: Callable[[], bool], folder: Path
) -> None:
    once, lost = Once(), list[tuple[Child, float]]()

    def show(_: Child, event: Event) -> None:
        if not isinstance(event, Told) or once.is_new(event.text, time.monotonic()):
            display.show(event)

    while children.going:
        ended = children.hear(show)
        if ended and ended.begun and ended.code not in (0, *STOPPED):
            lost.append((ended, time.monotonic()))
        # What ends one node often ends all: then there is none to come back to, and the end of
        # the run says why.
        while lost and not children.is_stopped and time.monotonic() >= lost[0][1] + ONE_CAUSE_S:
            _tell_end(lost.pop(0)[0], display, folder)
        # Where a user has to mend something, no other node need begin.
        if interrupted() or (ended and ended.code and not ended.begun):
            children.stop()


def _tell_end(child: Child, display: Display, folder: Path) -> None:
    name, code, where = child.name, child.code or 0, shlex.quote(str(folder))
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    said = f": {child.said[-1]}" if child.said and code > 0 else ""
    display.show(Notice(f"{name} {how}{said}"))
    command = f"potluck join {where}/{LOCAL_SWARM}/recipe.json --as {name} --out {where} --resume"
    display.show(Notice(f"the others go on; to bring it back: {command}"))
