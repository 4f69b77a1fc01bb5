"""Completions of a model behind the Tinker API, by its newest weights."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import torch

from potluck.model.reader import Reader
from potluck.rollout import base
from potluck.rollout.base import Progress, RandomSampler, Requests, RolloutError, Sampler
from potluck.rollout.tinker.session import Asked, TinkerSession
from potluck.types import Completion, End, NonFiniteError

AT_ONCE = 16
"""Requests that are under way at once, each with a thread."""


@dataclass(frozen=True, eq=False)
class TinkerEngine:
    """An engine on the adapter of a session."""

    policy: Reader
    session: TinkerSession
    max_new_tokens: int
    max_total_tokens: int
    server_mismatch: ClassVar[None] = None

    def with_limits(self, *, max_new_tokens: int, max_total_tokens: int) -> "TinkerEngine":
        return replace(self, max_new_tokens=max_new_tokens, max_total_tokens=max_total_tokens)

    def generate(
        self, requests: Requests, sampler: Sampler, *, author: str, progress: Progress
    ) -> list[Completion]:
        written, total = list[Completion](), sum(request.count for request in requests)
        self.session.books.begin(0)
        asking = self._ask_all(requests, sampler)
        begun = deque(islice(asking, AT_ONCE))
        while begun:
            request, most, asked = begun.popleft()
            said = self.session.written(asked, partial(progress, len(written), total))
            begun.extend(islice(asking, 1))
            if len(said) != request.count:
                raise self._not_ours(f"{len(said)} completions, asked for {request.count}")
            for index, each in enumerate(said):
                read = self._read(each, most)
                written.append(Completion(request.problem.id, author, index, *read))
        progress(total, total)
        return written

    def _ask_all(
        self, requests: Requests, sampler: Sampler
    ) -> Iterator[tuple[base.RolloutRequest, int, Asked]]:
        """Begin each request when the next is asked for; yield it, its most tokens, the answer."""
        limit = min(self.max_total_tokens, self.policy.context or self.max_total_tokens)
        drawing = {"temperature": 0.0, "seed": 0}
        for request in (each for each in requests if each.count):
            prompt_P = self.policy.prompt(request.problem)
            room = base.completion_budget(prompt_P, request.problem, limit)
            most = min(room, self.max_new_tokens)
            if isinstance(sampler, RandomSampler):
                seed = int(torch.randint(2**31 - 1, (), generator=sampler.generator))
                drawing = {"temperature": 1.0, "seed": seed}
            given = {"max_tokens": most, "stop": sorted(self.policy.stop_ids), **drawing}
            yield request, most, self.session.ask(prompt_P, request.count, **given)

    def _read(self, said: Any, most: int) -> tuple[np.ndarray, np.ndarray, End]:
        """Read a sequence; raise RolloutError if this model cannot have written it."""
        if said.logprobs is None:
            told = f"{self.session.options.url} tells no log-probabilities of what it writes"
            raise RolloutError(f"{told}; take another server, or another version of it")
        if not all(0 <= id < self.policy.vocabulary for id in said.tokens):
            raise self._not_ours(f"an id that is none of {self.policy.vocabulary} ids")
        token_T, logp_T = np.array(said.tokens, np.int64), np.array(said.logprobs, np.float32)
        ends = np.isin(token_T, sorted(self.policy.stop_ids))
        if not 0 < len(token_T) <= most or len(logp_T) != len(token_T):
            raise self._not_ours(f"{len(token_T)} tokens, {len(logp_T)} log-probabilities")
        if ends[:-1].any() or not (ends[-1] or len(token_T) == most):
            raise self._not_ours("a completion that does not end with its stop token")
        if not np.isfinite(logp_T).all():
            raise NonFiniteError(f"its server tells a log-probability of {logp_T.sum()}")
        return token_T.astype(np.int32), np.minimum(logp_T, 0), "stop" if ends[-1] else "length"

    def _not_ours(self, what: str) -> RolloutError:
        return RolloutError(
            f"{self.session.options.url} wrote {what}: is the engine's tokenizer that of "
            f"{self.session.model!r}?"
        )
