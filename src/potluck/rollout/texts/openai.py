"""Texts of a model behind an OpenAI-compatible endpoint, which may tell no log-probabilities."""

import asyncio
import threading
from concurrent.futures import wait
from dataclasses import replace
from typing import Any, ClassVar

from potluck.files import derived_seed
from potluck.rollout.base import TICK_S, EngineSettings, Progress, Requests
from potluck.rollout.server import begin_loop, together
from potluck.rollout.texts.base import (
    BYTES_A_TOKEN,
    NO_TOKENS,
    Booking,
    Books,
    Choices,
    Cost,
    Written,
    can_be_read,
)
from potluck.rollout.texts.endpoint import (
    ChatClient,
    ChatRequest,
    Choice,
    Dialect,
    Refused,
    Unavailable,
    read_answer,
    refusal,
)
from potluck.types import Completion, End

TOKENS_AROUND = 100
"""Most tokens that a server is assumed to put around a question: its template's, its own prompt."""
BYTES_AROUND, BYTES_A_BYTE = 2**16, 12
"""Longest answer: JSON escapes a byte as 6, and a text may come with its hidden reasoning."""


class OpenAIEngine:
    """An author that asks a served model, by rounds of a ``kind``, until its budget is spent."""

    def __init__(self, options: Any, settings: EngineSettings, kind: "type[TextRound]") -> None:
        self.options, self.settings, self._round = options, settings, kind
        self.books = Books(settings.folder / settings.node, settings.notify)
        self.dialect, self.has_written = Dialect(), False
        self._told: set[str] = set()

    def write(self, requests: Requests, *, author: str, seed: int, progress: Progress) -> Written:
        requests = [request for request in requests if request.count]
        total = sum(request.count for request in requests)
        if not requests:
            return Written(())
        before, work = self.books.spent, self._round(self, requests, seed)
        try:
            self._ask_all(work, progress, total)
        except BaseException:
            if count := (self.books.spent - before).booked:
                news = f"{count} requests of {self.settings.node!r} had no answer"
                self.settings.notify(f"{news}: they stay booked at the most that they can cost")
            raise
        progress(work.count, total)
        if work.refused and not self.has_written:
            raise refusal(self.options, *work.refused)
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

    one_by_one: ClassVar[bool] = False

    def __init__(self, engine: OpenAIEngine, requests: Requests, seed: int) -> None:
        self.engine, self.requests, self.seed = engine, requests, seed
        self.count, self.under_way = 0, Cost()
        self.slots = asyncio.Semaphore(engine.options.concurrency)
        self.kept = engine.books.begin(seed)  # answers that came before a crash
        self.texts: dict[ChatRequest, list[tuple[str, End]]] = {}
        self.trouble = ""  # why nothing more is asked in this round
        self.refused: tuple[str, int] | None = None  # why a question was not taken, and the status
        self.unusable: list[str] = []  # why episodes are left out

    def completions(self, author: str) -> list[Completion]:
        """List the texts in the order of the requests, with indices without gaps."""
        pairs: list[list[tuple[str, End]]] = [[] for _ in self.requests]
        for ask in sorted(self.texts):
            pairs[ask.place] += self.texts[ask]
        return [
            Completion(request.problem.id, author, index, NO_TOKENS, None, end, text)
            for request, of_problem in zip(self.requests, pairs, strict=True)
            for index, (text, end) in enumerate(of_problem)
        ]

    async def ask_all(self) -> None:
        """Ask until all is answered or left out."""
        engine, most = self.engine, max(request.count for request in self.requests)
        asks = [ChatRequest(place, 0, request.count) for place, request in enumerate(self.requests)]
        if self.one_by_one or "n" in engine.dialect.left_out:
            asks = [one for ask in asks for one in ask.one_by_one()]
        longest_bytes = BYTES_A_BYTE * BYTES_A_TOKEN * engine.settings.max_new_tokens
        limit_bytes = BYTES_AROUND + longest_bytes * most
        async with ChatClient(engine.options, limit_bytes=limit_bytes) as self.client:
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
                    raise refusal(engine.options, str(error), error.status) from None
                if not (further := engine.dialect.again(ask, body, error.text)):
                    self.refused = str(error), error.status
                return further
            return self._read(ask, raw)

    async def _send(self, ask: ChatRequest, body: dict[str, Any]) -> bytes:
        """Send one request, with its cost booked before."""
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
        problem = self.requests[ask.place].problem
        return dialect.body(problem, self._sampling(ask), ask.count)

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
        if not (answer := read_answer(raw)):
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
        whole = isinstance(content, str) and end in ("stop", "length")
        return (content, end) if whole and can_be_read(content, most) else None

    def _take(self, ask: ChatRequest, choices: Choices) -> list[ChatRequest]:
        self.engine.has_written, dialect = True, self.engine.dialect
        self.texts[ask] = [pair for pair in choices if pair]
        self.count += len(self.texts[ask])
        if ask.count == 1:
            return []
        dialect.takes_n |= len(choices) > 1
        dialect.left_out.update([] if len(choices) > 1 else ["n"])
        return ask.one_by_one(len(choices))

    def _most(self, ask: ChatRequest) -> Cost:
        """Bound the cost of a request by the longest prompt and the longest completions."""
        most = ask.count * int(self._sampling(ask)["max_tokens"])
        return replace(self.engine.options.cost(self._most_prompt(ask), most), booked=1)

    def _most_prompt(self, ask: ChatRequest) -> int:
        """Bound the tokens of a prompt: one a byte, and those that a server puts around it."""
        problem = self.requests[ask.place].problem
        return len((problem.system + problem.question).encode()) + TOKENS_AROUND
