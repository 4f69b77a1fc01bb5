"""Writing with the model's own forward pass: any ``transformers`` causal LM, CPU or GPU.

Three things make it faster than ``generate`` on groups (``benchmarks/``): a prompt is read
once and its cache repeated for the group; completions that have ended leave the batch; and
the model may write in bfloat16 while float32 weights are trained.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from potluck.rollout.base import Order, Progress, room_behind
from potluck.rollout.loading import ModelError
from potluck.rollout.model import LanguageModel
from potluck.rollout.sampling import Draw
from potluck.types import Completion, End

COMPACT_AT = 0.25
"""Share of the batch that must have ended before the rest is moved together."""


@dataclass(frozen=True, slots=True)
class _Task:
    """Some completions of one problem that are written in one batch."""

    problem_id: str
    prompt_P: np.ndarray
    first_index: int
    count: int
    room: int
    """Most tokens that each may have."""


class HFEngine:
    """Writes with a LanguageModel that somebody else may train between two calls."""

    def __init__(
        self,
        language: LanguageModel,
        *,
        max_new_tokens: int,
        max_total_tokens: int,
        dtype: torch.dtype = torch.float32,
        rows: int = 512,
    ) -> None:
        """
        Args:
            max_new_tokens: longest completion, its stop token included.
            max_total_tokens: longest prompt and completion together; the model's own
                context, where that is shorter.
            dtype: what the model computes in while it writes.
            rows: completions that are written at once, at most.
        """
        if "past_key_values" not in inspect.signature(language.network.forward).parameters:
            raise ModelError(
                f"{type(language.network).__name__} keeps no cache of keys and values, as "
                f"writing here needs; use a model that does"
            )
        self.language, self.rows, self.max_new_tokens = language, rows, max_new_tokens
        self.dtype = dtype
        # Never beyond the positions that the model has.
        context = getattr(language.network.config, "max_position_embeddings", None)
        self.max_total_tokens = min(max_total_tokens, context or max_total_tokens)

    def limited_to(self, *, max_new_tokens: int, max_total_tokens: int) -> "HFEngine":
        return HFEngine(
            self.language,
            max_new_tokens=max_new_tokens,
            max_total_tokens=max_total_tokens,
            dtype=self.dtype,
            rows=self.rows,
        )

    @torch.inference_mode()
    def write(
        self, orders: Sequence[Order], draw: Draw, *, author: str, progress: Progress
    ) -> list[Completion]:
        network = self._network()
        written: dict[tuple[str, int], Completion] = {}
        total = sum(order.count for order in orders)
        for tasks in self._batches(orders):

            def ended(count: int, before: int = len(written)) -> None:
                progress(before + count, total)

            for completion in self._write_batch(network, tasks, draw, author, ended):
                written[completion.problem_id, completion.index] = completion
        del network
        self.language.give_memory_back()
        return [written[o.problem.id, index] for o in orders for index in range(o.count)]

    def _network(self) -> PreTrainedModel:
        """The weights to write with, as they are now, in evaluation mode.

        A second set only where the number format differs from the trained one, and only while
        writing: learning wants its memory.
        """
        own = self.language.network.eval()
        differs = any(p.dtype != self.dtype for p in own.parameters())
        return _rounded(own, self.dtype) if differs else own

    def _batches(self, orders: Sequence[Order]) -> Iterator[list[_Task]]:
        """Orders cut to at most ``rows`` completions a batch, prompts of like length together."""
        tasks = []
        for order in orders:
            prompt_P = self.language.prompt(order.problem)
            room = min(
                self.max_new_tokens,
                room_behind(prompt_P, order.problem, max_total_tokens=self.max_total_tokens),
            )
            for first in range(0, order.count, self.rows):
                count = min(self.rows, order.count - first)
                tasks.append(_Task(order.problem.id, prompt_P, first, count, room))
        tasks.sort(key=lambda task: len(task.prompt_P))
        batch: list[_Task] = []
        for task in tasks:
            if batch and sum(t.count for t in batch) + task.count > self.rows:
                yield batch
                batch = []
            batch.append(task)
        if batch:
            yield batch

    def _write_batch(
        self,
        network: PreTrainedModel,
        tasks: list[_Task],
        draw: Draw,
        author: str,
        ended: Callable[[int], None],
    ) -> list[Completion]:
        rows = [(task, task.first_index + i) for task in tasks for i in range(task.count)]
        room_N = torch.tensor([task.room for task, _ in rows], device=self.language.device)
        reader = _Reader(network, tasks, self.language)
        stop_K = torch.tensor(sorted(self.language.stop_ids), device=self.language.device)
        # The batch shrinks; ``row_N`` says whose row each of what is left is.
        row_N = torch.arange(len(rows), device=self.language.device)
        alive_N = torch.ones_like(row_N, dtype=torch.bool)
        tokens, logps, owners = [], [], []
        logits_NV = reader.first()
        for step in range(1, int(room_N.max()) + 1):
            token_N, logp_N = draw(logits_NV[:, : self.language.vocabulary])
            tokens.append(token_N[alive_N])
            logps.append(logp_N[alive_N])
            owners.append(row_N[alive_N])
            alive_N &= ~torch.isin(token_N, stop_K) & (room_N > step)
            left = int(alive_N.sum())
            ended(len(rows) - left)
            if not left:
                break
            if left <= (1 - COMPACT_AT) * len(alive_N):
                kept = alive_N.nonzero().squeeze(1)
                reader.keep(kept)
                token_N, row_N, room_N = token_N[kept], row_N[kept], room_N[kept]
                alive_N = alive_N[kept]
            logits_NV = reader.next(token_N)
        return self._completions(
            rows, torch.cat(tokens), torch.cat(logps), torch.cat(owners), author
        )

    def _completions(
        self,
        rows: Sequence[tuple[_Task, int]],
        token_X: Tensor,
        logp_X: Tensor,
        owner_X: Tensor,
        author: str,
    ) -> list[Completion]:
        """Sorted by row; a stable sort keeps each row's tokens in the order of writing."""
        order_X = owner_X.argsort(stable=True)
        token_of_X = token_X[order_X].cpu().numpy().astype(np.int32)
        logp_of_X = logp_X[order_X].cpu().numpy().astype(np.float32)
        length_N = torch.bincount(owner_X, minlength=len(rows)).tolist()
        completions, at = [], 0
        for (task, index), length in zip(rows, length_N, strict=True):
            token_T, logp_T = token_of_X[at : at + length], logp_of_X[at : at + length]
            end: End = "stop" if int(token_T[-1]) in self.language.stop_ids else "length"
            completions.append(Completion(task.problem_id, author, index, token_T, logp_T, end))
            at += length
        return completions


