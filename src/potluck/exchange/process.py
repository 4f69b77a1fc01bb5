"""The exchange between processes: small announcements are pushed, batches are pulled. Threads wait
for the others; the training thread waits in ``receive`` and ``gather`` alone."""

import dataclasses
import random
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import eq

from potluck.exchange import base
from potluck.exchange.keys.keys import BATCH, verify, without_signature
from potluck.exchange.protocol.beliefs import Beliefs, Question
from potluck.exchange.protocol.fetch_queue import FetchJob, FetchQueue
from potluck.exchange.protocol.outbox import Outbox
from potluck.exchange.protocol.peers import Peers, StatusLines
from potluck.exchange.protocol.signed import (
    SESSION_BYTES,
    Payload,
    digest_of,
    encode_announcement,
    encode_status,
    offer_of,
)
from potluck.exchange.transport import Membership
from potluck.exchange.wire.codec import decode, encode
from potluck.reports.events import Notice
from potluck.reports.status import StatusLine
from potluck.types import Completion

TELL_S = 0.2
CLOSE_S = 5.0
"""Seconds that a closed exchange waits for its threads."""
MOST_ANSWERS = 256
"""Answers to one question that are verified. What is none by its form does not count."""

Answers = Iterable[tuple[Hashable, Payload]]
"""Anybody's answers as they come, each with the program that sent it; none if nobody answers."""


class WorkerThreads:
    """A group of threads that remembers the first failure."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._failure: tuple[str, Exception] | None = None

    def start(self, what: str, work: Callable[[], None]) -> None:
        """Run ``work`` in a thread; ``check`` raises its error. RuntimeError if none is left."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                self._failure = self._failure or (what, error)
            finally:
                with self._lock:
                    self._threads.discard(threading.current_thread())

        # Daemons: a thread that a dead link holds up must not keep the process from ending.
        thread = threading.Thread(target=guarded, name=f"{self._node} {what}", daemon=True)
        with self._lock:
            thread.start()
            self._threads.add(thread)

    def check(self) -> None:
        """Raise ExchangeError if a thread failed: the node would wait for nothing."""
        if self._failure is not None:
            what, error = self._failure
            raise base.ExchangeError(
                f"{self._node!r} can no longer {what}: {type(error).__name__}: {error}; "
                f"start it again, it goes on from its checkpoint"
            ) from error

    def join(self, timeout_s: float) -> None:
        end_s = time.monotonic() + timeout_s
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(0.0, end_s - time.monotonic()))


