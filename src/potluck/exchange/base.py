"""The interface of every transport, and its errors. A silent peer is none: the round goes on."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

import msgspec

from potluck.reports.status import PeerLine, StatusLine
from potluck.types import Completion, PotluckError

Waiting = Callable[[int, int], None]
"""Function that is called several times a second with (peers that are here, peers awaited). What it
raises ends the wait."""

Reason = Literal[
    "malformed", "too large", "forged", "replaced", "unknown sender",
    "other version", "other run", "other round", "other task", "other tokenizer", "other sampling",
]  # fmt: skip
"""Why something of a peer was refused.

    malformed         its bytes follow no format, or hold numbers that cannot be
    too large         more bytes, rows or tokens than are taken
    forged            not signed by the key of its sender, or under another node's name
    replaced          not the first batch that its author announced for a round; the first stays
    unknown sender    a name that no node can have, or that may not take part
    other ...         sound, but of another release, or of no use for this round of this run
"""


class ExchangeError(PotluckError):
    """Base of all that can go wrong between nodes."""


class WireError(ExchangeError):
    """A peer's bytes are malformed, forged, or not meant for this run; the message says which."""

    def __init__(self, message: str, reason: Reason = "malformed") -> None:
        super().__init__(message)
        self.reason = reason


_Form = TypeVar("_Form")


def unpacked(data: bytes | memoryview, form: type[_Form], what: str) -> _Form:
    """Decode MessagePack that a peer may have written; raise WireError if it is no ``form``."""
    try:
        return msgspec.msgpack.decode(data, type=form)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"{what} not readable: {error}") from error


def require_at_most(most: int, number: int, what: str) -> None:
    """Raise WireError for a number beyond the bound that a reader has set."""
    if number > most:
        raise WireError(f"{what}; at most {most} are taken", "too large")


@dataclass(frozen=True, slots=True)
class Traffic:
    """Cost of a round on the network, as this node saw it. Bytes are those of sealed messages."""

    sent_bytes: int = 0
    """Size of this node's batch of the round, however many fetched it."""
    sent_tokens: int = 0
    received_bytes: int = 0
    """Size of all batches fetched since the last ``finish``, refused ones included."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Batches and announcements refused since the last ``finish``, by their sender's name."""
    quarantined: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """One usable batch, as it came and as it was read; ``round`` is its author's."""

    author: str
    round: int
    message: bytes
    completions: tuple[Completion, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Received:
    """Others' batches that a node has when it stops waiting."""

    batches: tuple[Delivery, ...] = ()
    missing: tuple[str, ...] = ()
    """Awaited nodes of which nothing readable came in time, sorted."""


@dataclass(frozen=True, slots=True)
class Round:
    """Completions of a round; equal on nodes that miss nothing and have nothing late."""

    completions: tuple[Completion, ...]
    """Completions of this round, the node's own among them once; in ``canonical_order``."""
    missing: tuple[str, ...] = ()
    """Names as in ``Received``, and this node itself if it sent nothing."""
    late: Mapping[int, tuple[Completion, ...]] = field(default_factory=dict)
    """Completions of other rounds, by round: each is here once. They came too late for theirs; at
    ``pace = "free"`` they are of their authors' own rounds."""
    messages: tuple[bytes, ...] = field(default=(), compare=False, repr=False)
    """Bytes from which ``completions`` and ``late`` were read."""
    traffic: Traffic = field(default=Traffic(), compare=False)
    newest: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Newest round that each author had when this one was finished, at ``pace = "free"``."""

    def received_by(self, me: str, round: int) -> Received:
        """Collect what the others sent again, from the record of a ``round`` of node ``me``."""
        batches = self.by_author(round).items()
        made = (Delivery(by, then, b"", (*of,)) for (by, then), of in batches if by != me)
        return Received(tuple(made))

    def by_author(self, round: int) -> dict[tuple[str, int], list[Completion]]:
        """Sort the completions of a ``round`` by author and the author's round."""
        batches: dict[tuple[str, int], list[Completion]] = {}
        for then, completions in [(round, self.completions), *sorted(self.late.items())]:
            for completion in completions:
                batches.setdefault((completion.author, then), []).append(completion)
        return batches


@dataclass(frozen=True, slots=True)
class Status:
    peers: Mapping[str, PeerLine]
    """Every other member, every stranger that was heard, and every name that was refused."""
    round: int = 0
    """Round that the others have reached: the median over those connected."""


def silent(here: int, awaited: int) -> None:
    """Ignore progress: the default for ``Waiting``."""


class Exchange(Protocol):
    """One node's connection to all others. ``send``, ``receive`` and ``gather`` raise ExchangeError
    if the transport itself has failed."""

    def send(self, round: int, batch: Sequence[Completion]) -> None:
        """Make this node's batch of a round, from 0, available to every node, without waiting for
        any. If the round was sent before, even before a restart, the first batch stays. Raise
        ValueError if a completion is another node's, or comes twice; ExchangeError if the batch is
        larger than others take."""

    def receive(self, round: int, *, wait_s: float = 0.0, waiting: Waiting = silent) -> Received:
        """Return the batches of others that came since the last call and are of use in ``round``
        by the node's ``Membership.rule``. Nothing that a peer does, or leaves undone, raises.

        In step, call it once a round, after ``send``. It waits until every awaited node has sent
        its batch, ``wait_s`` at most; 0 takes what is here. Meanwhile it calls ``waiting`` with
        (peers whose batch is here, peers awaited). At its own pace a node waits for nobody."""

    def finish(self, round: int, received: Received) -> Round:
        """Return the round of this node's own batch and those ``received``. The own batch comes
        back by the same way as everybody's, so it has the same rounded numbers."""

    def gather(self, wait_s: float, waiting: Waiting = silent) -> tuple[str, ...]:
        """Wait until every other member is connected, and its newest batch is here if it has one:
        ``wait_s`` at most; 0 only looks. Call ``waiting`` meanwhile with (members here, others).
        Return the names of the members that are still absent, sorted: the run may begin without
        them. Call it once, before the first round, so that ``Status.round`` counts everybody."""

    def tell(self, line: StatusLine) -> None:
        """Tell the others how this node is, for people: once a round and every five seconds, from
        any thread, without waiting. A transport may drop lines; only the newest counts."""

    def status(self) -> Status:
        """Return what is known of each peer now, without waiting; any thread may call it."""

    def close(self) -> None:
        """Leave, and tell the others; a second call does nothing."""


def traffic_of(me: str, batches: Sequence[Delivery]) -> Traffic:
    """Return the cost of ``batches``, among which is node ``me``'s own."""
    own = [batch for batch in batches if batch.author == me]
    sent_tokens = sum(len(c.token_T) for batch in own for c in batch.completions)
    sent_bytes, all_bytes = (sum(len(each.message) for each in of) for of in (own, batches))
    return Traffic(sent_bytes, sent_tokens, all_bytes - sent_bytes)


def assemble_round(
    round: int,
    batches: Sequence[Delivery],
    missing: Iterable[str],
    traffic: Traffic,
    newest: Mapping[str, int],
) -> Round:
    late = {
        then: canonical_order(c for each in batches if each.round == then for c in each.completions)
        for then in sorted({round, *(each.round for each in batches)})
    }
    completions, messages = late.pop(round), tuple(each.message for each in batches)
    return Round(completions, tuple(sorted(missing)), late, messages, traffic, newest)


def canonical_order(completions: Iterable[Completion]) -> tuple[Completion, ...]:
    """Sort by (author, index), then problem: one order on every node, however they came."""
    return tuple(sorted(completions, key=lambda c: (c.author, c.index, c.problem_id)))
