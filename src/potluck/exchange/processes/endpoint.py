"""One node among the others: what its threads share, whatever carries the bytes."""

import secrets
import threading
import time
from abc import ABC, abstractmethod

from potluck.exchange.processes.fetcher import Answers, Fetcher, WorkerThreads
from potluck.exchange.processes.status import StatusLines
from potluck.exchange.protocol.announcement import encode_announcement
from potluck.exchange.protocol.beliefs import Beliefs, Question
from potluck.exchange.protocol.fetch_queue import FetchJob
from potluck.exchange.protocol.mailbox import Mailbox
from potluck.exchange.protocol.outbox import Outbox
from potluck.exchange.protocol.signed import SESSION_BYTES
from potluck.exchange.transport import Membership


class Endpoint(ABC):
    """The threads that fill ``mailbox`` and offer what is in ``outbox``, until it is closed."""

    status: StatusLines

    def __init__(self, own: Membership, outbox: Outbox, mailbox: Mailbox) -> None:
        self._own, self._agreement = own, own.agreement
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
        self.workers = WorkerThreads(own.agreement.node)
        locks = self.changed, self._lock, self.workers
        self._fetcher = Fetcher(self, own.agreement, mailbox, self._beliefs, *locks)

    @abstractmethod
    def batches(self, job: FetchJob) -> Answers:
        """Ask for a batch, as ``Line``."""

    @abstractmethod
    def answers(self, question: Question) -> Answers:
        """Ask a node whether it is there, as ``Line``."""

    @abstractmethod
    def _leave(self) -> None:
        """Say the last words, and end all threads."""

    def announce(self) -> None:
        """Announce the batches in the outbox at once; fetch what is of use by now."""
        with self._lock:
            self._fetcher.wake()
            self._due_s = 0.0
            self._to_announce.notify()

    def close(self) -> None:
        """Leave; a second call does nothing."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            self._to_announce.notify_all()
            self.changed.notify_all()
        self._fetcher.close()
        self._leave()

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
