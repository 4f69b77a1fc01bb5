"""What came, from whom, and what is waited for: the state of a node's exchange.

Pure: no thread, no network, and whoever calls says what time it is, in seconds of a clock that
never goes back.
"""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from potluck.exchange.announcement import Announcement, Offer
from potluck.exchange.base import WireError
from potluck.exchange.peers import Peer, Peers
from potluck.exchange.wanted import Wanted
from potluck.types import Completion

AT_THE_DOOR = 1000
"""Names that are there and have said nothing yet; also those of whom was told what is refused."""
MOST_NEWS = 1000
"""That nobody has asked for yet; then the oldest are forgotten."""

Partners = Callable[[int, Collection[str]], Collection[str]]
"""Of a round and the others' names: those whose completions are fetched in it."""


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """A batch that can be used."""

    author: str
    round: int
    sealed: bytes
    completions: tuple[Completion, ...]


class Mailbox:
    """Filled by the threads that listen and fetch, emptied by ``take``; one lock guards it."""

    def __init__(
        self,
        peers: Peers,
        wanted: Wanted,
        partners: Partners,
        *,
        max_staleness: int,
        kept_rounds: int,
        size_limit_bytes: int,
    ) -> None:
        self.peers, self.wanted, self._partners = peers, wanted, partners
        self._max_staleness, self._kept_rounds = max_staleness, kept_rounds
        self._size_limit_bytes = size_limit_bytes
        self._first: int | None = None
        self._latest = 0
        self._awaited: dict[int, set[str]] = {}
        self._here: dict[tuple[int, str], Delivery] = {}
        self._in_time: tuple[int, frozenset[str]] = (-1, frozenset())
        self._news: deque[str] = deque(maxlen=MOST_NEWS)
        self._told: set[str] = set()
        self._at_the_door: set[str] = set()
        self._received_bytes = 0

    def begin(self, round: int, now_s: float) -> None:
        """This node is in ``round`` from now on: whoever is here now is waited for.

        Of strangers those whose batch of the round before was in time: one that is always late
        would else make every round last.
        """
        if round in self._awaited:
            return
        self._first = round if self._first is None else min(self._first, round)
        self._latest = max(self._latest, round)
        live = self.peers.live()
        last, in_time = self._in_time
        before = in_time if last == round - 1 else frozenset()
        partners = set(self._partners(round, live))
        self._awaited[round] = self.peers.awaited(before, now_s) & partners
        floor = self._first - self._max_staleness
        self.wanted.drop(lambda _, offered: offered < floor)
        self._here = {key: here for key, here in self._here.items() if key[0] >= floor}

    def came(self, name: str) -> None:
        """``name`` is there. In a round that has begun it is not waited for."""
        peer = self.peers.get(name)
        if peer is None and len(self._at_the_door) < AT_THE_DOOR:
            self._at_the_door.add(name)
        if peer and not peer.live:
            peer.live = True
            self._tell_of(name, "joined")

    def went(self, name: str) -> None:
        self._at_the_door.discard(name)
        peer = self.peers.get(name)
        if peer and peer.live:
            peer.live = False
            self._tell_of(name, "left")
        self.wanted.forget(name)  # When it is back it says again what it has.
        for awaited in self._awaited.values():
            awaited.discard(name)

    def is_news(self, name: str, said: bytes, now_s: float) -> bool:
        """Whether an announcement under the name of ``name`` is worth a look at its signature.

        One that was believed is not, but its node has been heard.
        """
        peer = self.peers.get(name)
        if peer and peer.said == said:
            peer.heard_s = now_s
            return False
        return not self.peers.is_quarantined(name, now_s)

    def hear(self, announcement: Announcement, said: bytes, now_s: float) -> None:
        """Notes what is to be fetched. The announcement is ``node``'s beyond doubt."""
        author = announcement.node
        peer = self._welcome(author)
        if peer is None:
            self.refuse(author, WireError("it is one stranger too many"), now_s)
            return
        peer.public, peer.said, peer.heard_s = announcement.public, said, now_s
        peer.offered = frozenset(offer.round for offer in announcement.offers)
        offers = []
        for offer in announcement.offers:
            if offer.size_bytes <= self._size_limit_bytes:
                offers.append(offer)
            elif self.wanted.settle(author, offer, valid=False):
                self.refuse(author, self._too_large(offer), now_s, fault=True)
        if self.peers.is_quarantined(author, now_s):
            return
        newest = announcement.offers[-1].round if announcement.offers else 0
        live = self.peers.live() | {author}
        changed = self.wanted.hear(
            author, offers, lambda round: self._is_of_use(author, round, newest, live), now_s
        )
        for offer in changed:
            error = WireError(f"its batch of round {offer.round} is another than it was before")
            self.refuse(author, error, now_s)

    def deliver(self, delivery: Delivery, offer: Offer) -> None:
        """A batch came that can be used. The first of a round stays."""
        if self.wanted.settle(delivery.author, offer, valid=True):
            self._here[delivery.round, delivery.author] = delivery
            self.peers.delivered(delivery.author, delivery.round)
            self._make_room(delivery.author)

    def refuse(self, name: str, error: WireError, now_s: float, *, fault: bool = False) -> None:
        """Counts what came under ``name``; ``fault``: it is its own beyond doubt."""
        silence_s = self.peers.refused(name, fault=fault, now_s=now_s)
        if silence_s:
            self.wanted.forget(name)
            self._news.append(f"{name!r} is not listened to for {silence_s:g} s: {error}")
        elif name not in self._told and len(self._told) < AT_THE_DOOR:
            self._told.add(name)
            self._news.append(f"refused from {name!r}: {error}")

    def had(self, author: str, offer: Offer) -> None:
        """Its batch was taken in an earlier life of this node."""
        self.wanted.settle(author, offer, valid=True)

    def received(self, size_bytes: int) -> None:
        self._received_bytes += size_bytes

    def standing(self, round: int, now_s: float) -> tuple[set[str], set[str]]:
        """(those waited for in ``round`` of whom a batch is here, all waited for)."""
        awaited = self._awaited.get(round, set()) - set(self.peers.quarantined(now_s))
        here = {name for name in awaited if self.wanted.came(name, round)}
        return here, {name for name in awaited if name in here or not self._is_past(name, round)}

    def _is_past(self, name: str, round: int) -> bool:
        """Whether ``name`` has rounds after ``round`` but not that one, which it left out."""
        peer = self.peers.get(name)
        if peer is None or round in peer.offered or self.wanted.is_to_come(name, round):
            return False
        return max(peer.offered, default=round) > round

    def missing(self, round: int, now_s: float) -> set[str]:
        """Members of whom nothing came, there or not, and strangers that were waited for."""
        here, awaited = self.standing(round, now_s)
        members = self.peers.members()
        counted = members & set(self._partners(round, self.peers.live() | members))
        return {n for n in (awaited - here) | counted if not self.wanted.came(n, round)}

    def take(self, round: int) -> list[Delivery]:
        """All of ``round`` and of rounds before, by round and author; each is taken once."""
        taken = sorted(key for key in self._here if key[0] <= round)
        self._awaited = {r: names for r, names in self._awaited.items() if r > round}
        self._in_time = round, frozenset(author for then, author in taken if then == round)
        return [self._here.pop(key) for key in taken]

    def take_news(self) -> list[str]:
        news = list(self._news)
        self._news.clear()
        return news

    def take_received_bytes(self) -> int:
        size_bytes, self._received_bytes = self._received_bytes, 0
        return size_bytes

    def absent(self) -> set[str]:
        """Members that are not there, or of whose last batch nothing is known yet."""
        return {name for name in self.peers.members() if not self._has_met(name)}

    def _has_met(self, name: str) -> bool:
        peer = self.peers.get(name)
        return bool(peer and peer.live and peer.public and not self.wanted.is_open(name))

    def _welcome(self, name: str) -> Peer | None:
        """A stranger is kept in mind from its first word that is believed."""
        if (known := self.peers.get(name)) or not (peer := self.peers.welcome(name)):
            return known
        self.wanted.only(self.peers.names())  # Somebody may have made room.
        peer.live = name in self._at_the_door
        self._at_the_door.discard(name)
        self._tell_of(name, "joined")
        return peer

    def _tell_of(self, name: str, what: str) -> None:
        """That ``name`` joined or left; of what nobody was told yet only the last is true."""
        states = f"{name!r} joined", f"{name!r} left"
        kept = (text for text in self._news if text not in states)
        self._news = deque([*kept, f"{name!r} {what}"], MOST_NEWS)

    def _make_room(self, author: str) -> None:
        """Far beyond this node's round only ``author``'s newest batch is kept, and before it is in
        any the newest few: else a peer could fill the memory. What goes can be fetched again."""
        held = sorted(round for round, name in self._here if name == author)
        if self._first is None:
            excess = held[: -1 - self._max_staleness]
        else:
            excess = [r for r in held if r > self._latest + self._kept_rounds][:-1]
        for round in excess:
            del self._here[round, author]
            self.wanted.lose(author, round)

    def _is_of_use(self, author: str, round: int, newest: int, live: Collection[str]) -> bool:
        """Whether a batch is fetched.

        All from this node's first round on, and some rounds before for what is learned from
        late; not far beyond the round it is in, but for the newest: it says where others are.
        Always that of somebody who is waited for, though others are partners by now.
        """
        if author in self._awaited.get(round, ()):
            return True
        if self._first is None:
            recent = round >= newest - self._max_staleness
        else:
            # 64 strangers could fill the memory with rounds that are not yet there.
            is_member = author in self.peers.members()
            ahead = self._latest + (self._kept_rounds if is_member else self._max_staleness)
            recent = round >= self._first - self._max_staleness
            recent &= round <= ahead or round == newest
        return recent and author in self._partners(round, live)

    def _too_large(self, offer: Offer) -> WireError:
        return WireError(
            f"its batch of round {offer.round} is announced with {offer.size_bytes} bytes; at most "
            f"{self._size_limit_bytes} are taken"
        )
