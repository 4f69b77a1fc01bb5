"""Several runs side by side: one bar each in a terminal, a line now and then without one."""

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

PLAIN_EVERY_S = 10.0


class CellsDisplay:
    def __init__(
        self,
        console: Console,
        rounds: Mapping[str, int],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            rounds: of each run, under its name.
            clock: seconds; only differences count.
        """
        self._console, self._rounds, self._clock = console, rounds, clock
        self._done = dict.fromkeys(rounds, 0)
        self._said_s = clock()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("rounds"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks = {
            name: self._progress.add_task(name, total=total) for name, total in rounds.items()
        }

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def update(self, name: str, done: int) -> None:
        """``name`` has done so many rounds. May be called often."""
        self._done[name] = done
        self._progress.update(self._tasks[name], completed=done)
        now_s = self._clock()
        if not self._console.is_terminal and now_s - self._said_s >= PLAIN_EVERY_S:
            self._said_s = now_s
            parts = [f"{n} {d}/{self._rounds[n]}" for n, d in self._done.items()]
            self._console.print("  ".join(parts), markup=False, highlight=False, soft_wrap=True)