class ProcessExchange(ABC):
    """One node's connection to the others, whatever carries the bytes. A transport starts threads
    that announce what ``_announcement`` returns, tell ``_beliefs`` and ``_mailbox`` what they hear,
    and then call ``_wake``; ``_mailbox`` and ``_wake`` need the lock of ``_changed``."""

    def __init__(self, own: Membership) -> None:
        self._own, self._agreement = own, own.agreement
        self._me, limit_bytes = own.agreement.node, own.agreement.limits.message_bytes
        sent = own.folder / "sent"
        self._outbox = Outbox(sent, own.agreement, own.key, kept_rounds=own.kept_rounds)
        peers = Peers(self._me, own.members, quarantine_s=own.quarantine_s)
        queue = FetchQueue(self._me, peers.has_priority)
        self._mailbox = own.rule.mailbox(peers, queue, own.partners, limit_bytes)
        for (author, round), signed in own.already_received.items():
            queue.settle(author, offer_of(round, signed), valid=True)
        self._disk_is_full = False
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._to_announce = threading.Condition(self._lock)
        self._due_s = 0.0
        self._received_bytes = 0  # of all answers since the last ``finish``
        self._closed = threading.Event()
        self._session_id = secrets.token_bytes(SESSION_BYTES)
        self._joined_s = time.time() - time.monotonic()
        self._newest = self._announcement()
        self._line: bytes | None = None
        """Newest status line of this node that is to be sent."""
        self._lines = StatusLines(self._agreement.run, self._me)
        self._lines_lock = threading.Lock()
        self._beliefs = Beliefs(own.agreement, self._session_id, own.known_keys, self._mailbox)
        self._workers = WorkerThreads(self._me)

    @abstractmethod
    def _get_batches(self, job: FetchJob) -> Answers:
        """Ask for a batch."""

    @abstractmethod
    def _get_answers(self, question: Question) -> Answers:
        """Ask a node whether it is there."""

    @abstractmethod
    def _take_lines(self) -> Mapping[str, Sequence[Payload]]:
        """Return the status lines that came under each name since the last call, oldest first."""

    @abstractmethod
    def _leave(self) -> None:
        """Say the last words, and end all threads."""

    def send(self, round: int, batch: Sequence[Completion]) -> None:
        self._workers.check()
        message = self._agreement.message(round, tuple(batch))
        signed = self._own.key.sign(BATCH, encode(message, codec=self._own.codec))
        if len(signed) > (limit_bytes := self._agreement.limits.message_bytes):
            raise base.ExchangeError(
                f"{self._me!r} wrote a batch of {len(signed)} bytes for round {round}, "
                f"but others take at most {limit_bytes}; lower problems_per_round or max_new_tokens"
            )
        try:
            self._outbox.put(round, signed)
        except OSError as error:
            if not self._disk_is_full:
                self._own.notify(Notice(f"round {round} can be sent but not kept on disk: {error}"))
            self._disk_is_full = True
        with self._lock:
            self._mailbox.begin(round, time.monotonic())
            self._wake()
            self._due_s = 0.0
            self._to_announce.notify()

    def receive(
        self, round: int, *, wait_s: float = 0.0, waiting: base.Waiting = base.silent
    ) -> base.Received:
        end_s = time.monotonic() + wait_s
        self._wait(lambda: self._mailbox.arrivals(round, time.monotonic()), end_s, waiting)
        with self._lock:
            return self._mailbox.receive(round, time.monotonic(), waited=wait_s > 0)

    def finish(self, round: int, received: base.Received) -> base.Round:
        batches, missing, newest = [*received.batches], received.missing, dict[str, int]()
        if own := self._read_own(round):
            batches.insert(0, own)
        elif self._me in self._own.members:
            missing = (*missing, self._me)
        with self._lock:
            peers = self._mailbox.peers
            traffic = dataclasses.replace(
                base.traffic_of(self._me, batches),
                received_bytes=self._received_bytes,
                refused=peers.take_refused(),
                quarantined=peers.quarantined(time.monotonic()),
            )
            self._received_bytes = 0
            if not self._own.rule.in_step:
                others = received.batches
                newest = {b.author: peers.newest_offer(b.author, b.round) for b in others}
        self._notify_all()
        return base.assemble_round(round, batches, missing, traffic, newest)

    def gather(self, wait_s: float, waiting: base.Waiting = base.silent) -> tuple[str, ...]:
        def arrivals() -> tuple[set[str], set[str]]:
            members = set(self._mailbox.peers.members)
            return members - self._mailbox.absent(), members

        self._wait(arrivals, time.monotonic() + wait_s, waiting)
        with self._lock:
            return tuple(sorted(self._mailbox.absent()))

    def tell(self, line: StatusLine) -> None:
        signed = encode_status(line, self._own.key, session=self._session_id)
        with self._lock:  # else the thread that has just sent the line before drops this one
            self._line = signed

    def status(self) -> base.Status:
        now_s = time.monotonic()
        with self._lock:
            peers = self._mailbox.peers
            seen, confirmed = peers.status(now_s, time.time()), peers.confirmed()
            round = peers.median_round()
        # Without that lock: signatures are verified here, and rounds wait for nobody's status.
        with self._lines_lock:
            self._lines.hear(self._take_lines(), confirmed, now_s)
            return base.Status(self._lines.added_to(seen), round)

    def close(self) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            self._to_announce.notify_all()
            self._changed.notify_all()
        self._leave()

    def _announcement(self) -> bytes:
        """Return what this node has to say now, with the time of a clock that never goes back."""
        return encode_announcement(
            self._agreement.run,
            self._me,
            self._own.key,
            self._outbox.offers(),
            session=self._session_id,
            task=self._agreement.provenance.task,
            clock_s=self._joined_s + time.monotonic(),
        )

    def _wake(self) -> bool:
        """Start a thread for each batch to fetch now, and each node to ask; return whether a batch
        is fetched. Retries are due later, so call it often."""
        if self._closed.is_set():
            return False
        is_fetching, now_s = False, time.monotonic()
        while question := self._beliefs.take_question(now_s):
            try:
                self._workers.start("ask the others", partial(self._ask, question))
            except RuntimeError:  # it is asked again later, when there may be a thread
                self._beliefs.unanswered(question, now_s)
        while job := self._mailbox.fetch_queue.take(now_s):
            try:
                self._workers.start("fetch batches", partial(self._fetch, job))
                is_fetching = True
            except RuntimeError:
                self._mailbox.fetch_queue.again(job, now_s, jitter=random.random())
        return is_fetching

    def _fetch(self, job: FetchJob) -> None:
        came = any(self._read_batch(job, payload) for _, payload in self._get_batches(job))
        with self._changed:
            if not came:
                self._mailbox.fetch_queue.again(job, time.monotonic(), jitter=random.random())
            self._wake()

    def _ask(self, question: Question) -> None:
        announcement = None
        answers = self._beliefs.worth_reading(question, self._get_answers(question))
        for payload in islice(answers, MOST_ANSWERS):
            try:
                announcement = self._beliefs.read_answer(question, payload)
                break
            except base.WireError as error:  # Another node may serve its key.
                self._refuse(question.name, error, fault=False)
        with self._changed:
            if announcement:
                self._beliefs.answered(question, announcement, time.monotonic())
                self._changed.notify_all()
            else:
                self._beliefs.unanswered(question, time.monotonic())
            self._wake()

    def _read_batch(self, job: FetchJob, payload: Payload) -> bool:
        """Validate one answer; return whether it is what its author announced."""
        author, offer = job.author, job.offer
        with self._changed:
            self._received_bytes += len(payload)
            peer = self._mailbox.peers.get(author)
            public = peer.public if peer else b""
        try:
            what = f"its batch of round {offer.round}"
            if (size := len(payload)) != offer.size_bytes:
                claimed = f"which was announced with {offer.size_bytes}"
                raise base.WireError(f"{size} bytes came for {what}, {claimed}", "forged")
            signed = bytes(payload)
            if digest_of(signed) != offer.digest:
                raise base.WireError(f"what came for {what} is another", "forged")
            data = verify(BATCH, signed, public)
        except base.WireError as error:
            self._refuse(author, error, fault=False)  # Another node may serve its key.
            return False
        try:
            message = decode(data, self._agreement.limits)
            completions = self._agreement.accept(author, offer.round, message)
        except base.WireError as error:
            with self._changed:
                if self._mailbox.fetch_queue.settle(author, offer, valid=False):
                    self._refuse(author, error, fault=True)
            return True
        with self._changed:
            self._mailbox.deliver(base.Delivery(author, offer.round, signed, completions), offer)
            self._changed.notify_all()
        return True

    def _refuse(self, name: str, error: base.WireError, *, fault: bool) -> None:
        with self._changed:
            self._mailbox.refuse(name, error, time.monotonic(), fault=fault)
            self._changed.notify_all()

    def _read_own(self, round: int) -> base.Delivery | None:
        """Return this node's batch as others read it; None if there is none, or they refuse it."""
        if (signed := self._outbox.get(round)) is None:
            return None
        try:
            message = decode(without_signature(signed), self._agreement.limits)
            completions = self._agreement.accept(self._me, round, message)
        except base.WireError as error:
            what = f"the others refuse this node's batch of round {round}: {error}"
            self._own.notify(Notice(what))
            return None
        return base.Delivery(self._me, round, signed, completions)

    def _wait(
        self, arrivals: Callable[[], tuple[set[str], set[str]]], end_s: float, waiting: base.Waiting
    ) -> None:
        """Block until every awaited peer in ``arrivals`` (here, awaited) is here, or ``end_s``."""
        while True:
            with self._lock:
                here, awaited = arrivals()
            self._notify_all()
            # At the end too: Ctrl-C for all nodes lets the first one leave before another has seen
            # it, which must not then learn from a round without that one.
            waiting(len(here), len(awaited))
            left_s = end_s - time.monotonic()
            if here == awaited or left_s <= 0:
                return
            with self._changed:
                self._changed.wait_for(lambda: eq(*arrivals()), min(TELL_S, left_s))

    def _notify_all(self) -> None:
        self._workers.check()
        with self._lock:
            news = self._mailbox.drain_news(time.monotonic())
        for each in news:
            self._own.notify(each)
