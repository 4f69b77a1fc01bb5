"""Writing with the model's own forward pass: any ``transformers`` causal LM, CPU or GPU.

Faster than ``generate`` on groups: a prompt is read once for its group, completions that have ended
leave the batch, and the model may write in bfloat16 while float32 weights are trained. An episode
keeps its cache, so that a turn costs its own tokens and what the environment said before it.
"""

import inspect
import math
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count as counted

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from potluck.model.loading import ModelError
from potluck.model.policy import LanguageModel
from potluck.model.rounding import rounded
from potluck.rollout.base import (
    TICK_S,
    Engine,
    Progress,
    PromptedRequest,
    RandomSampler,
    Requests,
    Sampler,
)
from potluck.rollout.cache import PromptReader, TurnReader
from potluck.rollout.compare import require_one_model
from potluck.rollout.episodes import Episodes
from potluck.types import Completion, End, Sampling

COMPACT_AT = 0.25  # share of the batch that must have ended before the rest is moved together
RESUME_AT = 0.125
"""Share of the episodes that must have been answered before these rows read on, if others write."""
Prompted = list[PromptedRequest]
Tell = Callable[[int], None]  # called with the completions that have ended


@dataclass(frozen=True, eq=False)
class HFEngine(Engine):
    """An engine on a LanguageModel that may be trained between two calls."""

    policy: LanguageModel
    allowed: float = math.inf
    """Largest mean difference between log-probabilities of what it writes and of what learns,
    nats a token."""

    def __post_init__(self) -> None:
        network = self.policy.network
        if "past_key_values" not in inspect.signature(network.forward).parameters:
            lacks = f"{type(network).__name__} keeps no cache of keys and values"
            raise ModelError(f"{lacks}, as writing here needs; use a model that does")
        if self.settings.environment:
            TurnReader.require_columns(network, self.settings.longest(self.policy.context))

    @torch.inference_mode()
    def generate(
        self, requests: Requests, sampler: Sampler, *, author: str, progress: Progress
    ) -> list[Completion]:
        network = rounded(self.policy.network.eval(), getattr(torch, self.settings.dtype))
        written: dict[tuple[str, int], Completion] = {}
        total, before = sum(request.count for request in requests), 0
        for tasks in self._batches(requests):

            def ended(count: int, before: int = before) -> None:
                progress(before + count, total)

            write = self._play_batch if self.settings.environment else self._write_batch
            completions = write(network, tasks, sampler, author, ended)
            written |= {(each.problem_id, each.index): each for each in completions}
            before += sum(task.count for task in tasks)
        del network  # learning wants the memory of a copy
        self.policy.empty_cache()
        asked = [(o.problem.id, index) for o in requests for index in range(o.count)]
        return [written[each] for each in asked if each in written or not self.settings.environment]

    def require_one_model(
        self,
        requests: Requests,
        sampler: Sampler,
        written: Sequence[Completion],
    ) -> None:
        problems = {each.problem.id: each.problem for each in requests}
        drawing = sampler.sampling if isinstance(sampler, RandomSampler) else Sampling()
        require_one_model(
            self.policy,
            problems.__getitem__,
            written,
            temperature=drawing.temperature,
            allowed=self.allowed,
        )

    def _batches(self, requests: Requests) -> Iterator[Prompted]:
        """Yield batches of at most ``rows`` completions, prompts of like length together."""
        most_rows = self.settings.rows
        tasks = [
            replace(order, first=first, count=min(most_rows, order.count - first))
            for order in self.prompted(requests)
            for first in range(0, order.count, most_rows)
        ]
        tasks.sort(key=lambda task: len(task.prompt_P))
        batch: Prompted = []
        for task in tasks:
            if batch and sum(t.count for t in batch) + task.count > most_rows:
                yield batch
                batch = []
            batch.append(task)
        if batch:
            yield batch

    def _write_batch(
        self, network: PreTrainedModel, tasks: Prompted, sampler: Sampler, author: str, ended: Tell
    ) -> list[Completion]:
        rows = [(task, task.first + i) for task in tasks for i in range(task.count)]
        budget_N = torch.tensor([task.longest for task, _ in rows], device=self.policy.device)
        reader = PromptReader(network, tasks)
        stop_K = torch.tensor(sorted(self.policy.stop_ids), device=self.policy.device)
        stop_texts = StopTexts(self.policy, len(rows)) if self.policy.stop_texts else None
        # The batch shrinks; ``row_N`` has the index in ``rows`` of each row that is left.
        row_N = torch.arange(len(rows), device=self.policy.device)
        alive_N = torch.ones_like(row_N, dtype=torch.bool)
        tokens, logps, owners = [], [], []
        logits_NV = reader.first()
        for step in range(1, int(budget_N.max()) + 1):
            token_N, logp_N = sampler(logits_NV[:, : self.policy.vocabulary])
            tokens.append(token_N[alive_N])
            logps.append(logp_N[alive_N])
            owners.append(row_N[alive_N])
            is_last_N = torch.isin(token_N, stop_K) | (budget_N <= step)
            if stop_texts:
                is_last_N |= stop_texts.ended(row_N, token_N, alive_N)
            alive_N &= ~is_last_N
            left = int(alive_N.sum())
            ended(len(rows) - left)
            if not left:
                break
            if left <= (1 - COMPACT_AT) * len(alive_N):
                kept = alive_N.nonzero().squeeze(1)
                reader.keep(kept)
                token_N, row_N, budget_N = token_N[kept], row_N[kept], budget_N[kept]
                alive_N = alive_N[kept]
            logits_NV = reader.next(token_N)
        # A stable sort by row keeps each row's tokens in the order of writing.
        owner_X = torch.cat(owners)
        order_X = owner_X.argsort(stable=True)
        token_X = torch.cat(tokens)[order_X].cpu().numpy().astype(np.int32)
        logp_X = torch.cat(logps)[order_X].cpu().numpy().astype(np.float32)
        ends = owner_X.bincount(minlength=len(rows)).cumsum(0)[:-1].cpu()
        completions = []
        written = zip(np.split(token_X, ends), np.split(logp_X, ends), strict=True)
        for row, (token_T, logp_T) in enumerate(written):
            task, index = rows[row]
            by_text = stop_texts is not None and row in stop_texts.rows
            by_token = int(token_T[-1]) in self.policy.stop_ids
            end: End = "stop" if by_token or by_text else "length"
            completions.append(Completion(task.problem.id, author, index, token_T, logp_T, end))
        return completions

    def _play_batch(
        self, network: PreTrainedModel, tasks: Prompted, sampler: Sampler, author: str, ended: Tell
    ) -> list[Completion]:
        settings = self.settings
        assert settings.environment
        with closing(Episodes(self.policy, settings.environment, author)) as episodes:
            number = counted()
            for task in tasks:
                for index in range(task.first, task.first + task.count):
                    limits = {"tokens": settings.max_new_tokens, "room": task.room}
                    episodes.begin(next(number), task.problem, index, **limits)
            batch = Playing(TurnReader(network, tasks), episodes, self.policy)
            while batch.live:
                batch.draw(sampler)
                ended(batch.over)
                batch.read()
            return episodes.take(range(next(number)), settings.notify)


