"""Batches that came, and peers that are awaited."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Literal

from potluck.exchange.base import Delivery, Received, WireError
from potluck.exchange.protocol.fetch_queue import FetchQueue
from potluck.exchange.protocol.peers import Peer, Peers
from potluck.exchange.protocol.signed import Announcement, Offer
from potluck.reports.events import PeerNews, Told

AT_THE_DOOR = 1000
"""Most names that are kept of peers that have said nothing yet, and of those refused."""
MOST_COHORTS = 256
MOST_CHANGES, CHANGES_S = 6, 360.0
"""Times that one name's joining or leaving is told, at most, within so many seconds."""
MOST_NEWS = 1000
"""Most news that wait to be asked for; then the oldest are forgotten."""

Partners = Callable[[int, Collection[str]], Collection[str]]
"""Function of a round and the others' names that returns those to fetch from in that round."""


@dataclass(eq=False)
class Mailbox(ABC):
    """Filled by the threads that listen and fetch, emptied by ``receive``; one lock guards it. Its
    two kinds know which batches are of use, and whom a round waits for."""

    peers: Peers
    fetch_queue: FetchQueue
    partners: Partners
    size_limit_bytes: int
    _latest: int = field(default=0, init=False)
    _here: dict[tuple[int, str], Delivery] = field(default_factory=dict, init=False)
    news: deque[Told] = field(default_factory=lambda: deque(maxlen=MOST_NEWS), init=False)
    _changes_s: dict[str, list[float]] = field(default_factory=dict, init=False)
    _reported: set[str] = field(default_factory=set, init=False)
    _at_the_door: set[str] = field(default_factory=set, init=False)
    _cohorts: dict[int, frozenset[str]] = field(default_factory=dict, init=False)

    @abstractmethod
    def begin(self, round: int, now_s: float) -> None:
        """Enter ``round``, in which other batches are of use than before."""

    @abstractmethod
    def arrivals(self, round: int, now_s: float) -> tuple[set[str], set[str]]:
        """Return (awaited peers whose batch of ``round`` is here, all awaited peers)."""

    @abstractmethod
    def receive(self, round: int, now_s: float, *, waited: bool) -> Received:
        """Return what is of use in ``round``, each batch once; ``waited``: the deadline is over."""

    @abstractmethod
    def _is_of_use(self, author: str, round: int, newest: int) -> bool:
        """Return whether a batch is fetched; ``newest``: the newest round of its author."""

    @abstractmethod
    def _make_room(self, author: str) -> None:
        """Drop what is not to be kept of an author of whom something came."""

    def on_join(self, name: str) -> None:
        """Note that ``name`` is connected. A round that has begun does not wait for it."""
        peer = self.peers.get(name)
        if peer is None and len(self._at_the_door) < AT_THE_DOOR:
            self._at_the_door.add(name)
        if peer and not peer.live:
            peer.live = True
            self._cohorts.clear()
            self._tell_of(name, "joined")

    def on_leave(self, name: str) -> None:
        self._at_the_door.discard(name)
        peer = self.peers.get(name)
        if peer and peer.live:
            peer.live = False
            self._cohorts.clear()
            self._tell_of(name, "left")
        self.fetch_queue.forget(name)  # When it is back it says again what it has.

    def confirm(self, said: Announcement, now_s: float) -> bool:
        """Believe an announcement that answers this node's question; return whether it is news."""
        author, peer = said.node, self._welcome(said.node)
        if peer is None:
            self.refuse(author, WireError("it is one stranger too many", "unknown sender"), now_s)
            return False
        before, peer.public = peer.announcement, said.public
        peer.clock_offset_s = now_s - said.clock_s
        if before is None or said.session != before.session:
            peer.announcement = None
        elif said.clock_s <= before.clock_s:
            peer.heard_s = now_s
            return False
        self.on_announcement(said, now_s)
        return before is None or (said.session, said.packed) != (before.session, before.packed)

    def on_announcement(self, said: Announcement, now_s: float) -> None:
        """Note what is to be fetched. The announcement is proven to be its node's, and new."""
        author, peer = said.node, self.peers.get(said.node)
        if peer is None:
            return  # A stranger that had to make room meanwhile.
        every = said.offers()
        peer.announcement = said
        peer.heard_s = max(peer.heard_s, min(now_s, said.clock_s + peer.clock_offset_s))
        peer.offered = frozenset(offer.round for offer in every)
        offers = [offer for offer in every if offer.size_bytes <= self.size_limit_bytes]
        for offer in every:
            is_too_large = offer.size_bytes > self.size_limit_bytes
            if is_too_large and self.fetch_queue.settle(author, offer, valid=False):
                size = f"{offer.size_bytes} bytes; at most {self.size_limit_bytes} are taken"
                what = f"its batch of round {offer.round} is announced with {size}"
                self.refuse(author, WireError(what, "too large"), now_s, fault=True)
        if self.peers.is_quarantined(author, now_s):
            return
        newest = every[-1].round if every else 0
        changed = self.fetch_queue.update_offers(
            author, offers, lambda round: self._is_of_use(author, round, newest), now_s
        )
        for offer in changed:
            what = f"its batch of round {offer.round} is another than it was before"
            self.refuse(author, WireError(what, "replaced"), now_s)

    def deliver(self, delivery: Delivery, offer: Offer) -> None:
        """Keep a usable batch. The first of a round stays."""
        if self.fetch_queue.settle(delivery.author, offer, valid=True):
            self._here[delivery.round, delivery.author] = delivery
            self.peers.delivered(delivery.author, delivery.round)
            self._make_room(delivery.author)

    def refuse(
        self, name: str, error: WireError, now_s: float, *, fault: bool = False, count: int = 1
    ) -> None:
        """Count refusals under ``name``; ``fault``: what was refused is proven to be its own."""
        reason = error.reason
        silence_s = self.peers.refused(name, reason, fault=fault, now_s=now_s, count=count)
        told, news = name, PeerNews("refused", name, str(error))
        if reason == "unknown sender":  # Names without end are told once in all.
            told, news = reason, PeerNews("unknown", name, str(error))
        if silence_s:
            self.fetch_queue.forget(name)
            self.news.append(PeerNews("quarantined", name, f"{silence_s:g} s: {error}"))
        elif told not in self._reported and len(self._reported) < AT_THE_DOOR:
            self._reported.add(told)
            self.news.append(news)

    def drain_news(self, now_s: float = 0.0) -> list[Told]:
        """Return what is to be told now. A name that comes and goes all the time has
        ``MOST_CHANGES`` of it told in ``CHANGES_S``; its state by then is told later."""
        told, later = list[Told](), list[Told]()
        for news in self.news:
            changed = ""
            if isinstance(news, PeerNews) and news.kind in ("joined", "left"):
                changed = news.peer
            if changed and not self._has_room(changed, now_s):
                later.append(news)
            else:
                told.append(news)
        self.news = deque(later, MOST_NEWS)
        return told

    def _has_room(self, name: str, now_s: float) -> bool:
        """Return whether one more change of a name may be told, and count it."""
        recent = {
            each: kept
            for each, times in self._changes_s.items()
            if (kept := [second for second in times if now_s - second < CHANGES_S])
        }
        self._changes_s = recent
        of_name = recent.setdefault(name, [])
        if len(of_name) >= MOST_CHANGES:
            return False
        of_name.append(now_s)
        return True

    def absent(self) -> set[str]:
        """Return the members that are not connected, or whose newest batch is still to come."""
        return {
            name
            for name in self.peers.members
            if not ((peer := self.peers.get(name)) and peer.live and peer.public)
            or self.fetch_queue.to_come(name)
        }

    def _welcome(self, name: str) -> Peer | None:
        if (known := self.peers.get(name)) or not (peer := self.peers.welcome(name)):
            return known
        self.fetch_queue.only(self.peers.keys())  # Somebody may have made room.
        peer.live = name in self._at_the_door
        self._cohorts.clear()
        self._at_the_door.discard(name)
        self._tell_of(name, "joined")
        return peer

    def _tell_of(self, name: str, what: Literal["joined", "left"]) -> None:
        """Tell that ``name`` joined or left; drop older news of it that nobody has read."""
        states = PeerNews("joined", name), PeerNews("left", name)
        kept = (news for news in self.news if news not in states)
        self.news = deque([*kept, PeerNews(what, name)], MOST_NEWS)

    def cohort(self, round: int | None = None) -> frozenset[str]:
        """Return the connected peers to fetch from in a round, by default the latest."""
        round = self._latest if round is None else round
        if round not in self._cohorts:
            if len(self._cohorts) >= MOST_COHORTS:
                self._cohorts.clear()
            self._cohorts[round] = frozenset(self.partners(round, self.peers.live()))
        return self._cohorts[round]
