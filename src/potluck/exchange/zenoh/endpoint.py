"""One node on the network: its declarations, and the threads that announce, hear and serve.

    <run>/live/<node>         presence: a liveliness token
    <run>/ann/<node>          an announcement, with every new batch and once a second
    <run>/q/<node>/<round>    a queryable: the sealed batch

Nothing is fetched, put or answered in a callback of Zenoh, and every channel from it is bounded.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import zenoh

from potluck.exchange.base import WireError
from potluck.exchange.protocol.announcement import (
    MAX_ANNOUNCEMENT_BYTES,
    decode_announcement,
    encode_announcement,
)
from potluck.exchange.protocol.mailbox import Mailbox
from potluck.exchange.protocol.outbox import Outbox
from potluck.exchange.protocol.peers import NOBODY
from potluck.exchange.transport import Membership
from potluck.exchange.zenoh.fetcher import Fetcher, WorkerThreads
from potluck.types import NODE_NAME

CLOSE_S = 5.0
PAUSE_S = 1.0
"""Seconds between two announcements of a node with few peers."""
SERVERS = 4
QUERIES, ANNOUNCEMENTS, PRESENCES = 256, 1024, 1024

_Item = TypeVar("_Item")


class Endpoint:
    """The threads that fill ``mailbox`` and serve from ``outbox``, until it is closed."""

    def __init__(
        self, session: zenoh.Session, own: Membership, outbox: Outbox, mailbox: Mailbox
    ) -> None:
        self._session, self._own, self._agreement = session, own, own.agreement
        self._outbox, self._mailbox = outbox, mailbox
        self._lock = threading.RLock()
        self.changed = threading.Condition(self._lock)
        """Condition whose lock guards ``mailbox``; notified when something there is new."""
        self._to_announce = threading.Condition(self._lock)
        self._due_s = 0.0
        self._closed = False
        self.workers = WorkerThreads(own.agreement.node)
        locks = self.changed, self._lock
        self._fetcher = Fetcher(session, own.agreement, mailbox, *locks, self.workers)
        self._join()

    def _join(self) -> None:
        """Declare everything; the token comes last: a node that sees it can ask for all."""
        run, me, channel = self._agreement.run, self._agreement.node, zenoh.handlers
        # Rings: what is full must not hold up Zenoh's threads. A query that is pushed out is
        # answered with nothing, and asked again.
        served = self._session.declare_queryable(f"{run}/q/{me}/*", channel.RingChannel(QUERIES))
        heard = self._session.declare_subscriber(
            f"{run}/ann/*", channel.RingChannel(ANNOUNCEMENTS), allowed_origin=zenoh.Locality.REMOTE
        )
        seen = self._session.liveliness().declare_subscriber(
            f"{run}/live/*", channel.FifoChannel(PRESENCES), history=True
        )
        self._publisher = self._session.declare_publisher(
            f"{run}/ann/{me}",
            congestion_control=zenoh.CongestionControl.DROP,
            priority=zenoh.Priority.INTERACTIVE_HIGH,
            express=True,
        )
        token = self._session.liveliness().declare_token(f"{run}/live/{me}")
        undeclare = token.undeclare, heard.undeclare, seen.undeclare, served.undeclare
        self._undeclare: tuple[Callable[[], object], ...] = undeclare
        # Of the handlers, not of what was declared: that could not be undeclared meanwhile.
        queries, samples, presences = served.handler, heard.handler, seen.handler
        for _ in range(SERVERS):
            self.workers.start("serve batches", lambda: self._serve(queries))
        self.workers.start("hear the others", lambda: self._hear(samples))
        self.workers.start("see the others", lambda: self._see(presences))
        self.workers.start("announce batches", self._announce)

    def announce(self) -> None:
        """Announce the batches in the outbox at once."""
        with self._lock:
            self._due_s = 0.0
            self._to_announce.notify()

    def close(self) -> None:
        """Leave, and end all threads; a second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._to_announce.notify_all()
        self._fetcher.close()
        for undeclare in self._undeclare:
            undeclare()
        self.workers.join(CLOSE_S)
        with suppress(RuntimeError):  # A put that a dead link holds up still borrows it.
            self._publisher.undeclare()

    def _announce(self) -> None:
        while not self._closed:
            with self._lock:  # Before it looks at the outbox: what comes after is due at once.
                # With many peers each speaks less often.
                pause_s = max(PAUSE_S, min(len(self._mailbox.peers) / 16, 5.0))
                self._due_s = time.monotonic() + pause_s * random.uniform(0.8, 1.2)
            run, me, offers = self._agreement.run, self._agreement.node, self._outbox.offers()
            said = encode_announcement(run, me, self._own.key, offers, clock_s=time.time())
            try:
                self._publisher.put(said)
            except zenoh.ZError:
                if self._session.is_closed() and not self._closed:
                    raise
            with self._to_announce:
                while not self._closed and (left_s := self._due_s - time.monotonic()) > 0:
                    self._to_announce.wait(left_s)

    def _serve(self, queries: zenoh.handlers.Handler[zenoh.Query]) -> None:
        for query in self._each(queries):
            with query:
                number = str(query.key_expr).rpartition("/")[2]
                is_round = number.isascii() and number.isdecimal() and len(number) <= 10
                if is_round and (signed := self._outbox.get(int(number))) is not None:
                    with suppress(zenoh.ZError):  # The asker is gone, or asks again.
                        query.reply(query.key_expr, signed)

    def _see(self, presences: zenoh.handlers.Handler[zenoh.Sample]) -> None:
        for sample in self._each(presences):
            name = str(sample.key_expr).rpartition("/")[2]
            if name == self._agreement.node or not NODE_NAME.fullmatch(name):
                continue
            with self._lock:
                if sample.kind == zenoh.SampleKind.PUT:
                    self._mailbox.on_join(name)
                    # Announce to a node that came; once for several that come together.
                    soon_s = time.monotonic() + len(self._mailbox.peers) * 0.02
                    self._due_s = min(self._due_s, soon_s)
                    self._to_announce.notify()
                else:
                    self._mailbox.on_leave(name)
                self.changed.notify_all()

    def _hear(self, samples: zenoh.handlers.Handler[zenoh.Sample]) -> None:
        for sample in self._each(samples):
            name = str(sample.key_expr).rpartition("/")[2]
            try:
                self._believe(name, sample.payload)
            except WireError as error:
                with self._lock:
                    known = name if NODE_NAME.fullmatch(name) else NOBODY
                    self._mailbox.refuse(known, error, time.monotonic())
                    self.changed.notify_all()

    def _believe(self, name: str, payload: zenoh.ZBytes) -> None:
        """Pass on an announcement to the mailbox; raise WireError if it is none of ``name``, or
        ``name`` may not take part."""
        if not NODE_NAME.fullmatch(name):
            raise WireError(f"{name[:64]!r} is no name of a node", "unknown sender")
        if len(payload) > MAX_ANNOUNCEMENT_BYTES:
            raise WireError(f"an announcement of {len(payload)} bytes is too long", "too large")
        said = payload.to_bytes()
        with self._lock:
            if not self._mailbox.is_new(name, said, time.monotonic()):
                return
        announcement = decode_announcement(said, run=self._agreement.run, node=name)
        if name == self._agreement.node:
            what = "somebody else announces under this node's name; is it started twice?"
            raise WireError(what, "forged")
        self._own.known_keys.public_key(name, announcement.public)
        with self._lock:
            self._mailbox.on_announcement(announcement, said, time.monotonic())
            self.changed.notify_all()
            self._fetcher.wake()

    def _each(self, channel: zenoh.handlers.Handler[_Item]) -> Iterator[_Item]:
        """Yield what comes, until this node leaves."""
        while True:
            try:
                item = channel.recv()
            except zenoh.ZError:
                if self._closed:
                    return
                raise
            yield item
