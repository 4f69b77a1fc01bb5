"""What every engine promises."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from potluck.rollout.sampling import Draw
from potluck.types import Completion, PotluckError, Problem

Progress = Callable[[int, int], None]
"""Called with (completions finished, completions ordered) while an engine writes."""


class RolloutError(PotluckError):
    """What cannot be written: a prompt leaves no room, or a server fails; says which and why."""


@dataclass(frozen=True, slots=True)
class Order:
    """``count`` completions of one problem."""

    problem: Problem
    count: int


def room_behind(prompt_P: np.ndarray, problem: Problem, *, max_total_tokens: int) -> int:
    """Tokens that fit behind the prompt, at least 1.

    Raises:
        RolloutError: none do, or there is no prompt to begin with.
    """
    if not len(prompt_P):
        raise RolloutError(
            f"the prompt of {problem.id!r} has no tokens: the tokenizer knows nothing of its text"
        )
    if len(prompt_P) >= max_total_tokens:
        raise RolloutError(
            f"the prompt of {problem.id!r} has {len(prompt_P)} tokens, which leaves no room below "
            f"max_total_tokens = {max_total_tokens} (or the model's context); raise it"
        )
    return max_total_tokens - len(prompt_P)


class Engine(Protocol):
    """A model that writes."""

    def limited_to(self, *, max_new_tokens: int, max_total_tokens: int) -> "Engine":
        """The same model, with other limits: an evaluation may ask for longer answers."""
        ...

    def write(
        self, orders: Sequence[Order], draw: Draw, *, author: str, progress: Progress
    ) -> list[Completion]:
        """All completions ordered, in the order of ``orders``, then by index.

        Each keeps its stop token, and with every token the log-probability that
        ``draw`` gave it: at the sampling temperature, over the tokenizer's ids,
        before top-k and top-p.

        Raises:
            RolloutError: a prompt leaves no room to write in, or a server does not write.
            NonFiniteError: the model gave a logit that is not finite.
        """
        ...
