"""State of each other node: connected, in quarantine, and what it tells of itself."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from potluck.exchange.base import Reason, WireError
from potluck.exchange.keys.keys import STRANGERS, verify
from potluck.exchange.protocol.signed import (
    MAX_OFFERS,
    STATUS,
    Announcement,
    Payload,
    SignedStatus,
    read_signed,
)
from potluck.reports.status import PeerLine

MOST_FAULTS = 3
LONGEST_QUARANTINE_S = 3600.0
FORGIVEN_AFTER = 50
"""Rounds in time that make up for one stall; with few, one could cause a stall every few rounds."""
HEARD_S = 15.0
"""Seconds after its last announcement for which a node is awaited, if there are not many."""
SLACK_S = 2.0
"""Seconds beyond three announcements for which a node may be silent."""
LINES_PER_S, WRONG_LINES_PER_S = 200, 10
"""Most status lines that are verified in a second: in all, and wrong ones under one name."""
NOBODY = "?"
"""Key under which messages with an invalid or surplus sender name are counted."""


def announcement_pause_s(nodes: int) -> float:
    """Return the seconds between two announcements of each of ``nodes``: what a node hears does not
    grow beyond 16 a second up to 80 nodes, and beyond 200 a second from 1,000 on."""
    return max(1.0, min(nodes / 16, 5.0), nodes / 200)


def silent_after_s(nodes: int) -> float:
    return 3 * announcement_pause_s(nodes) + SLACK_S


def heard_s(nodes: int) -> float:
    """Return how long after its last announcement one of ``nodes`` is awaited."""
    return max(HEARD_S, silent_after_s(nodes))


@dataclass(slots=True)
class Peer:
    live: bool = False
    """True while its presence is declared. A hint: it is not signed."""
    public: bytes = b""
    """Key it signs with; empty until an announcement of it was believed."""
    announcement: Announcement | None = None
    """Newest announcement that was believed; the peer's key has confirmed its session."""
    heard_s: float = float("-inf")
    """Time at which the peer made that announcement: one that is held back keeps nobody alive."""
    clock_offset_s: float = 0.0
    """This node's time less the peer's ``clock_s``, from the peer's last answer to a question."""
    offered: frozenset[int] = frozenset()
    """Rounds in that announcement."""
    came: set[int] = field(default_factory=set)
    """Newest rounds of which a valid batch of it came, 64 at most."""
    faults: int = 0
    """Proven faults, less the valid batches that it sent since."""
    quarantines: int = 0
    quarantined_until_s: float = 0.0
    stalls: int = 0
    """Rounds that waited in vain for it until the deadline, less those it made up for."""
    in_time: int = 0
    """Rounds in time since its last stall, or since it made up for one."""
    stalled_in: int | None = None
    """Round that waited in vain for it; None once it is awaited again."""

    @property
    def newest(self) -> int | None:
        """Return the newest round of which a valid batch of it came, or None. A round above all
        that it offers now is left out: a far claim counts no longer than it is made."""
        claimed = max(self.offered, default=-1)
        return max((round for round in self.came if round <= claimed), default=None)


