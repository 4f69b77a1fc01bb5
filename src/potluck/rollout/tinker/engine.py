"""Completions of a model behind the Tinker API, by its newest weights."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch

from potluck.rollout.base import (
    Engine,
    Progress,
    PromptedRequest,
    RandomSampler,
    Requests,
    RolloutError,
    Sampler,
)
from potluck.rollout.server import NotWritten, read_written
from potluck.rollout.tinker.session import OTHER_SERVER, Asked, TinkerSession
from potluck.types import Completion, NonFiniteError

AT_ONCE = 16  # requests that are under way, each with a thread


@dataclass(frozen=True, eq=False)
class TinkerEngine(Engine):
    session: TinkerSession

    def generate(
        self, requests: Requests, sampler: Sampler, *, author: str, progress: Progress
    ) -> list[Completion]:
        written, total = list[Completion](), sum(request.count for request in requests)
        self.session.books.begin(0)
        asking = self._ask_all(requests, sampler)
        begun = deque(islice(asking, AT_ONCE))
        while begun:
            request, asked = begun.popleft()
            said = self.session.written(asked, partial(progress, len(written), total))
            begun.extend(islice(asking, 1))
            if len(said) != request.count:
                wrote = f"{len(said)} completions of {request.problem.id!r}, not {request.count}"
                raise RolloutError(f"{self.session.options.url} wrote {wrote}; {OTHER_SERVER}")
            for index, each in enumerate(said):
                written.append(self._completion(each, request, index, author))
        progress(total, total)
        return written

    def _ask_all(
        self, requests: Requests, sampler: Sampler
    ) -> Iterator[tuple[PromptedRequest, Asked]]:
        """Begin each request when the next is asked for; yield it, and its answer to come."""
        drawing = {"temperature": 0.0, "seed": 0}
        for request in self.prompted([each for each in requests if each.count]):
            if isinstance(sampler, RandomSampler):
                seed = int(torch.randint(2**31 - 1, (), generator=sampler.generator))
                drawing = {"temperature": 1.0, "seed": seed}
            given = {"max_tokens": request.longest, "stop": sorted(self.policy.stop_ids)}
            yield request, self.session.ask(request.prompt_P, request.count, **given, **drawing)

    def _completion(
        self, said: Any, request: PromptedRequest, index: int, author: str
    ) -> Completion:
        """Read a sequence; raise RolloutError if this model cannot have written it."""
        url, what = self.session.options.url, f"completion {index} of {request.problem.id!r}"
        try:
            if said.logprobs is None:
                raise NotWritten("without log-probabilities", OTHER_SERVER)
            if not np.isfinite(said.logprobs).all():
                raise NonFiniteError(f"{url} wrote {what} with a log-probability of no finite size")
            # Why it ended, servers tell otherwise, or not at all.
            finish = "length" if len(said.tokens) == request.longest else "stop"
            told, most = (said.tokens, said.logprobs, finish), request.longest
            read = read_written(*told, most=most, policy=self.policy)
        except NotWritten as error:
            raise RolloutError(f"{url} wrote {what} {'; '.join(error.args)}") from None
        return Completion(request.problem.id, author, index, *read)
