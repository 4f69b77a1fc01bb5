"""One node on the network: its declarations, and the threads that announce, hear and serve.

    <run>/live/<node>         presence: a liveliness token
    <run>/ann/<node>          an announcement, with every new batch and once a second
    <run>/q/<node>/<round>    a queryable: the sealed batch
    <run>/q/<node>/hello      asked with a challenge: proof that the node is there
    <run>/status/<node>       a status line, for people (``reports/status.py``)

Nothing is fetched, put or answered in a callback of Zenoh, and every channel from it is bounded.
Announcements under each name have a channel of their own, so a flood under one pushes out no other;
one thread empties them all, fifty times a second.
"""

import random
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, TypeVar

import zenoh

from potluck.exchange.protocol.announcement import (
    CHALLENGE_BYTES,
    HELLO,
    encode_announcement,
    encode_answer,
)
from potluck.exchange.protocol.beliefs import Beliefs
from potluck.exchange.protocol.mailbox import Mailbox
from potluck.exchange.protocol.outbox import Outbox
from potluck.exchange.protocol.peers import announcement_pause_s
from potluck.exchange.protocol.signed import SESSION_BYTES
from potluck.exchange.transport import Membership
from potluck.exchange.zenoh.channels import Channels, names_alone
from potluck.exchange.zenoh.fetcher import Fetcher, WorkerThreads
from potluck.exchange.zenoh.status import StatusChannel
from potluck.types import NODE_NAME

