"""The interface of an author without weights, and what its work costs."""

from dataclasses import astuple, dataclass
from operator import add, sub
from typing import Protocol

import numpy as np

from potluck.rollout.base import Progress, Requests
from potluck.types import LONE_SURROGATE, Completion


@dataclass(frozen=True, slots=True)
class Cost:
    """Amount that was asked of a paid service; of ``booked`` requests no cost is known, and they
    stand at the most that they can cost."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    booked: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(*map(sub, astuple(self), astuple(other)))


NOTHING = Cost()
NO_TOKENS = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class Written:
    """Texts of one round, and their cost."""

    completions: tuple[Completion, ...]
    """Completions without tokens, in the order of the requests, then by index without gaps."""
    cost: Cost = NOTHING


class TextEngine(Protocol):
    def write(self, requests: Requests, *, author: str, seed: int, progress: Progress) -> Written:
        """Write up to ``count`` texts for each request; fewer, or none, where it has no more.

        ``seed`` differs from round to round. Raise RolloutError if the service refuses for good;
        what is only unreachable now writes nothing in this round, and is told.
        """


BYTES_A_TOKEN = 16
"""Most bytes of a text that is sent and taken, for each token that it may have; English has 4."""


def can_be_read(text: str, max_new_tokens: int) -> bool:
    """Tell whether a model may learn to write ``text``: not blank, UTF-8, of bounded length."""
    return (
        len(text) <= (most := BYTES_A_TOKEN * max_new_tokens)
        and not LONE_SURROGATE.search(text)
        and not text.isspace()
        and 0 < len(text.encode()) <= most
    )
