"""The exchange between processes: small announcements are pushed, batches are pulled.

All that waits for others has a thread of its own (``Endpoint``, ``Fetcher``); the training thread
waits only in ``receive`` and ``gather``, and there for as long as it says.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from potluck.exchange.base import (
    Delivery,
    ExchangeError,
    PeerStatus,
    Received,
    Round,
    Status,
    Traffic,
    Waiting,
    WireError,
    assemble_round,
    silent,
)
from potluck.exchange.keys.keys import BATCH, without_signature
from potluck.exchange.processes.endpoint import Endpoint
from potluck.exchange.protocol.announcement import offer_of
from potluck.exchange.protocol.fetch_queue import FetchQueue
from potluck.exchange.protocol.mailbox import Mailbox
from potluck.exchange.protocol.outbox import Outbox
from potluck.exchange.protocol.peers import Peers
from potluck.exchange.transport import Membership
from potluck.exchange.wire.codec import decode, encode
from potluck.reports.events import Notice
from potluck.reports.status import StatusLine
from potluck.types import Completion

TELL_S = 0.2


class ProcessExchange:
    """One node's connection to the others, through the endpoint that ``join`` makes for it."""

    def __init__(
        self, own: Membership, join: Callable[[Membership, Outbox, Mailbox], Endpoint]
    ) -> None:
        """Join: the others see this node, and what it sent before, from here on."""
        self._agreement, self._key = own.agreement, own.key
        self._codec, self._notify = own.codec, own.notify
        me = own.agreement.node
        sent = own.folder / "sent"
        self._outbox = Outbox(sent, own.agreement, own.key, kept_rounds=own.kept_rounds)
        peers = Peers(me, own.members, quarantine_s=own.quarantine_s)
        queue, limit_bytes = FetchQueue(me, peers.has_priority), own.agreement.limits.message_bytes
        self._mailbox = own.rule.mailbox(peers, queue, own.partners, limit_bytes)
        for (author, round), signed in own.already_received.items():
            self._mailbox.fetch_queue.settle(author, offer_of(round, signed), valid=True)
        self._expects_self = me in own.members
        self._disk_is_full = False
        self._endpoint = join(own, self._outbox, self._mailbox)
        self._changed, self._workers = self._endpoint.changed, self._endpoint.workers

    def send(self, round: int, batch: Sequence[Completion]) -> None:
        self._workers.check()
        message = self._agreement.message(round, tuple(batch))
        signed = self._key.sign(BATCH, encode(message, codec=self._codec))
        if len(signed) > (limit_bytes := self._agreement.limits.message_bytes):
            raise ExchangeError(
                f"{self._agreement.node!r} wrote a batch of {len(signed)} bytes for round {round}, "
                f"but others take at most {limit_bytes}; lower problems_per_round or max_new_tokens"
            )
        try:
            self._outbox.put(round, signed)
        except OSError as error:
            if not self._disk_is_full:
                self._notify(Notice(f"round {round} can be sent but not kept on disk: {error}"))
            self._disk_is_full = True
        with self._changed:
            self._mailbox.begin(round, time.monotonic())
        self._endpoint.announce()

    def receive(self, round: int, *, wait_s: float = 0.0, waiting: Waiting = silent) -> Received:
        end_s = time.monotonic() + wait_s
        self._wait(lambda: self._mailbox.arrivals(round, time.monotonic()), end_s, waiting)
        with self._changed:
            return self._mailbox.receive(round, time.monotonic(), waited=wait_s > 0)

    def finish(self, round: int, received: Received) -> Round:
        own, own_signed = self._own(round)
        sent_tokens = sum(len(c.token_T) for c in own or ())
        with self._changed:
            peers = self._mailbox.peers
            sizes = len(own_signed), sent_tokens, self._mailbox.take_received_bytes()
            quarantined = peers.quarantined(time.monotonic())
            traffic = Traffic(*sizes, peers.take_refused(), quarantined)
            newest = self._mailbox.newest_of(received.batches)
        self._notify_all()
        batches, missing, me = [*received.batches], received.missing, self._agreement.node
        if own is not None:
            batches.insert(0, Delivery(me, round, own_signed, own))
        elif self._expects_self:
            missing = (*missing, me)
        return assemble_round(round, batches, missing, traffic, newest)

    def gather(self, wait_s: float, waiting: Waiting = silent) -> tuple[str, ...]:
        def arrivals() -> tuple[set[str], set[str]]:
            members = set(self._mailbox.peers.members())
            return members - self._mailbox.absent(), members

        self._wait(arrivals, time.monotonic() + wait_s, waiting)
        with self._changed:
            return tuple(sorted(self._mailbox.absent()))

    def tell(self, line: StatusLine) -> None:
        self._endpoint.status.tell(line)

    def status(self) -> Status:
        now_s = time.monotonic()
        with self._changed:
            rounds, peers = self._mailbox.fetch_queue.rounds, self._mailbox.peers
            seen, confirmed = peers.status(rounds, now_s), peers.confirmed()
            round = peers.median_round()
        # Without the lock: signatures are verified here, and rounds wait for nobody's status.
        lines, refused = self._endpoint.status.read(confirmed, now_s)
        for name in lines.keys() | refused.keys():
            peer = seen.get(name, PeerStatus())
            counts = dict(Counter(peer.refused) + Counter(refused.get(name, {})))
            seen[name] = replace(peer, line=lines.get(name), refused=counts)
        return Status(seen, round)

    def close(self) -> None:
        self._endpoint.close()

    def _own(self, round: int) -> tuple[tuple[Completion, ...] | None, bytes]:
        """Return this node's batch as others read it, and its bytes; None if they refuse it."""
        signed = self._outbox.get(round)
        if signed is None:
            return None, b""
        try:
            message = decode(without_signature(signed), self._agreement.limits)
            return self._agreement.accept(self._agreement.node, round, message), signed
        except WireError as error:
            what = f"the others refuse this node's batch of round {round}: {error}"
            self._notify(Notice(what))
            return None, signed

    def _wait(
        self, arrivals: Callable[[], tuple[set[str], set[str]]], end_s: float, waiting: Waiting
    ) -> None:
        """Block until every awaited peer in ``arrivals`` (here, awaited) is here, or ``end_s``."""

        def is_over() -> bool:
            here, awaited = arrivals()
            return here == awaited

        def ask() -> None:
            with self._changed:
                here, awaited = arrivals()
            waiting(len(here), len(awaited))

        while True:
            self._notify_all()
            ask()
            pause_s = min(TELL_S, end_s - time.monotonic())
            with self._changed:
                over = self._changed.wait_for(is_over, max(0.0, pause_s))
            if over or time.monotonic() >= end_s:
                # Once more: Ctrl-C for all nodes lets the first one leave before another has seen
                # it, which must not then learn from a round without that one.
                ask()
                self._notify_all()
                return

    def _notify_all(self) -> None:
        self._workers.check()
        with self._changed:
            news = self._mailbox.drain_news()
        for each in news:
            self._notify(each)
