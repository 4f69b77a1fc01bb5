"""Two kinds of class that can be an environment, as a process apart sees them.

game         an object with ``reset(**row) -> str`` and ``step(text) -> (text, reward, done)``. The
             reward of an episode is the sum over its steps.
environment  what TRL's ``environment_factory`` makes, unchanged: ``reset(**row) -> str | None``;
             its other public methods are tools; ``get_reward() -> float`` at the end, if it has
             one. A turn without a call ends the episode.

Source: TRL 1.16, GRPOTrainer. **Deviations**: ``reset`` gets a ``seed`` beside the row, and only
what it names, if it does not take all; a result is text, and cut; random numbers begin anew at
``reset``. What a game raises in ``step`` is what it says, as with a tool.
"""

import asyncio
import inspect
import random
import reprlib
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Literal

import msgspec
import numpy as np

from potluck.episode import ToolCall, Turn
from potluck.tasks.base import TaskError, number_of
from potluck.template import tool_schemas
from potluck.types import Observation

EnvironmentKind = Literal["game", "environment"]
MOST_CALLS = 64
"""Tool calls of one turn."""
CUT = " [cut]"
"""Mark of an observation of which the rest is left out."""
NOT_TOOLS = ("reset", "get_reward")


class Spec(msgspec.Struct, frozen=True):
    """All that the process of an environment is told."""

    kind: EnvironmentKind | None
    """None: a class with ``step`` is a game."""
    name: str
    """Class: ``FILE.py:NAME`` or ``MODULE:NAME``."""
    observation_bytes: int = 4096
    offline: bool = True
    described: bool = True
    """False: nothing asks "about", of which the schemas of tools take a second."""


class Instance:
    """An object of a user's class; one episode after another is played in it. Python's and NumPy's
    global random numbers are its own, while it is ``acting``."""

    acting: "Instance | None" = None
    needs: tuple[str, ...] = ("reset",)
    """Methods that the class must have."""

    def __init__(self, factory: Callable[[], Any], observation_bytes: int) -> None:
        self._luck: list[Any] = []
        self._take_over()
        self.made, self._most_bytes = factory(), observation_bytes
        self.loop = asyncio.new_event_loop()  # its own: what it left to run goes on with it alone
        self.calls = self.errors = 0
        self.reward = 0.0
        self._done = False
        for name in self.needs:
            if not callable(getattr(self.made, name, None)):
                raise TaskError(f"{type(self.made).__name__} has no method {name}")
        self._columns = _columns_of(self.made.reset)

    def about(self) -> tuple[list[Any], bool]:
        """Return the schemas of its tools, and True if it pays."""
        return [], True

    def play(
        self, row: Mapping[str, Any], seed: int, turns: Sequence[Turn]
    ) -> tuple[str | None, list[Any]]:
        """Reset, and take turns as long as it is not done; return what it says to each."""
        self.calls = self.errors = 0
        self.reward, self._done = 0.0, False
        self._take_over()
        random.seed(seed)
        np.random.seed(seed % 2**32)
        row = {"seed": seed, **row}
        names = row.keys() if self._columns is None else self._columns & row.keys()
        said = self.settled(self.made.reset(**{name: row[name] for name in names}))
        steps: list[Any] = []
        for turn in turns:
            if self._done:
                break
            steps.append(self.act(turn))
        return said if said is None else self._cut(_text(said)), steps

    def act(self, turn: Turn) -> tuple[list[Observation], bool]:
        """Take a turn; return what it says, and True if it is done."""
        if self._done:
            raise TaskError("the episode is over")
        self._take_over()
        said, self._done = self.step(turn)
        return [Observation(self._cut(text), tool) for tool, text in said], self._done

    def step(self, turn: Turn) -> tuple[list[tuple[str, str]], bool]:
        """Return what each tool says, "" the environment itself, and True if it is done."""
        raise NotImplementedError

    def paid(self) -> Any:
        return self.reward

    def finish(self) -> tuple[float, int, int]:
        """End the episode; return its reward, tool calls and errors. Raise TaskError for a reward
        that is no finite number."""
        self._take_over()
        return number_of(self.settled(self.paid())), self.calls, self.errors

    def _take_over(self) -> None:
        if (last := Instance.acting) is self:
            return
        if last:
            last._luck = [random.getstate(), np.random.get_state()]
        if self._luck:
            random.setstate(self._luck[0])
            np.random.set_state(self._luck[1])
        Instance.acting = self

    def settled(self, value: Any) -> Any:
        """Wait for what an async function returns."""
        return self.loop.run_until_complete(value) if inspect.isawaitable(value) else value

    def failed(self, error: BaseException) -> dict[str, str]:
        """Count an error, and return what is said of it; raise it again where memory ran out."""
        if isinstance(error, MemoryError) or not isinstance(error, Exception):
            raise error
        self.errors += 1
        return {"error": str(error)}

    def _cut(self, text: str) -> str:
        raw = text.encode(errors="replace")
        if len(raw) > self._most_bytes:
            kept = raw[: max(0, self._most_bytes - len(CUT))]
            return kept.decode(errors="ignore") + CUT
        return raw.decode()


