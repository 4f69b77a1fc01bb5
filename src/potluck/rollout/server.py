"""Writing through a server outside this process: vLLM, or what answers as it does.

The server samples and says how likely each token was; the learner relies on those numbers,
so nothing of them is taken on trust. Every answer is bounded and checked field by field, and
in each writing some of it is scored again with the weights that are trained here.

    log-probability of a token = log_softmax(logits / T), before top-k and top-p

is what every engine owes. A server gives either the one before everything (vLLM's
``--logprobs-mode raw_logprobs``: right where T = 1) or the one after everything
(``processed_logprobs``: right where nothing is truncated). Where T is not 1 and something is
truncated neither is right, and the engine refuses.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import torch

from potluck.rollout.answer import Request, read_answer
from potluck.rollout.base import Order, Progress, RolloutError, room_behind
from potluck.rollout.line import Address, Line
from potluck.rollout.mirror import Mirror
from potluck.rollout.model import LanguageModel
from potluck.rollout.sampling import Draw, Greedy, Sampled
from potluck.types import Completion

TICK_S = 0.2
"""Between two calls of ``progress`` while nothing arrives: how fast Ctrl-C is heard."""
CHECKED_ROWS, CHECKED_TOKENS = 8, 128
"""Of the first problem, scored again in each writing."""


@dataclass(frozen=True, eq=False, slots=True)
class ServerEngine:
    """Writes with a copy of a LanguageModel that a server has; see ``Mirror``."""

    language: LanguageModel
    address: Address
    mirror: Mirror
    model: str
    """Under which the server serves it (or, of a LoRA node, its adapter)."""
    max_new_tokens: int
    """Longest completion, its stop token included."""
    max_total_tokens: int
    """Longest prompt and completion together; the model's own context, where that is shorter."""
    concurrency: int = 64
    """Problems that are asked for at once."""
    tolerance: float = 0.1
    """Nats a token by which its log-probabilities may differ from ours, in the mean of |.|."""

    def limited_to(self, *, max_new_tokens: int, max_total_tokens: int) -> "ServerEngine":
        """The same server with other limits: for an evaluation."""
        return replace(self, max_new_tokens=max_new_tokens, max_total_tokens=max_total_tokens)

    def write(
        self, orders: Sequence[Order], draw: Draw, *, author: str, progress: Progress
    ) -> list[Completion]:
        if not (requests := self._requests(orders, draw)):
            return []
        total = sum(request.count for request in requests)
        answers: list[list[Completion]] = [[] for _ in requests]

        def tell() -> None:
            progress(sum(map(len, answers)), total)

        # The line ends before the pool does: what is outstanding is broken off, not waited for.
        with ThreadPoolExecutor(self.concurrency) as pool, Line(self.address) as line:
            renewal = pool.submit(self.mirror.renew, line)
            for _ in _as_they_come([renewal], tell):
                version = renewal.result()
            asked = {
                pool.submit(self._ask, line, request, version, author): place
                for place, request in enumerate(requests)
            }
            for future in _as_they_come(asked, tell):
                answers[asked[future]] = future.result()
                if asked[future] == 0:
                    self._require_ours(requests[0], answers[0], draw)
                tell()
            self.mirror.rest(line)
        return [completion for answer in answers for completion in answer]

    def _requests(self, orders: Sequence[Order], draw: Draw) -> list[Request]:
        """
        Raises:
            RolloutError: a prompt leaves no room, or no server can draw like this.
        """
        sampling = sampling_of(draw)
        seed = _seed(draw)
        context = getattr(self.language.network.config, "max_position_embeddings", None)
        longest = min(self.max_total_tokens, context or self.max_total_tokens)
        requests = []
        for place, order in enumerate(orders):
            prompt_P = self.language.prompt(order.problem)
            room = room_behind(prompt_P, order.problem, max_total_tokens=longest)
            room = min(room, self.max_new_tokens)
            body = {
                "model": self.model,
                "prompt": prompt_P.tolist(),
                "n": order.count,
                "max_tokens": room,
                **sampling,
                # A server adds 0, 1, 2, ... to it for the completions of one request.
                "seed": _hashed(f"{seed}/{place}"),
                "stop_token_ids": sorted(self.language.stop_ids),
                "include_stop_str_in_output": True,
                "logprobs": 0,  # the token's own, and no others
                "return_token_ids": True,
                "return_tokens_as_token_ids": True,
            }
            requests.append(Request(order.problem, prompt_P, order.count, room, body))
        return [request for request in requests if request.count]

    def _ask(self, line: Line, request: Request, version: str, author: str) -> list[Completion]:
        # What an older version's prompts left in the cache is never gone on with.
        body = request.body | {"cache_salt": version}
        raw = line.ask("POST", "/v1/completions", body, limit_bytes=request.limit_bytes)
        return read_answer(raw, request, self.language, line, author)

    def _require_ours(
        self, request: Request, completions: Sequence[Completion], draw: Draw
    ) -> None:
        """Raises RolloutError unless our weights find the same tokens as likely."""
        rows = completions[:CHECKED_ROWS]
        tokens = [c.token_T[:CHECKED_TOKENS] for c in rows]
        temperature = draw.temperature if isinstance(draw, Sampled) else 1.0
        self.language.network.eval()
        with torch.no_grad():
            logp_MT = self.language.logp(
                [request.prompt_P] * len(rows), tokens, temperature=temperature
            )
        apart_X = np.concatenate(
            [
                np.abs(row_T[: len(token_T)] - c.logp_T[: len(token_T)])
                for row_T, token_T, c in zip(logp_MT.cpu().numpy(), tokens, rows, strict=True)
            ]
        )
        if not (apart := float(apart_X.mean())) <= self.tolerance:
            mode = "raw_logprobs" if temperature == 1 else "processed_logprobs"
            raise RolloutError(
                f"the log-probabilities of the server at {self.address.url} differ from this "
                f"model's by {apart:.3g} nats a token, more than {self.tolerance:g}: it has other "
                f"weights, or was not started with --logprobs-mode {mode}; see docs/vllm.md"
            )


