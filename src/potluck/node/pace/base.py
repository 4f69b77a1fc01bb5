"""The interface of a pace: what a node writes and uses, and what is compared with what."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from potluck.exchange import Exchange, Received, Round, Waiting
from potluck.node.pace.attendance import Attendance
from potluck.node.selection import Read, Selection, within_caps
from potluck.schedule import Agenda, Share
from potluck.types import Group, Row


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

    @abstractmethod
    def receive(
        self, exchange: Exchange, round: int, looked: Received, *, wait_s: float, waiting: Waiting
    ) -> Received:
        """Return the batches that the round is learned from; ``looked``: what ``look`` returned."""

    @abstractmethod
    def select(self, round: int, arrived: Round, read: Read) -> Selection:
        """Select what ``round`` is learned from, and count the rest."""

    def remember(self, round: int, groups: Iterable[Group]) -> None:  # noqa: B027
        """Note what later rounds need of this one: nothing, in step with the others."""

    def within_caps(self, round: int, groups: Sequence[tuple[Row, ...]]) -> list[bool]:
        """Return for each group True if it is within the strangers' shares."""
        authors = [group[0].completion.author for group in groups]
        known = {*self.agenda.weights, self.me}
        strangers = ["" if author in known else author for author in authors]
        allowed = within_caps(
            Counter(filter(None, strangers)),
            known=sum(len(g) for g, name in zip(groups, strangers, strict=True) if not name),
            group_size=self.agenda.group_size,
            each=self.stranger_share,
            together=self.strangers_share,
            salt=f"{self.agenda.seed}/{round}",
        )
        kept, taken = [], Counter[str]()
        for name in strangers:
            taken[name] += 1
            kept.append(not name or taken[name] <= allowed[name])
        return kept
