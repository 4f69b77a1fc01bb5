"""What every transport promises, and the ways it can fail.

    ExchangeError            anything that goes wrong between nodes
      WireError              a peer's bytes are not a message of theirs

A peer that says nothing is not an error. Strangers come and go; the round goes on
without them, and says so in ``Round.missing``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from potluck.types import Completion, PotluckError


class ExchangeError(PotluckError):
    """Base of all that can go wrong between nodes."""


class WireError(ExchangeError):
    """Bytes that are no message of their sender; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one node has of a round when it stops waiting.

    Two nodes hold equal rounds when nothing is missing and nothing late on
    either; otherwise each learns from what it has.
    """

    completions: tuple[Completion, ...]
    """Of this round, everyone's that came, own included once; in ``reading_order``."""
    missing: tuple[str, ...]
    """Nodes of whom nothing readable came in time, sorted."""
    late: tuple[Completion, ...]
    """Of earlier rounds: came after this node had stopped waiting. Each is here once."""


class Exchange(Protocol):
    """One node's end of the line to all others."""

    def send(self, round: int, batch: Sequence[Completion]) -> None:
        """Makes ``batch``, this node's own, available to every node. Never blocks.

        A round that is sent again counts once; the first batch stays.
        """
        ...

    def collect(self, round: int, *, deadline_s: float) -> Round:
        """Waits until every node has sent, or ``deadline_s`` seconds from now.

        Call it once a round, after ``send``. Own completions come back by the same
        way as everybody's, so they carry the same rounded numbers. Nothing is
        raised for what a peer does: one that is silent, sends what is no message,
        or signs with another's name is ``missing``.
        """
        ...


def reading_order(completions: Iterable[Completion]) -> tuple[Completion, ...]:
    """By (author, index), then problem: one order on every node, however they came."""
    return tuple(sorted(completions, key=lambda c: (c.author, c.index, c.problem_id)))