CLOSE_S = 5.0
SERVERS = 4
QUERIES, PRESENCES = 256, 1024
HELLOS_PER_S = 200
"""Most questions whether this node is there that are answered in a second, and that wait."""
SWEEP_S, SILENCE_S = 0.02, 1.0
"""Seconds between two looks at what was announced, and for names that were not heard."""
SWEPT = 512
"""Announcements of known names that are kept between two looks, and of all if there are many. With
16 of a name a flood costs less and pushes the true ones out: rounds wait for them (docs/log.md)."""
OTHERS = 32
"""Announcements of unknown names that are kept between two looks in a closed swarm: they are only
counted."""

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
        self._closed = threading.Event()
        session_id = secrets.token_bytes(SESSION_BYTES)
        self._beliefs = Beliefs(own.agreement, session_id, own.known_keys, mailbox)
        self._session_id, self._joined_s = session_id, time.time() - time.monotonic()
        self._newest = self._announcement()
        self.status = StatusChannel(session, own, session_id)
        self.workers = WorkerThreads(own.agreement.node)
        locks = self.changed, self._lock, self.workers
        self._fetcher = Fetcher(session, own.agreement, mailbox, self._beliefs, *locks)
        self._join()

    def _join(self) -> None:
        """Declare everything; the token comes last: a node that sees it can ask for all."""
        run, me, channel = self._agreement.run, self._agreement.node, zenoh.handlers
        # Ring channels: a full channel must not hold up Zenoh's threads. A query that is pushed out
        # is answered with nothing, and asked again.
        served = self._session.declare_queryable(f"{run}/q/{me}/*", channel.RingChannel(QUERIES))
        hello = f"{run}/q/{me}/{HELLO.decode()}"
        asked = self._session.declare_queryable(hello, channel.RingChannel(HELLOS_PER_S))
        known = self._own.known_keys.names()
        alone = names_alone(known)
        is_counted_only = alone and not self._own.known_keys.open
        announced = Channels(
            self._session,
            f"{run}/ann",
            known,
            others=OTHERS if is_counted_only else SWEPT,
            lone=max(SWEPT // max(1, len(alone)), 8),
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
        self._declared: tuple[Any, ...] = token, announced, seen, served, asked
        # Of the handlers, not of what was declared: that could not be undeclared meanwhile.
        queries, questions, presences = served.handler, asked.handler, seen.handler
        for _ in range(SERVERS):
            self.workers.start("serve batches", lambda: self._serve(queries))
        self.workers.start("answer questions", lambda: self._answer(questions))
        self.workers.start("hear the others", lambda: self._hear(announced))
        self.workers.start("see the others", lambda: self._see(presences))
        self.workers.start("announce batches", self._announce)

    def announce(self) -> None:
        """Announce the batches in the outbox at once; fetch what is of use by now."""
        with self._lock:
            self._fetcher.wake()
            self._due_s = 0.0
            self._to_announce.notify()

    def close(self) -> None:
        """Leave, and end all threads; a second call does nothing."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            self._to_announce.notify_all()
        self._fetcher.close()
        with suppress(zenoh.ZError):  # the session is closed
            self.status.send(0, float("inf"))  # last words are not paced
        for each in self._declared:
            each.undeclare()
        self.workers.join(CLOSE_S)
        self.status.undeclare()
        with suppress(RuntimeError):  # A put that a dead link holds up still borrows it.
            self._publisher.undeclare()

    def _announce(self) -> None:
        while not self._closed.is_set():
            with self._lock:  # Before it looks at the outbox: what comes after is due at once.
                # With many peers each speaks less often.
                pause_s = announcement_pause_s(len(self._mailbox.peers))
                self._due_s = time.monotonic() + pause_s * random.uniform(0.8, 1.2)
            self._newest = self._announcement()
            try:
                self._publisher.put(self._newest)
                self.status.send(len(self._mailbox.peers), time.monotonic())
            except zenoh.ZError:
                if self._session.is_closed() and not self._closed.is_set():
                    raise
            with self._to_announce:
                while not self._closed.is_set() and (left_s := self._due_s - time.monotonic()) > 0:
                    self._to_announce.wait(left_s)

    def _announcement(self) -> bytes:
        """Return what this node has to say now. Its clock goes on even if the machine's is set
        back, as others believe the newest only."""
        return encode_announcement(
            self._agreement.run,
            self._agreement.node,
            self._own.key,
            self._outbox.offers(),
            session=self._session_id,
            task=self._agreement.provenance.task,
            clock_s=self._joined_s + time.monotonic(),
        )

    def _serve(self, queries: zenoh.handlers.Handler[zenoh.Query]) -> None:
        for query in self._each(queries):
            with query:
                number = str(query.key_expr).rpartition("/")[2]
                is_round = number.isascii() and number.isdecimal() and len(number) <= 10
                answer = self._outbox.get(int(number)) if is_round else None
                if answer is not None:
                    with suppress(zenoh.ZError):  # The asker is gone, or asks again.
                        query.reply(query.key_expr, answer)

    def _answer(self, questions: zenoh.handlers.Handler[zenoh.Query]) -> None:
        """Sign challenges, from anybody, so that they cost this node little however many come."""
        for query in self._each(questions):
            with query:
                if not query.payload or len(query.payload) != CHALLENGE_BYTES:
                    continue
                answer = encode_answer(self._own.key, query.payload.to_bytes(), self._newest)
                with suppress(zenoh.ZError):  # The asker is gone, or asks again.
                    query.reply(query.key_expr, answer)
            if self._closed.wait(1 / HELLOS_PER_S):
                return

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

    def _hear(self, announced: Channels) -> None:
        look_s = time.monotonic() + SILENCE_S
        while not self._closed.wait(SWEEP_S):
            by_name = announced.take()
            for name, payloads in by_name.items():
                believed = self._believe(name, payloads)
                if not believed and announced.overran(name, payloads):
                    with self._lock:
                        self._beliefs.overrun(name)
            with self._lock:
                if is_due := (now_s := time.monotonic()) > look_s:
                    look_s = now_s + SILENCE_S
                    self._beliefs.ask_the_silent(now_s)
                if by_name or is_due:
                    self._fetcher.wake()

    def _believe(self, name: str, payloads: list[zenoh.ZBytes]) -> bool:
        with self._lock:
            believed = self._beliefs.hear(name, payloads, time.monotonic())
            if believed:
                self.changed.notify_all()
        return believed

    def _each(self, channel: zenoh.handlers.Handler[_Item]) -> Iterator[_Item]:
        """Yield what comes, until this node leaves."""
        while True:
            try:
                item = channel.recv()
            except zenoh.ZError:
                if self._closed.is_set():
                    return
                raise
            yield item