def require_server(address: Address, model: str, *, adapter: bool, longest: int) -> None:
    """Raises RolloutError unless a server is there now that serves ``model`` at this length.

    Args:
        adapter: whether ``model`` is one that it has not got yet.
        longest: prompt and completion together, tokens.
    """
    with Line(replace(address, timeout_s=min(address.timeout_s, 5.0))) as line:
        raw = line.ask("GET", "/v1/models")
        try:
            cards = {card["id"]: card for card in msgspec.json.decode(raw)["data"]}
        except (msgspec.DecodeError, UnicodeError, RecursionError, KeyError, TypeError) as error:
            raise line.refuse("lists no models", "is its url that of a server?") from error
        if not adapter and model not in cards:
            there = ", ".join(map(repr, cards)) or "none"
            raise line.refuse(
                f"serves {there}, not {model!r}", "set [node.NAME.server] model to one of them"
            )
        lengths = [card.get("max_model_len") for card in cards.values()]
        if short := [n for n in lengths if isinstance(n, int) and n < longest]:
            raise line.refuse(
                f"has room for {short[0]} tokens, but prompt and completion may have {longest}",
                "raise its --max-model-len, or lower [sampling] max_total_tokens",
            )


def sampling_of(draw: Draw) -> dict[str, float]:
    """``draw`` in a server's words, its defaults switched off.

    A server takes what is not said from the model's generation_config.json: for
    Qwen2.5-Instruct top-k 20, top-p 0.8 and a repetition penalty.

    Raises:
        RolloutError: no server can draw like this and say how likely each token was.
    """
    plain = {"min_p": 0.0, "repetition_penalty": 1.0}
    plain |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}
    match draw:
        case Greedy():
            return plain | {"temperature": 0.0, "top_k": 0, "top_p": 1.0}
        case Sampled(temperature=temperature, top_k=top_k, top_p=top_p):
            if temperature != 1 and (top_k or top_p < 1):
                raise RolloutError(
                    f"a server's log-probabilities are right at temperature 1 or without top_k and "
                    f"top_p, but temperature is {temperature:g}, top_k {top_k} and top_p "
                    f"{top_p:g}; change one of them"
                )
            return plain | {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        case _:
            raise RolloutError(
                f"a server cannot draw by {type(draw).__name__}; it can by Sampled and Greedy"
            )


def _seed(draw: Draw) -> int:
    """Drawn from the generator, so that two writings with one of them differ, as elsewhere."""
    if not isinstance(draw, Sampled):
        return 0
    dice = draw.generator
    return int(torch.randint(2**62, (), generator=dice, device=dice.device))


def _hashed(text: str) -> int:
    """62 bits: what is added to it must not overflow 63."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 2


def _as_they_come(
    futures: Sequence[Future[Any]] | dict[Future[Any], int], tick: Callable[[], None]
) -> Iterator[Future[Any]]:
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=TICK_S, return_when=FIRST_COMPLETED)
        if not done:
            tick()
        yield from done
