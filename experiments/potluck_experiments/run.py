"""Runs the cells that are not finished, several at a time, each in a process of its own.

Whatever breaks down, finished cells stay, and the same command goes on from there.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from potluck_experiments.cells import CellSpec
from potluck_experiments.origin import code_now, make_missing_bases, require_same_bases
from potluck_experiments.progress import ToldProgress, finished, longest_first
from potluck_experiments.suite import Suite

# Threads that spin while they wait would take the cores that other cells need.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0",
               "OMP_WAIT_POLICY": "passive", "TOKENIZERS_PARALLELISM": "false"}  # fmt: skip


@dataclass(slots=True)
class CellsOutcome:
    """The ends of the cells that were to run, by name: ``failed`` with their error messages,
    ``busy`` ones are run by another command."""

    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    busy: list[str] = field(default_factory=list)
    interrupted: bool = False


def run_cells(
    suite: Suite, cells: Sequence[CellSpec], *, jobs: int, runs: Path, console: Console,
    again: bool = False, keep_runs: bool = False,
) -> CellsOutcome:  # fmt: skip
    """Run the cells, ``jobs`` at a time, below the folder ``runs``: those that have no result, or
    all of them ``again``.
    A second Ctrl-C raises KeyboardInterrupt; the processes are gone then."""
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    code, there = code_now(suite.folder.resolve().parent), finished(suite, cells)
    waiting = [cell for cell in cells if again or cell.name not in there]
    kept = len(cells) - len(waiting)
    say(f"{len(cells)} cells" + f", {kept} of them are finished" * bool(kept))
    if not waiting:
        return CellsOutcome()
    make_missing_bases(suite, waiting, jobs=jobs, say=say)
    require_same_bases(suite, waiting)
    context = _start_server()
    stop = context.Event()
    told = ToldProgress(suite.folder, cells)
    with told, _interrupts(stop), Progress(console=console, disable=not console.is_terminal) as bar:
        total = bar.add_task("rounds", total=sum(cell.config.rounds for cell in waiting))
        folders, moved = (suite.folder.resolve(), runs.resolve()), partial(bar.advance, total)
        with ThreadPoolExecutor(jobs) as pool:
            futures = []
            for cell in longest_first(suite, waiting):
                work = (cell, *folders, code, again, keep_runs)
                futures.append(pool.submit(_run_one, context, work, stop, moved, say, told.running))
            while wait(futures, timeout=0.2).not_done:
                told.write()  # signals are handled in this thread, in between
    ends = [future.result() for future in futures]
    failed = {name: details for name, end, details in ends if end == "failed"}
    done, busy = ([name for name, end, _ in ends if end == its] for its in ("done", "busy"))
    return CellsOutcome(done, failed, busy, stop.is_set())


def _run_one(
    context: ForkServerContext, work: tuple[Any, ...], stop: Event, moved: Any, say: Any,
    running: set[str],
) -> tuple[str, str, str]:  # fmt: skip
    """Run a cell in a process and return its end. A thread waits for each process."""
    name, end, details = work[0].name, "", ""
    if stop.is_set():
        return name, end, details
    mine, its = context.Pipe(duplex=False)
    process = context.Process(target=_in_process, args=(work, its, stop))
    process.start()
    running.add(name)
    its.close()
    with mine, suppress(EOFError, ConnectionResetError):
        while not end:
            match mine.recv():
                case "say", text:
                    say(text)
                case "round", _:
                    moved(1)
                case end, details:
                    say(f"{name}: {details}")
    process.join()
    running.discard(name)
    if not end and not stop.is_set():
        code = process.exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        end, details = "failed", how
        say(f"{name}: {how}")
    return name, end, details


def _in_process(work: tuple[Any, ...], line: Connection, stop: Event) -> None:
    os.setpgid(0, 0)  # Ctrl-C in a terminal reaches the command alone, which hands it on once
    parent = multiprocessing.parent_process()
    assert parent

    def end_with_parent() -> None:  # a killed command cannot say so, nobody wants the result
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    from potluck_experiments.worker import Work, run_cell  # torch

    run_cell(Work(*work), line, stop)


@contextmanager
def _interrupts(stop: Event) -> Iterator[None]:
    """Turn the first Ctrl-C or SIGTERM into a request to stop; the second ends all processes."""

    def ask(number: int, frame: object) -> None:
        if stop.is_set():
            for process in multiprocessing.active_children():
                process.kill()
            raise KeyboardInterrupt
        stop.set()

    with _handling(ask, signal.SIGINT, signal.SIGTERM):
        yield


@contextmanager
def _handling(handler: Any, *numbers: signal.Signals) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, its in before.items():
            signal.signal(number, its)


def _start_server() -> ForkServerContext:
    """Start the process that all cells are forked from: torch, imported once as it takes five
    seconds, one thread, deaf to Ctrl-C."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["potluck_experiments.worker"])
    os.environ.update(ENVIRONMENT)
    with _handling(signal.SIG_IGN, signal.SIGINT):
        forkserver.ensure_running()
    return context
