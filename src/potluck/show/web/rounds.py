"""Rounds of one node as columns, and its reports on authors. A page gets the rows that it lacks."""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import inf, isnan, nan
from typing import Any, get_type_hints

import numpy as np

from potluck.reports import mean
from potluck.show.web.views import Columns, CurvesView

RECENT = 10
DIGITS = 6
MOST_ROWS = 20_000
"""Rounds of a node that are kept; of more every second one is dropped, the newest ones never."""
MOST_ROUNDS = 10**9
MOST_COLUMNS, LONGEST_COLUMN, MOST_AUTHORS, LONGEST_AUTHOR = 100, 200, 128, 64


@cache
def numbers_of(report: type) -> tuple[str, ...]:
    kinds = {int, float, *(kind | None for kind in (int, float, bool))}
    return tuple(name for name, kind in get_type_hints(report).items() if kind in kinds)


def numbers_in(report: Any) -> dict[str, float | None]:
    return {name: getattr(report, name) for name in numbers_of(report.__class__)}


def _float(value: float | None) -> float:
    try:
        return nan if value is None else float(value)
    except OverflowError:  # JSON bounds no integer
        return inf


def column_of(values: Iterable[float | None]) -> list[float | None]:
    """Round to DIGITS significant digits: 17 of them would be two thirds of what is sent.

    >>> column_of([0.1234567891, 0, 1234567, None])
    [0.123457, 0.0, 1234570.0, None]
    """
    whole = np.array([_float(value) for value in values])
    with np.errstate(all="ignore"):
        scale = 10.0 ** (DIGITS - 1 - np.floor(np.log10(np.abs(whole))))
        rounded = np.where(np.isfinite(scale), np.round(whole * scale) / scale, whole)
    return [None if isnan(each) else each for each in rounded.tolist()]


class NodeRounds:
    """The rounds of a node; of each author the last ``reports``."""

    def __init__(self, reports: int = RECENT) -> None:
        self._reports = reports
        self.clear()

    def clear(self) -> None:
        """Forget all, as the rounds come again."""
        self.columns: dict[str, array[float]] = {"round": array("d")}
        self.authors: dict[str, deque[tuple[int, Any]]] = {}
        self._steps: list[int] = []
        """Step in which each row was added; none is smaller than the one before."""

    @property
    def done(self) -> int:
        rounds = self.columns["round"]
        return int(rounds[-1]) + 1 if rounds else 0

    @property
    def newest_step(self) -> int:
        return self._steps[-1] if self._steps else 0

    def shown(self, first: int = 0) -> Columns:
        return {name: column_of(column[first:]) for name, column in self.columns.items()}

    def add(
        self,
        step: int,
        round: int,
        numbers: Mapping[str, float | None],
        authors: Mapping[str, Any] = {},
    ) -> None:
        """Add a round. A restarted node may repeat rounds; the new ones replace the old."""
        if not 0 <= round < MOST_ROUNDS:
            return
        columns = self.columns
        while columns["round"] and columns["round"][-1] >= round:
            self._steps.pop()
            for column in columns.values():
                column.pop()
        for name in numbers:
            is_new = name not in columns and len(name) <= LONGEST_COLUMN
            if is_new and len(columns) < MOST_COLUMNS:
                columns[name] = array("d", [nan]) * len(self._steps)
        self._steps.append(step)
        for name, column in columns.items():
            column.append(_float(round if name == "round" else numbers.get(name)))
        for author, report in authors.items():
            is_new = author not in self.authors
            if is_new and (len(self.authors) >= MOST_AUTHORS or len(author) > LONGEST_AUTHOR):
                continue
            recent = self.authors.setdefault(author, deque(maxlen=self._reports))
            while recent and recent[-1][0] >= round:
                recent.pop()
            recent.append((round, report))
        if len(self._steps) > MOST_ROWS:
            self._thin(step)

    def _thin(self, step: int) -> None:
        """Drop every second row and report of the older half, but never the newest."""

        def kept(rows: Any) -> Any:
            half = (len(rows) + 1) // 2
            return rows[1:half:2] + rows[half:] if len(rows) > 1 else rows

        self.columns = {name: kept(column) for name, column in self.columns.items()}
        self._steps = [step] * len(self.columns["round"])
        for name, reports in self.authors.items():
            self.authors[name] = deque(kept(list(reports)), maxlen=self._reports)

    def since(self, step: int) -> CurvesView | None:
        """Return the rows that were added after this step, None if none was; after 0: all."""
        first = bisect_right(self._steps, step) if step else 0
        if step and first == len(self._steps):
            return None
        return CurvesView(first=first, columns=self.shown(first))

    def matrix(self) -> dict[str, dict[str, float | None]]:
        """Return means of each author's last rounds; "staleness": rounds since something came."""
        means = {}
        for author, reports in self.authors.items():
            recent = [report for _, report in reports][-RECENT:]
            names = numbers_of(recent[-1].__class__)
            values = ([getattr(each, name) for each in recent] for name in names)
            own = column_of(mean(_float(it) for it in its if it is not None) for its in values)
            came = max((at for at, report in reports if report.completions), default=None)
            means[author] = {
                **dict(zip(names, own, strict=True)),
                "staleness": None if came is None else self.done - 1.0 - came,
            }
        return means


def pair_columns(reports: Sequence[tuple[int, Any]]) -> Columns:
    columns: Columns = {"round": [float(at) for at, _ in reports]}
    names = numbers_of(reports[-1][1].__class__)
    return columns | {n: column_of(getattr(each, n) for _, each in reports) for n in names}
