"""Ctrl-C as a wish, so that nothing is left half done."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Makes the first Ctrl-C a wish that the loop asks for; the second one is the usual."""
    wished = False

    def wish(signal_number: int, frame: FrameType | None) -> None:
        nonlocal wished
        if wished:
            raise KeyboardInterrupt
        wished = True

    # A scheduler that wants its machine back says SIGTERM.
    wishes = (signal.SIGINT, signal.SIGTERM)
    try:
        before = {wanted: signal.signal(wanted, wish) for wanted in wishes}
    except ValueError:  # not the main thread: whoever runs that one decides
        yield lambda: False
        return
    try:
        yield lambda: wished
    finally:
        for wanted, handler in before.items():
            signal.signal(wanted, handler)
