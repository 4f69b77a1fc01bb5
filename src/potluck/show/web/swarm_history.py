"""History of one node, from its status lines over the rounds: curves, evaluations, authors."""

from potluck.reports import mean
from potluck.reports.status import AuthorStatus, StatusLine
from potluck.show.web.feed import Steps
from potluck.show.web.metrics import RECENT, author_means, column_of
from potluck.show.web.views import Columns

MOST_ROUNDS = 2000
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
        """Add a node's newest line. A restarted node may repeat rounds; the new ones replace the
        old."""
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
            "own_reward_mean": column_of(row.reward for row in rows),
            "sent_bytes": column_of(row.sent_bytes for row in rows),
            "received_bytes": column_of(row.received_bytes for row in rows),
        }

    def evaluation_columns(self) -> Columns:
        return {
            "round": [float(at) for at, _ in self.accuracy],
            "validation": column_of(value for _, value in self.accuracy),
        }

    def matrix(self) -> dict[str, dict[str, float | None]]:
        """Return means over each author's last rounds."""
        if self._matrix is None:  # most looks are at nodes that told nothing new
            recent = self._rows[-RECENT:]
            authors = dict.fromkeys(name for row in recent for name in row.authors)
            self._matrix = {
                author: author_means(_reports(recent, author), NUMBERS, recent[-1].round)
                for author in authors
            }
        return self._matrix

    def pair(self, author: str) -> Columns | None:
        """Return what the node told of an author over the rounds; None: nothing."""
        if not (reports := _reports(self._rows, author)):
            return None
        columns: Columns = {"round": [at - 1.0 for at, _ in reports]}
        return columns | {n: column_of(getattr(each, n) for _, each in reports) for n in NUMBERS}

    def reward(self) -> float | None:
        return mean(row.reward for row in self._rows[-REWARDS:])

    def last_accuracy(self) -> float | None:
        return self.accuracy[-1][1] if self.accuracy else None


def _reports(rows: list[StatusLine], author: str) -> list[tuple[int, AuthorStatus]]:
    return [(row.round, row.authors[author]) for row in rows if author in row.authors]
