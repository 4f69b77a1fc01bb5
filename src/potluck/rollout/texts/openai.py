"""Texts and episodes of a model behind an OpenAI-compatible endpoint, which may tell no
log-probabilities.

An episode is a conversation, in which every turn is a request. One that is broken off is not sent;
what its turns cost stays in the books. After a crash the environment is played again with the turns
that are in the books, and no turn is bought twice.
"""

import asyncio
import json
import threading
from concurrent.futures import wait
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from potluck.episode import EnvironmentFailed, Play, Step, Turn, digest_of, text_of, turns_in
from potluck.files import derived_seed
from potluck.rollout.base import TICK_S, EngineSettings, Progress, Requests
from potluck.rollout.server import Ears, begin_loop, together
from potluck.rollout.texts import base, endpoint
from potluck.rollout.texts.base import (
    Booking,
    Choices,
    Cost,
    Written,
    can_be_read,
    cut_at_stop_text,
)
from potluck.rollout.texts.endpoint import ChatRequest, Choice, Dialect, Refused, Unavailable
from potluck.types import Completion, End

TOKENS_AROUND = 100
"""Most tokens that a server is assumed to put around a question: its template's, its own prompt."""
BYTES_AROUND, BYTES_A_BYTE = 2**16, 12
"""Longest answer: JSON escapes a byte as 6, and a text may come with its hidden reasoning."""
BYTES_COUNTED = 4
"""Bytes of text that count as one of the ``max_new_tokens`` that an episode's turns share: of what
endpoints count, some is hidden, and the books do not have it."""
TOKENS_OF_TOOLS = 600  # most tokens that a server is assumed to put around tools


