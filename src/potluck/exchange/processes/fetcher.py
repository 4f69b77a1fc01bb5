"""The threads that fetch batches as soon as they are wanted, and validate them."""

import random
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from typing import Protocol

from potluck.exchange.base import Delivery, ExchangeError, WireError
from potluck.exchange.keys.keys import BATCH, verify
from potluck.exchange.protocol.announcement import digest_of
from potluck.exchange.protocol.beliefs import ASKED_AT_ONCE, Beliefs, Question
from potluck.exchange.protocol.fetch_queue import AT_ONCE, IN_ALL, FetchJob
from potluck.exchange.protocol.mailbox import Mailbox
from potluck.exchange.protocol.signed import Payload
from potluck.exchange.transport import Agreement
from potluck.exchange.wire.codec import decode

IDLE_S = 10.0
"""Seconds after which a thread with nothing to do ends."""
MOST_ANSWERS = 256
"""Answers to one question that are verified. What is none by its form does not count."""

Answers = Iterable[tuple[Hashable, Payload]]
"""Answers as they come, each with the program that sent it; none if nobody answers for now."""


class Carrier(Protocol):
    """The way to the other nodes: what it brings is anybody's, and not looked at yet."""

    @abstractmethod
    def batches(self, job: FetchJob) -> Answers:
        """Ask for a batch."""

    @abstractmethod
    def answers(self, question: Question) -> Answers:
        """Ask a node whether it is there."""


class WorkerThreads:
    """A group of threads that remembers the first failure."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._trouble: tuple[str, Exception] | None = None

    def start(self, what: str, work: Callable[[], None]) -> None:
        """Run ``work`` in a thread; ``check`` raises what it raises."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                self._trouble = self._trouble or (what, error)
            finally:
                with self._lock:
                    self._threads.discard(threading.current_thread())

        # Daemons: a thread that a dead link holds up must not keep the process from ending.
        thread = threading.Thread(target=guarded, name=f"{self._node} {what}", daemon=True)
        with self._lock:
            self._threads.add(thread)
            thread.start()

    def check(self) -> None:
        """Raise ExchangeError if a thread failed: the node would wait for nothing."""
        if self._trouble is not None:
            what, error = self._trouble
            raise ExchangeError(
                f"{self._node!r} can no longer {what}: {type(error).__name__}: {error}; "
                f"start it again, it goes on from its checkpoint"
            ) from error

    def join(self, timeout_s: float) -> None:
        end_s = time.monotonic() + timeout_s
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(0.0, end_s - time.monotonic()))


class Fetcher:
    """A pool of threads that empties ``mailbox.fetch_queue`` into ``mailbox``. ``lock`` guards it;
    ``changed`` is its condition, notified when something came or was refused."""

    def __init__(
        self,
        carrier: Carrier,
        agreement: Agreement,
        mailbox: Mailbox,
        beliefs: Beliefs,
        changed: threading.Condition,
        lock: threading.RLock,
        workers: WorkerThreads,
    ) -> None:
        self._carrier, self._agreement = carrier, agreement
        self._mailbox, self._beliefs = mailbox, beliefs
        self._changed, self._work, self._workers = changed, threading.Condition(lock), workers
        self._threads = self._idle = 0
        self._closed = False

    def wake(self) -> None:
        """Start or wake threads for what is to be fetched or asked. The caller holds the lock."""
        if self._closed:
            return
        now_s = time.monotonic()
        count = self._mailbox.fetch_queue.ready(now_s) + self._beliefs.ready(now_s)
        self._work.notify(count)
        most = min(IN_ALL, AT_ONCE * len(self._mailbox.peers)) + ASKED_AT_ONCE
        for _ in range(min(count - self._idle, most - self._threads)):
            self._threads += 1
            self._workers.start("fetch batches", self._fetch_all)

    def close(self) -> None:
        with self._work:
            self._closed = True
            self._work.notify_all()

    def _fetch_all(self) -> None:
        while (job := self._next()) is not None:
            if isinstance(job, Question):
                if not self._ask(job):
                    with self._work:
                        self._beliefs.unanswered(job, time.monotonic())
            elif not self._fetch(job):
                with self._work:
                    self._mailbox.fetch_queue.again(job, time.monotonic(), jitter=random.random())

    def _next(self) -> FetchJob | Question | None:
        """Wait for a job; return None if this thread is not needed any more."""
        with self._work:
            while not self._closed:
                now_s = time.monotonic()
                if question := self._beliefs.take_question(now_s):
                    return question
                if (job := self._mailbox.fetch_queue.take(now_s)) is not None:
                    return job
                next_s = min(self._mailbox.fetch_queue.next_s(), self._beliefs.next_question_s())
                pause_s = next_s - now_s
                self._idle += 1
                woken = self._work.wait(min(pause_s, IDLE_S))
                self._idle -= 1
                if not woken and pause_s > IDLE_S:
                    break
            self._threads -= 1
            return None

    def _fetch(self, job: FetchJob) -> bool:
        """Ask for a batch; return whether an answer was what its author announced."""
        return any(self._read(job, payload) for _, payload in self._carrier.batches(job))

    def _ask(self, question: Question) -> bool:
        """Ask a node for its present session; return whether its answer came."""
        name = question.name
        answers = self._carrier.answers(question)
        for payload in islice(self._beliefs.worth_reading(question, answers), MOST_ANSWERS):
            try:
                announcement = self._beliefs.read_answer(question, payload)
            except WireError as error:
                self._refuse(name, error, fault=False)  # Another node may serve its key.
                continue
            with self._changed:
                self._beliefs.answered(question, announcement, time.monotonic())
                self._changed.notify_all()
                self.wake()
            return True
        return False

    def _read(self, job: FetchJob, payload: Payload) -> bool:
        """Validate one answer; return whether it is what its author announced."""
        author, offer = job.author, job.offer
        with self._changed:
            self._mailbox.received_bytes += len(payload)
            peer = self._mailbox.peers.get(author)
            public = peer.public if peer else b""
        try:
            what = f"its batch of round {offer.round}"
            if (size := len(payload)) != offer.size_bytes:
                claimed = f"which was announced with {offer.size_bytes}"
                raise WireError(f"{size} bytes came for {what}, {claimed}", "forged")
            signed = bytes(payload)
            if digest_of(signed) != offer.digest:
                raise WireError(f"what came for {what} is another", "forged")
            data = verify(BATCH, signed, public)
        except WireError as error:
            self._refuse(author, error, fault=False)  # Another node may serve its key.
            return False
        try:
            message = decode(data, self._agreement.limits)
            completions = self._agreement.accept(author, offer.round, message)
        except WireError as error:
            with self._changed:
                if self._mailbox.fetch_queue.settle(author, offer, valid=False):
                    self._refuse(author, error, fault=True)
            return True
        with self._changed:
            self._mailbox.deliver(Delivery(author, offer.round, signed, completions), offer)
            self._changed.notify_all()
        return True

    def _refuse(self, name: str, error: WireError, *, fault: bool) -> None:
        with self._changed:
            self._mailbox.refuse(name, error, time.monotonic(), fault=fault)
            self._changed.notify_all()
