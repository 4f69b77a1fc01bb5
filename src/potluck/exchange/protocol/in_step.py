"""The mailbox of a node in step: batches of the round that all do together, and late ones."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from potluck.exchange.base import Delivery, Received
from potluck.exchange.protocol.fetch_queue import FetchQueue
from potluck.exchange.protocol.mailbox import Mailbox, Partners
from potluck.exchange.protocol.peers import Peers
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
        """Return whether a batch of ``round`` is of use to a node in its round ``now``; ``newest``
        is the newest round of its author."""
        return round <= now

    def mailbox(self, peers: Peers, queue: FetchQueue, partners: Partners, limit: int) -> Mailbox:
        """Make a mailbox of this rule, for a transport that fetches what is announced."""
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
            self._news.append(PeerNews("back", name))
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
        members = self.peers.members()
        counted = members & set(self.partners(round, self.peers.live() | members))
        return {n for n in (awaited - here) | counted if not self.fetch_queue.has_arrived(n, round)}

    def miss_deadline(self, round: int, now_s: float) -> None:
        """Note the peers that ``round`` still waits for at its deadline: no later round does until
        they are back. One that left the network, or left the round out, is none of them."""
        here, awaited = self.arrivals(round, now_s)
        for name in sorted(awaited - here):
            self.peers.stalled(name, round)
            self._news.append(PeerNews("overdue", name, str(round + 1)))

    def receive(self, round: int, now_s: float, *, waited: bool) -> Received:
        if waited:
            self.miss_deadline(round, now_s)
        missing = tuple(sorted(self.missing(round, now_s)))
        return Received(tuple(self.take(round)), missing)

    def newest_of(self, batches: Iterable[Delivery]) -> dict[str, int]:
        return {}

    def take(self, round: int) -> list[Delivery]:
        """Return what came of ``round`` and of rounds before, by round and author; each once."""
        taken = sorted(key for key in self._here if key[0] <= round)
        self._awaited = {r: names for r, names in self._awaited.items() if r > round}
        self._in_time = round, frozenset(author for then, author in taken if then == round)
        for name in self._in_time[1]:
            self.peers.was_in_time(name)
        return [self._here.pop(key) for key in taken]

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
        is_member = author in self.peers.members()
        ahead = self._latest + (self.rule.kept_rounds if is_member else self.rule.max_staleness)
        near = self._first is None or round <= ahead or round == newest
        if not (round >= floor and near):
            return False
        peer = self.peers.get(author)
        if peer and peer.live:
            return author in self.cohort(round)
        return author in self.partners(round, self.peers.live() | {author})

    def _state(self) -> object:
        return self._first, self._latest, self._comings
