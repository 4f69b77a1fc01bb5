"""Ctrl-C as a request, so that nothing is left half done."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Make the first Ctrl-C a request that the loop asks for; the second one is the usual."""
    requested = False

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
        yield lambda: requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
