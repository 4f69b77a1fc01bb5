"""One node on the network: what it declares there, and the threads that say, hear and serve.

    <run>/live/<node>         presence: a liveliness token
    <run>/ann/<node>          an announcement, with every new batch and once a second
    <run>/q/<node>/<round>    a queryable: the sealed batch

Nothing is fetched, put or answered from a callback of Zenoh, and every channel from it has a size.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import zenoh

from potluck.exchange.announcement import (
    MAX_ANNOUNCEMENT_BYTES,
    decode_announcement,
    encode_announcement,
)
from potluck.exchange.base import WireError
from potluck.exchange.crew import Crew
from potluck.exchange.fetching import Fetching
from potluck.exchange.identity import Key
from potluck.exchange.mailbox import Mailbox
from potluck.exchange.peers import NOBODY
from potluck.exchange.shelf import Shelf
from potluck.exchange.terms import Terms
from potluck.exchange.trust import Trust
from potluck.types import NODE_NAME

CLOSE_S = 5.0
SERVERS = 4
QUERIES, ANNOUNCEMENTS, PRESENCES = 256, 1024, 1024

_Item = TypeVar("_Item")


class Station:
    """Fills ``mailbox`` and empties ``shelf``, from when it is made until it is closed."""

    def __init__(
        self,
        session: zenoh.Session,
        terms: Terms,
        key: Key,
        trust: Trust,
        shelf: Shelf,
        mailbox: Mailbox,
    ) -> None:
        self._session, self._terms, self._key, self._trust = session, terms, key, trust
        self._shelf, self._mailbox = shelf, mailbox
        self._lock = threading.RLock()
        self.changed = threading.Condition(self._lock)
        """Its lock guards ``mailbox``; notified when something there is new."""
        self._to_announce = threading.Condition(self._lock)
        self._due_s = 0.0
        self._closed = False
        self.crew = Crew(terms.node)
        self._fetching = Fetching(session, terms, mailbox, self._lock, self.changed, self.crew)
        self._join()

    def _join(self) -> None:
        """Last of all the token: whoever sees it can ask this node for everything."""
        run, me, channel = self._terms.run, self._terms.node, zenoh.handlers
        # Rings: what is full must not hold up the threads of Zenoh, which everybody's messages
        # come through. A query that is pushed out is answered with nothing, and asked again.
        served = self._session.declare_queryable(f"{run}/q/{me}/*", channel.RingChannel(QUERIES))
        heard = self._session.declare_subscriber(
            f"{run}/ann/*",
            channel.RingChannel(ANNOUNCEMENTS),
            allowed_origin=zenoh.Locality.REMOTE,
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
        self._undeclare: list[Callable[[], object]] = [token.undeclare, heard.undeclare]
        self._undeclare += [seen.undeclare, served.undeclare]
        # Of the handlers, not of what was declared: that could not be undeclared meanwhile.
        queries, samples, presences = served.handler, heard.handler, seen.handler
        for _ in range(SERVERS):
            self.crew.start("serve batches", lambda: self._serve(queries))
        self.crew.start("hear the others", lambda: self._hear(samples))
        self.crew.start("see the others", lambda: self._see(presences))
        self.crew.start("announce batches", self._announce)

    def announce(self) -> None:
        """Says what is on the shelf, at once."""
        with self._lock:
            self._due_s = 0.0
            self._to_announce.notify()

    def close(self) -> None:
        """Leaves, and ends all threads; the second time nothing happens."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._to_announce.notify_all()
        self._fetching.close()
        for undeclare in self._undeclare:
            undeclare()
        self.crew.join(CLOSE_S)
        with suppress(RuntimeError):  # A put that a dead link holds up still borrows it.
            self._publisher.undeclare()

    def _announce(self) -> None:
        while not self._closed:
            with self._lock:  # Before it looks at the shelf: what comes after is due at once.
                self._due_s = time.monotonic() + self._pause_s() * random.uniform(0.8, 1.2)
            said = encode_announcement(
                self._terms.run,
                self._terms.node,
                self._key,
                self._shelf.offers(),
                clock_s=time.time(),
            )
            try:
                self._publisher.put(said)
            except zenoh.ZError:
                if self._session.is_closed() and not self._closed:
                    raise
            with self._to_announce:
                while not self._closed and (left_s := self._due_s - time.monotonic()) > 0:
                    self._to_announce.wait(left_s)

    def _pause_s(self) -> float:
        """Everybody hears everybody: with many peers each speaks less often."""
        return min(max(1.0, len(self._mailbox.peers) / 16), 5.0)

    def _announce_soon(self) -> None:
        """Somebody came and knows nothing of this node's batches. Where many come, one
        announcement is for several of them. The lock is held."""
        soon_s = time.monotonic() + len(self._mailbox.peers) * 0.02
        self._due_s = min(self._due_s, soon_s)
        self._to_announce.notify()

    def _serve(self, queries: zenoh.handlers.Handler[zenoh.Query]) -> None:
        for query in self._each(queries):
            with query:
                number = str(query.key_expr).rpartition("/")[2]
                sealed = self._shelf.get(int(number)) if _is_number(number) else None
                if sealed is None:
                    continue
                with suppress(zenoh.ZError):  # Whoever asked is gone; who is not asks again.
                    query.reply(query.key_expr, sealed)

    def _see(self, presences: zenoh.handlers.Handler[zenoh.Sample]) -> None:
        for sample in self._each(presences):
            name = str(sample.key_expr).rpartition("/")[2]
            if name == self._terms.node or not NODE_NAME.fullmatch(name):
                continue
            with self._lock:
                if sample.kind == zenoh.SampleKind.PUT:
                    self._mailbox.came(name)
                    self._announce_soon()
                else:
                    self._mailbox.went(name)
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
        """Raises:
        WireError: it is no announcement of ``name``, or ``name`` may not take part.
        """
        if not NODE_NAME.fullmatch(name):
            raise WireError(f"{name[:64]!r} is no name of a node")
        if len(payload) > MAX_ANNOUNCEMENT_BYTES:
            raise WireError(f"an announcement of {len(payload)} bytes is too long")
        said = payload.to_bytes()
        with self._lock:
            if not self._mailbox.is_news(name, said, time.monotonic()):
                return
        announcement = decode_announcement(said, run=self._terms.run, node=name)
        if name == self._terms.node:
            raise WireError("somebody else announces under this node's name; is it started twice?")
        if self._trust.public_key(name, announcement.public) != announcement.public:
            raise WireError(f"{name!r} signs with another key than it should")
        with self._lock:
            self._mailbox.hear(announcement, said, time.monotonic())
            self.changed.notify_all()
            self._fetching.wake()

    def _each(self, channel: zenoh.handlers.Handler[_Item]) -> Iterator[_Item]:
        """What comes, until this node leaves."""
        while True:
            try:
                item = channel.recv()
            except zenoh.ZError:
                if self._closed:
                    return
                raise
            yield item


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10
