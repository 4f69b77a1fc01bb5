"""Writing through a server outside this process: vLLM, or one that answers as it does.

No log-probability is taken on trust: every answer is bounded and checked field by field, and in
each writing some of it is scored again with the weights that are trained here. Every engine owes

    log-probability of a token = log_softmax(logits / T), before top-k and top-p

A server gives those before everything (vLLM's ``--logprobs-mode raw_logprobs``: right where
T = 1) or after everything (``processed_logprobs``: right where nothing is truncated). Where T is
not 1 and something is truncated, neither are right, and ``VllmOptions`` refuse the recipe.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from queue import Empty, Queue
from threading import Event
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from potluck.files import derived_seed
from potluck.model.policy import LanguageModel
from potluck.rollout import base
from potluck.rollout.base import TICK_S, Progress, RandomSampler, Requests, RolloutError, Sampler
from potluck.rollout.episodes import Episodes
from potluck.rollout.server import Ears, begin_loop, together
from potluck.rollout.vllm import client
from potluck.rollout.vllm.client import Disconnected, VllmClient, WeightSync
from potluck.rollout.vllm.response import (
    Rescored,
    ServerRequest,
    read_response,
    require_ours,
    score_again,
)
from potluck.types import Completion


@dataclass(frozen=True, eq=False)
class ServerEngine(base.Engine):
    """An engine on a copy of a LanguageModel that a server has."""

    policy: LanguageModel
    options: Any  # options of its table, ``VllmOptions``: their module imports this one
    weight_sync: WeightSync

    @property
    def server_mismatch(self) -> float | None:
        return self.weight_sync.apart

    def generate(
        self, requests: Requests, sampler: Sampler, *, author: str, progress: Progress
    ) -> list[Completion]:
        if not (server_requests := self._requests(requests, sampler)):
            return []
        total = sum(each.count for each in server_requests)
        while wait([self.weight_sync.writing], TICK_S).not_done:
            progress(0, total)  # an evaluation, with other weights
        kind = ServerPlaying if self.settings.environment else ServerWriting
        return kind(self, server_requests, sampler, author).collect(progress)

    @property
    def overlaps(self) -> bool:
        return self.options.overlap and not self.settings.environment

    def begin(self, requests: Requests, sampler: Sampler, *, author: str) -> "ServerWriting | None":
        if not (server_requests := self._requests(requests, sampler)):
            return None
        # Kept in main memory, until what is written is checked against them.
        kept = client.trained_copy(self.policy.network)
        return ServerWriting(self, server_requests, sampler, author, kept)

    def _requests(self, requests: Requests, sampler: Sampler) -> list[ServerRequest]:
        drawn, made = 0, []
        if isinstance(sampler, RandomSampler):  # so two writings with one generator differ
            dice = sampler.generator
            drawn = int(torch.randint(2**62, (), generator=dice, device=dice.device))
        of_all = {
            "model": self.options.model,
            **sampling_of(sampler),
            "stop_token_ids": sorted(self.policy.stop_ids),
            "include_stop_str_in_output": True,
            "logprobs": 0,  # the token's own, and no others
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        if self.policy.stop_texts:
            # It looks for them in what it shows, where special tokens are to part them.
            of_all |= {"stop": list(self.policy.stop_texts), "skip_special_tokens": False}
        for place, asked in enumerate(self.prompted(requests)):
            # A server adds 0, 1, 2, ... to a seed for the completions of one request: it must leave
            # 63 bits.
            seed = derived_seed(f"{drawn}/{place}") >> 1
            body = {"prompt": asked.prompt_P.tolist(), "n": asked.count, "seed": seed}
            body |= of_all | {"max_tokens": asked.longest}
            given = asked.problem, asked.prompt_P, asked.count, asked.room, asked.longest
            made.append(ServerRequest(*given, body=body))
        return [each for each in made if each.count]


Check = tuple[ServerRequest, Sequence[Completion]]  # which are scored again


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
        kept: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> None:
        """Begin to write. ``kept`` are the weights of now, if they may change until ``collect``."""
        self._engine, self._requests, self._kept = engine, requests, kept
        self._sampler, self._author = sampler, author
        self.ends = 0, len(requests) - 1
        self._weight_sync, self._place = engine.weight_sync, engine.weight_sync.snapshot()
        self._waiting = dict(enumerate(requests))
        self._arrived: Queue[tuple[int, list[Completion], list[Check]] | None] = Queue()
        self._slots, self._ended = asyncio.Semaphore(engine.options.concurrency), Event()
        self._work: Future[None] = begin_loop(self._run(), self._ended)
        self._work.add_done_callback(lambda _: self._arrived.put(None))
        self._weight_sync.writing = self._work

    def collect(self, progress: Progress) -> list[Completion]:
        """Wait for all completions; return them in the order of the requests, then by index.

        Check the first and the last request's, and those of each that was asked twice. Raise
        RolloutError if the server does not write, or not with the weights it was to.
        """
        answers: list[list[Completion]] = [[] for _ in self._requests]
        total, done = sum(each.count for each in self._requests), 0
        unchecked, compared, is_over = list[Check](), list[Rescored](), False
        try:
            while not is_over:
                progress(done, total)
                try:
                    arrived = self._arrived.get(timeout=TICK_S)
                except Empty:
                    continue
                if arrived:
                    place, answers[place], checks = arrived
                    done += self._requests[place].count
                    unchecked += checks
                else:
                    self._work.result()  # raises what went wrong
                    is_over = True
                # A wrong server is to stop at once.
                if unchecked and (is_over or not self._kept):
                    policy, sampler = self._engine.policy, self._sampler
                    with client.as_it_was(policy.network, self._kept):
                        compared += [
                            score_again(policy, sampler, request.prompt_P, written)
                            for request, written in unchecked
                        ]
                    require_ours(policy, sampler, compared, self._engine.options)
                    unchecked = []
        finally:
            self.abandon()
        self._weight_sync.apart = float(Rescored.together(compared).gap_X.mean())
        return [completion for answer in answers for completion in answer]

    def abandon(self) -> None:
        self._ended.set()
        wait([self._work])

    async def _run(self) -> None:
        async with VllmClient(self._engine.options.address) as self._client:
            await self._write()
            await self._weight_sync.sleep(self._client)

    async def _write(self) -> None:
        again, broken = False, list[Disconnected]()
        begun_s, pause_s = time.monotonic(), client.FIRST_PAUSE_S

        async def ask(number: int, breaks: int) -> None:
            try:
                await self._ask_fully(number, breaks, again)
            except Disconnected as error:
                broken.append(error)

        while self._waiting:
            breaks, before = self._client.breaks, len(self._waiting)
            await self._weight_sync.push(self._client, self._place)
            await together(ask(number, breaks) for number in self._open())
            if broken:
                self._weight_sync.forget()
                again = True
                if len(self._waiting) < before:
                    begun_s, pause_s = time.monotonic(), client.FIRST_PAUSE_S
                if time.monotonic() + pause_s - begun_s > self._client.address.timeout_s:
                    raise broken[0]
                broken.clear()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, client.LONGEST_PAUSE_S)

    def _open(self) -> list[int]:
        return [*self._waiting]

    async def _ask_fully(self, number: int, breaks: int, again: bool) -> None:
        """Ask until an answer has come, and take its request out of those that wait."""
        written = await self._ask(self._waiting[number], breaks)
        check: Check = self._waiting.pop(number), written
        self._arrived.put((number, written, [check] if again or number in self.ends else []))

    async def _ask(self, request: ServerRequest, breaks: int) -> list[Completion]:
        # The cache of an older version's prompts is never used again.
        body = request.body | {"cache_salt": self._place.name}
        async with self._slots:
            raw = await self._client.ask(
                "POST", "/v1/completions", body, limit_bytes=request.limit_bytes, breaks=breaks
            )
        policy = self._engine.policy
        return read_response(raw, request, self._client, policy=policy, author=self._author)


class ServerPlaying(ServerWriting):
    """Episodes of a list of requests, each a chain of requests: ids in and ids out.

    The prompt of a turn is all that was read and sampled before it, so the server has it in its
    cache. One whose connection breaks asks for its turn anew.
    """

    _episodes: Episodes

    async def _write(self) -> None:
        engine, settings = self._engine, self._engine.settings
        assert settings.environment
        self._chains: list[tuple[int, list[tuple[ServerRequest, Completion]]]] = []
        self._next: dict[int, ServerRequest] = {}
        self._episodes = Episodes(engine.policy, settings.environment, self._author)
        with closing(self._episodes):
            self._ears = Ears(lambda wait_s: self._episodes.heard(wait_s).items())
            for place, request in enumerate(self._requests):
                for index in range(request.count):
                    limits = {"tokens": settings.max_new_tokens, "room": request.room}
                    self._episodes.begin(len(self._chains), request.problem, index, **limits)
                    self._chains.append((place, []))
                    self._ask_next(len(self._chains) - 1, request.prompt_P)
            await super()._write()

    def _ask_next(self, episode: int, ids: np.ndarray) -> None:
        """Make the request for the turn behind what was read and sampled, and ``ids``."""
        place, chain = self._chains[episode]
        if chain:
            before, turn = chain[-1]
            ids = np.concatenate([before.prompt_P, turn.token_T[:-1], ids])
        whole, left = self._requests[place], self._episodes.left(episode)
        seed = derived_seed(f"{whole.body['seed']}/{episode}/{len(chain)}") >> 1
        body = whole.body | {"prompt": ids.tolist(), "n": 1, "max_tokens": left, "seed": seed}
        self._next[episode] = replace(whole, prompt_P=ids, count=1, longest=left, body=body)

    def _open(self) -> list[int]:
        return [*self._next]

    async def _ask_fully(self, number: int, breaks: int, again: bool) -> None:
        while request := self._next.get(number):
            (turn,) = await self._ask(request, breaks)
            del self._next[number]
            assert turn.logp_T is not None
            self._chains[number][1].append((request, turn))
            if self._episodes.wrote(number, turn.token_T.tolist(), turn.logp_T.tolist()):
                ids = await self._ears.hear(number)
                if ids is not None:
                    self._ask_next(number, ids)
        place, _ = self._chains[number]
        of_place = [at for at, (its, _) in enumerate(self._chains) if its == place]
        if any(self._episodes.is_open(at) for at in of_place):
            return
        if self._waiting.pop(place, None) is None:  # its last two episodes ended at one look
            return
        # What it pays may take its time, in which others go on.
        take, notify = self._episodes.take, self._engine.settings.notify
        written = await asyncio.to_thread(take, of_place, notify)
        checked = of_place if again else of_place[:1] if place in self.ends else []
        chains = [self._chains[at][1] for at in checked]
        turns = [turn for chain in chains for turn in (chain[0], chain[-1])]
        self._arrived.put((place, written, [(request, [turn]) for request, turn in turns]))


def sampling_of(sampler: Sampler) -> dict[str, float]:
    """Say ``sampler`` in a server's words: what is missing it takes from generation_config.json."""
    plain = {"min_p": 0.0, "repetition_penalty": 1.0}
    plain |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}
    if isinstance(sampler, base.GreedySampler):
        return plain | {"temperature": 0.0, "top_k": 0, "top_p": 1.0}
    if not isinstance(sampler, RandomSampler):
        kind = type(sampler).__name__
        raise RolloutError(f"a server draws by RandomSampler and GreedySampler, not by {kind}")
    return plain | asdict(sampler.sampling)
