"""The mailbox of a node at its own pace: others' newest batches, whatever rounds they are of.

Such a node awaits nobody. It looks for batches while it learns, which is when it will soon use
some: for ``enough`` of them, of each author's newest ``max_staleness + 1``. What fast authors write
meanwhile costs bytes and memory only where it replaces a batch that became too old.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from potluck.exchange.base import Delivery, Received
from potluck.exchange.protocol.announcement import Announcement
from potluck.exchange.protocol.fetch_queue import FetchQueue
from potluck.exchange.protocol.mailbox import Mailbox, Partners
from potluck.exchange.protocol.peers import Peers
from potluck.reports.events import PeerNews


@dataclass(frozen=True, slots=True)
class Newest:
    """Rule of a node at its own pace: it receives the newest batches of each author, whatever round
    of its own they are of, and waits for nobody."""

    max_staleness: int = 1
    """Rounds of its author that a batch may be old."""
    taken: Mapping[str, int] = field(default_factory=dict)
    """Newest round of each author that the node has received, before a restart."""
    enough: int = 1
    """Number of others' batches that the node needs in a round."""
    in_step: ClassVar[bool] = False

    def takes(self, round: int, *, now: int, newest: int) -> bool:
        return round >= newest - self.max_staleness

    def mailbox(self, peers: Peers, queue: FetchQueue, partners: Partners, limit: int) -> Mailbox:
        return NewestMailbox(peers, queue, partners, limit, self)


@dataclass(eq=False)
class NewestMailbox(Mailbox):
    """Filled from ``begin`` on, until ``receive`` has something to return."""

    rule: Newest
    _is_open: bool = field(default=True, init=False)
    _depth: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._taken = dict(self.rule.taken)

    @property
    def held(self) -> int:
        """Number of batches that wait to be taken."""
        return len(self._here)

    def begin(self, round: int, now_s: float) -> None:
        """Look for batches of the partners of ``round`` from now on: for the newest of each that
        was announced before, then for older ones if those are too few."""
        self._latest, self._is_open = round, True
        self._on_other_peers()
        names = sorted(self.cohort())
        first = round % max(1, len(names))  # or names with an "a" were read most
        turns = sorted(names[first:] + names[:first], key=self.peers.has_priority, reverse=True)
        for depth in (0, self.rule.max_staleness):
            self._depth = depth
            for name in turns:
                peer = self.peers.get(name)
                if peer and peer.announcement:
                    self.on_announcement(peer.announcement, now_s)
        self._depth = 0

    def on_announcement(self, said: Announcement, now_s: float) -> None:
        """Note what is to be fetched. An author whose newest round is before what was taken of it,
        and of whose batches none came, has lost its folder and begun anew: it counts from 0."""
        author, taken = said.node, self._taken.get(said.node, -1)
        offers = said.offers() if taken >= 0 else ()
        came = (self.fetch_queue.came(author, offer) for offer in offers)
        if offers and offers[-1].round < taken and not any(came):
            del self._taken[author]
            self.fetch_queue.only(self.peers.names() - {author})
            self._here = {key: here for key, here in self._here.items() if key[1] != author}
            self._news.append(PeerNews("reset", author))
        super().on_announcement(said, now_s)

    def receive(self, round: int, now_s: float, *, waited: bool) -> Received:
        """Return what came, newest first of each author; stop looking if there is something."""
        for name in {author for _, author in self._here}:
            self._make_room(name)
        taken = [self._here.pop(key) for key in sorted(self._here, key=lambda key: -key[0])]
        for delivery in taken:
            before = self._taken.get(delivery.author, -1)
            self._taken[delivery.author] = max(before, delivery.round)
        if taken:
            self._is_open = False
            self.fetch_queue.drop(lambda author, round: True)
        return Received(tuple(taken))

    def newest_of(self, batches: Iterable[Delivery]) -> dict[str, int]:
        return {each.author: self.peers.newest_offer(each.author, each.round) for each in batches}

    def arrivals(self, round: int, now_s: float) -> tuple[set[str], set[str]]:
        return set(), set()

    def _is_of_use(self, author: str, round: int, newest: int) -> bool:
        if not self._is_open or round <= self._taken.get(author, -1):
            return False
        if round < newest - self._depth or author not in self.cohort():
            return False
        of_members, of_all = self._places()
        return (of_members if self.peers.has_priority(author) else of_all) < self.rule.enough

    def _places(self) -> tuple[int, int]:
        """Return the number of batches that are here and not too old, or soon will be: of members,
        whom strangers must not keep away, and of all."""
        newest = self.peers.newest_offer
        here = [name for r, name in self._here if not self._is_old(r, newest(name, r))]
        names = here + self.fetch_queue.promising()
        return sum(map(self.peers.has_priority, names)), len(names)

    def _state(self) -> object:
        return self._comings, self._depth, self._places()

    def _make_room(self, author: str) -> None:
        """Drop what is not among the author's newest rounds any more."""
        held = [round for round, name in self._here if name == author]
        newest = self.peers.newest_offer(author, max(held, default=-1))
        for round in held:
            if self._is_old(round, newest) or round <= self._taken.get(author, -1):
                del self._here[round, author]

    def _is_old(self, round: int, newest: int) -> bool:
        return not self.rule.takes(round, now=self._latest, newest=newest)
