"""The interface of every engine, its settings, and the samplers that draw the next token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from potluck.blocks import row_blocks
from potluck.types import Completion, NonFiniteError, PotluckError, Problem, Sampling

if TYPE_CHECKING:
    from potluck.episode import Environment
    from potluck.model.reader import Reader

Progress = Callable[[int, int], None]
"""Called with (completions finished, completions ordered) while an engine writes."""
TICK_S = 0.2  # seconds between two calls of it while nothing comes: how fast Ctrl-C is heard
Sampler = Callable[[Tensor], tuple[Tensor, Tensor]]
"""(logits_NV) -> (token_N, logp_N): the tokens drawn, and ln p of each in nats."""


class RolloutError(PotluckError):
    """A prompt leaves no room, or a server fails."""


def ignore(told: str) -> None: ...


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings that hold for every engine; a node and its run give them."""

    max_new_tokens: int
    max_total_tokens: int  # of prompt and completion, if the model's context is no shorter
    dtype: str = "float32"  # format that the model computes in while it writes, as torch names it
    rows: int = 512  # completions that are written at once, at most
    node: str = ""
    folder: Path = Path()  # folder of the run
    adapter: bool = False
    stop_texts: tuple[str, ...] = ()
    """Texts that end what an author without weights writes; others have them of their reader."""
    sampling: Sampling = Sampling()  # noqa: RUF009 - it is frozen
    """How an author without weights is to draw; other engines are handed a sampler."""
    environment: "Environment | None" = None
    """Environment in which completions are episodes; None: they are single answers."""
    notify: Callable[[str], None] = ignore

    def longest(self, context: int | None) -> int:
        """Count the tokens of a prompt and all behind it, for a model with this ``context``."""
        return min(self.max_total_tokens, context or self.max_total_tokens)


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    problem: Problem
    count: int


Requests = Sequence[RolloutRequest]


