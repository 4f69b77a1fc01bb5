"""The interface of an author without weights, and what its work costs."""

from collections.abc import Callable
from dataclasses import astuple, dataclass
from operator import add, sub
from pathlib import Path
from typing import Protocol

import numpy as np

from potluck.episode import Environment
from potluck.rollout.base import Progress, Requests
from potluck.types import LONE_SURROGATE, Completion, Sampling


@dataclass(frozen=True, slots=True)
class Cost:
    """Amount that was asked of a paid service."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    booked: int = 0
    """Requests of which no cost is known: they stand at the most that they can cost."""

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(*map(sub, astuple(self), astuple(other)))


NOTHING = Cost()
NO_TOKENS = np.zeros(0, np.int32)
"""Ids of a completion that is a text only."""


@dataclass(frozen=True, slots=True)
class Written:
    """Texts of one round, and their cost."""

    completions: tuple[Completion, ...]
    """Completions with a text and no tokens, at most as many as were asked for, in the order of the
    requests, then by index from 0 without gaps."""
    cost: Cost = NOTHING


@dataclass(frozen=True, slots=True)
class TextSettings:
    """Settings that hold for every author without weights; its node and its run give them."""

    node: str
    folder: Path
    """Folder of the run."""
    max_new_tokens: int
    sampling: Sampling
    notify: Callable[[str], None]
    """Function for news that a person may want to know: a budget that is spent."""
    environment: Environment | None = None
    """Environment of the task; with one, episodes are written in it."""


class TextEngine(Protocol):
    """An author without weights."""

    def write(self, requests: Requests, *, author: str, seed: int, progress: Progress) -> Written:
        """Write up to ``count`` texts for each request; fewer, or none, where it has no more.

        ``seed`` differs from round to round. Raise RolloutError if the service refuses for good (a
        wrong key); what is only unreachable now writes nothing in this round, and is told.
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
