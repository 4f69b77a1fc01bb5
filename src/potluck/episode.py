"""Nouns of an episode: a completion of several turns, between which an environment speaks."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec

from potluck import types
from potluck.types import Completion, Episode, Observation, PotluckError, Problem

Grade = Literal["transcript", "replay", "own"]
"""How far an environment can be trusted to say the same on every node.

    transcript  what it says repeats, and the reward is made of the text alone
    replay      what it says and pays is decided by row, seed and turns: a reader plays it again
    own         anything else: episodes of others are not learned from
"""
MOST_TURNS = 4096
MOST_NESTED = 64
"""Levels of lists and objects in the arguments of a call."""


class EnvironmentFailed(PotluckError):
    """An environment raised in ``reset``, hung, or broke a limit; the message is one line."""


class ToolCall(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A call of a tool, with arguments that JSON can say."""

    name: str
    arguments: dict[str, Any]


class Turn(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Message that a model wrote before the environment spoke, in no model's own syntax."""

    content: str
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """Answer of an environment to a turn; if it is done, nobody reads the observations."""

    observations: tuple[Observation, ...]
    """One of the user, or one for each tool call of the turn."""
    done: bool


class Play(Protocol):
    """Episodes that are being written, each known by a number."""

    def begin(self, episode: int, problem: Problem, index: int = 0) -> None:
        """Reset an environment, for the completion of the problem at ``index``. Raise
        EnvironmentFailed if it cannot be reset, or begins otherwise than ``problem.question``."""

    def act(self, episode: int, turn: Turn) -> None:
        """Hand a turn over, without waiting for the answer."""

    def answered(self, wait_s: float) -> list[tuple[int, Step | EnvironmentFailed]]:
        """Return the answers that have come, by episode; wait up to ``wait_s`` for all of them."""

    def finish(self, episode: int) -> Episode:
        """End an episode, wherever it is; return it with its reward."""

    def close(self) -> None:
        """End all that are open."""


class Environment(Protocol):
    """Place where a task's episodes are played; the task has it as ``environment``."""

    grade: Grade
    max_turns: int

    def open(self, author: str = "") -> Play:
        """Begin to play, for one writing of an author."""

    def replay(
        self,
        problem: Problem,
        turns: Sequence[Turn],
        written: Completion | None = None,
        *,
        within_s: float = math.inf,
    ) -> Episode:
        """Play these turns from the start, in a process that has played for the author of
        ``written`` alone, within so many seconds on the clock; an episode played before comes from
        memory. With ``grade`` "own" none is played; ``written``, an own completion, tells it from
        others of the same turns. Raise EnvironmentFailed if it is not there, or beyond a limit."""

    def begin_anew(self, author: str) -> None:
        """Replay the author's next episode in a new process: one of it was refused."""


def text_of(turns: Sequence[Turn]) -> str:
    """Write turns as one text, as completions of several turns have it.

    >>> text_of([Turn("north"), Turn("", (ToolCall("add", {"a": 1}),))])
    '[["north",[]],["",[["add",{"a":1}]]]]'
    """
    return msgspec.json.encode(list(turns)).decode()


_turns = msgspec.json.Decoder(tuple[Turn, ...])


def turns_in(text: str) -> tuple[Turn, ...] | None:
    """Read what ``text_of`` wrote; None if it is anything else, or nested too deeply."""
    try:
        turns = _turns.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    arguments = [call.arguments for turn in turns for call in turn.calls]
    if not 0 < len(turns) <= MOST_TURNS or not _is_within(arguments, MOST_NESTED):
        return None
    return turns if text_of(turns) == text else None


def _is_within(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels >= 0 and all(_is_within(each, levels - 1) for each in inner)


def acted(turns: Sequence[Turn], end: types.End) -> Sequence[Turn]:
    """Return the turns that the environment heard: not one that was cut off."""
    return turns[:-1] if end == "length" else turns


def played(environment: Environment, problem: Problem, written: Completion) -> Episode:
    """Return the episode of a completion that was written here; raise as ``replay`` does."""
    if (turns := turns_in(written.text or "")) is None:
        raise EnvironmentFailed(f"a completion of {problem.id!r} has no turns")
    return environment.replay(problem, acted(turns, written.end), written)


def digest_of(observations: Sequence[Observation]) -> bytes:
    """Digest what an environment said behind a turn: a hint at the turn in which two part."""
    return hashlib.sha256(msgspec.json.encode(list(observations))).digest()[: types.OBSERVED_BYTES]


def transcript(turns: Sequence[Turn], episode: Episode) -> list[Mapping[str, Any]]:
    """List the turns and observations in order, to show them: what was said, by whom."""
    lines: list[Mapping[str, Any]] = []
    for at, turn in enumerate(turns):
        calls = [{"name": call.name, "arguments": call.arguments} for call in turn.calls]
        said = {"role": "assistant", "content": turn.content}
        lines.append(said | {"calls": calls} if calls else said)
        for heard in episode.observations[at : at + 1]:
            lines += [{"role": "tool" if o.tool else "user", "content": o.content} for o in heard]
    return lines
