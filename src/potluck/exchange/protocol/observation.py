"""Knowledge of an observer about a run's nodes: a participant that is silent. Pure: no thread, no
network; the caller passes the time, in seconds of a clock that never goes back.

An observer asks nobody, so it cannot tell a node from a recording of it that is newer than all it
has heard. Nothing is decided by what it believes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from potluck.exchange.base import Reason
from potluck.exchange.protocol.announcement import ANNOUNCEMENTS, Announcement
from potluck.exchange.protocol.peers import NOBODY, Peer, Peers
from potluck.exchange.protocol.signed import VERIFIED_PER_S, Believed, Payload
from potluck.exchange.protocol.status import STATUS_LINES, SignedStatus
from potluck.reports.status import PeerLine
from potluck.types import NODE_NAME

MOST_NAMES = 4096
SLACK = 256
"""Names that had to make room and whose messages are still here: to look for them takes time."""
LOOKED_AT = 8
"""Announcements, and lines, of one name that are looked at of those that came together."""


class Observation:
    """The nodes of ``run``. Those of ``roster`` need its keys; others the first of their name."""

    def __init__(self, run: str, roster: Mapping[str, bytes]) -> None:
        self._roster = dict(roster)
        self._peers = Peers("", roster, quarantine_s=0.0, strangers=MOST_NAMES)
        self._live: set[str] = set()
        # 1,000 nodes make 200 announcements a second.
        most, whole = 2 * VERIFIED_PER_S, replace(ANNOUNCEMENTS, require_sense=_require_offers)
        self._announced = Believed(run, whole, most_per_s=most)
        self._lines = Believed(run, STATUS_LINES)
        self.refused: Counter[Reason] = Counter()
        """Messages that were not believed, under whatever name."""

    def on_presence(self, name: str, is_live: bool) -> None:
        """Note a hint: it is not signed, so it makes no stranger known."""
        peer = self._peers.get(name)
        if not is_live:
            self._live.discard(name)
        elif peer or (NODE_NAME.fullmatch(name) and len(self._live) < 2 * MOST_NAMES):
            self._live.add(name)
        if peer:
            peer.live = is_live

    def hear(self, name: str, payloads: Sequence[Payload], now_s: float) -> None:
        """Look at announcements that came under ``name``, oldest first."""
        if peer := self._hear(self._announced, name, payloads, now_s):
            offers = self._announced.newest[name].offers()
            peer.offered = frozenset(offer.round for offer in offers)

    def hear_lines(self, name: str, payloads: Sequence[Payload], now_s: float) -> None:
        """Look at status lines that came under ``name``, oldest first."""
        self._hear(self._lines, name, payloads, now_s)

    def _hear(
        self,
        source: Believed[Announcement] | Believed[SignedStatus],
        name: str,
        payloads: Sequence[Payload],
        now_s: float,
    ) -> Peer | None:
        """Return the node under ``name`` if one of its messages is believed."""
        if not NODE_NAME.fullmatch(name):
            self._refuse(NOBODY, "unknown sender", len(payloads))
            return None
        known = self._peers.get(name)
        public = self._roster.get(name) or (known.public if known else b"")
        is_believed = source.hear(name, payloads[-LOOKED_AT:], now_s, public=public)
        for reason, count in source.refused.pop(name, {}).items():
            self._refuse(name, reason, count)
        if not is_believed:
            return None
        peer = self._peers.welcome(name)
        if peer is None:
            source.forget(name)
            self._refuse(NOBODY, "unknown sender")
        else:
            self._forget_gone(SLACK)
            peer.public, peer.live = source.newest[name].public, name in self._live
            peer.heard_s = now_s
        return peer

    def seen(self, now_s: float, clock_s: float) -> dict[str, PeerLine]:
        """Return each node of the roster, and each other that has signed something; ``clock_s``:
        seconds since 1970 now."""
        self._forget_gone()
        names, found = self._peers.names(), {}
        for name, status in self._peers.status(lambda name: frozenset(), now_s).items():
            if name in names:  # under others messages were refused
                newest = self._peers.newest_offer(name, -1)
                newest_line = self._lines.newest.get(name)
                line = newest_line.line if newest_line else None
                seen = replace(status, newest_round=None if newest < 0 else newest, line=line)
                found[name] = seen.line_at(clock_s)
        return found

    def _forget_gone(self, slack: int = 0) -> None:
        """Forget the messages of names that made room, once there are more than ``slack``."""
        names = self._peers.names()
        for source in (self._announced, self._lines):
            if len(source.newest) > len(names) + slack:
                for gone in source.newest.keys() - names:
                    source.forget(gone)

    def _refuse(self, name: str, reason: Reason, count: int = 1) -> None:
        self.refused[reason] += count
        self._peers.refused(name, reason, fault=False, now_s=0.0, count=count)


def _require_offers(announcement: Announcement) -> None:
    ANNOUNCEMENTS.require_sense(announcement)
    announcement.offers()
