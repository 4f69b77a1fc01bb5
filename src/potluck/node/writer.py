"""How a node writes: its shares of a round, and those of the next one while it learns."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

from potluck.config import RunConfig
from potluck.files import derived_seed
from potluck.model import Reader
from potluck.rollout.base import (
    Engine,
    OpenWriting,
    Overlapping,
    Progress,
    RandomSampler,
    Requests,
    RolloutRequest,
)
from potluck.rollout.texts.base import BYTES_A_TOKEN
from potluck.schedule import Share
from potluck.tasks import Task
from potluck.types import Completion, NonFiniteError


@dataclass(eq=False, kw_only=True)
class Writer:
    """The engine of one node, what it is asked, and the later round that it has begun, if any."""

    name: str
    engine: Engine
    task: Task
    policy: Reader
    config: RunConfig
    sends_text: bool
    """True: completions go as text too, as some reader may have another tokenizer."""
    _begun: dict[int, tuple[Sequence[Share], OpenWriting]] = field(default_factory=dict, init=False)

    def write(self, round: int, shares: Sequence[Share], progress: Progress) -> list[Completion]:
        """Return the completions of these shares, as they are sent."""
        with error_context(round, self.name):
            _, begun = self._begun.pop(round, (shares, None))
            if begun:
                completions = begun.collect(progress)
            else:
                self.abandon()  # the others are ahead, and the round that was begun is skipped
                requests, sampler = self._ordered(round, shares)
                completions = self.engine.generate(
                    requests, sampler, author=self.name, progress=progress
                )
        if not self.config.sends_logp:  # no learner of the run reads them
            completions = [replace(c, logp_T=None) for c in completions]
        if self.sends_text:
            asked = self.task.problem
            most_bytes = BYTES_A_TOKEN * self.config.sampling.max_new_tokens
            completions = [
                self.policy.spelled(c, asked(c.problem_id), most_bytes=most_bytes)
                for c in completions
            ]
        elif any(c.turns for c in completions):
            completions = [replace(c, text=None) for c in completions]
        return completions

    def overlaps(self, round: int) -> bool:
        """Return whether the engine can write this round while the weights change."""
        return round < self.config.rounds and isinstance(self.engine, Overlapping)

    def begin(self, round: int, shares: Sequence[Share]) -> None:
        """Begin to write these shares of a later round with the weights as they are now;
        ``write`` of that round waits for the rest."""
        assert isinstance(self.engine, Overlapping)
        if writing := self.engine.begin(*self._ordered(round, shares), author=self.name):
            self._begun[round] = shares, writing

    def shares_begun(self, round: int) -> Sequence[Share]:
        """Return the shares of a round that has been begun; none if it has not."""
        return self._begun[round][0] if round in self._begun else ()

    def abandon(self) -> None:
        """Break off what was begun and is not waited for any more."""
        while self._begun:
            _, (_, writing) = self._begun.popitem()
            writing.abandon()

    def _ordered(self, round: int, shares: Sequence[Share]) -> tuple[Requests, RandomSampler]:
        requests = [RolloutRequest(self.task.problem(s.problem_id), s.count) for s in shares]
        seed = derived_seed(f"{self.config.seed}/{round}/{self.name}/write")
        generator = torch.Generator(self.policy.device).manual_seed(seed)
        return requests, RandomSampler(generator, self.config.sampling.drawing)


@contextmanager
def error_context(round: int, node: str) -> Iterator[None]:
    """Add the round and the node to a NonFiniteError."""
    try:
        yield
    except NonFiniteError as error:
        raise NonFiniteError(f"round {round + 1}, node {node!r}: {error}") from error
