"""The threads of one exchange. What goes wrong in one of them is raised in the training thread."""

import threading
import time
from collections.abc import Callable

from potluck.exchange.base import ExchangeError


class Crew:
    """Starts threads, and knows whether one of them has failed."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._trouble: tuple[str, Exception] | None = None

    def start(self, what: str, work: Callable[[], None]) -> None:
        """Runs ``work`` until it returns; what it raises instead, ``check`` raises."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                self._trouble = self._trouble or (what, error)
            finally:
                with self._lock:
                    self._threads.discard(threading.current_thread())

        # Daemons: a thread that a dead link holds up must not keep the process from ending.
        thread = threading.Thread(target=guarded, name=f"{self._node} {what}", daemon=True)
        with self._lock:
            self._threads.add(thread)
            thread.start()

    def check(self) -> None:
        """Raises:
        ExchangeError: a thread failed. Going on would mean to wait for nothing.
        """
        if self._trouble is not None:
            what, error = self._trouble
            raise ExchangeError(
                f"{self._node!r} can no longer {what}: {type(error).__name__}: {error}; "
                f"start it again, it goes on from its checkpoint"
            ) from error

    def join(self, timeout_s: float) -> None:
        """Waits until all have ended, or the time is over."""
        end_s = time.monotonic() + timeout_s
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(0.0, end_s - time.monotonic()))
