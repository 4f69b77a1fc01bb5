"""A node's metrics.jsonl, kept as columns: 500 rounds with 8 authors are 4 MB as text, 0.1 MB here.

What a learner saw of its authors is kept for the last rounds alone; a pair's whole history is read
again when somebody opens it.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields
from math import isfinite, nan
from operator import attrgetter
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import numpy as np

from potluck.reports import AuthorReport, RoundReport, mean
from potluck.reports.doubts import habit_told
from potluck.reports.runs import METRICS
from potluck.reports.tail import DAMAGED, Change, Tail, newest
from potluck.show.web.bounds import MOST_AUTHORS, MOST_EVENTS, MOST_ROWS, PAIR_BYTES
from potluck.show.web.views import Columns, EventView, PairView

RECENT = 10
"""Rounds of an author in the means of the matrix."""
DIGITS = 6
"""Significant digits of a number on the page."""


def _numbers(report: type) -> tuple[str, ...]:
    kinds = get_type_hints(report)
    return tuple(f.name for f in fields(report) if kinds[f.name] in (int, float, float | None))


ROUND_NUMBERS = _numbers(RoundReport)
AUTHOR_NUMBERS = _numbers(AuthorReport)


@dataclass(frozen=True, slots=True)
class RoundLine(RoundReport):
    """A report whose authors stay text until somebody looks: they are nine tenths of it."""

    sources: dict[str, msgspec.Raw] = field(default_factory=dict)  # type: ignore[assignment]


_decode_author = msgspec.json.Decoder(AuthorReport).decode
_numbers_of_line = attrgetter(*ROUND_NUMBERS)
_numbers_of_author = attrgetter(*AUTHOR_NUMBERS)


class NodeMetrics:
    """One node's rounds, as far as they were read."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self._tail = Tail(folder / METRICS, RoundLine)
        self._clear()

    def _clear(self) -> None:
        self._columns: dict[str, array[float]] = {
            name: array("d") for name in (*ROUND_NUMBERS, "missing", "refused")
        }
        self._recent: dict[str, deque[tuple[int, msgspec.Raw]]] = {}
        self._missing: frozenset[str] = frozenset()
        self._quarantined: frozenset[str] = frozenset()
        self.events: deque[EventView] = deque(maxlen=MOST_EVENTS)

    @property
    def rows(self) -> int:
        return len(self._columns["round"])

    @property
    def done(self) -> int:
        """Rounds done."""
        rounds = self._columns["round"]
        return int(rounds[-1]) + 1 if rounds else 0

    def look(self) -> int | None:
        """Read the new lines; return the first row that is new or another; None: nothing is."""
        change = self._tail.look()
        if change is Change.NOTHING:
            return None
        if change is Change.ANEW:
            self._clear()
        first = self.rows
        for line in self._tail.read(self._damaged):
            try:
                numbers = _floats(_numbers_of_line(line))
            except OverflowError as error:
                self._damaged(error)
                continue
            while self.rows and self._columns["round"][-1] >= line.round:  # run again: this counts
                for column in self._columns.values():
                    column.pop()
            first = min(first, self.rows)
            self._add(line, numbers)
        for name, reports in self._recent.items():
            # Each is a part of a large line, which need not stay for it.
            self._recent[name] = deque(((at, raw.copy()) for at, raw in reports), maxlen=RECENT)
        if self.rows > MOST_ROWS:
            first = 0
            for name, column in self._columns.items():
                half = len(column) // 2
                self._columns[name] = column[:half:2] + column[half:]
        return first

    def _damaged(self, error: Exception) -> None:
        self._tell(self.done, "message", damaged_line(self._tail))

    def _add(self, line: RoundLine, numbers: list[float]) -> None:
        columns, row = self._columns, self.rows
        whole = dict(zip(ROUND_NUMBERS, numbers, strict=True))
        whole |= {"missing": len(line.missing), "refused": min(sum(line.refused.values()), 1e9)}
        for phase, seconds in line.seconds.items():
            name = f"seconds/{phase}"
            if name not in columns:
                if len(columns) > 2 * len(ROUND_NUMBERS) or len(phase) > 32:
                    continue
                columns[name] = array("d", [nan]) * row
            whole[name] = seconds
        for name, column in columns.items():
            column.append(whole.get(name, nan))
        for author, raw in line.sources.items():
            recent = self._recent.get(author)
            if recent is None:
                if len(self._recent) >= MOST_AUTHORS or len(author) > 64:
                    continue
                recent = self._recent[author] = deque(maxlen=RECENT)
            while recent and recent[-1][0] >= line.round:
                recent.pop()
            recent.append((line.round, raw))
        self._tell_of(line)

    def _tell_of(self, line: RoundLine) -> None:
        missing, quarantined = frozenset(line.missing), frozenset(line.quarantined)
        for name in sorted(missing - self._missing):
            self._tell(line.round, "missing", f"nothing of {name[:64]} came in time")
        for name in sorted(quarantined - self._quarantined):
            self._tell(line.round, "quarantined", f"messages of {name[:64]} are not read for now")
        for name, count in list(line.refused.items())[:MOST_AUTHORS]:
            self._tell(line.round, "refused", f"{count} under the name {name[:64]}")
        if line.late:
            used = f", {line.late_used} of them used" if line.late_used else ""
            self._tell(line.round, "late", f"{line.late} completions of earlier rounds{used}")
        self._missing, self._quarantined = missing, quarantined

    def _tell(self, round: int, kind: str, text: str) -> None:
        self.events.append(
            EventView(time_s=None, round=round, node=self.name, kind=kind, text=text)
        )

    def curves(self, first: int = 0) -> Columns:
        """Return the rows from ``first`` on; a number that is not known is NaN, in JSON null."""
        return {name: shortened(column[first:]) for name, column in self._columns.items()}

    def authors(self) -> dict[str, dict[str, float | None]]:
        """Return its row of the matrix: means over each author's last rounds."""
        return {
            author: author_means(_decoded(reports), AUTHOR_NUMBERS, self.done - 1)
            for author, reports in self._recent.items()
        }

    def habits(self) -> list[str]:
        """Return what its habit test found, a sentence for each author that has a habit."""
        found = (
            habit_told(self.name, author, [report for _, report in _decoded(reports)])
            for author, reports in self._recent.items()
        )
        return [sentence for sentence in found if sentence]


