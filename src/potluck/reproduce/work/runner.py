"""Runs the cells that are not finished, several at a time, each in a process of its own.

The processes are forked from a server that has torch imported already: it takes five seconds,
and there are hundreds of cells. Whatever breaks down, what is finished stays, and the same
command goes on from there.
"""

import os
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Protocol

from potluck.reproduce.cells import Cell
from potluck.reproduce.result import code_digests
from potluck.reproduce.suite import ExperimentError, Suite
from potluck.reproduce.work import server
from potluck.reproduce.work.bases import make_missing_bases, require_same_bases
from potluck.reproduce.work.child import order, work
from potluck.reproduce.work.estimates import Keeps, is_to_run, longest_first, state_of
from potluck.signals import interrupts

LOOK_EVERY_S = 0.5
PROBE_BYTES = 64 << 10
"""More than a result."""


class Shown(Protocol):
    """Where the runner says how far it is."""

    def begin(self, cells: int, waiting: Sequence[Cell]) -> None: ...
    def started(self, cell: Cell) -> None: ...
    def round_done(self, cell: Cell, rounds: int) -> None: ...
    def finished(self, cell: Cell, accuracy: Mapping[str, float]) -> None: ...
    def ended(self, cell: Cell, why: str) -> None:
        """Without a result."""
        ...

    def say(self, text: str) -> None: ...


@dataclass(slots=True)
class Outcome:
    """What became of the cells that were to run, by name."""

    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """With what each said."""
    busy: list[str] = field(default_factory=list)
    """Another command is running them."""
    interrupted: bool = False


@dataclass(slots=True)
class _Running:
    cell: Cell
    process: ForkServerProcess
    line: Connection
    begun: bool = False
    """Whether it takes Ctrl-C as a wish; before that it has nothing to lose."""
    last: tuple[str, object] = ("", None)
    """What it said of its end."""


def run_cells(
    suite: Suite,
    cells: Sequence[Cell],
    *,
    jobs: int,
    runs: Path,
    shown: Shown,
    keeps: Keeps = "all",
    keep_runs: bool = False,
) -> Outcome:
    """Runs those of ``cells`` that have no result to keep, ``jobs`` at a time.

    Args:
        runs: folder of the run folders, by scale.
        keeps: which results are not replaced.
        keep_runs: whether the folders of finished runs stay.

    Raises:
        ExperimentError: there is no room to write; base models cannot be made, or are others
            than finished cells began from; or a result cannot be read.
        KeyboardInterrupt: a second Ctrl-C; the processes are gone.
    """
    code = code_digests()  # before the server imports it
    waiting = [c for c in cells if is_to_run(state_of(suite.folder, c, code), keeps)]
    shown.begin(len(cells), waiting)
    outcome = Outcome()
    if not waiting:
        return outcome
    for place in runs, suite.folder / "cells":
        _require_room(place / waiting[0].scale)
    make_missing_bases(suite, waiting, jobs=jobs, say=shown.say)
    require_same_bases(suite, waiting)
    context = server.ready()
    waiting = longest_first(suite, waiting)

    def start(cell: Cell) -> _Running:
        mine, its = context.Pipe(duplex=False)
        what = order(
            cell,
            experiments=suite.folder,
            runs=runs,
            code=code,
            keeps=keeps,
            keep_run=keep_runs,
        )
        process = context.Process(target=work, args=(what, its), name=cell.name)
        process.start()
        its.close()
        return _Running(cell, process, mine)

    with interrupts() as interrupted:
        _run_all(waiting, start, jobs, shown, outcome, interrupted)
    return outcome


def _require_room(folder: Path) -> None:
    """Makes the folder, and tries whether a result can be written there: hours end in one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(PROBE_BYTES))
    except OSError as error:
        raise ExperimentError(
            f"cannot write into {folder}: {error.strerror or error}; make room there, or run this "
            f"where it can be written"
        ) from None


def _run_all(
    waiting: list[Cell],
    start: Callable[[Cell], _Running],
    jobs: int,
    shown: Shown,
    outcome: Outcome,
    interrupted: Callable[[], bool],
) -> None:
    running: list[_Running] = []
    try:
        while running or (waiting and not outcome.interrupted):
            while waiting and len(running) < jobs and not outcome.interrupted:
                running.append(start(waiting.pop(0)))
                shown.started(running[-1].cell)
            for one in _heard(running, shown):
                running.remove(one)
                _take_down(one, shown, outcome)
            if interrupted() and not outcome.interrupted:
                outcome.interrupted = True
                shown.say("stopping after the round that each cell is in; Ctrl-C again: at once")
                for one in running:
                    _ask_to_stop(one)
    finally:
        for one in running:
            one.process.kill()
            one.process.join()


def _heard(running: Iterable[_Running], shown: Shown) -> Iterator[_Running]:
    """Hears what they say, for a moment; those that have ended."""
    lines = {one.line: one for one in running}
    for line in connection.wait(list(lines), timeout=LOOK_EVERY_S):
        assert isinstance(line, Connection)
        one = lines[line]
        try:
            what, value = line.recv()
        except (EOFError, ConnectionResetError):
            one.process.join()
            yield one
            continue
        if what == "begun":
            one.begun = True
        elif what == "say":
            shown.say(value)
        elif what == "round":
            shown.round_done(one.cell, value)
        else:
            one.last = (what, value)


def _take_down(one: _Running, shown: Shown, outcome: Outcome) -> None:
    """Writes down how a process ended that has."""
    name, (what, value) = one.cell.name, one.last
    one.line.close()
    code = one.process.exitcode or 0
    if what == "done":
        outcome.finished.append(name)
        assert isinstance(value, dict | None)
        shown.finished(one.cell, value or {})
    elif what == "busy":
        outcome.busy.append(name)
        shown.ended(one.cell, "another command is running it; left to that one")
    elif what == "stopped" or (outcome.interrupted and not what):
        shown.ended(one.cell, "stopped; the same command goes on with it")
    else:
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        outcome.failed[name] = str(value) if what == "failed" else how
        shown.ended(one.cell, outcome.failed[name])


def _ask_to_stop(one: _Running) -> None:
    if not one.process.is_alive():
        return
    if one.begun:
        assert one.process.pid
        os.kill(one.process.pid, signal.SIGINT)
    else:
        one.process.kill()
