"""Turns as messages of the chat protocol, and back."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from potluck.episode import ToolCall, Turn, text_of, turns_in
from potluck.types import Observation


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


def messages_of(
    turn: Turn, observations: Sequence[Observation], number: int
) -> list[dict[str, Any]]:
    """Write a turn and what an environment said behind it as messages. Calls have ids of their
    own: with the server's a request could not be found again after a crash."""
    ids = [f"c{number:04d}{at:04d}" for at in range(len(turn.calls))]  # Mistral takes 9 letters
    said: dict[str, Any] = {"role": "assistant", "content": turn.content or None}
    if turn.calls:
        said["tool_calls"] = [
            {
                "id": id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for id, call in zip(ids, turn.calls, strict=True)
        ]
    answers = iter(ids)
    heard = [
        {"role": "tool", "tool_call_id": next(answers, ""), "content": o.content}
        if o.tool
        else {"role": "user", "content": o.content}
        for o in observations
    ]
    return [said, *heard]