class GameInstance(Instance):
    """A game: it answers each turn as a user does."""

    needs = ("reset", "step")

    def step(self, turn: Turn) -> tuple[list[tuple[str, str]], bool]:
        try:
            returned = self.settled(self.made.step(turn.content))
        except Exception as error:  # a stranger's code, about a stranger's text
            return [("", str(self.failed(error)))], False
        if not (isinstance(returned, tuple | list) and len(returned) == 3):
            found = reprlib.repr(returned)
            raise TaskError(f"step returned {found}; expected (text, reward, done)")
        self.reward += number_of(returned[1])
        return [("", str(returned[0]))], bool(returned[2])


class ToolsInstance(Instance):
    """An environment of TRL: its methods are tools."""

    def __init__(self, factory: Callable[[], Any], observation_bytes: int) -> None:
        super().__init__(factory, observation_bytes)
        names = [name for name, _ in inspect.getmembers(type(self.made), inspect.isfunction)]
        self._pays = "get_reward" in names
        self._tools: dict[str, Callable[..., Any]] = {
            name: getattr(self.made, name)
            for name in names
            if name not in NOT_TOOLS and not name.startswith("_")
        }

    def about(self) -> tuple[list[Any], bool]:
        schemas = tool_schemas(self._tools.values())
        return schemas, self._pays

    def step(self, turn: Turn) -> tuple[list[tuple[str, str]], bool]:
        if len(turn.calls) > MOST_CALLS:
            raise TaskError(f"a turn has {len(turn.calls)} tool calls; at most {MOST_CALLS}")
        said, waiting = list[tuple[str, Any]](), list[tuple[str, Any]]()
        for call in turn.calls:
            self.calls += 1
            try:
                is_async, result = self._called(call)
                (waiting if is_async else said).append((call.name, result))
            except Exception as error:  # a stranger's code, about a stranger's arguments
                said.append((call.name, self.failed(error)))
        if waiting:  # async tools run at the same time, after all others
            results = self.loop.run_until_complete(_gathered([each for _, each in waiting]))
            for (name, _), result in zip(waiting, results, strict=True):
                is_error = isinstance(result, BaseException)
                said.append((name, self.failed(result) if is_error else result))
        # A template does not escape the name of a tool, and a peer may have invented this one.
        known = [(name if name in self._tools else "tool", result) for name, result in said]
        return [(name, _text(result)) for name, result in known], not turn.calls

    def _called(self, call: ToolCall) -> tuple[bool, Any]:
        if call.name not in self._tools:
            raise ValueError(f"Tool {call.name} not found.")
        tool = self._tools[call.name]
        return inspect.iscoroutinefunction(tool), tool(**call.arguments)

    def paid(self) -> Any:
        return self.made.get_reward() if self._pays else 0.0


KINDS: dict[EnvironmentKind, type[Instance]] = {"game": GameInstance, "environment": ToolsInstance}


async def _gathered(waiting: Sequence[Any]) -> list[Any]:
    return await asyncio.gather(*waiting, return_exceptions=True)


def _columns_of(reset: Callable[..., Any]) -> Set[str] | None:
    """Return the names of the columns that ``reset`` takes; None: it takes all."""
    takes = inspect.signature(reset).parameters.values()
    return None if any(p.kind is p.VAR_KEYWORD for p in takes) else {p.name for p in takes}


def _text(result: Any) -> str:
    """Write a result as TRL does; blocks of text, which a template would join, are joined."""
    if isinstance(result, list) and result:
        texts = [part.get("text") if isinstance(part, dict) else None for part in result]
        if all(isinstance(text, str) for text in texts):
            return "".join(map(str, texts))
    return str(result)
