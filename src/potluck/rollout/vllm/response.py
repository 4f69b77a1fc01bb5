"""Completions of a server, read without trust: bytes become completions or a RolloutError, and
their log-probabilities are held against the weights that it was to write with."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import torch

from potluck.model.policy import LanguageModel
from potluck.rollout.base import PromptedRequest, RandomSampler, RolloutError, Sampler
from potluck.rollout.compare import least_mean
from potluck.rollout.server import NotWritten, read_written
from potluck.rollout.vllm.client import VllmClient
from potluck.types import Completion, Sampling

BYTES_A_TOKEN, BYTES_AROUND = 512, 2**16
"""Longest answer: about 150 bytes a token are usual, its log-probability and text included."""
CHECKED_ROWS, CHECKED_TOKENS = 8, 128
"""Completions of a request, and tokens of each, that are scored again."""
EVIDENCE = 20.0
"""Log-likelihood ratio, nats, from which a server is held to tell the numbers of another mode:
noise looks like that in one of e^20 checks."""
OLD_HEAD = " (on a CPU vLLM 0.28 and newer keep the old head of a model that ties it)"
LEAST = 1e-12  # nats: no mean difference is taken to be smaller


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRequest(PromptedRequest):
    """A request as the server is sent it."""

    body: dict[str, Any]

    @property
    def limit_bytes(self) -> int:
        each = self.longest * BYTES_A_TOKEN + 16 * len(self.prompt_P)
        return BYTES_AROUND + self.count * each


_Id = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


class _LogProbabilities(msgspec.Struct):
    token_logprobs: list[float]


class _Choice(msgspec.Struct):
    index: int
    finish_reason: str
    token_ids: list[_Id]
    logprobs: _LogProbabilities
    prompt_token_ids: list[int] | None = None


class _Response(msgspec.Struct):
    choices: list[_Choice]


def read_response(
    raw: bytes, request: ServerRequest, client: VllmClient, *, policy: LanguageModel, author: str
) -> list[Completion]:
    """Read the completions by index; raise RolloutError if the model cannot have written them."""
    try:
        choices = msgspec.json.decode(raw, type=_Response).choices
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise client.refuse(
            f"wrote an answer that cannot be read ({error})",
            "token ids and log-probabilities need vLLM 0.10.2 or newer, see docs/vllm.md",
        ) from error
    choices.sort(key=lambda choice: choice.index)
    if [choice.index for choice in choices] != list(range(request.count)):
        raise client.refuse(
            f"wrote {len(choices)} completions of {request.problem.id!r}, not {request.count}",
            "each index is to come once",
        )
    completions, id = [], request.problem.id
    for choice in choices:
        what = f"wrote completion {choice.index} of {id!r}"
        if choice.prompt_token_ids not in (None, request.body["prompt"]):
            way_out = "it must take token ids as they are"
            raise client.refuse(f"{what} behind another prompt", way_out)
        told = choice.token_ids, choice.logprobs.token_logprobs, choice.finish_reason
        try:
            read = read_written(*told, most=request.longest, policy=policy)
        except NotWritten as error:
            why, way_out = error.args
            raise client.refuse(f"{what} {why}", way_out) from None
        completions.append(Completion(id, author, choice.index, *read))
    return completions


class Rescored(NamedTuple):
    """Log-probabilities of X tokens, nats: those that the server told, ours, and ours by the other
    ``--logprobs-mode``."""

    told_X: np.ndarray
    owed_X: np.ndarray
    other_X: np.ndarray

    @property
    def gap_X(self) -> np.ndarray:
        gap_X: np.ndarray = np.abs(self.told_X - self.owed_X)
        return gap_X

    @classmethod
    def together(cls, parts: Sequence["Rescored"]) -> "Rescored":
        return cls(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def score_again(
    policy: LanguageModel,
    sampler: Sampler,
    prompt_P: np.ndarray,
    completions: Sequence[Completion],
) -> Rescored:
    """Score the first tokens of the first completions of one request with ``policy``."""
    most = CHECKED_TOKENS
    pairs = [(c, c.logp_T[:most]) for c in completions[:CHECKED_ROWS] if c.logp_T is not None]
    rows = [replace(c, token_T=c.token_T[:most], logp_T=logp_T) for c, logp_T in pairs]
    told_X = np.concatenate([logp_T for _, logp_T in pairs])
    drawing = _drawing(sampler)

    def scored(temperature: float) -> np.ndarray:
        told = [prompt_P] * len(rows), [c.token_T for c in rows]
        logp_MT = policy.logp(*told, temperature=temperature).cpu().numpy()
        cut = zip(logp_MT, rows, strict=True)
        return np.concatenate([row_T[: len(c.token_T)] for row_T, c in cut])

    policy.network.eval()
    with torch.no_grad():
        owed_X = other_X = scored(drawing.temperature)  # often both modes tell the same
        if drawing.temperature != 1:
            other_X = scored(1.0)
        elif isinstance(sampler, RandomSampler) and drawing.truncates:
            # After truncation: a share of what is left of the distribution.
            kept = (sampler.truncated(policy.next_logp(prompt_P, c.token_T)) for c in rows)
            left = torch.cat([kept_TV.logsumexp(dim=1) for kept_TV in kept])
            other_X = owed_X - left.cpu().numpy()
    return Rescored(told_X, owed_X, other_X)


def _drawing(sampler: Sampler) -> Sampling:
    return sampler.sampling if isinstance(sampler, RandomSampler) else Sampling()


def require_ours(
    policy: LanguageModel, sampler: Sampler, parts: Sequence[Rescored], options: Any
) -> None:
    """Judge all tokens of a writing that were scored again, together.

    Raise RolloutError if their mean |difference| is surely above the options' tolerance
    (``least_mean``: one short answer decides nothing), or the server tells the numbers of the other
    ``--logprobs-mode``, which may be nearer than that. If its noise has a Laplace distribution of
    any scale, the other ones explain what it tells better by

        X ln(mean |told - owed| / mean |told - other|)   nats.
    """
    compared = Rescored.together(parts)
    tolerance = options.tolerance
    apart = float(compared.gap_X.mean())
    other = float(np.abs(compared.told_X - compared.other_X).mean())
    owed_mode = "raw_logprobs" if _drawing(sampler).temperature == 1 else "processed_logprobs"
    evidence = len(compared.told_X) * (log(max(apart, LEAST)) - log(max(other, LEAST)))
    what = f"the log-probabilities of the server at {options.url}"
    if evidence > EVIDENCE and other <= tolerance:
        raise RolloutError(
            f"{what} are those of another mode: {other:.2g} nats a token from these, {apart:.2g} "
            f"from those that are owed; start it with --logprobs-mode {owed_mode}, see docs/vllm.md"
        )
    if not least_mean(compared.gap_X) <= tolerance:
        is_tied = policy.network.config.get_text_config().tie_word_embeddings
        raise RolloutError(
            f"{what} differ from this model's by {apart:.3g} nats a token, more than {tolerance:g}:"
            f" it computes in a coarser format (bfloat16 costs .02 to .05; raise tolerance for a "
            f"coarser one; for a float32 server set dtype = 'float32'), has other weights"
            f"{OLD_HEAD if is_tied else ''}, or was not "
            f"started with --logprobs-mode {owed_mode}; see docs/vllm.md"
        )
