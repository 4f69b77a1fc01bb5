"""The threads that fetch batches as soon as they are wanted, and validate them."""

import random
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from itertools import islice

from potluck.exchange.base import Delivery, ExchangeError, WireError
from potluck.exchange.keys.keys import BATCH, verify
from potluck.exchange.protocol.announcement import digest_of
from potluck.exchange.protocol.beliefs import Beliefs, Question
from potluck.exchange.protocol.fetch_queue import FetchJob
from potluck.exchange.protocol.mailbox import Mailbox
from potluck.exchange.protocol.signed import Payload
from potluck.exchange.transport import Agreement
from potluck.exchange.wire.codec import decode

MOST_ANSWERS = 256
"""Answers to one question that are verified. What is none by its form does not count."""

Answers = Iterable[tuple[Hashable, Payload]]
"""Anybody's answers as they come, each with the program that sent it; none if nobody answers."""


class WorkerThreads:
    """A group of threads, until it is ``closed``, that remembers the first failure."""

    def __init__(self, node: str, closed: threading.Event) -> None:
        self._node, self.closed = node, closed
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._failure: tuple[str, Exception] | None = None

    def start(self, what: str, work: Callable[[], None]) -> None:
        """Run ``work`` in a thread; ``check`` raises what it raises. Raise RuntimeError if the
        system has no thread left."""

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
    """A thread for each batch that is fetched, and each node that is asked. The lock of ``changed``
    guards ``mailbox``; it is notified when something came or was refused."""

    def __init__(
        self,
        batches: Callable[[FetchJob], Answers],
        answers: Callable[[Question], Answers],
        agreement: Agreement,
        mailbox: Mailbox,
        beliefs: Beliefs,
        changed: threading.Condition,
        workers: WorkerThreads,
    ) -> None:
        self._batches, self._answers, self._agreement = batches, answers, agreement
        self._mailbox, self._beliefs = mailbox, beliefs
        self._changed, self._workers = changed, workers

    def wake(self) -> bool:
        """Start threads for what is to be fetched or asked now; return whether a batch is fetched.
        The caller holds the lock. Retries are due later, so call it often."""
        if self._workers.closed.is_set():
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
        came = any(self._read(job, payload) for _, payload in self._batches(job))
        with self._changed:
            if not came:
                self._mailbox.fetch_queue.again(job, time.monotonic(), jitter=random.random())
            self.wake()

    def _ask(self, question: Question) -> None:
        announcement = None
        answers = self._beliefs.worth_reading(question, self._answers(question))
        for payload in islice(answers, MOST_ANSWERS):
            try:
                announcement = self._beliefs.read_answer(question, payload)
                break
            except WireError as error:  # Another node may serve its key.
                self._refuse(question.name, error, fault=False)
        with self._changed:
            if announcement:
                self._beliefs.answered(question, announcement, time.monotonic())
                self._changed.notify_all()
            else:
                self._beliefs.unanswered(question, time.monotonic())
            self.wake()

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
