"""Completions of a server, read without trust: bytes become completions or a RolloutError."""

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np

from potluck.model.policy import LanguageModel
from potluck.rollout.vllm.client import Client
from potluck.types import Completion, End, Problem

BYTES_A_TOKEN, BYTES_AROUND = 512, 2**16
"""Longest answer: about 150 bytes a token are usual, its log-probability and text included."""
ROUNDING = 1e-3
"""Nats: a log-probability may lie so far above 0 by rounding."""
NEVER = -9999.0
"""Number that vLLM writes for ln 0, as JSON has no infinity."""


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """A RolloutRequest as the server is sent it."""

    problem: Problem
    prompt_P: np.ndarray
    count: int
    token_budget: int
    body: dict[str, Any]

    @property
    def limit_bytes(self) -> int:
        each = self.token_budget * BYTES_A_TOKEN + 16 * len(self.prompt_P)
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
    raw: bytes, request: ServerRequest, policy: LanguageModel, client: Client, author: str
) -> list[Completion]:
    """Return the completions by index; raise RolloutError if the model cannot have written them."""
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
    return [_completion(choice, request, policy, client, author) for choice in choices]


def _completion(
    choice: _Choice, request: ServerRequest, policy: LanguageModel, client: Client, author: str
) -> Completion:
    what = f"wrote completion {choice.index} of {request.problem.id!r}"
    tokens, logps, stops = choice.token_ids, choice.logprobs.token_logprobs, policy.stop_ids
    if choice.prompt_token_ids not in (None, request.body["prompt"]):
        raise client.refuse(f"{what} behind another prompt", "it must take token ids as they are")
    if not 1 <= len(tokens) <= request.token_budget:
        raise client.refuse(
            f"{what} with {len(tokens)} tokens", f"1 to {request.token_budget} were asked for"
        )
    if len(logps) != len(tokens):
        raise client.refuse(
            f"{what} with {len(tokens)} tokens but {len(logps)} log-probabilities",
            "each token needs exactly one",
        )
    if foreign := [id for id in tokens if not 0 <= id < policy.vocabulary]:
        raise client.refuse(
            f"{what} with token id {foreign[0]}",
            f"the tokenizer has ids below {policy.vocabulary}: is it the same model?",
        )
    if stray := [logp for logp in logps if not NEVER < logp <= ROUNDING]:
        raise client.refuse(f"{what} with log-probability {stray[0]}", "none is as unlikely")
    if not stops.isdisjoint(tokens[:-1]):
        raise client.refuse(f"{what} with words after a stop token", "nothing may follow one")
    if choice.finish_reason == "stop" and tokens[-1] not in stops:
        raise client.refuse(
            f"{what} to its end, but the last token, {tokens[-1]}, is no stop token",
            "it must keep the stop token in token_ids; a token that only the server stops at "
            "belongs into [sampling] stop",
        )
    if choice.finish_reason != "stop" and len(tokens) < request.token_budget:
        raise client.refuse(
            f"{what} and ended it ({choice.finish_reason[:20]!r}) after {len(tokens)} of "
            f"{request.token_budget} tokens",
            "raise its --max-model-len",
        )
    end: End = "stop" if tokens[-1] in stops else "length"
    logp_T = np.minimum(np.array(logps, np.float32), 0)
    token_T = np.array(tokens, np.int32)
    return Completion(request.problem.id, author, choice.index, token_T, logp_T, end)
