"""Completions of a model behind the Tinker API, with its newest weights."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from potluck.model.reader import Reader
from potluck.rollout.base import (
    Progress,
    RandomSampler,
    Requests,
    RolloutError,
    Sampler,
    completion_budget,
)
from potluck.rollout.tinker.session import TinkerSession
from potluck.types import Completion, End, NonFiniteError


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
        requests = [request for request in requests if request.count]
        if not requests:
            return []
        drawing: dict[str, Any] = {"temperature": 0.0, "stop": sorted(self.policy.stop_ids)}
        seeds = [0] * len(requests)
        if isinstance(sampler, RandomSampler):
            drawing["temperature"] = 1.0
            dice = sampler.generator
            seeds = torch.randint(2**31 - 1, (len(requests),), generator=dice).tolist()
        prompts = [self.policy.prompt(request.problem) for request in requests]
        session, limit = self.session, self.policy.context or self.max_total_tokens
        limit, begun, limits = min(limit, self.max_total_tokens), [], []
        writer = session.sampler(prompts[0])
        session.books.begin(0)
        for request, prompt_P, seed in zip(requests, prompts, seeds, strict=True):
            room = completion_budget(prompt_P, request.problem, limit)
            limits.append(min(room, self.max_new_tokens))
            more = {"max_tokens": limits[-1], "seed": seed, **drawing}
            begun.append(session.ask(writer, prompt_P, request.count, **more))
        written, total = list[Completion](), sum(request.count for request in requests)
        written, total = list[Completion](), sum(request.count for request in requests)
        for request, asked, most in zip(requests, begun, limits, strict=True):
            done = len(written)
            said = session.written(asked, partial(progress, done, total))
            if len(said) != request.count:
                raise self._not_ours(f"{len(said)} completions, asked for {request.count}")
            written += [
                self._completion(request.problem.id, author, index, each, most)
                for index, each in enumerate(said)
            ]
        progress(total, total)
        return written

    def _completion(
        self, problem_id: str, author: str, index: int, said: Any, most: int
    ) -> Completion:
        """Read one completion; raise RolloutError if this model cannot have written it."""
        token_T, logp_T = np.array(said.tokens, np.int64), np.array(said.logprobs, np.float32)
        ends = np.isin(token_T, sorted(self.policy.stop_ids))
        if not 0 < len(token_T) <= most or len(logp_T) != len(token_T):
            raise self._not_ours(f"{len(token_T)} tokens, {len(logp_T)} log-probabilities")
        if not (token_T.min() >= 0 and token_T.max() < self.policy.vocabulary):
            raise self._not_ours(f"id {token_T.max()}, of {self.policy.vocabulary} ids")
        if ends[:-1].any() or not (ends[-1] or len(token_T) == most):
            raise self._not_ours("a completion that does not end with its stop token")
        if not np.isfinite(logp_T).all():
            raise NonFiniteError(
                f"{author!r}: its server tells a log-probability of {logp_T.sum()}"
            )
        end: End = "stop" if ends[-1] else "length"
        ids = token_T.astype(np.int32)
        return Completion(problem_id, author, index, ids, np.minimum(logp_T, 0), end)

    def _not_ours(self, what: str) -> RolloutError:
        return RolloutError(
            f"{self.session.options.url} wrote {what}: is the engine's tokenizer that of "
            f"{self.session.model!r}?"
        )