def _decoded(reports: Iterable[tuple[int, msgspec.Raw]]) -> Iterator[tuple[int, AuthorReport]]:
    for round, raw in reports:
        with suppress(*DAMAGED):
            report = _decode_author(raw)
            _floats(_numbers_of_author(report))  # else it is damaged
            yield round, report


def author_means(
    reports: Iterable[tuple[int, Any]], names: Iterable[str], last: int
) -> dict[str, float | None]:
    """Return means of an author's numbers over (round, report), and "staleness": rounds from the
    newest in which something came to the ``last``."""
    reports = list(reports)
    means = {}
    for name in names if reports else ():
        values = (getattr(report, name) for _, report in reports)
        found = mean(value for value in values if value is None or isfinite(value))
        means[name] = None if found is None else float(f"{found:.{DIGITS}g}")
    newest = max((round for round, report in reports if report.completions), default=None)
    return {**means, "staleness": None if newest is None else float(last - newest)}


def _floats(values: Iterable[float | None]) -> list[float]:
    """Return ``values`` as a column holds them; raise OverflowError for one that is too large."""
    return [nan if value is None else float(value) for value in values]


def damaged_line(tail: Tail[Any]) -> str:
    return f"{tail.path.name}, line {tail.number} cannot be read; it is left out"


def column_of(values: Iterable[float | None]) -> list[float | None]:
    return shortened(array("d", _floats(values)))


def shortened(values: "array[float]") -> list[float | None]:
    """Round to DIGITS significant digits: 17 of them would be two thirds of what is sent.

    >>> shortened(array("d", [0.1234567891, 0.0, 1234567.0]))
    [0.123457, 0.0, 1234570.0]
    """
    whole = np.frombuffer(values, dtype=float) if values else np.empty(0)
    with np.errstate(all="ignore"):
        scale = 10.0 ** (DIGITS - 1 - np.floor(np.log10(np.abs(whole))))
        short = np.where(np.isfinite(scale), np.round(whole * scale) / scale, whole)
    found: list[float | None] = short.tolist()
    return found


def read_pairs(folder: Path, author: str | None = None) -> dict[str, PairView]:
    """Return one learner's view of each author over the rounds, or of one author."""
    rows: dict[str, dict[int, AuthorReport]] = {}
    for line in newest(folder / METRICS, RoundLine, PAIR_BYTES):
        wanted = [author] if author in line.sources else [] if author else list(line.sources)
        for name in wanted:
            if len(name) <= 64:
                rows.setdefault(name, {}).update(_decoded([(line.round, line.sources[name])]))
    return {name: _pair(folder.name, name, rows[name]) for name in sorted(rows)[:MOST_AUTHORS]}


def _pair(learner: str, author: str, rows: dict[int, AuthorReport]) -> PairView:
    rounds = sorted(rows)
    return PairView(
        learner=learner,
        author=author,
        columns={"round": column_of(rounds)}
        | {n: column_of(getattr(rows[at], n) for at in rounds) for n in AUTHOR_NUMBERS},
        habit=habit_told(learner, author, [rows[at] for at in rounds]),
    )
