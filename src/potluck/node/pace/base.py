"""A pace: what a node writes and uses, what is compared with what; members that it counts on."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from typing import Any

from potluck.exchange import Exchange, Received, Round, Waiting
from potluck.node.selection import Read, Selection
from potluck.reports import AuthorReport
from potluck.reports.doubts import UNHEARD_WEIGHT
from potluck.schedule import ALL_UP_TO, Agenda, Share
from potluck.types import Group, Row

PATIENCE = {"together": (1, 2), "free": (2, 8)}
"""Rounds of silence: below the first nobody is absent, from the second on each silent member is.
At its own pace a node often begins before the others, and others bring several rounds at once."""


class Attendance:
    """The members that a node counts on to write their part of a round.

    There is no coordinator, so each node decides by what came to it: a member is *absent* in a
    round if nothing of use came of it in the last rounds that the node knows by then. What absent
    members would have written is written by those that are here (``Agenda.members_shares``). Two
    nodes can differ for some rounds when a member goes or comes back; then a part is written twice,
    and both texts are learned from where both nodes miss the member.
    """

    def __init__(
        self,
        members: Iterable[str] = (),
        *,
        patience: tuple[int, int] = PATIENCE["together"],
        trusts: Callable[[str], bool] = lambda author: True,
        lines: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        """Take the members but this node, and the ``lines`` of its metrics.jsonl, so that a round
        that is done again after a crash has the same ones. With more than ``ALL_UP_TO`` members
        none is ever absent, as a node does not fetch from all of them."""
        named = frozenset(members)
        self._members = named if len(named) < ALL_UP_TO else frozenset[str]()
        (self._fewest, self._most), self._trusts = patience, trusts
        self._absent = dict[int, frozenset[str]]()
        self._heard = {
            line["round"]: frozenset[str](heard)
            for line in lines
            if (heard := line.get("heard")) is not None
        }

    def note(
        self, round: int, arrived: Round, sources: Mapping[str, AuthorReport], *, me: str
    ) -> tuple[str, ...]:
        """Note of which members something of use came in ``round``; return them, sorted.

        Texts of a member that is not trusted are of use if they teach: a stranger that took a name
        and writes what teaches nothing costs no more than one that is silent. A node that solves
        nothing cannot tell, so it takes all as of use.
        """
        late = [c for completions in arrived.late.values() for c in completions]
        came = self._members & {c.author for c in (*arrived.completions, *late)}
        if _teaches(sources.get(me)):
            came -= {n for n in came if not (self._trusts(n) or _teaches(sources.get(n)))}
        self._heard[round] = came
        return tuple(sorted(came))

    def absent(self, round: int) -> frozenset[str]:
        """Return the members of which nothing of use came for too long before ``round``, as far as
        was known when it was first asked: a node may write a round while it learns from the one
        before. Too long is twice the longest gap that a member ever had."""
        if round not in self._absent:
            known = sorted(at for at in self._heard if at < round)
            self._absent[round] = frozenset(
                n for n in self._members if self._is_absent(n, known, since=round - self._most)
            )
        return self._absent[round]

    def _is_absent(self, member: str, known: Sequence[int], *, since: int) -> bool:
        lately = sum(at >= since for at in known)
        came = [place for place, at in enumerate(known) if member in self._heard[at]]
        silent = len(known) - 1 - came[-1] if came else lately
        if silent >= lately:  # nothing came in the last rounds, if enough of them are known
            return lately >= self._fewest
        gaps = [later - earlier for earlier, later in pairwise(came)]
        return bool(gaps) and silent >= max(self._fewest, 2 * max(gaps))


def _teaches(author: AuthorReport | None) -> bool:
    weight = author.success_weight if author else None
    return weight is not None and weight >= UNHEARD_WEIGHT


@dataclass(frozen=True)
class Pace(ABC):
    """The pace of one node. A round goes through its methods from top to bottom."""

    agenda: Agenda
    me: str
    max_staleness: int
    """In step: rounds for which a group that came late is still learned from. At its own pace:
    rounds of its author that a batch may be old."""
    stranger_share: float
    """Largest share of a batch that one stranger may fill."""
    strangers_share: float
    """Largest share of a batch that all strangers together may fill."""
    attendance: Attendance = field(default_factory=Attendance, kw_only=True)
    """Members that are here; by default none is ever absent."""

    def look(self, exchange: Exchange, round: int) -> Received:
        """Return what others sent and the node uses, before it waits for anybody."""
        return Received()

    @abstractmethod
    def draw(self, round: int, received: Received, *, written: Collection[str] = ()) -> list[Share]:
        """Return the shares of ``round`` that the node writes; ``written`` are its problems of the
        round before, if that is not learned from yet."""

    def receive(
        self, exchange: Exchange, round: int, looked: Received, *, wait_s: float, waiting: Waiting
    ) -> Received:
        """Return the batches that the round is learned from: by default what ``look`` returned."""
        return looked

    @abstractmethod
    def select(self, round: int, arrived: Round, read: Read) -> Selection:
        """Select what ``round`` is learned from, and count the rest."""

    def remember(self, round: int, groups: Iterable[Group]) -> None:  # noqa: B027
        """Note what later rounds need of this one: nothing, in step with the others."""

    def within_caps(self, round: int, groups: Sequence[tuple[Row, ...]]) -> list[bool]:
        """Return for each group True if it is within the strangers' shares.

            s_i <= each / (1 - each) * K      sum s_i <= together / (1 - together) * K

        with s_i the completions of one stranger and K those of members (and one's own). Then no
        stranger has more than ``each`` (``stranger_share``) of the batch and all have at most
        ``together`` (``strangers_share``) of it, whatever others send. Turns go one group at a
        time, in an order that none of them can choose, and that differs from round to round.
        """
        authors, known = [g[0].completion.author for g in groups], {*self.agenda.weights, self.me}
        strangers = Counter(author for author in authors if author not in known)
        both = zip(groups, authors, strict=True)
        rows, size = sum(len(g) for g, name in both if name in known), self.agenda.group_size
        most_each, left = (
            int(share / (1 - share) * rows / size + 1e-9)
            for share in (self.stranger_share, self.strangers_share)
        )
        salt, allowed = f"{self.agenda.seed}/{round}", Counter[str]()
        order = sorted(strangers, key=lambda name: sha256(f"{salt}/{name}".encode()).digest())
        for turn in range(most_each):
            for name in order:
                if left and strangers[name] > turn:
                    allowed[name] += 1
                    left -= 1
        kept = []
        for name in authors:
            kept.append(name in known or allowed[name] > 0)
            allowed[name] -= 1
        return kept
