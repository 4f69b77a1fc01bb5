"""Threads that work for one node until it leaves."""

import threading
import time
from collections.abc import Callable

from potluck.exchange.base import ExchangeError


class WorkerThreads:
    """A group of threads that remembers the first failure."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._failure: tuple[str, Exception] | None = None

    def start(self, what: str, work: Callable[[], None]) -> None:
        """Run ``work`` in a thread; ``check`` raises its error. RuntimeError if none is left."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                self._failure = self._failure or (what, error)
            finally:
                with self._lock:
                    self._threads.discard(threading.current_thread())

        # Daemons: a thread that a dead link holds up must not keep the process from ending.
        thread = threading.Thread(target=guarded, name=f"{self._node} {what}", daemon=True)
        with self._lock:
            thread.start()
            self._threads.add(thread)

    def check(self) -> None:
        """Raise ExchangeError if a thread failed: the node would wait for nothing."""
        if self._failure is not None:
            what, error = self._failure
            raise ExchangeError(
                f"{self._node!r} can no longer {what}: {type(error).__name__}: {error}; "
                f"start it again, it goes on from its checkpoint"
            ) from error

    def join(self, timeout_s: float) -> None:
        end_s = time.monotonic() + timeout_s
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(0.0, end_s - time.monotonic()))
