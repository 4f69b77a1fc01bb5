"""Fetches what is wanted, in threads of its own, as soon as it is wanted, and looks at it there."""

import random
import threading
import time

import zenoh

from potluck.exchange.announcement import digest_of
from potluck.exchange.base import WireError
from potluck.exchange.crew import Crew
from potluck.exchange.identity import unseal
from potluck.exchange.mailbox import Delivery, Mailbox
from potluck.exchange.shelf import BATCH
from potluck.exchange.terms import Terms
from potluck.exchange.wanted import AT_ONCE, IN_ALL, Errand
from potluck.exchange.wire import decode

IDLE_S = 10.0
"""After which a thread with nothing to do ends."""
ANSWER_S = 5.0
SLOWEST_BYTES_PER_S = 100_000
"""A line on which a batch may take longer than ``ANSWER_S``."""


class Fetching:
    """A pool of threads that empties ``mailbox.wanted`` into ``mailbox``.

    Args:
        changed: its lock guards the mailbox; it is notified when something came or was refused.
    """

    def __init__(
        self,
        session: zenoh.Session,
        terms: Terms,
        mailbox: Mailbox,
        lock: threading.RLock,
        changed: threading.Condition,
        crew: Crew,
    ) -> None:
        self._session, self._terms, self._mailbox, self._crew = session, terms, mailbox, crew
        self._changed, self._work = changed, threading.Condition(lock)
        self._threads = self._idle = 0
        self._closed = False
        self._cancel = zenoh.CancellationToken()

    def wake(self) -> None:
        """There may be more to fetch. The lock is held."""
        if self._closed:
            return
        count = self._mailbox.wanted.ready(time.monotonic())
        self._work.notify(count)
        most = min(IN_ALL, AT_ONCE * len(self._mailbox.peers))
        for _ in range(min(count - self._idle, most - self._threads)):
            self._threads += 1
            self._crew.start("fetch batches", self._fetch_all)

    def close(self) -> None:
        with self._work:
            self._closed = True
            self._work.notify_all()
        self._cancel.cancel()

    def _fetch_all(self) -> None:
        while (errand := self._next()) is not None:
            if not self._fetch(errand):
                with self._work:
                    self._mailbox.wanted.again(errand, time.monotonic(), jitter=random.random())

    def _next(self) -> Errand | None:
        """Waits for an errand; None: this thread is not needed any more."""
        with self._work:
            while not self._closed:
                now_s = time.monotonic()
                if (errand := self._mailbox.wanted.take(now_s)) is not None:
                    return errand
                pause_s = self._mailbox.wanted.next_s() - now_s
                self._idle += 1
                woken = self._work.wait(min(pause_s, IDLE_S))
                self._idle -= 1
                if not woken and pause_s > IDLE_S:
                    break
            self._threads -= 1
            return None

    def _fetch(self, errand: Errand) -> bool:
        key = f"{self._terms.run}/q/{errand.author}/{errand.offer.round}"
        try:
            # Whoever serves the key is asked, and all answers are looked at: one who serves
            # garbage under another's key must not keep that one's batch away.
            answers = self._session.get(
                key,
                target=zenoh.QueryTarget.ALL,
                consolidation=zenoh.ConsolidationMode.NONE,
                timeout=ANSWER_S + errand.offer.size_bytes / SLOWEST_BYTES_PER_S,
                cancellation_token=self._cancel,
            )
            for answer in answers:
                if answer.ok is not None and self._read(errand, answer.ok.payload):
                    return True
        except zenoh.ZError:
            # Nobody serves it at the moment, or the session is gone, which others notice.
            pass
        return False

    def _read(self, errand: Errand, payload: zenoh.ZBytes) -> bool:
        """One answer to an errand; returns whether it is what its author announced."""
        author, offer = errand.author, errand.offer
        with self._changed:
            self._mailbox.received(len(payload))
            peer = self._mailbox.peers.get(author)
            public = peer.public if peer else b""
        try:
            if len(payload) != offer.size_bytes:
                raise WireError(
                    f"{len(payload)} bytes came for its batch of round {offer.round}, which was "
                    f"announced with {offer.size_bytes}"
                )
            sealed = payload.to_bytes()
            if digest_of(sealed) != offer.digest:
                raise WireError(f"what came for its batch of round {offer.round} is another")
            data = unseal(BATCH, sealed, public)
        except WireError as error:
            self._refuse(author, error, fault=False)  # It may be somebody else who serves its key.
            return False
        try:
            message = decode(data, self._terms.limits)
            completions = self._terms.admit(author, offer.round, message)
        except WireError as error:
            with self._changed:
                if self._mailbox.wanted.settle(author, offer, valid=False):
                    self._refuse(author, error, fault=True)
            return True
        with self._changed:
            self._mailbox.deliver(Delivery(author, offer.round, sealed, completions), offer)
            self._changed.notify_all()
        return True

    def _refuse(self, name: str, error: WireError, *, fault: bool) -> None:
        with self._changed:
            self._mailbox.refuse(name, error, time.monotonic(), fault=fault)
            self._changed.notify_all()
