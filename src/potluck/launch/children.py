"""Commands of ``potluck`` in processes of their own: started, heard, and asked to stop; and Ctrl-C
as a request to this one, so that nothing is left half done."""

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from queue import Empty, Queue
from threading import Thread
from types import FrameType
from typing import Any, Self

from potluck.reports.events import Event, Told, decode_event

ChildLines = Queue[tuple["Child", str | None]]
"""Lines that children print; None: the end."""
COMMAND = (sys.executable, "-P", "-m", "potluck")
"""Command of a child; ``-P``: a file of the current folder is no module of it."""
EVENT = '{"event"'
"""How a line of ``encode_event`` begins."""
STOPPED = (130, -signal.SIGINT)
"""Exit codes of a process that was asked to stop."""


OF_RANKS = frozenset(
    {
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME"),
    }
)
"""Variables by which torchrun tells a process which one of several it is; others of it begin with
TORCHELASTIC."""


def variables_of_child(more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that this one starts: it is none of torchrun's, so it
    would wait for the others of a group that it does not belong to."""
    own = {
        name: value
        for name, value in os.environ.items()
        if name not in OF_RANKS and not name.startswith("TORCHELASTIC")
    }
    return own | dict(more)


class Child:
    """One command with ``--display lines``. When this process is gone it stops as after Ctrl-C."""

    def __init__(self, name: str, words: Sequence[str], threads: int, lines: ChildLines) -> None:
        self.name = name
        self.said = deque[str](maxlen=100)
        """Its last lines that are no events."""
        self.begun = False
        """True: it tells what it is doing, so all that can be wrong with a recipe was looked at."""
        self.process = subprocess.Popen(
            [*COMMAND, *words, "--display", "lines"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=variables_of_child({"OMP_NUM_THREADS": str(threads)} if threads else {}),
            # Ctrl-C in a terminal reaches this process alone, which hands it on once.
            process_group=0,
        )
        self._is_alone = False
        """True: what it left behind was ended."""
        Thread(target=self._read, args=(lines,), daemon=True).start()

    @property
    def code(self) -> int | None:
        """The exit code, once it has ended; below 0: the signal that ended it."""
        return self.process.returncode

    def end_what_it_left(self) -> None:
        """Once it has ended, kill what it started and left behind, as a server of a reward: nobody
        else stops that, and its output, which is the command's too, would never end."""
        if not self._is_alone and self.process.poll() is not None:
            self._is_alone = True  # once: its number may be another group's by now
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def _read(self, lines: ChildLines) -> None:
        assert self.process.stdout
        with self.process.stdout as stream:
            for line in stream:
                lines.put((self, line.decode(errors="replace")))
        lines.put((self, None))


class Children:
    """Commands side by side, until the end of the block at most."""

    def __init__(self) -> None:
        self.going: list[Child] = []
        self.is_stopped = False
        self._lines: ChildLines = Queue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.going:
            child.process.kill()
            child.process.wait()
            child.end_what_it_left()

    def start(self, name: str, words: Sequence[str], *, threads: int) -> Child:
        """Start a command of ``potluck``; 0 ``threads``: torch's own number."""
        self.going.append(Child(name, words, threads, self._lines))
        return self.going[-1]

    def hear(self, show: Callable[[Child, Event], None]) -> Child | None:
        """Hand on what is told, if anything is within a moment; return a child that has ended."""
        for going in self.going:
            going.end_what_it_left()
        try:
            child, line = self._lines.get(timeout=0.2)
        except Empty:
            return None
        if line is None:
            child.process.wait()
            child.end_what_it_left()
            self.going.remove(child)
            return child
        # What a library writes without a newline, such as a progress bar, stands before an event.
        said, mark, rest = line.partition(EVENT)
        if event := decode_event(mark + rest):
            child.begun |= not isinstance(event, Told)
            show(child, event)
        else:
            said = line
        if said.strip():
            child.said.append(said.rstrip("\n"))
        return None

    def stop(self) -> None:
        """Ask all to stop, once: a second time would be "at once" to one that is about to save."""
        for child in [] if self.is_stopped else self.going:
            child.process.send_signal(signal.SIGINT)
        self.is_stopped = True


STOP: ContextVar[threading.Event | None] = ContextVar("STOP", default=None)
"""Event by which a thread's run is asked to stop, as no signal reaches a thread."""


Handler = Callable[[int, FrameType | None], Any] | int
_handlers_before: dict[signal.Signals, Handler] = {}
"""Handlers of this process from before its run."""


def _forget_handlers() -> None:
    """Give a forked process the handlers from before the run: a reward that ends its worker by
    SIGTERM waits for its end."""
    numbers = [*_handlers_before]
    for number, handler in _handlers_before.items():
        signal.signal(number, handler)
    _handlers_before.clear()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def _hold_signals() -> None:
    """Keep a signal that comes between the fork and ``_forget_handlers`` until then."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _handlers_before)


def _let_signals_come() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _handlers_before)


os.register_at_fork(
    before=_hold_signals, after_in_parent=_let_signals_come, after_in_child=_forget_handlers
)


def _stopping_signals() -> list[signal.Signals]:
    """List what asks a run to stop: Ctrl-C, a scheduler that ends a job (SIGTERM), a terminal that
    is closed (SIGHUP), if the process was not told to outlive it (nohup)."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Make the first Ctrl-C a request that the loop asks for; the second one is the usual. What
    this process forks meanwhile has the handlers from before."""
    requested, is_asked, stop = False, False, STOP.get()

    def request(signal_number: int, frame: FrameType | None) -> None:
        nonlocal requested, is_asked
        requested = True
        if signal_number == signal.SIGHUP:  # several come for one terminal, and then a SIGTERM
            return
        if is_asked:
            raise KeyboardInterrupt
        is_asked = True

    before = dict[signal.Signals, Handler]()
    is_outermost = not _handlers_before
    if threading.current_thread() is threading.main_thread():  # any other may set none
        for number in _stopping_signals():
            handler = signal.getsignal(number)
            before[number] = signal.SIG_DFL if handler is None else handler
        if is_outermost:  # first: a process may be forked at any time
            _handlers_before.update(before)
        for number in before:
            signal.signal(number, request)
    try:
        yield lambda: requested or (stop is not None and stop.is_set())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if before and is_outermost:
            _handlers_before.clear()
