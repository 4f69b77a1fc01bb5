"""An author that asks a model behind an OpenAI-compatible endpoint, which may tell no
log-probabilities.

A round's requests are in a thread of their own: a notebook runs an event loop already in the main
thread.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from potluck.rollout.base import TICK_S, Progress, Requests
from potluck.rollout.texts.base import Cost, TextSettings, Written
from potluck.rollout.texts.books import Books
from potluck.rollout.texts.endpoint import ChatEndpoint, Dialect
from potluck.rollout.texts.episodes import EpisodeRound
from potluck.rollout.texts.round import TextRound


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of what is spent, and prices, as ``OpenAIOptions`` has them."""

    tokens: int = 0
    usd: float = 0.0
    usd_per_million_prompt: float = 0.0
    usd_per_million_completion: float = 0.0

    def cost(self, prompt_tokens: int, completion_tokens: int) -> Cost:
        usd = prompt_tokens * self.usd_per_million_prompt
        usd += completion_tokens * self.usd_per_million_completion
        return Cost(1, prompt_tokens, completion_tokens, usd / 1e6)

    def is_spent(self, cost: Cost) -> bool:
        tokens = cost.prompt_tokens + cost.completion_tokens
        return 0 < self.tokens <= tokens or 0 < self.usd <= round(cost.usd, 9)  # sums are rounded


class OpenAIEngine:
    """An author that asks a served model, until its budget is spent."""

    def __init__(self, endpoint: ChatEndpoint, budget: Budget, settings: TextSettings) -> None:
        self.endpoint, self.budget, self.settings = endpoint, budget, settings
        self.books = Books(settings.folder / settings.node, settings.notify)
        self.dialect, self.has_written = Dialect(), False
        self._told: set[str] = set()

    def write(self, requests: Requests, *, author: str, seed: int, progress: Progress) -> Written:
        requests = [request for request in requests if request.count]
        total = sum(request.count for request in requests)
        if not requests:
            return Written(())
        before, environment = self.books.spent, self.settings.environment
        work = TextRound(self, requests, seed)
        if environment:
            work = EpisodeRound(self, requests, seed, environment)
        try:
            self._ask_all(work, progress, total)
        except BaseException:
            if count := (self.books.spent - before).booked:
                news = f"{count} requests of {self.settings.node!r} had no answer"
                self.settings.notify(f"{news}: they stay booked at the most that they can cost")
            raise
        progress(work.count, total)
        if work.refused and not self.has_written:
            raise self.endpoint.refuse(*work.refused)
        self._tell(work)
        return Written(tuple(work.completions(author)), self.books.spent - before)

    def _ask_all(self, work: TextRound, progress: Progress, total: int) -> None:
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(asyncio.run, work.ask_all())
            try:
                while wait([asking], TICK_S).not_done:
                    progress(work.count, total)
            finally:
                work.ended.set()
            asking.result()

    def _tell(self, work: TextRound) -> None:
        url, model = self.endpoint.address.url, self.endpoint.model
        if work.trouble:
            news = f"{url} does not write now ({work.trouble}); it is asked again in the next round"
            self._tell_once("trouble", news)
        else:
            self._told.discard("trouble")
        if work.refused:
            self._tell_once("refused", f"{url} does not answer some questions ({work.refused[0]})")
        if self.budget.is_spent(spent := self.books.spent):
            self._tell_once(
                "budget",
                f"the budget of {self.settings.node!r} is spent ({spent.prompt_tokens} tokens of "
                f"prompts, {spent.completion_tokens} of completions, {spent.usd:.2f} USD): it "
                f"writes no more; to go on, resume with a larger one in its table engine",
            )
        if work.unusable:
            news = f"{len(work.unusable)} episodes of {self.settings.node!r} are left out"
            self._tell_once("unusable", f"{news} ({work.unusable[0]})")
        for name in sorted(self.dialect.left_out & {"top_p", "temperature"}):
            self._tell_once(name, f"{model!r} at {url} takes no {name}: it writes with its own")

    def _tell_once(self, what: str, news: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self.settings.notify(news)
