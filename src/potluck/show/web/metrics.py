"""A node's metrics.jsonl, kept as columns: 500 rounds with 8 authors are 4 MB as text, 0.1 MB here.

What a learner saw of its authors is kept for the last rounds alone; a pair's whole history is read
again when somebody opens it.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import fields
from math import isfinite, nan
from operator import attrgetter
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import numpy as np

from potluck.reports import AuthorReport, RoundReport, mean
from potluck.reports.tail import Change, Tail
from potluck.show.web.views import Columns, EventView, PairView

RECENT = 10
"""Rounds of an author in the means of the matrix."""
MOST_ROWS = 20_000
"""Rounds of a node that are kept; of more every second one is dropped, the newest ones never."""
MOST_AUTHORS = 128
MOST_EVENTS = 500
DIGITS = 6
"""Significant digits of a number on the page."""
PAIR_BYTES = 256 << 20
"""Most of a metrics.jsonl that is read for one pair, from its end."""


def _numbers(report: type) -> tuple[str, ...]:
    kinds = get_type_hints(report)
    return tuple(f.name for f in fields(report) if kinds[f.name] in (int, float, float | None))


ROUND_NUMBERS = _numbers(RoundReport)
AUTHOR_NUMBERS = _numbers(AuthorReport)

# The authors of a line stay text until somebody looks at them: they are nine tenths of it.
_Line: Any = msgspec.defstruct(
    "_Line",
    [
        ("round", int),
        *((name, float | None, None) for name in ROUND_NUMBERS if name != "round"),
        ("missing", tuple[str, ...], ()),
        ("refused", dict[str, int], {}),
        ("quarantined", tuple[str, ...], ()),
        ("seconds", dict[str, float], {}),
        ("sources", dict[str, msgspec.Raw], {}),
    ],
    gc=False,
)
_decode_line = msgspec.json.Decoder(_Line).decode
_decode_author = msgspec.json.Decoder(AuthorReport).decode
_numbers_of_line = attrgetter(*ROUND_NUMBERS)
_numbers_of_author = attrgetter(*AUTHOR_NUMBERS)
DAMAGED = (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError)


class _Own(msgspec.Struct):
    """Part of a node's report on itself that tells how fast it writes."""

    tokens: int = 0


_decode_written = msgspec.json.Decoder(_Own).decode


