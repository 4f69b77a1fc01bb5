"""The chat protocol of an OpenAI-compatible endpoint. An answer is bounded in time and in bytes; a
model that refuses a parameter is not sent it again."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

import httpx2
import msgspec

from potluck.episode import ToolCall, Turn, text_of, turns_in
from potluck.rollout.base import RolloutError
from potluck.rollout.server import IS_IT_RUNNING, WAYS_OUT, Client, CutOff
from potluck.types import Observation, Problem

LATER = (402, 408, 409, 425, 429)
"""Statuses below 500 that may pass: no money left, too slow, a conflict, too early, too often."""
TIMED_OUT = (408, 504, 524)  # of what stands before a model that may go on to write, and so to cost
UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError)
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


class ChatClient(Client):
    """A client of a served model, by the ``OpenAIOptions`` of its table."""

    def __init__(self, options: Any, *, limit_bytes: int = 2**24) -> None:
        super().__init__(options.address, options.url.rstrip("/"), proxies=True)
        self._options, self._limit_bytes = options, limit_bytes

    async def post(self, body: dict[str, Any]) -> bytes:
        """Wait for the completions of a request; raise Unavailable or Refused."""
        return await self._once("POST", "/chat/completions", {"model": self._options.model, **body})

    async def repeat(self, attempt: Callable[[], Awaitable[bytes]], timeout_s: float = 0) -> bytes:
        """Wait for what ``attempt`` brings, repeat what may pass; raise Unavailable or Refused."""
        timeout_s = timeout_s or self._options.timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                for number in range(self._options.retries):
                    try:
                        return await attempt()
                    except Unavailable as error:
                        if error.again_s is None:
                            raise
                        await asyncio.sleep(error.again_s or 0.5 * 2**number)
                return await attempt()
        except TimeoutError:
            said = f"no answer within {timeout_s:g} seconds{self.remark}"
            raise Unavailable(said, may_cost=True) from None

    async def _once(self, method: str, path: str, body: object = None) -> bytes:
        """Wait for one answer, empty where it was cut off or is too long."""
        most = self._limit_bytes
        try:
            status, headers, raw = await self.send(method, path, body, limit_bytes=most)
        except CutOff:  # it may be billed: no attempt that is repeated
            return b""
        except httpx2.TransportError as error:
            may_cost, said = not isinstance(error, UNSENT), self.address.reason(error) + self.remark
            raise Unavailable(said, may_cost=may_cost, again_s=0.0) from None
        if 200 <= status < 300:
            return raw
        message = text = raw.decode(errors="replace")
        with suppress(ValueError, RecursionError, KeyError, TypeError):
            message = str(json.loads(text)["error"]["message"])
        said = self.address.line(f"status {status}: {message}") + self.remark
        if status in LATER or status >= 500:
            again_s = None if status == 402 else 0.0
            with suppress(ValueError):
                again_s = max(0.0, float(headers.get("retry-after", "")))
            raise Unavailable(said, may_cost=status in TIMED_OUT, again_s=again_s)
        raise Refused(said, status, text)

    async def models(self, wait_s: float) -> list[Any]:
        """List the names of its models; none where it does not list them, or not to this key."""
        try:
            raw = await self.repeat(lambda: self._once("GET", "/models"), wait_s)
            return [card["id"] for card in json.loads(raw)["data"]]
        except (Unavailable, Refused, ValueError, RecursionError, KeyError, TypeError):
            return []


async def require_ready(options: Any) -> None:
    """Raise RolloutError unless the endpoint answers now, takes the key and has the model: one that
    it does not list is asked for a few tokens."""
    probe = {"messages": [{"role": "user", "content": "1 + 1 ="}], "max_tokens": 16}
    wait_s = min(options.timeout_s, READY_S)
    async with ChatClient(options) as client:
        try:
            if options.model not in await client.models(wait_s):
                await client.repeat(lambda: client.post(probe), wait_s)
        except Unavailable as error:
            said = f"{options.url} does not answer ({error}); {IS_IT_RUNNING}"
            raise RolloutError(said) from None
        except Refused as error:
            # Some models do not take max_tokens, or want more of them: they are there.
            if error.status not in (400, 422):
                raise refusal(options, str(error), error.status) from None


def refusal(options: Any, said: str, status: int) -> RolloutError:
    """Make the error for a status that no later attempt would change."""
    what = f"{options.url} refuses to write as {options.model!r} ({said})"
    return RolloutError(f"{what}; {WAYS_OUT.get(status, 'see its documentation')}")


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
    """Parameters that a model does not take, as far as that has shown: without "n" it writes one
    completion a request, without "max_tokens" it has the newer name for that."""

    left_out: set[str] = field(default_factory=set)
    takes_n: bool = False

    def body(self, problem: Problem, sampling: dict[str, Any], count: int) -> dict[str, Any]:
        """Make the parameters of a request; ``sampling`` has those of REFUSABLE."""
        taken = {name: value for name, value in sampling.items() if name not in self.left_out}
        if "max_tokens" in self.left_out:
            taken["max_completion_tokens"] = sampling["max_tokens"]
        return {"messages": problem.messages} | taken | ({"n": count} if count > 1 else {})

    def again(self, asked: ChatRequest, body: dict[str, Any], refusal: str) -> list[ChatRequest]:
        """Choose what to ask after a ``refusal``: without what it names; one by one; nothing."""
        for name in REFUSABLE:
            if name in body and re.search(f"['\"`]{name}", refusal):
                self.left_out.add(name)
                return [asked]
        if asked.count == 1:
            return []
        self.left_out.update([] if self.takes_n else ["n"])
        return asked.one_by_one()


class Choice(msgspec.Struct):
    message: dict[str, Any]
    finish_reason: Any = None


class Usage(msgspec.Struct):
    prompt_tokens: Annotated[int, msgspec.Meta(ge=0, le=2**40)]
    completion_tokens: Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class ChatAnswer(msgspec.Struct):
    choices: list[Choice]
    usage: Usage | None = None


def read_answer(raw: bytes) -> ChatAnswer | None:
    """Read the answer; None if the bytes are none. Halves of surrogate pairs stay in texts."""
    try:
        return msgspec.convert(json.loads(raw), ChatAnswer)
    except (ValueError, RecursionError):
        return None


# Turns as messages, and back.


class _Function(msgspec.Struct):
    name: str
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct):
    function: _Function


class _Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_Call] | None = None


def turn_in(message: Mapping[str, Any]) -> Turn | None:
    """Read the turn of an assistant's message; None if it says nothing, or what cannot be sent on:
    arguments that are no JSON object, half a surrogate pair."""
    try:
        said = msgspec.convert(message, _Message)
        calls = tuple(ToolCall(c.function.name, _arguments(c)) for c in said.tool_calls or ())
        turns = turns_in(text_of([Turn(said.content or "", calls)]))  # as each reader has it
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None
    return turns[0] if turns and (turns[0].content.strip() or turns[0].calls) else None


def _arguments(call: _Call) -> dict[str, Any]:
    # An empty text is how some servers write that there are none.
    told = call.function.arguments or {}
    return msgspec.json.decode(told, type=dict[str, Any]) if isinstance(told, str) else told


def messages_of(turn: Turn, heard: Sequence[Observation], number: int) -> list[dict[str, Any]]:
    """Write a turn and what an environment said behind it as messages. Calls have ids of their
    own: with the server's a request could not be found again after a crash."""
    ids = [f"c{number:04d}{at:04d}" for at in range(len(turn.calls))]  # Mistral takes 9 letters
    said: dict[str, Any] = {"role": "assistant", "content": turn.content or None}
    if turn.calls:
        functions = [{"name": c.name, "arguments": json.dumps(c.arguments)} for c in turn.calls]
        calls = zip(ids, functions, strict=True)
        said["tool_calls"] = [{"id": id, "type": "function", "function": f} for id, f in calls]
    messages, answers = [said], iter(ids)
    for each in heard:
        by = {"role": "tool", "tool_call_id": next(answers, "")} if each.tool else {"role": "user"}
        messages.append(by | {"content": each.content})
    return messages
