"""The exchange between processes: small announcements are pushed, batches are pulled.

Everything that waits for the network has a thread of its own (``station``, ``fetching``); the
training thread waits only in ``collect`` and ``gather``, and there for as long as it says.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import zenoh

from potluck.exchange.announcement import offer_of
from potluck.exchange.base import (
    ExchangeError,
    Round,
    Traffic,
    Waiting,
    WireError,
    reading_order,
    silent,
)
from potluck.exchange.identity import Key, without_seal
from potluck.exchange.mailbox import Mailbox, Partners
from potluck.exchange.peers import Peers
from potluck.exchange.shelf import BATCH, Shelf
from potluck.exchange.station import Station
from potluck.exchange.terms import Terms
from potluck.exchange.trust import Trust
from potluck.exchange.wanted import Wanted
from potluck.exchange.wire import Codec, decode, encode
from potluck.types import Completion

TELL_S = 0.2
NOTHING_YET: Mapping[tuple[str, int], bytes] = MappingProxyType({})


def tell_nobody(text: str) -> None:
    """A ``say`` for who has no display."""


class ZenohExchange:
    """One node's end of a line of Zenoh. ``session`` stays open when it is closed."""

    def __init__(
        self,
        session: zenoh.Session,
        terms: Terms,
        key: Key,
        trust: Trust,
        *,
        folder: Path,
        members: Collection[str],
        partners: Partners,
        codec: Codec,
        max_staleness: int,
        kept_rounds: int,
        quarantine_s: float,
        had: Mapping[tuple[str, int], bytes] = NOTHING_YET,
        say: Callable[[str], None] = tell_nobody,
    ) -> None:
        """Joins: the others see this node, and what it sent before, from here on.

        Args:
            folder: of the node; its own sealed batches go to ``sent`` in it.
            members: names that the run counts on, this node's may be among them.
            partners: of a round and the others' names, those that are fetched from.
            max_staleness: rounds before its first one that a node still asks for.
            kept_rounds: rounds for which own batches can be had.
            quarantine_s: how long a node is not listened to after three faults; 0: never so.
            had: of author and round, the sealed batches that this node has learned from before it
                was started again: they are not fetched once more, as if they were late.
            say: told what a person may want to know, from the training thread.
        """
        self._terms, self._key = terms, key
        self._codec, self._say = codec, say
        me = terms.node
        self._shelf = Shelf(
            folder / "sent",
            kept_rounds=kept_rounds,
            run=terms.run,
            node=me,
            key=key,
            limits=terms.limits,
        )
        peers = Peers(me, members, quarantine_s=quarantine_s)
        self._mailbox = Mailbox(
            peers,
            Wanted(me, peers.comes_first),
            partners,
            max_staleness=max_staleness,
            kept_rounds=kept_rounds,
            size_limit_bytes=terms.limits.message_bytes,
        )
        for (author, round), sealed in had.items():
            self._mailbox.had(author, offer_of(round, sealed))
        self._expects_self = me in members
        self._disk_is_full = False
        self._station = Station(session, terms, key, trust, self._shelf, self._mailbox)
        self._changed, self._crew = self._station.changed, self._station.crew

    def send(self, round: int, batch: Sequence[Completion]) -> None:
        self._crew.check()
        message = self._terms.message(round, tuple(batch))
        sealed = self._key.seal(BATCH, encode(message, codec=self._codec))
        limit_bytes = self._terms.limits.message_bytes
        if len(sealed) > limit_bytes:
            raise ExchangeError(
                f"{self._terms.node!r} wrote a batch of {len(sealed)} bytes for round {round}, but "
                f"others take at most {limit_bytes}; lower problems_per_round or max_new_tokens"
            )
        try:
            self._shelf.put(round, sealed)
        except OSError as error:
            if not self._disk_is_full:
                self._say(f"round {round} can be sent but not kept on disk: {error}")
            self._disk_is_full = True
        with self._changed:
            self._mailbox.begin(round, time.monotonic())
        self._station.announce()

    def collect(self, round: int, *, deadline_s: float, waiting: Waiting = silent) -> Round:
        """As ``Exchange.collect``.

        Raises:
            ExchangeError: a thread of this exchange has failed, so nothing more would come.
        """
        end_s = time.monotonic() + deadline_s
        own, own_sealed = self._own(round)
        with self._changed:
            self._mailbox.begin(round, time.monotonic())
        self._wait(lambda: self._mailbox.standing(round, time.monotonic()), end_s, waiting)
        with self._changed:
            now_s = time.monotonic()
            missing = self._mailbox.missing(round, now_s)
            came = self._mailbox.take(round)
            traffic = Traffic(
                len(own_sealed),
                sum(len(c.token_T) for c in own or ()),
                self._mailbox.take_received_bytes(),
                self._mailbox.peers.take_refused(),
                self._mailbox.peers.quarantined(now_s),
            )
        if own is None and self._expects_self:
            missing.add(self._terms.node)
        late: dict[int, list[Completion]] = {}
        for delivery in came:
            if delivery.round < round:
                late.setdefault(delivery.round, []).extend(delivery.completions)
        in_time = [c for delivery in came if delivery.round == round for c in delivery.completions]
        return Round(
            reading_order([*(own or ()), *in_time]),
            tuple(sorted(missing)),
            {then: reading_order(completions) for then, completions in late.items()},
            tuple([own_sealed] * (own is not None) + [delivery.sealed for delivery in came]),
            traffic,
        )

    def gather(self, timeout_s: float, waiting: Waiting = silent) -> tuple[str, ...]:
        """Waits until every other member is there, and its last batch too if it has one.

        Returns who is not after ``timeout_s`` seconds.
        """

        def standing() -> tuple[set[str], set[str]]:
            members = self._mailbox.peers.members()
            return members - self._mailbox.absent(), members

        self._wait(standing, time.monotonic() + timeout_s, waiting)
        with self._changed:
            return tuple(sorted(self._mailbox.absent()))

    def round_of_others(self) -> int:
        with self._changed:
            return self._mailbox.peers.median_round()

    def close(self) -> None:
        self._station.close()

    def _own(self, round: int) -> tuple[tuple[Completion, ...] | None, bytes]:
        """What others read in this node's batch, and its bytes; None where they read nothing."""
        sealed = self._shelf.get(round)
        if sealed is None:
            return None, b""
        try:
            message = decode(without_seal(sealed), self._terms.limits)
            return self._terms.admit(self._terms.node, round, message), sealed
        except WireError as error:
            self._say(f"the others refuse this node's batch of round {round}: {error}")
            return None, sealed

    def _wait(
        self, standing: Callable[[], tuple[set[str], set[str]]], end_s: float, waiting: Waiting
    ) -> None:
        """Until in what ``standing`` gives, who is here and who is waited for, nobody misses."""

        def is_over() -> bool:
            here, awaited = standing()
            return here == awaited

        def ask() -> None:
            with self._changed:
                here, awaited = standing()
            waiting(len(here), len(awaited))

        while True:
            self._tell()
            ask()
            pause_s = min(TELL_S, end_s - time.monotonic())
            with self._changed:
                over = self._changed.wait_for(is_over, max(0.0, pause_s))
            if over or time.monotonic() >= end_s:
                # Once more: Ctrl-C for all nodes lets the first one leave before another has seen
                # it, which must not then learn from a round without that one.
                ask()
                self._tell()
                return

    def _tell(self) -> None:
        self._crew.check()
        with self._changed:
            news = self._mailbox.take_news()
        for text in news:
            self._say(text)
