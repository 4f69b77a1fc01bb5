"""The chat protocol of an OpenAI-compatible endpoint: its requests, its answers, and the way there.

The client library repeats no request: each attempt has its own place in the books. An answer is
bounded in time and in bytes. Models differ in what they take: one that refuses a parameter is not
sent it again.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
from msgspec.structs import replace

from potluck.rollout.base import RolloutError
from potluck.rollout.vllm.client import CONNECT_S, NO_KEY, REDIRECTED
from potluck.types import Problem

if TYPE_CHECKING:
    from openai import AsyncOpenAI

LATER = (402, 408, 409, 425, 429)
"""Statuses below 500 that may pass: no money left, too slow, a conflict, too early, too often."""
TIMED_OUT = (408, 504, 524)
"""Statuses of what stands before a model that may go on to write, and so to cost."""
UNSENT = ("ConnectError", "ConnectTimeout", "PoolTimeout")
"""Errors of a connection over which nothing was sent."""
WAYS_OUT = {
    **dict.fromkeys(range(300, 400), REDIRECTED),
    401: NO_KEY,
    403: "may this key use this model, and is it in api_key_variable?",
    404: "is the name of the model right, and url complete, such as https://HOST/v1?",
}
"""Ways out by the status of an answer."""
READY_S = 20.0
REFUSABLE = ("max_tokens", "top_p", "temperature", "seed")


class Unavailable(Exception):
    """The endpoint does not answer now; ``may_cost`` is True if it may have begun to write.
    ``again_s``: pause before it is asked again; 0: half a second, doubled each time; None: no."""

    def __init__(self, said: str, *, may_cost: bool, again_s: float | None = None) -> None:
        super().__init__(said)
        self.may_cost, self.again_s = may_cost, again_s


class Refused(Exception):
    """The endpoint does not take the request; ``text`` is all that it says about that."""

    def __init__(self, said: str, status: int, text: str) -> None:
        super().__init__(said)
        self.status, self.text = status, text


@dataclass(frozen=True, slots=True)
class ChatEndpoint:
    """A served model, and how it is asked."""

    options: Any
    """Options of its table, ``OpenAIOptions``: their module imports this one."""

    def client(self, limit_bytes: int) -> "AsyncOpenAI":
        """Make a client whose answers are empty where they are longer than ``limit_bytes``.
        Raise RolloutError if the library, the key or the host is none."""
        try:
            from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Timeout
        except ImportError as error:
            raise RolloutError(
                f"engine 'openai' needs the library openai ({error}); pip install 'potluck[openai]'"
            ) from error

        async def bound(response: Any) -> None:
            # Never unpacked, as no packed answer is asked for: a few bytes can hold gigabytes.
            response.headers.pop("content-encoding", None)
            body = bytearray()
            with suppress(Exception):  # Cut off, it may be billed: no attempt that is repeated.
                async for piece in response.stream:
                    body += piece
                    if len(body) > limit_bytes:
                        body.clear()
                        break
            await response.stream.aclose()
            response.stream = type(response)(200, content=bytes(body)).stream

        self.options.address.parts()
        plain = DefaultAsyncHttpxClient(follow_redirects=False, event_hooks={"response": [bound]})
        plain.headers["Accept-Encoding"] = "identity"
        return AsyncOpenAI(
            # Without one the library would send OPENAI_API_KEY, to whatever url this is.
            api_key=self.options.address.key() or "none",
            base_url=self.options.url,
            max_retries=0,
            timeout=Timeout(None, connect=CONNECT_S),  # ``ask`` bounds all of it together
            http_client=plain,
        )

    async def ask(self, attempt: Callable[[], Awaitable[bytes]]) -> bytes:
        """Wait for what ``attempt`` brings, repeat what may pass; raise Unavailable or Refused."""
        try:
            async with asyncio.timeout(self.options.timeout_s):
                for number in range(self.options.retries):
                    try:
                        return await attempt()
                    except Unavailable as error:
                        if error.again_s is None:
                            raise
                        await asyncio.sleep(error.again_s or 0.5 * 2**number)
                return await attempt()
        except TimeoutError:
            said = f"no answer within {self.options.timeout_s:g} seconds"
            raise Unavailable(said, may_cost=True) from None

    async def body(self, answer: Awaitable[Any]) -> bytes:
        """Wait for the body of one ``answer`` of the client; raise Unavailable or Refused."""
        from openai import APIStatusError, OpenAIError

        try:
            return cast(bytes, (await answer).content)
        except APIStatusError as error:
            status, text, body = error.status_code, error.response.text, error.body
            reason = (body.get("message") if isinstance(body, dict) else "") or text
            said = self.options.address.line(f"status {status}: {reason}")
            if status in LATER or status >= 500:
                again_s = None if status == 402 else 0.0
                with suppress(ValueError):
                    again_s = max(0.0, float(error.response.headers.get("retry-after", "")))
                raise Unavailable(said, may_cost=status in TIMED_OUT, again_s=again_s) from None
            raise Refused(said, status, text) from None
        except OpenAIError as error:
            cause = error.__cause__ or error
            said, kind = self.options.address.line(str(cause)), type(cause).__name__
            raise Unavailable(said, may_cost=kind not in UNSENT, again_s=0.0) from None

    def refuse(self, said: str, status: int) -> RolloutError:
        """Make the error for a status that no later attempt would change."""
        what = f"{self.options.url} refuses to write as {self.options.model!r} ({said})"
        return RolloutError(f"{what}; {WAYS_OUT.get(status, 'see its documentation')}")

    def require_ready(self) -> None:
        """Raise RolloutError unless the endpoint answers now, takes the key and has the model. One
        that it does not list may have a second name, so it is asked for a few tokens."""
        wait_s = min(self.options.timeout_s, READY_S)
        patient = ChatEndpoint(replace(self.options, timeout_s=wait_s))
        with ThreadPoolExecutor(1) as pool:  # a notebook's thread runs a loop already
            pool.submit(asyncio.run, patient._require_model()).result()

    async def _require_model(self) -> None:
        probe: Any = {"messages": [{"role": "user", "content": "1 + 1 ="}], "max_tokens": 16}
        try:
            async with self.client(2**24) as client:
                if self.options.model not in await self._listed(client):
                    create = client.chat.completions.with_raw_response.create
                    await self.ask(lambda: self.body(create(model=self.options.model, **probe)))
        except Unavailable as error:
            way_out = "is it running, and is [node.NAME.engine] url its own?"
            said = f"{self.options.url} does not answer ({error}); {way_out}"
            raise RolloutError(said) from None
        except Refused as error:
            # Some models do not take max_tokens, or want more of them: they are there.
            if error.status not in (400, 422):
                raise self.refuse(str(error), error.status) from None

    async def _listed(self, client: "AsyncOpenAI") -> list[Any]:
        """List the names of its models; none where it does not list them, or not to this key."""
        try:
            raw = await self.ask(lambda: self.body(client.models.with_raw_response.list()))
            return [card["id"] for card in json.loads(raw)["data"]]
        except (Unavailable, Refused, ValueError, RecursionError, KeyError, TypeError):
            return []


@dataclass(frozen=True, slots=True, order=True)
class ChatRequest:
    """Request for completions ``first`` to ``first + count`` of the problem at ``place``."""

    place: int
    first: int
    count: int

    def one_by_one(self, done: int = 0) -> "list[ChatRequest]":
        """Ask for each completion but the first ``done`` by itself."""
        return [ChatRequest(self.place, self.first + i, 1) for i in range(done, self.count)]


@dataclass(slots=True)
class Dialect:
    """Parameters that a model does not take, as far as that has shown."""

    left_out: set[str] = field(default_factory=set)
    """"n": it writes one completion a request; "max_tokens": it has the newer name for that."""
    takes_n: bool = False

    def body(self, problem: Problem, sampling: dict[str, Any], count: int) -> dict[str, Any]:
        """Make the parameters of a request; ``sampling`` has those of REFUSABLE."""
        taken = {name: value for name, value in sampling.items() if name not in self.left_out}
        if "max_tokens" in self.left_out:
            taken["max_completion_tokens"] = sampling["max_tokens"]
        return {"messages": problem.messages} | taken | ({"n": count} if count > 1 else {})

    def again(self, asked: ChatRequest, body: dict[str, Any], refusal: str) -> list[ChatRequest]:
        """Choose what to ask instead after a ``refusal`` of ``body``, without the parameter that it
        names, or else one by one; empty: there is nothing else."""
        for name in REFUSABLE:
            if name in body and re.search(f"['\"`]{name}", refusal):
                self.left_out.add(name)
                return [asked]
        if asked.count == 1:
            return []
        self.left_out.update([] if self.takes_n else ["n"])
        return asked.one_by_one()


class Choice(msgspec.Struct):
    """One completion as the endpoint sends it."""

    message: dict[str, Any]
    finish_reason: Any = None


class Usage(msgspec.Struct):
    """Tokens that the endpoint counted."""

    prompt_tokens: Annotated[int, msgspec.Meta(ge=0, le=2**40)]
    completion_tokens: Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class ChatAnswer(msgspec.Struct):
    """Answer to one request."""

    choices: list[Choice]
    usage: Usage | None = None


def read_answer(raw: bytes) -> ChatAnswer | None:
    """Read the answer; None if the bytes are none. Halves of surrogate pairs stay in texts."""
    try:
        return msgspec.convert(json.loads(raw), ChatAnswer)
    except (ValueError, RecursionError):
        return None
