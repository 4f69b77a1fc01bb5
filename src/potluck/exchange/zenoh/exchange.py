"""One node on Zenoh: its declarations (docs/wire.md, "On the network"), and the threads that
announce, hear and serve. Zenoh's callbacks fetch, put and answer nothing; channels are bounded."""

import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, TypeVar

import zenoh

from potluck.exchange.process import CLOSE_S, Answers, ProcessExchange
from potluck.exchange.protocol.beliefs import Question
from potluck.exchange.protocol.fetch_queue import FetchJob
from potluck.exchange.protocol.peers import announcement_pause_s
from potluck.exchange.protocol.signed import CHALLENGE_BYTES, HELLO, Payload, encode_answer
from potluck.exchange.transport import Membership
from potluck.exchange.zenoh.session import (
    Endpoints,
    Tls,
    check_endpoints,
    free_endpoints,
    open_patiently,
    try_endpoint,
)
from potluck.types import NODE_NAME

__all__ = ["ZenohExchange", "check_endpoints", "free_endpoints", "open_exchange", "try_endpoint"]

ANSWER_S, HELLO_S = 5.0, 3.0
SLOWEST_BYTES_PER_S = 100_000
"""Slowest bandwidth that is waited for: a batch has this time on top of ``ANSWER_S``."""
SERVERS = 4
QUERIES, PRESENCES = 256, 1024
HELLOS_PER_S = 200
"""Most questions whether this node is there that are answered in a second, and that wait."""
SWEEP_S, SILENCE_S = 0.02, 1.0
"""Seconds between two looks at what was announced, and for names that were not heard."""
SWEPT = 512
"""Samples that are kept of names without a channel of their own, and announcements of all that have
one. With 16 of a name a flood pushes the true ones out, and rounds wait (docs/log.md)."""
OTHERS = 32
"""Announcements of unknown names that are kept in a closed swarm: they are only counted."""
LONE_NAMES, LONE = 64, 8
"""Most known names that have a channel each, as every node holds the subscriptions of all others;
and samples of each that are kept at least."""
LINE_PAUSE_S = 5.0

_Item = TypeVar("_Item")


