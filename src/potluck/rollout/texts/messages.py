"""Requests and answers of the chat protocol: what a model is asked, and how its answer is read.

Models differ in what they take. One that refuses a parameter is not sent it again.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

import msgspec

from potluck.rollout.texts.base import can_be_read
from potluck.types import End, Problem

REFUSABLE = ("max_tokens", "top_p", "temperature", "seed")


@dataclass(frozen=True, slots=True)
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

    def text(self, max_new_tokens: int) -> tuple[str, End] | None:
        """Read the text and its end; None if it is filtered, a call of a tool, or none to learn."""
        content: Any = self.message.get("content")
        end = self.finish_reason
        whole = isinstance(content, str) and end in ("stop", "length")
        return (content, cast(End, end)) if whole and can_be_read(content, max_new_tokens) else None


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
