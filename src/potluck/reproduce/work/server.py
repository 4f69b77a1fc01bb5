"""The process that all cells are forked from. It has torch imported already."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # Threads that spin while they wait would take the cores that other cells need.
    "GOMP_SPINCOUNT": "0",
    "OMP_WAIT_POLICY": "passive",
    "TOKENIZERS_PARALLELISM": "false",
}
PRELOAD = ["potluck.launch"]
"""What the server imports; torch comes with it."""


def ready() -> ForkServerContext:
    """Has torch imported, with one thread, before the first process is forked from it."""
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    with _environment(ONE_THREAD), _deaf_to_interrupts():
        forkserver.ensure_running()
    return context


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """What is started in here never hears of Ctrl-C unless it listens for it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
