"""What every transport promises, and the ways it can fail.

    ExchangeError            anything that goes wrong between nodes
      WireError              a peer's bytes are not a message of theirs, or none that we take

A peer that says nothing is not an error. Strangers come and go; the round goes on
without them, and says so in ``Round.missing``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from potluck.types import Completion, PotluckError

Waiting = Callable[[int, int], None]
"""Called with (nodes of whom a batch is here, nodes waited for) several times a second. What
it raises ends the wait: so does Ctrl-C."""


class ExchangeError(PotluckError):
    """Base of all that can go wrong between nodes."""


class WireError(ExchangeError):
    """Bytes that are no message of their sender, or none for us; says where and why."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a round took on the line, as this node saw it. Bytes are those of sealed messages."""

    sent_bytes: int = 0
    """Of this node's batch of the round, once, however many fetched it."""
    sent_tokens: int = 0
    received_bytes: int = 0
    """Of all batches that were fetched since the last ``collect``, refused ones included."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Batches and announcements refused since the last ``collect``, by the name they came under."""
    quarantined: tuple[str, ...] = ()
    """Nodes that are not listened to at the moment, sorted."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one node has of a round when it stops waiting.

    Two nodes hold equal rounds when nothing is missing and nothing late on
    either; otherwise each learns from what it has.
    """

    completions: tuple[Completion, ...]
    """Of this round, everyone's that came, own included once; in ``reading_order``."""
    missing: tuple[str, ...] = ()
    """Nodes that were waited for and of whom nothing readable came in time, sorted."""
    late: Mapping[int, tuple[Completion, ...]] = field(default_factory=dict)
    """Of earlier rounds, by round: came after this node had stopped waiting. Each is here once."""
    messages: tuple[bytes, ...] = field(default=(), compare=False, repr=False)
    """What ``completions`` and ``late`` were read from, as it came."""
    traffic: Traffic = field(default=Traffic(), compare=False)


def silent(came: int, waited_for: int) -> None:
    """A ``Waiting`` that tells nobody."""


class Exchange(Protocol):
    """One node's end of the line to all others."""

    def send(self, round: int, batch: Sequence[Completion]) -> None:
        """Makes ``batch``, this node's own, available to every node. Never blocks.

        A round that is sent again counts once; the first batch stays.
        """
        ...

    def collect(self, round: int, *, deadline_s: float, waiting: Waiting = silent) -> Round:
        """Waits until every live node has sent, or ``deadline_s`` seconds from now.

        Call it once a round, after ``send``. Own completions come back by the same
        way as everybody's, so they carry the same rounded numbers. Nothing is
        raised for what a peer does: one that is silent, sends what is no message,
        or signs with another's name is ``missing``.
        """
        ...

    def round_of_others(self) -> int:
        """The round that the other nodes have come to: the median of those that are there.

        Who has sent nothing counts as 0, and of two in the middle it is the lower.
        A node that was away goes on there (``Node.next_round``).
        """
        ...

    def close(self) -> None:
        """Leaves. The others are told; what was not yet fetched is gone until this node is back."""
        ...


def reading_order(completions: Iterable[Completion]) -> tuple[Completion, ...]:
    """By (author, index), then problem: one order on every node, however they came."""
    return tuple(sorted(completions, key=lambda c: (c.author, c.index, c.problem_id)))
