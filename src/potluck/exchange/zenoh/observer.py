"""An observer: sees the nodes of a run and takes no part. It asks nobody, so it cannot tell a node
from a recording of it that is newer than all it has heard; nothing is decided by what it believes.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress

import zenoh
from msgspec import structs

from potluck.exchange.base import Reason
from potluck.exchange.protocol.believed import VERIFIED_PER_S, Believed
from potluck.exchange.protocol.peers import NOBODY, Peer, Peers
from potluck.exchange.protocol.signed import (
    ANNOUNCEMENTS,
    STATUS_LINES,
    AnySigned,
    Payload,
)
from potluck.exchange.zenoh.channels import Channels
from potluck.exchange.zenoh.session import Endpoints, open_session
from potluck.reports.status import PeerLine
from potluck.types import NODE_NAME

SWEEP_S = 0.1
PRESENCES, OTHERS = 4096, 4096
"""Changes of presence, and announcements or lines, that wait for the next sweep."""
MOST_NAMES = 4096
LOOKED_AT = 8
"""Announcements, and lines, of one name that are looked at of those that came together."""


@contextmanager
def observe(endpoints: Endpoints, run: str, roster: Mapping[str, bytes]) -> Iterator["Observer"]:
    """Watch ``run`` at ``endpoints``, which need not be there yet. ``roster`` has the key that each
    name must sign with; it may be empty. Raise ExchangeError as ``open_session``."""
    # A peer connects to the nodes that its addresses know, too; a client has one connection.
    session = open_session(endpoints, run=run, mode="peer")
    with closing(session), closing(Observer(session, run, roster)) as observer:
        yield observer


class Observer:
    """The nodes of ``run`` that ``session`` sees. Any thread may ask."""

    def __init__(self, session: zenoh.Session, run: str, roster: Mapping[str, bytes]) -> None:
        self._session, self.roster = session, frozenset(roster)
        self._sightings = Sightings(run, roster)
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._failure: Exception | None = None
        self._announced = Channels(session, f"{run}/ann", roster, others=OTHERS)
        self._lines = Channels(session, f"{run}/status", roster, others=OTHERS)
        # None of these may be lost: Zenoh waits while the channel is full.
        self._present = session.liveliness().declare_subscriber(
            f"{run}/live/*", zenoh.handlers.FifoChannel(PRESENCES), history=True
        )
        self._presences = self._present.handler
        self._thread = threading.Thread(target=self._watch, name="observe the run", daemon=True)
        self._thread.start()

    def seen(self) -> dict[str, PeerLine]:
        """Return the nodes as they are now, by name; raise the error that ended the watching."""
        if self._failure:
            raise self._failure
        with self._lock:
            return self._sightings.seen(time.monotonic(), time.time())

    def is_connected(self) -> bool:
        return bool(self._session.info.peers_zid() or self._session.info.routers_zid())

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        for each in (self._present, self._announced, self._lines):
            each.undeclare()

    def _watch(self) -> None:
        try:
            while not self._closed.wait(SWEEP_S):
                self._sweep(time.monotonic())
        except Exception as error:
            self._failure = error

    def _sweep(self, now_s: float) -> None:
        announced, lines = self._announced.take(), self._lines.take()
        with self._lock:
            with suppress(zenoh.ZError):  # The session was closed.
                while (sample := self._presences.try_recv()) is not None:
                    name = str(sample.key_expr).rpartition("/")[2]
                    self._sightings.on_presence(name, sample.kind == zenoh.SampleKind.PUT)
            for name, payloads in announced.items():
                self._sightings.hear(name, payloads, now_s)
            for name, payloads in lines.items():
                self._sightings.hear_lines(name, payloads, now_s)


class Sightings:
    """The nodes of ``run``. Those of ``roster`` need its keys; others the first of their name.
    Pure: the caller passes the time, in seconds of a clock that never goes back."""

    def __init__(self, run: str, roster: Mapping[str, bytes]) -> None:
        self._roster = dict(roster)
        self._peers = Peers("", roster, quarantine_s=0.0, strangers=MOST_NAMES)
        self._live: set[str] = set()
        # 1,000 nodes make 200 announcements a second.
        self._announced = Believed(run, ANNOUNCEMENTS, most_per_s=2 * VERIFIED_PER_S)
        self._lines = Believed(run, STATUS_LINES)

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
        """Look at announcements under ``name``, oldest first."""
        if peer := self._hear(self._announced, name, payloads, now_s):
            offers = self._announced.newest[name].offers()
            peer.offered = frozenset(offer.round for offer in offers)

    def hear_lines(self, name: str, payloads: Sequence[Payload], now_s: float) -> None:
        """Look at status lines under ``name``, oldest first."""
        self._hear(self._lines, name, payloads, now_s)

    def _hear(
        self, source: Believed[AnySigned], name: str, payloads: Sequence[Payload], now_s: float
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
            if len(source.newest) > 2 * MOST_NAMES:
                self._forget_gone()
            peer.public, peer.live = source.newest[name].public, name in self._live
            peer.heard_s = now_s
        return peer

    def seen(self, now_s: float, clock_s: float) -> dict[str, PeerLine]:
        """Return each node of the roster, and each other that has signed something."""
        self._forget_gone()
        names, found = self._peers.names(), {}
        for name, peer in self._peers.status(now_s, clock_s).items():
            if name in names:  # under others messages were refused
                newest, told = self._peers.newest_offer(name, -1), self._lines.newest.get(name)
                round, line = None if newest < 0 else newest, told.line if told else None
                found[name] = structs.replace(peer, newest_round=round, line=line)
        return found

    def _forget_gone(self) -> None:
        for source in (self._announced, self._lines):
            for gone in source.newest.keys() - self._peers.names():
                source.forget(gone)

    def _refuse(self, name: str, reason: Reason, count: int = 1) -> None:
        self._peers.refused(name, reason, fault=False, now_s=0.0, count=count)
