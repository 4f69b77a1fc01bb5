"""The two rules by which a node receives batches, each with the mailbox that keeps it.

A node at its own pace looks for batches while it learns, which is when it will soon use some: for
``enough`` of them, of each author's newest ``max_staleness + 1``. What fast authors write meanwhile
costs bytes and memory only where it replaces a batch that became too old.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from potluck.exchange.base import Received
from potluck.exchange.protocol.fetch_queue import FetchQueue
from potluck.exchange.protocol.mailbox import Mailbox, Partners
from potluck.exchange.protocol.peers import Peers
from potluck.exchange.protocol.signed import Announcement
from potluck.reports.events import PeerNews


@dataclass(frozen=True, slots=True)
class InStep:
    """Rule of a node in step: it takes batches up to its own round, and waits for present peers."""

    max_staleness: int = 1
    """Rounds before its first one that the node still asks for."""
    kept_rounds: int = 32
    """Rounds for which the others keep a batch."""
    in_step: ClassVar[bool] = True

    def takes(self, round: int, *, now: int, newest: int) -> bool:
        """Return whether a batch is of use in round ``now``; ``newest``: that of its author."""
        return round <= now

    def mailbox(self, peers: Peers, queue: FetchQueue, partners: Partners, limit: int) -> Mailbox:
        return InStepMailbox(peers, queue, partners, limit, self)


@dataclass(eq=False)
class InStepMailbox(Mailbox):
    """Knows whom each round waits for."""

    rule: InStep
    _first: int | None = field(default=None, init=False)
    _awaited: dict[int, set[str]] = field(default_factory=dict, init=False)
    _in_time: tuple[int, frozenset[str]] = field(default=(-1, frozenset()), init=False)

    def begin(self, round: int, now_s: float) -> None:
        """Enter ``round``: await the peers that are connected now; a stranger only if its previous
        batch was on time, as otherwise a slow stranger would delay every round; a peer that let a
        round wait in vain only when it is back."""
        if round in self._awaited:
            return
        self._first = round if self._first is None else min(self._first, round)
        self._latest = max(self._latest, round)
        last, in_time = self._in_time
        before = in_time if last == round - 1 else frozenset()
        partners = set(self.partners(round, self.peers.live()))
        for name in self.peers.back_in_time(round, round - 1 - self.rule.max_staleness):
            self.news.append(PeerNews("back", name))
        self._awaited[round] = self.peers.awaited(before, now_s) & partners
        floor = self._first - self.rule.max_staleness
        self.fetch_queue.drop(lambda _, offered: offered < floor)
        self._here = {key: here for key, here in self._here.items() if key[0] >= floor}

    def on_leave(self, name: str) -> None:
        super().on_leave(name)
        for awaited in self._awaited.values():
            awaited.discard(name)

    def arrivals(self, round: int, now_s: float) -> tuple[set[str], set[str]]:
        awaited = self._awaited.get(round, set()) - set(self.peers.quarantined(now_s))
        here = {name for name in awaited if self.fetch_queue.has_arrived(name, round)}
        return here, {name for name in awaited if name in here or not self._is_past(name, round)}

    def _is_past(self, name: str, round: int) -> bool:
        """Return whether ``name`` left ``round`` out: it has later rounds, but not that one."""
        peer = self.peers.get(name)
        if peer is None or round in peer.offered or round in self.fetch_queue.to_come(name):
            return False
        return max(peer.offered, default=round) > round

    def missing(self, round: int, now_s: float) -> set[str]:
        """Return the members of which nothing came, connected or not, and awaited strangers."""
        here, awaited = self.arrivals(round, now_s)
        members = self.peers.members
        counted = members & set(self.partners(round, self.peers.live() | members))
        return {n for n in (awaited - here) | counted if not self.fetch_queue.has_arrived(n, round)}

    def receive(self, round: int, now_s: float, *, waited: bool) -> Received:
        """Return what came of ``round`` and of rounds before, by round and author; each once. For a
        peer that it ``waited`` for in vain no later round waits until the peer is back."""
        if waited:
            here, awaited = self.arrivals(round, now_s)
            for name in sorted(awaited - here):
                self.peers.stalled(name, round)
                self.news.append(PeerNews("overdue", name, str(round + 1)))
        missing = tuple(sorted(self.missing(round, now_s)))
        taken = sorted(key for key in self._here if key[0] <= round)
        self._awaited = {r: names for r, names in self._awaited.items() if r > round}
        self._in_time = round, frozenset(author for then, author in taken if then == round)
        for name in self._in_time[1]:
            self.peers.was_in_time(name)
        return Received(tuple(self._here.pop(key) for key in taken), missing)

    def _make_room(self, author: str) -> None:
        """Drop what could fill the memory, to be fetched again: of the batches of ``author`` far
        ahead of this node's round all but the newest, before its first all but the newest few."""
        held = sorted(round for round, name in self._here if name == author)
        if self._first is None:
            excess = held[: -1 - self.rule.max_staleness]
        else:
            excess = [r for r in held if r > self._latest + self.rule.kept_rounds][:-1]
        for round in excess:
            del self._here[round, author]
            self.fetch_queue.lose(author, round)

    def _is_of_use(self, author: str, round: int, newest: int) -> bool:
        """Return whether a batch is fetched: all are from some rounds before this node's first one
        on. Far ahead only the newest is: it tells where the others are. An awaited peer's always
        is, even if the partners have changed since."""
        if author in self._awaited.get(round, ()):
            return True
        floor = (newest if self._first is None else self._first) - self.rule.max_staleness
        # 64 strangers could fill the memory with rounds that are not yet there.
        is_member = author in self.peers.members
        ahead = self._latest + (self.rule.kept_rounds if is_member else self.rule.max_staleness)
        near = self._first is None or round <= ahead or round == newest
        if not (round >= floor and near):
            return False
        peer = self.peers.get(author)
        if peer and peer.live:
            return author in self.cohort(round)
        return author in self.partners(round, self.peers.live() | {author})