class StopTexts:
    """Watch over the rows of a batch: which of them has written a stop text?"""

    def __init__(self, policy: LanguageModel, rows: int) -> None:
        self._policy = policy
        # Tokens at a text's end that may be part of a stop text: each says a byte at least.
        self._most = max(len(text.encode()) for text in policy.stop_texts)
        self._written: list[list[int]] = [[] for _ in range(rows)]
        self.rows: set[int] = set()
        """Rows that a stop text has ended."""

    def ended(self, row_N: Tensor, token_N: Tensor, alive_N: Tensor) -> Tensor:
        """Take the newest token of each row; tell whether it makes a stop text whole, for those
        rows that are alive."""
        stop_ids = self._policy.stop_ids
        ended = []
        for row, token, alive in zip(
            row_N.tolist(), token_N.tolist(), alive_N.tolist(), strict=True
        ):
            is_whole = False
            if alive and token not in stop_ids:
                written = self._written[row]
                written.append(token)
                holds = self._policy.holds_stop_text
                # The end of a row may be read otherwise than the row: it decides nothing alone.
                is_whole = holds(written[-self._most :]) and holds(written)
            if is_whole:
                self.rows.add(row)
            ended.append(is_whole)
        return torch.tensor(ended, device=token_N.device)


class Playing:
    """A batch of episodes: a row of the reader for each that is left, in an order that stays. Rows
    that wait for their environment keep their place, until a share of them has been answered."""

    def __init__(self, reader: TurnReader, episodes: Episodes, policy: LanguageModel) -> None:
        self._reader, self._episodes, self._policy = reader, episodes, policy
        self._logits_NV = reader.first()
        self.live = list(range(len(self._logits_NV)))
        self.over = 0
        # Tokens and log-probabilities of the turns that are being written; what others read next.
        self._turns: dict[int, tuple[list[int], list[float]]] = {i: ([], []) for i in self.live}
        self._heard: dict[int, np.ndarray] = {}

    def draw(self, sampler: Sampler) -> None:
        """Draw a token of each turn that is being written; then hear what came for the others."""
        if at := self._places(self._turns):
            logits_WV = self._logits_NV[self._index(at), : self._policy.vocabulary]
            token_W, logp_W = sampler(logits_WV)
            for place, token, logp in zip(at, token_W.tolist(), logp_W.tolist(), strict=True):
                episode = self.live[place]
                tokens, logps = self._turns[episode]
                tokens.append(token)
                logps.append(logp)
                if token in self._policy.stop_ids or len(tokens) == self._episodes.left(episode):
                    self.over += not self._episodes.wrote(episode, *self._turns.pop(episode))
        news = self._episodes.heard_in_time()
        if not (self._turns or self._heard or news):
            news = self._episodes.heard(TICK_S)
        self._heard |= {episode: ids for episode, ids in news.items() if ids is not None}
        self.over += sum(ids is None for ids in news.values())

    def read(self) -> None:
        """Read the newest token of each turn, and what was said to those that go on."""
        self._forget()
        if self._turns:
            tokens = [self._turns[i][0][-1] if i in self._turns else 0 for i in self.live]
            reads = [i in self._turns for i in self.live]
            self._logits_NV = self._reader.step(self._index(tokens), self._index(reads))
        if self._heard and (not self._turns or len(self._heard) >= RESUME_AT * len(self.live)):
            at = self._places(self._heard)
            at_W, ids = self._index(at), [self._heard[self.live[place]] for place in at]
            self._logits_NV[at_W] = self._reader.read(at_W, ids)
            self._turns |= {episode: ([], []) for episode in self._heard}
            self._heard = {}

    def _forget(self) -> None:
        left = [i for i in self.live if self._episodes.is_open(i)]
        if len(left) > (1 - COMPACT_AT) * len(self.live):
            return
        if left:
            kept_N = self._index(self._places(left))
            self._reader.keep(kept_N)
            self._logits_NV = self._logits_NV[kept_N]
        self.live = left

    def _places(self, some: Container[int]) -> list[int]:
        return [place for place, episode in enumerate(self.live) if episode in some]

    def _index(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, device=self._policy.device)