class NodeMetrics:
    """One node's rounds, as far as they were read."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self._tail = Tail(folder / "metrics.jsonl", msgspec.Raw)
        self._clear()

    def _clear(self) -> None:
        self._columns: dict[str, array[float]] = {
            name: array("d") for name in (*ROUND_NUMBERS, "missing", "refused")
        }
        self._recent: dict[str, deque[tuple[int, msgspec.Raw]]] = {}
        self._missing: frozenset[str] = frozenset()
        self._quarantined: frozenset[str] = frozenset()
        self.events: deque[EventView] = deque(maxlen=MOST_EVENTS)
        self.written = _Own()
        """The node's own completions of its last round."""

    @property
    def rows(self) -> int:
        return len(self._columns["round"])

    @property
    def done(self) -> int:
        """Rounds done."""
        rounds = self._columns["round"]
        return int(rounds[-1]) + 1 if rounds else 0

    def last(self, name: str) -> float | None:
        """Return the newest number of a column."""
        column = self._columns.get(name)
        return column[-1] if column and isfinite(column[-1]) else None

    def look(self) -> int | None:
        """Read the new lines; return the first row that is new or another; None: nothing is."""
        change = self._tail.look()
        if change is Change.NOTHING:
            return None
        if change is Change.ANEW:
            self._clear()
        first, number = self.rows, self._tail.number
        for _, text in self._tail.lines():
            try:
                line = _decode_line(text)
                own = line.sources.get(self.name)
                self.written = _decode_written(own) if own else _Own()
                numbers = _floats(_numbers_of_line(line))
                refused = float(sum(line.refused.values()))
            except DAMAGED:
                self._tell(self.done, "message", _damaged(self._tail))
                continue
            while self.rows and self._columns["round"][-1] >= line.round:  # run again: this counts
                for column in self._columns.values():
                    column.pop()
            first = min(first, self.rows)
            self._add(line, numbers, refused)
        if self._tail.too_long > number:
            self._tell(self.done, "message", _damaged(self._tail))
        for name, reports in self._recent.items():
            # Each is a part of a large line, which need not stay for it.
            self._recent[name] = deque(((at, raw.copy()) for at, raw in reports), maxlen=RECENT)
        if self.rows > MOST_ROWS:
            first = 0
            for name, column in self._columns.items():
                half = len(column) // 2
                self._columns[name] = column[:half:2] + column[half:]
        return first

    def _add(self, line: Any, numbers: list[float | None], refused: float) -> None:
        columns, row = self._columns, self.rows
        for name, value in zip(ROUND_NUMBERS, numbers, strict=True):
            columns[name].append(nan if value is None else value)
        columns["missing"].append(len(line.missing))
        columns["refused"].append(refused)
        for phase, seconds in line.seconds.items():
            column = columns.get(f"seconds/{phase}")
            if column is None:
                if len(columns) > 2 * len(ROUND_NUMBERS) or len(phase) > 32:
                    continue
                column = columns[f"seconds/{phase}"] = array("d", [nan]) * row
            column.append(seconds)
        for author, raw in line.sources.items():
            recent = self._recent.get(author)
            if recent is None:
                if len(self._recent) >= MOST_AUTHORS or len(author) > 64:
                    continue
                recent = self._recent[author] = deque(maxlen=RECENT)
            while recent and recent[-1][0] >= line.round:
                recent.pop()
            recent.append((line.round, raw))
        for column in columns.values():
            if len(column) <= row:  # a phase that this round did not have
                column.append(nan)
        self._tell_of(line)

    def _tell_of(self, line: Any) -> None:
        missing, quarantined = frozenset(line.missing), frozenset(line.quarantined)
        for name in sorted(missing - self._missing):
            self._tell(line.round, "missing", f"nothing of {name[:64]} came in time")
        for name in sorted(quarantined - self._quarantined):
            self._tell(line.round, "quarantined", f"messages of {name[:64]} are not read for now")
        for name, count in list(line.refused.items())[:MOST_AUTHORS]:
            self._tell(line.round, "refused", f"{count} under the name {name[:64]}")
        if line.late:
            used = f", {line.late_used:.0f} of them used" if line.late_used else ""
            self._tell(line.round, "late", f"{line.late:.0f} completions of earlier rounds{used}")
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


def column_of(values: Iterable[float | None]) -> list[float | None]:
    return shortened(array("d", (nan if value is None else value for value in values)))


def _floats(values: Iterable[float | None]) -> list[float | None]:
    """Return ``values`` as a column holds them; raise OverflowError for one that is too large."""
    return [None if value is None else float(value) for value in values]


def _damaged(tail: Tail[Any]) -> str:
    return f"{tail.path.name}, line {tail.number} cannot be read; it is left out"


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
    for line in lines_from_end(folder / "metrics.jsonl", PAIR_BYTES):
        try:
            found = _decode_line(line)
            for name, raw in found.sources.items():
                if name == author or (author is None and len(name) <= 64):
                    report = _decode_author(raw)
                    _floats((found.round, *_numbers_of_author(report)))  # else it is damaged
                    rows.setdefault(name, {})[found.round] = report
        except DAMAGED:
            continue
    return {name: _pair(folder.name, name, rows[name]) for name in sorted(rows)[:MOST_AUTHORS]}


def _pair(learner: str, author: str, rows: dict[int, AuthorReport]) -> PairView:
    rounds = sorted(rows)
    habits = [habit for round in rounds if (habit := rows[round].habit)]
    return PairView(
        learner=learner,
        author=author,
        columns={"round": column_of(rounds)}
        | {n: column_of(getattr(rows[at], n) for at in rounds) for n in AUTHOR_NUMBERS},
        habit=habits[-1] if habits else "",
    )


def lines_from_end(file: Path, most: int) -> Iterator[bytes]:
    tail = Tail(file, msgspec.Raw)
    tail.look()
    tail.start_near_end(most)
    yield from (line for _, line in tail.lines())