class Channels:
    """Samples of each name under ``prefix/<name>``, the newest, until somebody looks. Zenoh's
    threads fill them and call no Python, so a flood costs its bytes and little more. Each of the
    ``known`` names, if they are few, has a channel of its own, with its part of ``in_all``: a flood
    under one name pushes out no other's samples. All the rest share one of ``others``."""

    def __init__(
        self,
        session: zenoh.Session,
        prefix: str,
        known: Collection[str],
        *,
        others: int,
        in_all: int = 0,
    ) -> None:
        alone = sorted(known) if len(known) <= LONE_NAMES else []
        sizes = dict.fromkeys(alone, max(in_all // max(1, len(alone)), LONE)) | {"*": others}
        self._subscribers = {
            name: session.declare_subscriber(
                f"{prefix}/{name}",
                zenoh.handlers.RingChannel(size),
                allowed_origin=zenoh.Locality.REMOTE,
            )
            for name, size in sizes.items()
        }
        # Of the handlers, not of what was declared: that could not be undeclared meanwhile.
        self._channels = {n: (each.handler, sizes[n]) for n, each in self._subscribers.items()}

    def take(self) -> dict[str, list[zenoh.ZBytes]]:
        by_name: dict[str, list[zenoh.ZBytes]] = {}
        for alone, (channel, most) in self._channels.items():
            with suppress(zenoh.ZError):  # it is closed
                for _ in range(most):
                    if (sample := channel.try_recv()) is None:
                        break
                    name = alone if alone != "*" else str(sample.key_expr).rpartition("/")[2]
                    # Else it is in its own channel, too; "*" itself is no name to ask.
                    if alone != "*" or name not in self._channels:
                        by_name.setdefault(name, []).append(sample.payload)
        return by_name

    def overran(self, name: str, payloads: Sequence[zenoh.ZBytes]) -> bool:
        """Tell whether more may have come under ``name`` than was kept: its own channel is full."""
        return name in self._channels and len(payloads) == self._channels[name][1]

    def undeclare(self) -> None:
        for each in self._subscribers.values():
            each.undeclare()


@contextmanager
def open_exchange(own: Membership) -> Iterator["ZenohExchange"]:
    tls = Tls(own.certificates, own.agreement.node, own.may_connect) if own.certificates else None
    line = Endpoints(own.listen, own.connect, tls)
    session = open_patiently(line, run=own.agreement.run, waiting=own.waiting)
    with closing(session), closing(ZenohExchange(session, own)) as exchange:
        yield exchange


class ZenohExchange(ProcessExchange):
    """One node's declarations in ``session``, which stays open when it is closed."""

    def __init__(self, session: zenoh.Session, own: Membership) -> None:
        super().__init__(own)
        self._session, self._cancel = session, zenoh.CancellationToken()
        self._line_due_s = float("-inf")
        self._declare()

    def _declare(self) -> None:
        session, run, me, channel = self._session, self._agreement.run, self._me, zenoh.handlers
        # Ring channels: a full channel must not hold up Zenoh's threads. A query that is pushed out
        # is answered with nothing, and asked again.
        served = session.declare_queryable(f"{run}/q/{me}/*", channel.RingChannel(QUERIES))
        hello = f"{run}/q/{me}/{HELLO.decode()}"
        asked = session.declare_queryable(hello, channel.RingChannel(HELLOS_PER_S))
        known = self._own.known_keys.names()
        is_counted_only = 0 < len(known) <= LONE_NAMES and not self._own.known_keys.open
        others = OTHERS if is_counted_only else SWEPT
        announced = Channels(session, f"{run}/ann", known, others=others, in_all=SWEPT)
        seen = session.liveliness().declare_subscriber(
            f"{run}/live/*", channel.FifoChannel(PRESENCES), history=True
        )
        self._declared: list[Any] = [announced, seen, served, asked]
        self._others_lines: Channels | None = None
        if self._own.watches_status:
            self._others_lines = Channels(session, f"{run}/status", known - {me}, others=SWEPT)
            self._declared.append(self._others_lines)
        self._line_publisher = session.declare_publisher(
            f"{run}/status/{me}",
            congestion_control=zenoh.CongestionControl.DROP,
            priority=zenoh.Priority.BACKGROUND,
            allowed_destination=zenoh.Locality.REMOTE,
        )
        self._publisher = session.declare_publisher(
            f"{run}/ann/{me}",
            congestion_control=zenoh.CongestionControl.DROP,
            priority=zenoh.Priority.INTERACTIVE_HIGH,
            express=True,
        )
        # Last: a node that sees it can ask for all.
        self._declared.insert(0, session.liveliness().declare_token(f"{run}/live/{me}"))
        # Of the handlers, not of what was declared: that could not be undeclared meanwhile.
        queries, questions, presences = served.handler, asked.handler, seen.handler
        for _ in range(SERVERS):
            self._workers.start("serve batches", lambda: self._serve(queries))
        self._workers.start("answer questions", lambda: self._answer(questions))
        self._workers.start("hear the others", lambda: self._hear(announced))
        self._workers.start("see the others", lambda: self._see(presences))
        self._workers.start("announce batches", self._announce)

    def _get_batches(self, job: FetchJob) -> Answers:
        timeout_s = ANSWER_S + job.offer.size_bytes / SLOWEST_BYTES_PER_S
        return self._get(f"{job.author}/{job.offer.round}", timeout_s)

    def _get_answers(self, question: Question) -> Answers:
        return self._get(f"{question.name}/hello", HELLO_S, question.challenge)

    def _take_lines(self) -> Mapping[str, Sequence[Payload]]:
        return self._others_lines.take() if self._others_lines else {}

    def _leave(self) -> None:
        self._cancel.cancel()
        with suppress(zenoh.ZError):  # the session is closed
            self._line_due_s = float("-inf")  # last words are not paced
            self._put_line()
        for each in self._declared:
            each.undeclare()
        self._workers.join(CLOSE_S)
        for publisher in (self._line_publisher, self._publisher):
            with suppress(RuntimeError):  # A put that a dead link holds up still borrows it.
                publisher.undeclare()

    def _announce(self) -> None:
        while not self._closed.is_set():
            with self._lock:  # Before it looks at the outbox: what comes after is due at once.
                # With many peers each speaks less often.
                pause_s = announcement_pause_s(len(self._mailbox.peers))
                self._due_s = time.monotonic() + pause_s * random.uniform(0.8, 1.2)
            self._newest = self._announcement()
            try:
                self._publisher.put(self._newest)
                self._put_line()
            except zenoh.ZError:
                if self._session.is_closed() and not self._closed.is_set():
                    raise
            with self._to_announce:
                while not self._closed.is_set() and (left_s := self._due_s - time.monotonic()) > 0:
                    self._to_announce.wait(left_s)

    def _put_line(self) -> None:
        line, now_s = self._line, time.monotonic()
        # Zenoh declares a bool, and returns an object that is always true.
        listening: Any = self._line_publisher.matching_status
        if line is None or now_s < self._line_due_s or not listening.matching:
            return
        self._line_due_s = now_s + max(LINE_PAUSE_S, announcement_pause_s(len(self._mailbox.peers)))
        self._line_publisher.put(line)
        with self._lock:
            if self._line is line:
                self._line = None

    def _get(
        self, what: str, timeout_s: float, payload: bytes | None = None
    ) -> Iterator[tuple[str, zenoh.ZBytes]]:
        """Yield the answers to a query as they come, each with the session that sent it."""
        try:
            # All that serve the key are asked, and all answers are looked at: a peer that serves
            # garbage under another's key must not keep that one's answer away.
            answers = self._session.get(
                f"{self._agreement.run}/q/{what}",
                target=zenoh.QueryTarget.ALL,
                consolidation=zenoh.ConsolidationMode.NONE,
                payload=payload,
                timeout=timeout_s,
                cancellation_token=self._cancel,
            )
            for answer in answers:
                if answer.ok is not None:
                    source = answer.replier_id
                    yield str(source.zid) if source else "", answer.ok.payload
        except zenoh.ZError:
            return  # The session is gone, which others notice.

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
            if name == self._me or not NODE_NAME.fullmatch(name):
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
                self._changed.notify_all()

    def _hear(self, announced: Channels) -> None:
        look_s = time.monotonic() + SILENCE_S
        while not self._closed.wait(SWEEP_S):
            for name, payloads in announced.take().items():
                with self._lock:  # for each name, so that nobody waits for all of a flood
                    if self._beliefs.hear(name, payloads, time.monotonic()):
                        self._changed.notify_all()
                    elif announced.overran(name, payloads):
                        self._beliefs.ask(name)
            with self._lock:
                if (now_s := time.monotonic()) > look_s:
                    look_s = now_s + SILENCE_S
                    self._beliefs.ask_the_silent(now_s)
                self._wake()

    def _each(self, channel: zenoh.handlers.Handler[_Item]) -> Iterator[_Item]:
        while True:
            try:
                item = channel.recv()
            except zenoh.ZError:
                if self._closed.is_set():
                    return
                raise
            yield item