def _rounded(network: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """A copy with rounded weights, which shares those that are so already.

    Its buffers stay: rotary frequencies in bfloat16 would drift with the position, by .17 nats
    a token at 1,000 tokens where the weights cost .035.
    """
    shared: dict[int, object] = {id(p): p for p in network.parameters() if p.dtype == dtype}
    for parameter in network.parameters():
        if parameter.dtype != dtype:
            rounded = torch.nn.Parameter(parameter.detach().to(dtype), requires_grad=False)
            shared[id(parameter)] = rounded
    return deepcopy(network, shared)


class _Reader:
    """What the model remembers of a batch: each prompt read once, then a token at a time."""

    def __init__(
        self, network: PreTrainedModel, tasks: Sequence[_Task], language: LanguageModel
    ) -> None:
        self._network, self._cache = network, DynamicCache(config=network.config)
        self._count_Q = torch.tensor([task.count for task in tasks], device=language.device)
        length_Q = torch.tensor([len(task.prompt_P) for task in tasks])
        longest = int(length_Q.max())
        token_QP = torch.zeros(len(tasks), longest, dtype=torch.long)
        for row_P, task in zip(token_QP, tasks, strict=True):
            row_P[longest - len(task.prompt_P) :] = torch.from_numpy(task.prompt_P)
        self._token_QP = token_QP.to(language.device)
        # Prompts of one length need no mask, which is the fast path of every attention kernel.
        real_QP = torch.arange(longest) >= (longest - length_Q)[:, None]
        self._mask = None if real_QP.all() else real_QP.to(language.device)

    def first(self) -> Tensor:
        """logits_NV after the prompts, a row for each completion of each problem."""
        logits_QV = self._forward(self._token_QP)
        for layer in self._cache.layers:
            if not hasattr(layer, "batch_repeat_interleave"):
                raise ModelError(
                    f"{type(self._network).__name__} has a {type(layer).__name__}, whose state "
                    f"cannot be repeated for a group; use a model of attention layers only"
                )
        # Its annotation says int, but a count for each row is what it hands on to torch.
        self._cache.batch_repeat_interleave(self._count_Q)  # type: ignore[arg-type]
        if self._mask is not None:
            self._mask = self._mask.repeat_interleave(self._count_Q, dim=0)
        return logits_QV.repeat_interleave(self._count_Q, dim=0)

    def next(self, token_N: Tensor) -> Tensor:
        """logits_NV after one more token of each row."""
        if self._mask is not None:
            self._mask = torch.cat([self._mask, torch.ones_like(self._mask[:, :1])], dim=1)
        return self._forward(token_N.unsqueeze(1))

    def keep(self, kept_N: Tensor) -> None:
        """Forgets every row but these."""
        self._cache.batch_select_indices(kept_N)
        if self._mask is not None:
            self._mask = self._mask[kept_N]

    def _forward(self, token_NS: Tensor) -> Tensor:
        positions = {}
        if self._mask is not None:
            place_NS = self._mask.cumsum(dim=1)[:, -token_NS.shape[1] :] - 1
            positions = {"position_ids": place_NS.clamp(min=0)}
        out = self._network(
            input_ids=token_NS,
            attention_mask=self._mask,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
            **positions,
        )
        logits_NV: Tensor = out.logits[:, -1]
        return logits_NV
