"""Episodes of a model behind an endpoint: each a conversation, in which every turn is a request.

One that is broken off is not sent; what its turns cost stays in the books. After a crash the
environment is played again with the turns that are in the books, and no turn is bought twice.
"""

import asyncio
import json
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from potluck.episode import EnvironmentFailed, Play, Step, Turn, digest_of, text_of, turns_in
from potluck.files import derived_seed
from potluck.rollout.base import Requests
from potluck.rollout.server import Ears
from potluck.rollout.texts.base import NO_TOKENS, Choices, can_be_read
from potluck.rollout.texts.endpoint import ChatRequest, Choice, Dialect, messages_of, turn_in
from potluck.rollout.texts.openai import TOKENS_AROUND, OpenAIEngine, TextRound
from potluck.types import Completion, End

BYTES_COUNTED = 4
"""Bytes of text that count as one of the ``max_new_tokens`` that an episode's turns share: of what
endpoints count, some is hidden, and the books do not have it."""
TOKENS_OF_TOOLS = 600
"""Most tokens that a server is assumed to put around tools."""


@dataclass(slots=True)
class Conversation:
    number: int
    messages: list[dict[str, Any]]
    turns: list[Turn] = field(default_factory=list)
    observed: bytes = b""
    end: End | None = None  # None: it is not over, or was broken off
    unusable: str = ""  # why it is left out


class EpisodeRound(TextRound):
    """Requests of one round for episodes, ``concurrency`` of which are open at once."""

    one_by_one = True

    def __init__(self, engine: OpenAIEngine, requests: Requests, seed: int) -> None:
        super().__init__(engine, requests, seed)
        assert engine.settings.environment
        self._environment = engine.settings.environment
        self._longest = engine.settings.max_new_tokens
        self._open = asyncio.Semaphore(engine.options.concurrency)
        self._talks: dict[ChatRequest, Conversation] = {}
        self._play: Play
        self._ears: Ears[Step | EnvironmentFailed]

    def completions(self, author: str) -> list[Completion]:
        made: list[Completion] = []
        for place, request in enumerate(self.requests):
            asks = sorted((a for a in self._talks if a.place == place), key=lambda a: a.first)
            ended = [(talk, talk.end) for talk in map(self._talks.__getitem__, asks) if talk.end]
            made += [
                Completion(
                    request.problem.id, author, index, NO_TOKENS, None, end, text_of(talk.turns),
                    turns=(0,) * len(talk.turns), observed=talk.observed,
                )
                for index, (talk, end) in enumerate(ended)
            ]  # fmt: skip
        return made

    async def ask_all(self) -> None:
        with closing(self._environment.open()) as self._play:
            self._ears = Ears(self._play.answered)
            await super().ask_all()

    async def _ask(self, ask: ChatRequest) -> list[ChatRequest]:
        async with self._open:
            problem = self.requests[ask.place].problem
            talk = self._talks[ask] = Conversation(len(self._talks), [*problem.messages])
            try:
                self._play.begin(talk.number, problem)
                acted = 0
                while await super()._ask(ask):
                    # Without a new turn a parameter was refused: it is asked again, without that.
                    if len(talk.turns) > acted and not await self._hear(ask, talk):
                        break
                    acted = len(talk.turns)
                await asyncio.to_thread(self._play.finish, talk.number)
            except EnvironmentFailed as error:
                talk.unusable = str(error)
        if talk.end and not can_be_read(text_of(talk.turns), self._longest):
            talk.unusable = f"longer than {self._longest} tokens can be"
        if talk.unusable:
            talk.end = None
            self.unusable.append(talk.unusable)
        self.count += talk.end is not None
        return []

    def _take(self, ask: ChatRequest, choices: Choices) -> list[ChatRequest]:
        """Hand a turn to the environment; return nothing if the episode is over with it."""
        self.engine.has_written, talk = True, self._talks[ask]
        text, end = next(iter(choices), None) or ("", None)
        if not (turns := turns_in(text)):
            talk.unusable = "a turn says nothing, or calls a tool with what is no JSON object"
            return []
        talk.turns += turns
        if end == "length":
            talk.end = end
            return []
        self._play.act(talk.number, turns[0])
        return [ask]

    async def _hear(self, ask: ChatRequest, talk: Conversation) -> bool:
        """Wait for what the environment says to the last turn; return whether it goes on."""
        answer = await self._ears.hear(talk.number)
        if isinstance(answer, EnvironmentFailed):
            raise answer
        talk.messages += messages_of(talk.turns[-1], answer.observations, len(talk.turns))
        if answer.done:
            talk.end = "stop"
        elif len(talk.turns) == self._environment.max_turns:
            talk.end = "turns"
        elif self._left(talk) < 1:
            talk.end = "room"
        else:
            talk.observed += digest_of(answer.observations)
        return talk.end is None

    def _left(self, talk: Conversation) -> int:
        """Count the tokens that are left for all further turns."""
        return self._longest - len(text_of(talk.turns).encode()) // BYTES_COUNTED

    def _choice(self, choice: Choice) -> tuple[str, End] | None:
        if choice.finish_reason not in ("stop", "tool_calls", "length"):
            return None
        if turn := turn_in(choice.message):
            return text_of([turn]), "length" if choice.finish_reason == "length" else "stop"
        return None

    def _sampling(self, ask: ChatRequest) -> dict[str, Any]:
        talk = self._talks[ask]
        seed = derived_seed(f"{self.seed}/{ask.place}/{ask.first}/{len(talk.turns)}") >> 32
        left = self._left(talk) if talk.turns else self._longest
        return super()._sampling(ask) | {"max_tokens": left, "seed": seed}

    def _body(self, ask: ChatRequest, dialect: Dialect) -> dict[str, Any]:
        tools = self.requests[ask.place].problem.tools
        more = {"tools": json.loads(tools)} if tools else {}
        return super()._body(ask, dialect) | {"messages": [*self._talks[ask].messages]} | more

    def _most_prompt(self, ask: ChatRequest) -> int:
        # As JSON, in which names stand for what a template puts around each message.
        tools = self.requests[ask.place].problem.tools
        size = len(json.dumps(self._talks[ask].messages)) + TOKENS_AROUND
        return size + (len(tools.encode()) + TOKENS_OF_TOOLS if tools else 0)
