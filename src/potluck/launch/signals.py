"""Ctrl-C as a request, so that nothing is left half done."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

STOP: ContextVar[threading.Event | None] = ContextVar("STOP", default=None)
"""Event by which a thread's run is asked to stop, as no signal reaches a thread."""


def stop_at_end_of_stdin() -> None:
    """Ask this process to stop when its starter is gone; to all others stdin is empty."""
    starter = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def wait() -> None:
        os.read(starter, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Make the first Ctrl-C a request that the loop asks for; the second one is the usual."""
    requested, stop = False, STOP.get()

    def request(signal_number: int, frame: FrameType | None) -> None:
        nonlocal requested
        if requested:
            raise KeyboardInterrupt
        requested = True

    before = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):  # a scheduler that ends a job sends SIGTERM
            before[number] = signal.signal(number, request)
    except ValueError:  # not the main thread: that one decides
        pass
    try:
        yield lambda: requested or (stop is not None and stop.is_set())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
