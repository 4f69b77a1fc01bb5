"""History of one node, from its status lines over the rounds: curves, evaluations, authors."""

from collections.abc import Iterable

from potluck.reports.status import AuthorStatus, StatusLine
from potluck.show.web.feed import Steps
from potluck.show.web.views import Columns

MOST_ROUNDS = 2000
RECENT = 10
"""Rounds of an author in the means of the matrix."""
REWARDS = 5
"""Rounds in the mean reward of the start page."""
NUMBERS = AuthorStatus.__struct_fields__


class History:
    """The lines of one node, one for each round that was seen."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.accuracy: list[tuple[int, float]] = []
        self._rows: list[StatusLine] = []
        self._matrix: dict[str, dict[str, float | None]] | None = None

    @property
    def cells(self) -> int:
        """Number of what is kept: rounds, and authors in them."""
        return sum(1 + len(row.authors) for row in self._rows)

    def add(self, line: StatusLine, step: int) -> None:
        """Take in a node's newest line; a node that was started again may do rounds again."""
        if self.accuracy and self.accuracy[-1][0] > line.round:
            self.accuracy = [each for each in self.accuracy if each[0] <= line.round]
        if line.accuracy is not None and self.last_accuracy() != line.accuracy:
            self.accuracy = [*self.accuracy, (line.round, line.accuracy)][-MOST_ROUNDS:]
        if self._rows and self._rows[-1].round == line.round:
            return
        while self._rows and self._rows[-1].round >= line.round:
            self._rows.pop()
        if line.round:
            self._rows.append(line)
        self._note(step, max(0, len(self._rows) - 1))
        if len(self._rows) > MOST_ROUNDS:
            self.thin(step)

    def thin(self, step: int) -> None:
        """Drop every second round of the older half, but never the newest."""
        half = (len(self._rows) + 1) // 2
        if len(self._rows) > 1:
            self._rows = self._rows[1:half:2] + self._rows[half:]
            self._note(step, 0)

    def _note(self, step: int, first: int) -> None:
        self._matrix = None
        self.steps.append((step, first))

    def curves(self, first: int) -> Columns:
        rows = self._rows[first:]
        return {
            "round": [row.round - 1.0 for row in rows],
            "own_reward_mean": [_short(row.reward) for row in rows],
            "sent_bytes": [_short(row.sent_bytes) for row in rows],
            "received_bytes": [_short(row.received_bytes) for row in rows],
        }

    def evaluation_columns(self) -> Columns:
        return {
            "round": [float(at) for at, _ in self.accuracy],
            "validation": [_short(value) for _, value in self.accuracy],
        }

    def matrix(self) -> dict[str, dict[str, float | None]]:
        """Return means over each author's last rounds; "staleness": rounds since one came."""
        if self._matrix is None:  # most looks are at nodes that told nothing new
            self._matrix = self._means()
        return self._matrix

    def _means(self) -> dict[str, dict[str, float | None]]:
        cells: dict[str, dict[str, float | None]] = {}
        recent = self._rows[-RECENT:]
        for author in dict.fromkeys(name for row in recent for name in row.authors):
            came = [(row.round, row.authors[author]) for row in recent if author in row.authors]
            cells[author] = {n: _mean(getattr(its, n) for _, its in came) for n in NUMBERS}
            newest = max((at for at, its in came if its.completions), default=None)
            cells[author]["staleness"] = None if newest is None else recent[-1].round - newest
        return cells

    def pair(self, author: str) -> Columns | None:
        """Return what the node told of an author over the rounds; None: nothing."""
        rows = [
            (row.round - 1.0, row.authors[author]) for row in self._rows if author in row.authors
        ]
        if not rows:
            return None
        columns: Columns = {"round": [at for at, _ in rows]}
        return columns | {n: [_short(getattr(its, n)) for _, its in rows] for n in NUMBERS}

    def reward(self) -> float | None:
        return _mean(row.reward for row in self._rows[-REWARDS:])

    def last_accuracy(self) -> float | None:
        return self.accuracy[-1][1] if self.accuracy else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _short(sum(known) / len(known)) if known else None


def _short(value: float | None) -> float | None:
    """Return six digits of a number: 17 of them would be most of what is sent."""
    return None if value is None else float(f"{value:.6g}")
