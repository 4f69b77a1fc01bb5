"""A node in step: all write, all wait for all, all learn."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from statistics import median

from potluck.exchange import Exchange, Received, Round, Waiting
from potluck.node.pace.base import Pace
from potluck.node.selection import Read, Selection, readable_rows
from potluck.schedule import Share
from potluck.types import Completion, Row

FASTER = 4
"""Times as fast as this node that others are believed to be. To still faster ones a jump would not
bring it: all that it writes is too stale for them when it is ready."""
SHORTEST_ROUND_S = 0.02
"""Shortest duration of a round that is believed."""


@dataclass(frozen=True)
class Together(Pace):
    """The pace of a node that does each round with all others."""

    def draw(self, round: int, received: Received, *, written: Collection[str] = ()) -> list[Share]:
        return self.agenda.shares_of(round, self.me, self.attendance.absent(round))

    def receive(
        self, exchange: Exchange, round: int, looked: Received, *, wait_s: float, waiting: Waiting
    ) -> Received:
        return exchange.receive(round, wait_s=wait_s, waiting=waiting)

    def select(self, round: int, arrived: Round, read: Read) -> Selection:
        asked = self._asked_for(round, arrived.completions)
        readable, unreadable = readable_rows(asked, read)
        every = self._groups(round, readable)
        present = [group for group in every if len(group) > 1]
        late: list[tuple[Row, ...]] = []
        for then, came in sorted(arrived.late.items()):
            if round - then <= self.max_staleness:
                rows, reasons = readable_rows(self._asked_for(then, came), read)
                unreadable += reasons
                whole = (g for g in self._groups(then, rows) if self._is_one_authors_whole(then, g))
                late += whole
        kept = self.within_caps(round, present + late)
        used = tuple(compress(present + late, kept))
        return Selection(
            used,
            past_rewards=((),) * len(used),
            unasked=len(arrived.completions) - len(asked),
            unreadable=unreadable,
            too_few=len(every) - len(present),
            late=sum(map(len, arrived.late.values())),
            late_used=sum(map(len, compress(late, kept[len(present) :]))),
            over_share=sum(map(len, present + late)) - sum(map(len, used)),
        )

    def _asked_for(self, round: int, came: Iterable[Completion]) -> list[Completion]:
        """Return what was asked of its author; a peer cannot give itself a larger share."""
        came = list(came)
        most = self._most(round, {c.author for c in came})
        # After a crash a node may know of fewer that were absent when it wrote.
        own = self.agenda.most(round, {self.me}, self.agenda.weights.keys() - {self.me})
        return [
            c
            for c in came
            if c.index < (own if c.author == self.me else most).get((c.problem_id, c.author), 0)
        ]

    def _most(self, round: int, authors: Collection[str]) -> dict[tuple[str, str], int]:
        return self.agenda.most(round, authors, self.attendance.absent(round))

    def _groups(self, round: int, rows: Iterable[Row]) -> list[tuple[Row, ...]]:
        """Group by problem; a stranger's rows by themselves, so no one else's mean moves, and so
        all where groups are dealt whole: two members may have thought that one was theirs."""
        by_group, authors = defaultdict(list), set()
        for row in rows:
            c = row.completion
            by_group[self._group_of(c.author), c.problem_id].append(row)
            authors.add(c.author)
        most = self._most(round, authors)
        order = dict.fromkeys((self._group_of(author), id) for id, author in most)
        order |= dict.fromkeys(by_group)
        return [tuple(by_group[key]) for key in order if key in by_group]

    def _group_of(self, author: str) -> str:
        joint = author in self.agenda.weights and not self.agenda.deals_whole_groups
        return "" if joint else author

    def _is_one_authors_whole(self, round: int, group: tuple[Row, ...]) -> bool:
        """Tell if a group is one author's and whole; a part has nothing to be compared with."""
        author, problem = group[0].completion.author, group[0].completion.problem_id
        most = self._most(round, {author}).get((problem, author))
        is_one_authors = all(row.completion.author == author for row in group)
        return is_one_authors and len(group) == self.agenda.group_size == most


@dataclass(frozen=True, slots=True)
class RoundBound:
    """Bound on the round that others can have reached: anybody can sign a batch of any round."""

    last: int
    """Last round of the run."""
    round: int = 0
    """Round that this node was about to do when it was last in step with others."""
    in_step_s: float | None = None
    """Time of that, in seconds since 1970, as a machine may sleep or restart meanwhile. None: it
    has just started and never was, so it does not know how old the run is and believes any round
    of it. If others are mute then, this is the time of that start, and ``round`` its first."""

    def furthest(self, now_s: float, own_s: Sequence[float]) -> int:
        """Return the furthest round in which others can be.

            min(last, round + 1 + (now - in step) / shortest),  shortest = median(own) / 4

        ``own_s`` are seconds of work of this node's rounds, waiting aside. A healthy majority
        that is not believed will be: each round here adds four to the bound, and one to theirs.

        >>> RoundBound(last=99, round=1, in_step_s=100.0).furthest(106.0, [2.0, 3.0, 2.0])
        14
        """
        if self.in_step_s is None:
            return self.last
        shortest_s = max(median(own_s) / FASTER if own_s else 0.0, SHORTEST_ROUND_S)
        passed = int(max(0.0, now_s - self.in_step_s) / shortest_s)
        return min(self.last, self.round + 1 + passed)