@dataclass(frozen=True, slots=True)
class Newest:
    """Rule of a node at its own pace: it awaits nobody, and takes others' newest of any round."""

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

    def begin(self, round: int, now_s: float) -> None:
        """Look for batches of the partners of ``round`` from now on: for the newest of each that
        was announced before, then for older ones if those are too few."""
        self._latest, self._is_open = round, True
        self._cohorts.clear()
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
        """Note what is to be fetched. An author that offers less than was taken of it, and of whose
        offers none came, has lost its folder and begun anew: it counts from 0."""
        author, taken = said.node, self._taken.get(said.node, -1)
        offers = said.offers() if taken >= 0 else ()
        came = (self.fetch_queue.came(author, offer) for offer in offers)
        if offers and offers[-1].round < taken and not any(came):
            del self._taken[author]
            self.fetch_queue.only(self.peers.keys() - {author})
            self._here = {key: here for key, here in self._here.items() if key[1] != author}
            self.news.append(PeerNews("reset", author))
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

    def arrivals(self, round: int, now_s: float) -> tuple[set[str], set[str]]:
        return set(), set()

    def _is_of_use(self, author: str, round: int, newest: int) -> bool:
        if not self._is_open or round <= self._taken.get(author, -1):
            return False
        if round < newest - self._depth or author not in self.cohort():
            return False
        newest_of, has_priority = self.peers.newest_offer, self.peers.has_priority
        # What is here and not too old, or soon will be; strangers must not keep members away.
        names = [name for r, name in self._here if not self._is_old(r, newest_of(name, r))]
        names += self.fetch_queue.promising()
        counted = [n for n in names if has_priority(n) or not has_priority(author)]
        return len(counted) < self.rule.enough

    def _make_room(self, author: str) -> None:
        held = [round for round, name in self._here if name == author]
        newest = self.peers.newest_offer(author, max(held, default=-1))
        for round in held:
            if self._is_old(round, newest) or round <= self._taken.get(author, -1):
                del self._here[round, author]

    def _is_old(self, round: int, newest: int) -> bool:
        return not self.rule.takes(round, now=self._latest, newest=newest)


MailboxRule = InStep | Newest
"""Rule by which a node receives batches: its pace, as far as an exchange has to know it."""