class OpenAIEngine:
    """An author that asks a served model until its budget is spent."""

    def __init__(self, options: Any, settings: EngineSettings) -> None:
        self.options, self.settings = options, settings
        self.books = base.Books(settings.folder / settings.node, settings.notify)
        self.dialect, self.has_written = Dialect(), False
        self._told: set[str] = set()

    def write(self, requests: Requests, *, author: str, seed: int, progress: Progress) -> Written:
        requests = [request for request in requests if request.count]
        total = sum(request.count for request in requests)
        if not requests:
            return Written(())
        kind = EpisodeRound if self.settings.environment else TextRound
        before, work = self.books.spent, kind(self, requests, seed)
        try:
            self._ask_all(work, progress, total)
        except BaseException:
            if count := (self.books.spent - before).booked:
                news = f"{count} requests of {self.settings.node!r} had no answer"
                self.settings.notify(f"{news}: they stay booked at the most that they can cost")
            raise
        progress(work.count, total)
        if work.refused and not self.has_written:
            raise endpoint.refusal(self.options, *work.refused)
        self._tell(work)
        return Written(tuple(work.completions(author)), self.books.spent - before)

    def _ask_all(self, work: "TextRound", progress: Progress, total: int) -> None:
        ended = threading.Event()
        asking = begin_loop(work.ask_all(), ended)
        try:
            while wait([asking], TICK_S).not_done:
                progress(work.count, total)
        finally:
            ended.set()
            wait([asking])
        asking.result()

    def _tell(self, work: "TextRound") -> None:
        url, model = self.options.url, self.options.model
        if work.trouble:
            news = f"{url} does not write now ({work.trouble}); it is asked again in the next round"
            self._tell_once("trouble", news)
        else:
            self._told.discard("trouble")
        if work.refused:
            self._tell_once("refused", f"{url} does not answer some questions ({work.refused[0]})")
        if spent := self.options.spent(self.settings.node, self.books.spent):
            way_out = "it writes no more; to go on, resume with a larger one in its table engine"
            self._tell_once("budget", f"{spent}: {way_out}")
        if work.unusable:
            news = f"{len(work.unusable)} episodes of {self.settings.node!r} are left out"
            self._tell_once("unusable", f"{news} ({work.unusable[0]})")
        for name in sorted(self.dialect.left_out & {"top_p", "temperature"}):
            self._tell_once(name, f"{model!r} at {url} takes no {name}: it writes with its own")

    def _tell_once(self, what: str, news: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self.settings.notify(news)


class TextRound:
    """Requests of one round for texts, and what they have brought so far."""

    def __init__(self, engine: OpenAIEngine, requests: Requests, seed: int) -> None:
        self.engine, self.requests, self.seed = engine, requests, seed
        self.count, self.under_way = 0, Cost()
        self.slots = asyncio.Semaphore(engine.options.concurrency)
        self.kept = engine.books.begin(seed)  # answers that came before a crash
        self.written: dict[ChatRequest, list[base.Ended]] = {}
        self.trouble = ""  # why nothing more is asked in this round
        self.refused: tuple[str, int] | None = None  # why a question was not taken, and the status
        self.unusable: list[str] = []  # why episodes are left out

    def completions(self, author: str) -> list[Completion]:
        """List the texts in the order of the requests, with indices without gaps."""
        made, indices = list[Completion](), [count() for _ in self.requests]
        for ask in sorted(self.written):
            id, index = self.requests[ask.place].problem.id, indices[ask.place]
            for each in self.written[ask]:
                made.append(Completion(id, author, next(index), base.NO_TOKENS, None, *each))
        return made

    async def ask_all(self) -> None:
        """Ask until all is answered or left out."""
        engine, most = self.engine, max(request.count for request in self.requests)
        asks = [ChatRequest(place, 0, each.count) for place, each in enumerate(self.requests)]
        if engine.settings.environment or "n" in engine.dialect.left_out:
            asks = [one for ask in asks for one in ask.one_by_one()]
        longest_bytes = BYTES_A_BYTE * base.BYTES_A_TOKEN * engine.settings.max_new_tokens
        limit_bytes = BYTES_AROUND + longest_bytes * most
        async with endpoint.ChatClient(engine.options, limit_bytes=limit_bytes) as self.client:
            await together(map(self._ask_fully, asks))

    async def _ask_fully(self, ask: ChatRequest) -> None:
        await together(map(self._ask_fully, await self._ask(ask)))

    async def _ask(self, ask: ChatRequest) -> list[ChatRequest]:
        """Ask, unless nothing more is to be asked; return what is left to be asked."""
        engine = self.engine
        async with self.slots:
            if (kept := self.kept.get(self._digest(ask))) is not None:
                return self._take(ask, kept)
            if self._digest(replace(ask, count=1)) in self.kept:
                return ask.one_by_one()  # as before the crash
            body = self._body(ask, engine.dialect)
            try:
                raw = await self.client.repeat(lambda: self._send(ask, body))
            except Unavailable as error:
                self.trouble = self.trouble or str(error)
                return []
            except Refused as error:
                if error.status in (401, 404) or 300 <= error.status < 400:
                    raise endpoint.refusal(engine.options, str(error), error.status) from None
                if not (further := engine.dialect.again(ask, body, error.text)):
                    self.refused = str(error), error.status
                return further
            return self._read(ask, raw)

    async def _send(self, ask: ChatRequest, body: dict[str, Any]) -> bytes:
        engine, most = self.engine, self._most(ask)
        if self.trouble or engine.options.spent("", engine.books.spent - self.under_way):
            raise Unavailable("", may_cost=False)
        engine.books.add(Booking(most))
        self.under_way += most
        try:
            return await self.client.post(body)
        except (Unavailable, Refused) as error:
            if isinstance(error, Refused) or not error.may_cost:
                engine.books.add(Booking(Cost(1) - most))
            raise
        finally:
            self.under_way -= most

    def _body(self, ask: ChatRequest, dialect: Dialect) -> dict[str, Any]:
        return dialect.body(self.requests[ask.place].problem, self._sampling(ask), ask.count)

    def _sampling(self, ask: ChatRequest) -> dict[str, Any]:
        settings = self.engine.settings
        return {
            "max_tokens": settings.max_new_tokens,
            "temperature": settings.sampling.temperature,
            "top_p": settings.sampling.top_p,
            # 31 bits: some servers have no more. One each, as equal seeds would write equal texts.
            "seed": derived_seed(f"{self.seed}/{ask.place}/{ask.first}") >> 32,
        }

    def _digest(self, ask: ChatRequest) -> str:
        """Digest all that is asked, and of which model, whatever it turns out to take of it."""
        options, id = self.engine.options, self.requests[ask.place].problem.id
        asked = (options.url, options.model, id, ask, self._body(ask, Dialect()))
        return f"{self.seed}/{derived_seed(repr(asked))}"

    def _read(self, ask: ChatRequest, raw: bytes) -> list[ChatRequest]:
        """Keep an answer's completions; return requests for the rest: servers may ignore ``n``."""
        engine = self.engine
        if not (answer := endpoint.read_answer(raw)):
            self.trouble = "its answer is not one of the protocol, too long or cut off"
            return []
        choices = [self._choice(choice) for choice in answer.choices[: ask.count]]
        usage, most = answer.usage, self._most(ask)
        told = usage and engine.options.cost(usage.prompt_tokens, usage.completion_tokens)
        engine.books.add(Booking(told - most if told else Cost(), self._digest(ask), choices))
        return self._take(ask, choices)

    def _choice(self, choice: Choice) -> tuple[str, End] | None:
        """Read the text and its end; None if it is filtered, a call of a tool, or none to learn."""
        content: Any = choice.message.get("content")
        most, end = self.engine.settings.max_new_tokens, choice.finish_reason
        if not isinstance(content, str) or end not in ("stop", "length"):
            return None
        content, end = cut_at_stop_text(content, end, self.engine.settings.stop_texts)
        return (content, end) if can_be_read(content, most) else None

    def _take(self, ask: ChatRequest, choices: Choices) -> list[ChatRequest]:
        self.engine.has_written, dialect = True, self.engine.dialect
        self.written[ask] = [(pair[1], pair[0], b"", (), b"") for pair in choices if pair]
        self.count += len(self.written[ask])
        if ask.count == 1:
            return []
        dialect.takes_n |= len(choices) > 1
        dialect.left_out.update([] if len(choices) > 1 else ["n"])
        return ask.one_by_one(len(choices))

    def _most(self, ask: ChatRequest) -> Cost:
        most = ask.count * int(self._sampling(ask)["max_tokens"])
        return replace(self.engine.options.cost(self._most_prompt(ask), most), booked=1)

    def _most_prompt(self, ask: ChatRequest) -> int:
        """Bound the tokens of a prompt: one a byte, and those that a server puts around it."""
        problem = self.requests[ask.place].problem
        return len((problem.system + problem.question).encode()) + TOKENS_AROUND


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

    def __init__(self, engine: OpenAIEngine, requests: Requests, seed: int) -> None:
        super().__init__(engine, requests, seed)
        assert engine.settings.environment
        self._environment = engine.settings.environment
        self._longest = engine.settings.max_new_tokens
        self._open = asyncio.Semaphore(engine.options.concurrency)
        self._talks: dict[ChatRequest, Conversation] = {}
        self._play: Play
        self._ears: Ears[Step | EnvironmentFailed]

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
        text, turns = text_of(talk.turns), (0,) * len(talk.turns)
        if talk.end and not can_be_read(text, self._longest):
            talk.unusable = f"longer than {self._longest} tokens can be"
        if talk.unusable:
            self.unusable.append(talk.unusable)
        elif talk.end:
            self.written[ask] = [(talk.end, text, b"", turns, talk.observed)]
            self.count += 1
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
        talk.messages += endpoint.messages_of(talk.turns[-1], answer.observations, len(talk.turns))
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
        return self._longest - len(text_of(talk.turns).encode()) // BYTES_COUNTED

    def _choice(self, choice: Choice) -> tuple[str, End] | None:
        if choice.finish_reason not in ("stop", "tool_calls", "length"):
            return None
        if turn := endpoint.turn_in(choice.message):
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
