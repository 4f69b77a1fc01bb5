"""How a node writes: its shares of a round, and those of the next one while it learns."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from potluck.config import SamplingConfig
from potluck.files import derived_seed
from potluck.model import LanguageModel
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


class Writer:
    """The engine of one node, and the writing of a later round that it has begun, if any."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        task: Task,
        policy: LanguageModel,
        sampling: SamplingConfig,
        *,
        seed: int,
        rounds: int,
        sends_logp: bool,
        sends_text: bool,
    ) -> None:
        """``seed`` is the run's, which has ``rounds``: none beyond them is begun. ``sends_logp`` is
        false if no learner of the run reads log-probabilities, ``sends_text`` true if some reader
        may have another tokenizer."""
        self.engine, self.sampling = engine, sampling
        self._name, self._task, self._policy = name, task, policy
        self._seed, self._rounds = seed, rounds
        self._sends_logp, self._sends_text = sends_logp, sends_text
        self._begun: dict[int, tuple[Sequence[Share], OpenWriting]] = {}

    def write(self, round: int, shares: Sequence[Share], progress: Progress) -> list[Completion]:
        """Return the completions of these shares, as they are sent."""
        with error_context(round, self._name):
            completions = self._generate(round, shares, progress)
        if not self._sends_logp:
            completions = [replace(c, logp_T=None) for c in completions]
        if self._sends_text:
            asked, most_bytes = self._task.problem, BYTES_A_TOKEN * self.sampling.max_new_tokens
            completions = [
                self._policy.spelled(c, asked(c.problem_id), most_bytes=most_bytes)
                for c in completions
            ]
        return completions

    def overlaps(self, round: int) -> bool:
        """Return whether the engine can write this round while the weights change."""
        return round < self._rounds and isinstance(self.engine, Overlapping)

    def begin(self, round: int, shares: Sequence[Share]) -> None:
        """Begin to write these shares of a later round with the weights as they are now;
        ``write`` of that round waits for the rest."""
        assert isinstance(self.engine, Overlapping)
        if writing := self.engine.begin(*self._ordered(round, shares), author=self._name):
            self._begun[round] = shares, writing

    def shares_begun(self, round: int) -> Sequence[Share] | None:
        """Return the shares of a round that has been begun, or None."""
        return self._begun[round][0] if round in self._begun else None

    def abandon(self) -> None:
        """Break off what was begun and is not waited for any more."""
        while self._begun:
            _, (_, writing) = self._begun.popitem()
            writing.abandon()

    def _generate(
        self, round: int, shares: Sequence[Share], progress: Progress
    ) -> list[Completion]:
        _, begun = self._begun.pop(round, (shares, None))
        if begun:
            return begun.collect(progress)
        self.abandon()  # the others are ahead, and the round that was begun is skipped
        requests, sampler = self._ordered(round, shares)
        return self.engine.generate(requests, sampler, author=self._name, progress=progress)

    def _ordered(self, round: int, shares: Sequence[Share]) -> tuple[Requests, RandomSampler]:
        """Return what an engine is asked for these shares."""
        requests = [RolloutRequest(self._task.problem(s.problem_id), s.count) for s in shares]
        seed = derived_seed(f"{self._seed}/{round}/{self._name}/write")
        generator = torch.Generator(self._policy.device).manual_seed(seed)
        return requests, RandomSampler(generator, self.sampling.drawing)


@contextmanager
def error_context(round: int, node: str) -> Iterator[None]:
    """Add the round and the node to a NonFiniteError."""
    try:
        yield
    except NonFiniteError as error:
        raise NonFiniteError(f"round {round}, node {node!r}: {error}") from error
