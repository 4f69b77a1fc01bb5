"""Episodes through a server: of each a chain of requests, ids in and ids out.

The prompt of a turn is all that was read and sampled before it, so the server has it in its cache.
"""

import asyncio
from contextlib import closing
from dataclasses import replace

import numpy as np

from potluck.files import derived_seed
from potluck.rollout.episodes import Episodes
from potluck.rollout.server import Ears, together
from potluck.rollout.vllm.client import Disconnected
from potluck.rollout.vllm.engine import ServerWriting
from potluck.rollout.vllm.response import ServerRequest
from potluck.types import Completion


class ServerPlaying(ServerWriting):
    """Episodes of a list of requests. One whose connection breaks asks for its turn anew."""

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
                room = settings.longest(engine.policy.context) - len(request.prompt_P)
                for index in range(request.count):
                    limits = {"tokens": settings.max_new_tokens, "room": room}
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
        self._next[episode] = replace(whole, prompt_P=ids, count=1, token_budget=left, body=body)

    async def _ask_all(
        self, waiting: dict[int, ServerRequest], breaks: int, again: bool
    ) -> list[Disconnected]:
        broken: list[Disconnected] = []

        async def play(episode: int) -> None:
            while request := self._next.get(episode):
                try:
                    (turn,) = await self._ask(request, breaks)
                except Disconnected as error:
                    broken.append(error)
                    return
                del self._next[episode]
                assert turn.logp_T is not None
                self._chains[episode][1].append((request, turn))
                if self._episodes.wrote(episode, turn.token_T.tolist(), turn.logp_T.tolist()):
                    ids = await self._ears.hear(episode)
                    if ids is not None:
                        self._ask_next(episode, ids)
            await self._over(episode, waiting, again)

        await together(map(play, self._next))
        return broken

    async def _over(self, episode: int, waiting: dict[int, ServerRequest], again: bool) -> None:
        place, _ = self._chains[episode]
        of_place = [at for at, (its, _) in enumerate(self._chains) if its == place]
        if any(self._episodes.is_open(at) for at in of_place):
            return
        if waiting.pop(place, None) is None:  # its last two episodes ended at one look
            return
        # What it pays may take its time, in which others go on.
        take, notify = self._episodes.take, self._engine.settings.notify
        written = await asyncio.to_thread(take, of_place, notify)
        checked = of_place if again else of_place[:1] if place in self.ends else []
        chains = [self._chains[at][1] for at in checked]
        turns = [turn for chain in chains for turn in (chain[0], chain[-1])]
        self._arrived.put((place, written, [(request, [turn]) for request, turn in turns]))