class Peers(dict[str, Peer]):
    """Members from the start; strangers as they come, ``STRANGERS`` at most."""

    def __init__(self, me: str, members: Collection[str], *, quarantine_s: float) -> None:
        super().__init__({name: Peer() for name in sorted(members) if name != me})
        self._me, self._quarantine_s = me, quarantine_s
        self.members = frozenset(self)
        self._refused: dict[str, Counter[Reason]] = {}
        self._told: Counter[str] = Counter()

    def welcome(self, name: str) -> Peer | None:
        """Return the peer, remembering a stranger from now on; None if it is one too many."""
        if name not in self and name != self._me and self._make_room():
            self[name] = Peer()
        return self.get(name)

    def confirmed(self) -> dict[str, tuple[bytes, bytes]]:
        """Return the key, and the confirmed session, of each peer that has one."""
        return {n: (p.public, p.announcement.session) for n, p in self.items() if p.announcement}

    def live(self) -> set[str]:
        return {name for name, peer in self.items() if peer.live}

    def newest_offer(self, name: str, known: int) -> int:
        """Return the newest round that the peer offers, at least ``known``, which came from it."""
        peer = self.get(name)
        return max(known, max(peer.offered, default=known)) if peer else known

    def has_priority(self, name: str) -> bool:
        """Return whether no member is kept waiting for it: it is one, or there are none."""
        return not self.members or name in self.members

    def awaited(self, in_time_before: Collection[str], now_s: float) -> set[str]:
        """Return the names that a round waits for: members, and strangers that were in time before,
        if they were believed and heard a moment ago: anybody can declare mere presence."""
        return {
            name
            for name in self.live() - set(self.quarantined(now_s))
            if name in self.members or name in in_time_before
            if (peer := self[name]).public and now_s - peer.heard_s <= heard_s(len(self))
            if peer.stalled_in is None
        }

    def stalled(self, name: str, round: int) -> None:
        """Note that ``round`` waited in vain for the peer, until the deadline."""
        if peer := self.get(name):
            peer.stalls, peer.in_time, peer.stalled_in = peer.stalls + 1, 0, round

    def was_in_time(self, name: str) -> None:
        """Note a batch that was here when its round was closed."""
        if peer := self.get(name):
            peer.in_time += 1
            if peer.stalls and peer.in_time >= FORGIVEN_AFTER:
                peer.stalls, peer.in_time = peer.stalls - 1, 0

    def back_in_time(self, round: int, oldest: int) -> list[str]:
        """Return the stalled peers that are awaited again from ``round`` on: those of which a batch
        of a round from ``oldest`` to ``round`` came since, 2^stalls rounds after the stall at the
        earliest. A batch in time is not asked for: nodes that go on without a healthy one are
        always a little ahead of it. One that is never in time costs O(log rounds) deadlines."""
        back = []
        for name, peer in self.items():
            if peer.stalled_in is None or round < peer.stalled_in + 2**peer.stalls:
                continue
            if any(max(oldest, peer.stalled_in) <= came <= round for came in peer.came):
                peer.stalled_in = None
                back.append(name)
        return sorted(back)

    def delivered(self, name: str, round: int) -> None:
        """Note a valid batch, which makes up for one fault."""
        if (peer := self.get(name)) is None:
            return  # A stranger that had to make room meanwhile.
        peer.faults = max(0, peer.faults - 1)
        claimed = max(peer.offered, default=round)
        peer.came = set(sorted({r for r in peer.came if r <= claimed} | {round})[-MAX_OFFERS:])

    def refused(
        self, name: str, reason: Reason, *, fault: bool, now_s: float, count: int = 1
    ) -> float:
        """Count ``count`` refusals under ``name``; return the seconds of quarantine from now on, or
        0. Only a ``fault``, which its key signed, leads there: no forger silences another."""
        peer = self.get(name)
        # The number of names under which anything is counted is bounded.
        is_known = peer or name in self._refused or len(self._refused) < len(self) + STRANGERS
        self._refused.setdefault(name if is_known else NOBODY, Counter())[reason] += count
        if peer is None or not fault:
            return 0.0
        peer.faults += 1
        if peer.faults < MOST_FAULTS or not self._quarantine_s:
            return 0.0
        silence_s = min(self._quarantine_s * 2.0 ** min(peer.quarantines, 32), LONGEST_QUARANTINE_S)
        peer.faults, peer.quarantines = 0, peer.quarantines + 1
        peer.quarantined_until_s = now_s + silence_s
        return silence_s

    def is_quarantined(self, name: str, now_s: float) -> bool:
        peer = self.get(name)
        return peer is not None and now_s < peer.quarantined_until_s

    def quarantined(self, now_s: float) -> tuple[str, ...]:
        return tuple(sorted(n for n in self if self.is_quarantined(n, now_s)))

    def take_refused(self) -> dict[str, int]:
        """Return the number of refusals under each name since the last call."""
        totals = Counter({name: why.total() for name, why in self._refused.items()})
        new, self._told = totals - self._told, totals
        return dict(sorted(new.items()))

    def status(self, now_s: float, clock_s: float) -> dict[str, PeerLine]:
        """Return a line for each peer, and each name refused; ``clock_s``: seconds since 1970."""
        since_s = clock_s - now_s
        refused = {n: {str(why): c for why, c in of.items()} for n, of in self._refused.items()}
        return {name: PeerLine(refused=counts) for name, counts in refused.items()} | {
            name: PeerLine(
                live=peer.live,
                heard_s=round(since_s + peer.heard_s, 1) if peer.public else None,
                newest_round=peer.newest,
                quarantined_until_s=since_s + peer.quarantined_until_s
                if self.is_quarantined(name, now_s)
                else 0.0,
                refused=refused.get(name, {}),
            )
            for name, peer in self.items()
        }

    def median_round(self) -> int:
        """Return the median of the connected members' newest rounds, or 0; of two in the middle the
        lower one. A peer that has sent nothing counts as 0. One of three that claims to be far
        ahead cannot move it. Strangers count only without members."""
        counted = (n for n in self.live() if self.has_priority(n))
        newest = sorted(self[n].newest or 0 for n in counted)
        return newest[(len(newest) - 1) // 2] if newest else 0

    def _make_room(self) -> bool:
        strangers = {name: peer for name, peer in self.items() if name not in self.members}
        if len(strangers) < STRANGERS:
            return True
        gone = [n for n, peer in strangers.items() if not peer.live and not peer.quarantines]
        if gone:
            del self[min(gone, key=lambda name: strangers[name].heard_s)]
        return bool(gone)


class StatusLines:
    """The newest line of each node that is believed, and counts of lines that were refused."""

    def __init__(self, run: str, me: str) -> None:
        self._run, self._me = run, me
        self._counted_since_s, self._verified = float("-inf"), 0
        self._wrong: Counter[str] = Counter()
        self._newest: dict[str, SignedStatus] = {}
        self._refused: dict[str, Counter[str]] = {}

    def hear(
        self,
        said: Mapping[str, Sequence[Payload]],
        signers: Mapping[str, tuple[bytes, bytes]],
        now_s: float,
    ) -> None:
        """Look at what came under each name, oldest first. Those of ``signers`` may have a line, by
        their key and in their confirmed session; lines of others are counted."""
        if now_s - self._counted_since_s >= 1:
            self._wrong.clear()
            self._verified, self._counted_since_s = 0, now_s
        for name in (self._newest.keys() | self._refused.keys()) - signers.keys() - {NOBODY}:
            self._newest.pop(name, None)
            self._refused.pop(name, None)
        for name, payloads in said.items():
            if name not in signers:
                if name != self._me:
                    self._refused.setdefault(NOBODY, Counter())["unknown sender"] += len(payloads)
                continue
            for payload in reversed(payloads):
                try:
                    if self._is_news(name, payload, *signers[name]):
                        break
                except WireError as error:
                    self._refused.setdefault(name, Counter())[error.reason] += 1

    def added_to(self, peers: dict[str, PeerLine]) -> dict[str, PeerLine]:
        """Return ``peers`` with what each of them tells, and what was refused of that."""
        added = {}
        for name in self._newest.keys() | self._refused.keys():
            peer, newest = peers.get(name, PeerLine()), self._newest.get(name)
            counts = dict(Counter(peer.refused) + self._refused.get(name, Counter()))
            added[name] = replace(peer, line=newest.line if newest else None, refused=counts)
        return peers | added

    def _is_news(self, name: str, payload: Payload, public: bytes, session: bytes) -> bool:
        """Believe a line if it is later than the last one: two relays deliver twice."""
        told = read_signed(SignedStatus, payload, run=self._run, node=name)
        last = self._newest.get(name)
        if told.public != public:
            raise WireError(f"a status line under {name!r} is not by its key", "forged")
        is_old = last and last.session == session and told.line.time_s <= last.line.time_s
        if told.session != session or is_old:
            return False
        if self._wrong[name] >= WRONG_LINES_PER_S or self._verified >= LINES_PER_S:
            return False
        self._verified += 1
        self._wrong[name] += 1
        verify(STATUS, bytes(payload), public)
        self._wrong[name] -= 1
        self._newest[name] = told
        return True
