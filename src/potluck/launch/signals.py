"""Ctrl-C as a request, so that nothing is left half done."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

STOP: ContextVar[threading.Event | None] = ContextVar("STOP", default=None)
"""Event by which a thread's run is asked to stop, as no signal reaches a thread."""


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
