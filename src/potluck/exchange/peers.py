"""What is known of each other node: whether it is there, and whether it is listened to.

Pure: whoever calls says what time it is, in seconds of a clock that never goes back.
"""

from collections import Counter
from collections.abc import Collection, Set
from dataclasses import dataclass

MOST_FAULTS = 3
LONGEST_QUARANTINE_S = 3600.0
STRANGERS = 64
"""Nodes beside the members that are kept in mind."""
HEARD_S = 15.0
"""For so long after its last announcement a node is waited for; it makes one every 1 to 5 s."""
NOBODY = "?"
"""Under which is counted what came under one name too many, or under none that a node may have."""


@dataclass(slots=True)
class Peer:
    is_member: bool
    live: bool = False
    """Its presence is declared. A hint: it goes and comes with the links, and is not signed."""
    public: bytes = b""
    """The key it signs with; empty until an announcement of it was believed."""
    said: bytes = b""
    """Its last announcement, as it came."""
    heard_s: float = float("-inf")
    """When that was. Who says it again in its place can only keep alive whom it has heard."""
    offered: frozenset[int] = frozenset()
    """The rounds in it."""
    newest: int | None = None
    """The newest round of which a valid batch of it came."""
    faults: int = 0
    """Its own beyond doubt, less the valid batches that it sent since."""
    quarantines: int = 0
    silenced_until_s: float = 0.0


class Peers:
    """Members from the start; strangers as they come, 64 at most."""

    def __init__(self, me: str, members: Collection[str], *, quarantine_s: float) -> None:
        self._me, self._quarantine_s = me, quarantine_s
        self._peers = {name: Peer(is_member=True) for name in sorted(members) if name != me}
        self._has_members = bool(self._peers)
        self._refused: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._peers)

    def get(self, name: str) -> Peer | None:
        """What is known of ``name``."""
        return self._peers.get(name)

    def welcome(self, name: str) -> Peer | None:
        """As ``get``, and a stranger is kept in mind from now on; None: it is one too many."""
        if name not in self._peers and name != self._me and self._make_room():
            self._peers[name] = Peer(is_member=False)
        return self._peers.get(name)

    def names(self) -> Set[str]:
        return self._peers.keys()

    def live(self) -> set[str]:
        return {name for name, peer in self._peers.items() if peer.live}

    def members(self) -> set[str]:
        """Those of the others."""
        return {name for name, peer in self._peers.items() if peer.is_member}

    def comes_first(self, name: str) -> bool:
        """Whether it is a member, or there are none else: then nobody is kept back for another."""
        peer = self._peers.get(name)
        return not self._has_members or (peer is not None and peer.is_member)

    def awaited(self, in_time_before: Collection[str], now_s: float) -> set[str]:
        """Who can be counted on: members, and strangers who were in time in the round before.

        Presence alone, which anybody can declare, does not count: only who was believed, and was
        heard a moment ago, can make a round last.
        """
        return {
            name
            for name in self.live() - set(self.quarantined(now_s))
            if (peer := self._peers[name]).is_member or name in in_time_before
            if peer.public and now_s - peer.heard_s <= HEARD_S
        }

    def delivered(self, name: str, round: int) -> None:
        """A valid batch came, which makes up for one fault."""
        if (peer := self._peers.get(name)) is None:
            return  # A stranger that had to make room meanwhile.
        peer.faults = max(0, peer.faults - 1)
        peer.newest = round if peer.newest is None else max(peer.newest, round)

    def refused(self, name: str, *, fault: bool, now_s: float) -> float:
        """Something of ``name`` was refused; returns for how long it is silenced from now, or 0.

        ``fault``: it was signed by its key. Else somebody may have forged it, and who can forge
        must not be able to silence: it is only counted.
        """
        peer = self._peers.get(name)
        bounded = peer or name in self._refused or len(self._refused) < len(self) + STRANGERS
        self._refused[name if bounded else NOBODY] += 1
        if peer is None or not fault:
            return 0.0
        peer.faults += 1
        if peer.faults < MOST_FAULTS or not self._quarantine_s:
            return 0.0
        silence_s = min(self._quarantine_s * 2.0 ** min(peer.quarantines, 32), LONGEST_QUARANTINE_S)
        peer.faults, peer.quarantines = 0, peer.quarantines + 1
        peer.silenced_until_s = now_s + silence_s
        return silence_s

    def is_quarantined(self, name: str, now_s: float) -> bool:
        peer = self._peers.get(name)
        return peer is not None and now_s < peer.silenced_until_s

    def quarantined(self, now_s: float) -> tuple[str, ...]:
        return tuple(sorted(n for n in self._peers if self.is_quarantined(n, now_s)))

    def take_refused(self) -> dict[str, int]:
        """What was refused since this was last asked, by name."""
        taken, self._refused = dict(sorted(self._refused.items())), Counter()
        return taken

    def median_round(self) -> int:
        """Of the newest rounds of members that are there; where nobody else is, 0.

        Who has sent nothing counts as 0, and of two in the middle it is the lower: so one of three
        who claims to be far ahead cannot move it beyond where another is. Strangers count only
        where the run has no other members.
        """
        counted = (n for n in self.live() if self.comes_first(n))
        newest = sorted(self._peers[n].newest or 0 for n in counted)
        return newest[(len(newest) - 1) // 2] if newest else 0

    def _make_room(self) -> bool:
        """A stranger that is gone makes room for one that comes, but not one in quarantine."""
        strangers = [name for name, peer in self._peers.items() if not peer.is_member]
        if len(strangers) < STRANGERS:
            return True
        gone = [n for n in strangers if not (p := self._peers[n]).live and not p.quarantines]
        if gone:
            del self._peers[gone[0]]
        return bool(gone)
