"""One node among the others: what its threads share, whatever carries the bytes."""

import secrets
import threading
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence

from potluck.exchange.base import Reason
from potluck.exchange.processes.fetcher import Carrier, Fetcher, WorkerThreads
from potluck.exchange.protocol.announcement import encode_announcement
from potluck.exchange.protocol.beliefs import Beliefs
from potluck.exchange.protocol.mailbox import Mailbox
from potluck.exchange.protocol.outbox import Outbox
from potluck.exchange.protocol.peers import NOBODY
from potluck.exchange.protocol.signed import SESSION_BYTES, Believed, Payload
from potluck.exchange.protocol.status import STATUS_LINES, encode_status
from potluck.exchange.transport import Membership
from potluck.reports.status import StatusLine


class StatusLines:
    """The status lines that one node tells, and hears."""

    def __init__(self, own: Membership, session_id: bytes) -> None:
        self._own, self._agreement, self._session_id = own, own.agreement, session_id
        self._lock = threading.Lock()
        self.told: bytes | None = None
        """Newest line of this node that is to be sent."""
        self._heard: dict[str, Sequence[Payload]] = {}
        self._lines = Believed(self._agreement.run, STATUS_LINES)

    def tell(self, line: StatusLine) -> None:
        """Have ``line`` sent with one of the next announcements."""
        self._agreement.require_own(line)
        signed = encode_status(line, self._own.key, session=self._session_id)
        with self._lock:
            self.told = signed

    def hear(self, name: str, payload: bytes) -> None:
        """Keep what came under ``name`` until somebody looks, if this node listens at all."""
        if self._own.watches_status:
            with self._lock:
                self._heard[name] = [payload]

    def read(
        self, confirmed: Mapping[str, tuple[bytes, bytes]], now_s: float
    ) -> tuple[dict[str, StatusLine], dict[str, dict[Reason, int]]]:
        """Return the newest line of each peer, and the lines refused under each; ``confirmed`` has
        the key and the session of those that may have one. What is there of others is counted."""
        with self._lock:
            known = self._lines.newest.keys() | self._lines.refused.keys()
            for name in known - confirmed.keys() - {NOBODY}:
                self._lines.forget(name)
            for name, payloads in self._take().items():
                if name in confirmed:
                    public, session = confirmed[name]
                    self._lines.hear(name, payloads, now_s, public=public, session=session)
                elif name != self._agreement.node:
                    self._lines.refuse(NOBODY, "unknown sender", len(payloads))
            refused = {name: dict(why) for name, why in self._lines.refused.items()}
            return {name: one.line for name, one in self._lines.newest.items()}, refused

    def _take(self) -> Mapping[str, Sequence[Payload]]:
        heard, self._heard = self._heard, {}
        return heard


class Endpoint(Carrier):
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
