"""How far the cells are: a bar each for those that run, or without a terminal a line for each
that ends."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from potluck.dashboard import printable
from potluck.reproduce.cells import Cell
from potluck.reproduce.work.estimates import work_of


class CellsShown:
    """Shows what ``run_cells`` says."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            clock: seconds; only differences count.
        """
        self._console, self._clock, self._began_s = console, clock, clock()
        self._all = self._finished = 0
        self._work_all = self._work_done = 0
        """Of the cells that had no result."""
        self._rounds: dict[str, tuple[Cell, int]] = {}
        """Of each cell that runs, what is done."""
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._total = self._progress.add_task("all", total=None, unit="cells")
        self._bars: dict[str, TaskID] = {}

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

    def begin(self, cells: int, waiting: Sequence[Cell]) -> None:
        self._all, self._finished = cells, cells - len(waiting)
        self._work_all = sum(work_of(cell) for cell in waiting)
        self._began_s = self._clock()
        done = f", {self._finished} of them are finished" if self._finished else ""
        self.say(f"{cells} cells{done}")
        self._progress.update(self._total, total=cells, completed=self._finished)

    def started(self, cell: Cell) -> None:
        self._rounds[cell.name] = (cell, 0)
        self._bars[cell.name] = self._progress.add_task(
            cell.name, total=cell.config.rounds, unit="rounds"
        )

    def round_done(self, cell: Cell, rounds: int) -> None:
        self._rounds[cell.name] = (cell, rounds)
        self._progress.update(self._bars[cell.name], completed=rounds)
        self._progress.update(self._total, unit=f"cells, {self._time()}")

    def finished(self, cell: Cell, accuracy: Mapping[str, float]) -> None:
        self._work_done += work_of(cell)
        self._finished += 1
        self._leave(cell)
        reached = ", ".join(f"{name} {value:.3f}" for name, value in accuracy.items())
        self.say(f"{self._finished}/{self._all} {cell.name}: {reached or 'done'} ({self._time()})")

    def ended(self, cell: Cell, why: str) -> None:
        self._work_all -= work_of(cell)
        self._leave(cell)
        self.say(f"{cell.name}: {why}")

    def say(self, text: str) -> None:
        self._console.print(
            printable(text, limit=2000), markup=False, highlight=False, soft_wrap=True
        )

    def _leave(self, cell: Cell) -> None:
        del self._rounds[cell.name]
        self._progress.remove_task(self._bars.pop(cell.name))
        self._progress.update(self._total, completed=self._finished)

    def _time(self) -> str:
        """Elapsed, and what is left if it goes on as it went."""
        elapsed_s = self._clock() - self._began_s
        done = self._work_done + sum(
            work_of(cell) * rounds / cell.config.rounds for cell, rounds in self._rounds.values()
        )
        left_s = elapsed_s * (self._work_all - done) / done if done else None
        left = "" if left_s is None else f", about {_hours(left_s)} left"
        return f"{_hours(elapsed_s)}{left}"


def _hours(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