class OpenWriting(Protocol):
    """Completions that are written while the node does something else."""

    def collect(self, progress: Progress) -> list[Completion]:
        """Wait for all completions and return them, as ``Engine.generate`` does."""

    def abandon(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PromptedRequest:
    """``count`` completions, of ``longest`` tokens at most, for a prompt of the policy's ids."""

    problem: Problem
    prompt_P: np.ndarray
    count: int
    room: int  # tokens that fit behind the prompt
    longest: int
    first: int = 0  # index of the first


@dataclass(frozen=True, eq=False)
class Engine:
    """A model that writes."""

    policy: "Reader"
    settings: EngineSettings

    @property
    def server_mismatch(self) -> float | None:
        """Mean difference of a server's log-probabilities from ours, nats a token; None: none."""
        return None

    @property
    def overlaps(self) -> bool:
        """True: it writes with the weights of then while they change."""
        return False

    def begin(self, requests: Requests, sampler: Sampler, *, author: str) -> OpenWriting | None:
        """Begin to write with the weights as they are now; None if nothing is asked for."""
        raise NotImplementedError

    def generate(
        self, requests: Requests, sampler: Sampler, *, author: str, progress: Progress
    ) -> list[Completion]:
        """Write all completions, in the order of ``requests``, then by index.

        Each keeps its stop token, and with every token the log-probability that ``sampler`` gave
        it: at the sampling temperature, over the tokenizer's ids, before top-k and top-p. Raise
        RolloutError if a prompt leaves no room to write in, or a server does not write;
        NonFiniteError if the model gave a logit that is not finite.
        """
        raise NotImplementedError

    def require_one_model(
        self,
        requests: Requests,
        sampler: Sampler,
        written: Sequence[Completion],
    ) -> None:
        """Raise RolloutError if what has written is not what learns."""

    def prompted(self, requests: Requests) -> list[PromptedRequest]:
        """Find prompt and room of each request; raise RolloutError if a prompt leaves none."""
        found, longest = [], self.settings.longest(self.policy.context)
        for request in requests:
            prompt_P = self.policy.prompt(request.problem)
            room = completion_budget(prompt_P, request.problem, longest)
            most = min(room, self.settings.max_new_tokens)
            found.append(PromptedRequest(request.problem, prompt_P, request.count, room, most))
        return found


def completion_budget(prompt_P: np.ndarray, problem: Problem, max_total_tokens: int) -> int:
    """Count the tokens that fit behind the prompt; raise RolloutError if none do or it is empty."""
    what = f"the prompt of {problem.id!r} has"
    if not len(prompt_P):
        raise RolloutError(f"{what} no tokens: the tokenizer knows nothing of its text")
    if len(prompt_P) >= max_total_tokens:
        raise RolloutError(
            f"{what} {len(prompt_P)} tokens, which leaves no room below max_total_tokens = "
            f"{max_total_tokens} (or the model's context); raise it, or leave out long prompts "
            f"with sampling.max_prompt_tokens"
        )
    return max_total_tokens - len(prompt_P)


@dataclass(frozen=True, slots=True)
class RandomSampler:
    """Random draws at a temperature, from all tokens or from the likeliest ones.

        ln p = log_softmax(logits / T)

    is taken before ``top_k`` and ``top_p``: it is the policy that the learner can compute again.
    Where the two are on, tokens come from a truncated policy and are scored by the whole one, a
    small bias (``docs/paper-notes.md``, decision 6).
    """

    generator: torch.Generator  # seeded per node and round, so nodes' order changes nothing
    sampling: Sampling = field(default_factory=Sampling)

    def __call__(self, logits_NV: Tensor) -> tuple[Tensor, Tensor]:
        uniform_N1 = torch.rand(
            len(logits_NV),
            1,
            dtype=torch.float64,
            device=logits_NV.device,
            generator=self.generator,
        )

        def pick(logp_BV: Tensor, block: slice) -> Tensor:
            return _pick(self.truncated(logp_BV).exp(), uniform_N1[block])

        return _by_blocks(logits_NV, self.sampling.temperature, pick)

    def truncated(self, logp_NV: Tensor) -> Tensor:
        """Put -inf for the tokens that are not drawn from."""
        return _nucleus(_likeliest(logp_NV, self.sampling.top_k), self.sampling.top_p)


@dataclass(frozen=True, slots=True)
class GreedySampler:
    """The likeliest token; the first of those that tie."""

    def __call__(self, logits_NV: Tensor) -> tuple[Tensor, Tensor]:

        def pick(logp_BV: Tensor, _: slice) -> Tensor:
            return logp_BV.argmax(dim=1, keepdim=True)

        return _by_blocks(logits_NV, 1.0, pick)


def log_probabilities(logits_NV: Tensor, temperature: float) -> Tensor:
    """Compute log_softmax(logits / T) in float32; NonFiniteError for NaN, +inf or only -inf."""
    logp_NV = torch.log_softmax(logits_NV.float() / temperature, dim=1)
    if not logp_NV.amax(dim=1).isfinite().all():
        raise NonFiniteError(
            "the model gave a logit that is not finite while it wrote; its weights or its number "
            "format have broken down (a lower learning rate, or sampling_dtype = 'float32')"
        )
    return logp_NV


def _by_blocks(
    logits_NV: Tensor, temperature: float, pick: Callable[[Tensor, slice], Tensor]
) -> tuple[Tensor, Tensor]:
    """Return token_N and logp_N. ``pick`` gets the log-probabilities of a block and its place
    among the rows, and returns a token of each row, token_B1."""
    rows, vocabulary = logits_NV.shape
    token_N1 = torch.empty(rows, 1, dtype=torch.long, device=logits_NV.device)
    logp_N1 = torch.empty(rows, 1, device=logits_NV.device)
    for block in row_blocks(rows, columns=vocabulary, device=logits_NV.device.type):
        logp_BV = log_probabilities(logits_NV[block], temperature)
        token_N1[block] = pick(logp_BV, block)
        logp_N1[block] = logp_BV.gather(1, token_N1[block])
    return token_N1.squeeze(1), logp_N1.squeeze(1).clamp(max=0)


def _pick(p_NV: Tensor, uniform_N1: Tensor) -> Tensor:
    """Pick token_N1: one index of each row, with a probability in proportion to ``p_NV``, by
    numbers drawn from [0, 1).

    One random number a row: ``torch.multinomial`` draws one a token of the vocabulary, on a CPU a
    fifth of the time of writing. In float64, as float32 would round a large vocabulary's tail off.
    """
    sum_NV = p_NV.cumsum(dim=1, dtype=torch.float64)
    place_N1 = sum_NV[:, -1:] * uniform_N1
    # Of equal sums the first wins, so a token of probability 0 never does.
    return torch.searchsorted(sum_NV, place_N1, right=True).clamp(max=p_NV.shape[1] - 1)


def _likeliest(logp_NV: Tensor, k: int) -> Tensor:
    if not 0 < k < logp_NV.shape[1]:
        return logp_NV
    least_N1 = logp_NV.topk(k, dim=1).values[:, -1:]
    return logp_NV.masked_fill(logp_NV < least_N1, -torch.inf)


def _nucleus(logp_NV: Tensor, p: float) -> Tensor:
    """Keep the likeliest tokens until their probability, as a share of what is left, reaches p."""
    if p >= 1:
        return logp_NV
    sorted_NV, order_NV = logp_NV.log_softmax(dim=1).sort(dim=1, descending=True)
    before_NV = sorted_NV.exp().cumsum(dim=1) - sorted_NV.exp()
    beyond_NV = torch.zeros_like(before_NV, dtype=torch.bool).scatter(1, order_NV, before_NV >= p)
    return logp_NV.masked_fill(beyond_NV, -torch.inf)
