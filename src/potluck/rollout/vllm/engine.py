"""Writing through a server outside this process: vLLM, or one that answers as it does.

No log-probability is taken on trust: every answer is bounded and checked field by field, and in
each writing some of it is scored again with the weights that are trained here. Every engine owes

    log-probability of a token = log_softmax(logits / T), before top-k and top-p

A server gives those before everything (vLLM's ``--logprobs-mode raw_logprobs``: right where
T = 1) or after everything (``processed_logprobs``: right where nothing is truncated). Where T is
not 1 and something is truncated, neither are right, and the engine refuses.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from queue import Empty, Queue
from threading import Thread
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from potluck.files import derived_seed
from potluck.model.policy import LanguageModel
from potluck.rollout.base import (
    TICK_S,
    GreedySampler,
    Progress,
    RandomSampler,
    Requests,
    RolloutError,
    Sampler,
    completion_budget,
)
from potluck.rollout.settings import EngineSettings
from potluck.rollout.vllm.client import FIRST_PAUSE_S, Address, Client, Disconnected
from potluck.rollout.vllm.response import ServerRequest, read_response, require_ours
from potluck.rollout.vllm.weights import WeightSync, as_it_was, trained_copy
from potluck.types import Completion


@dataclass(frozen=True, eq=False, slots=True)
class ServerEngine:
    """An engine on a copy of a LanguageModel that a server has."""

    policy: LanguageModel
    options: Any
    """Options of its table, ``VllmOptions``: their module imports this one."""
    settings: EngineSettings
    weight_sync: WeightSync

    @property
    def server_mismatch(self) -> float | None:
        return self.weight_sync.apart

    def with_limits(self, *, max_new_tokens: int, max_total_tokens: int) -> "ServerEngine":
        limited = self.settings.with_limits(max_new_tokens, max_total_tokens)
        return replace(self, settings=limited)

    def generate(
        self, requests: Requests, sampler: Sampler, *, author: str, progress: Progress
    ) -> list[Completion]:
        if not (server_requests := self._requests(requests, sampler)):
            return []
        while self.weight_sync.writing.is_alive():  # an evaluation, with other weights
            progress(0, sum(each.count for each in server_requests))
            self.weight_sync.writing.join(TICK_S)
        return self.writing(server_requests, sampler, author).collect(progress)

    def writing(
        self, server_requests: list[ServerRequest], sampler: Sampler, author: str
    ) -> "ServerWriting":
        """Begin to write with the weights of now, which do not change before it is collected."""
        return ServerWriting(self, server_requests, sampler, author, {})

    def _requests(self, requests: Requests, sampler: Sampler) -> list[ServerRequest]:
        sampling, seed = sampling_of(sampler), _seed(sampler)
        longest, server_requests = self.settings.longest(self.policy.context), []
        for place, request in enumerate(requests):
            prompt_P = self.policy.prompt(request.problem)
            room = completion_budget(prompt_P, request.problem, longest)
            budget = min(room, self.settings.max_new_tokens)
            body = {
                "model": self.options.model,
                "prompt": prompt_P.tolist(),
                "n": request.count,
                "max_tokens": budget,
                **sampling,
                # A server adds 0, 1, 2, ... to it for the completions of one request, which must
                # not overflow 63 bits.
                "seed": derived_seed(f"{seed}/{place}") >> 1,
                "stop_token_ids": sorted(self.policy.stop_ids),
                "include_stop_str_in_output": True,
                "logprobs": 0,  # the token's own, and no others
                "return_token_ids": True,
                "return_tokens_as_token_ids": True,
            }
            made = ServerRequest(request.problem, prompt_P, request.count, budget, body)
            server_requests.append(made)
        return [each for each in server_requests if each.count]


class OverlappingServerEngine(ServerEngine):
    """A server that writes a round with the weights of the one before, which stay in main memory
    until what it wrote is checked against them."""

    def begin(self, requests: Requests, sampler: Sampler, *, author: str) -> "ServerWriting | None":
        if not (server_requests := self._requests(requests, sampler)):
            return None
        kept = trained_copy(self.policy.network)
        return ServerWriting(self, server_requests, sampler, author, kept)


Check = tuple[ServerRequest, Sequence[Completion]]
"""Completions that are scored again."""


class ServerWriting:
    """Completions of a list of requests, all of the weights in one folder.

    A thread sends the weights and the requests. Once a connection breaks, the requests that were
    not yet begun or broke are asked anew, after the weights were sent anew: a server that was
    started anew would write with the weights of its start. One whose connection held was answered
    by the process that had the weights.
    """

    def __init__(
        self,
        engine: "ServerEngine",
        requests: Sequence[ServerRequest],
        sampler: Sampler,
        author: str,
        kept: Mapping[str, Tensor],
    ) -> None:
        """Begin. ``kept`` are the weights as they are now if the network's change until
        ``collect``, else empty."""
        self._engine, self._requests, self._kept = engine, requests, kept
        self._sampler, self._author = sampler, author
        self.ends = 0, len(requests) - 1
        self._weight_sync, self._client = engine.weight_sync, Client(engine.options.address)
        self._place = self._weight_sync.snapshot()
        self._arrived: Queue[tuple[int, list[Completion], list[Check]] | BaseException | None]
        self._arrived = Queue()
        self._thread = Thread(target=self._run, name="vllm-writing", daemon=True)
        self._weight_sync.writing = self._thread
        self._thread.start()

    def collect(self, progress: Progress) -> list[Completion]:
        """Wait for all completions; return them in the order of the requests, then by index.

        Check the first and the last request's, and those of each that was asked twice. Raise
        RolloutError if the server does not write, or not with the weights it was to.
        """
        answers: list[list[Completion]] = [[] for _ in self._requests]
        total, done = sum(each.count for each in self._requests), 0
        unchecked, gaps = list[Check](), list[np.ndarray]()
        try:
            while True:
                progress(done, total)
                try:
                    arrived = self._arrived.get(timeout=TICK_S)
                except Empty:
                    continue
                if isinstance(arrived, BaseException):
                    raise arrived
                if arrived:
                    place, answers[place], checks = arrived
                    done += self._requests[place].count
                    unchecked += checks
                if not arrived or not self._kept:  # a wrong server is to stop at once
                    policy, options = self._engine.policy, self._engine.options
                    with as_it_was(policy.network, self._kept):
                        gaps += [
                            require_ours(policy, self._sampler, request.prompt_P, written, options)
                            for request, written in unchecked
                        ]
                    unchecked = []
                if not arrived:
                    break
        finally:
            self.abandon()
        self._weight_sync.apart = float(np.concatenate(gaps).mean())
        return [completion for answer in answers for completion in answer]

    def abandon(self) -> None:
        self._client.close()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._write()
            self._weight_sync.sleep(self._client)
            self._arrived.put(None)
        except BaseException as error:  # told where it is collected
            self._arrived.put(error)

    def _write(self) -> None:
        waiting, client, again = dict(enumerate(self._requests)), self._client, False
        begun_s, pause_s = time.monotonic(), FIRST_PAUSE_S
        while True:
            breaks, before = client.breaks, len(waiting)
            self._weight_sync.push(client, self._place)
            broken = self._ask_all(waiting, breaks, again)
            if not waiting:
                return
            assert broken
            self._weight_sync.forget()
            again = True
            if len(waiting) < before:
                begun_s, pause_s = time.monotonic(), FIRST_PAUSE_S
            if time.monotonic() + pause_s - begun_s > client.address.timeout_s:
                raise broken
            pause_s = client.pause(pause_s)

    def _ask_all(
        self, waiting: dict[int, ServerRequest], breaks: int, again: bool
    ) -> Disconnected | None:
        """Take what is answered before a connection breaks out of ``waiting``; return the break."""
        broken = None
        with self._pool() as pool:
            asked = {pool.submit(self._ask, each, breaks): at for at, each in waiting.items()}
            for future in as_completed(asked):
                try:
                    written = future.result()
                except Disconnected as error:
                    broken = error
                    continue
                place = asked[future]
                check: Check = waiting.pop(place), written
                checks = [check] if again or place in self.ends else []
                self._arrived.put((place, written, checks))
        return broken

    @contextmanager
    def _pool(self) -> Iterator[ThreadPoolExecutor]:
        pool = ThreadPoolExecutor(self._engine.options.concurrency)
        try:
            yield pool
        except BaseException:
            self._client.close()  # the others are broken off, not waited for
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def _ask(self, request: ServerRequest, breaks: int) -> list[Completion]:
        # The cache of an older version's prompts is never used again.
        body = request.body | {"cache_salt": self._place.name}
        raw = self._client.ask(
            "POST", "/v1/completions", body, limit_bytes=request.limit_bytes, breaks=breaks
        )
        policy = self._engine.policy
        return read_response(raw, request, self._client, policy=policy, author=self._author)


def require_server(address: Address, model: str, *, adapter: bool, longest: int) -> None:
    """Raise RolloutError unless a server is there now that serves ``model``, or is yet to get it
    as an adapter, with ``longest`` tokens of prompt and completion together."""
    with Client(replace(address, timeout_s=min(address.timeout_s, 5.0))) as client:
        raw = client.ask("GET", "/v1/models")
        try:
            cards = {card["id"]: card for card in msgspec.json.decode(raw)["data"]}
        except (msgspec.DecodeError, UnicodeError, RecursionError, KeyError, TypeError) as error:
            raise client.refuse("lists no models", "is its url that of a server?") from error
        if not adapter and model not in cards:
            there = ", ".join(map(repr, cards)) or "none"
            raise client.refuse(
                f"serves {there}, not {model!r}", "set [node.NAME.engine] model to one of them"
            )
        lengths = [card.get("max_model_len") for card in cards.values()]
        if short := [n for n in lengths if isinstance(n, int) and n < longest]:
            raise client.refuse(
                f"has room for {short[0]} tokens, but prompt and completion may have {longest}",
                "raise its --max-model-len, or lower [sampling] max_total_tokens",
            )


def sampling_of(sampler: Sampler) -> dict[str, float]:
    """Say ``sampler`` in a server's words, its defaults switched off.

    A server takes missing ones from the model's generation_config.json: for Qwen2.5-Instruct top-k
    20, top-p 0.8 and a repetition penalty. Raise RolloutError if no server can draw like this and
    say how likely each token was.
    """
    plain = {"min_p": 0.0, "repetition_penalty": 1.0}
    plain |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}
    match sampler:
        case GreedySampler():
            return plain | {"temperature": 0.0, "top_k": 0, "top_p": 1.0}
        case RandomSampler(sampling=sampling):
            if sampling.temperature != 1 and sampling.truncates:
                raise RolloutError(
                    f"a server's log-probabilities are right at temperature 1 or without top_k and "
                    f"top_p, but [sampling] has {sampling}; change one of them"
                )
            return plain | asdict(sampling)
        case _:
            raise RolloutError(
                f"a server cannot draw by {type(sampler).__name__}; it can by RandomSampler and "
                f"GreedySampler"
            )


def _seed(sampler: Sampler) -> int:
    """Draw a seed from the generator, so that two writings with one of them differ."""
    if not isinstance(sampler, RandomSampler):
        return 0
    generator = sampler.generator
    return int(torch.randint(2**62, (), generator=generator, device=generator.device))
