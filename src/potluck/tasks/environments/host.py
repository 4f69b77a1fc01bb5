"""Environments in a process apart, the only place where the code of a user's class runs.

A line asks, as JSON, and a line answers (``confined.py``). A key names an episode:

    ["about"]                        -> [kind, tool schemas, true if it pays a reward, true if it
                                         can reach a network, turns to try, false if it has no seed]
    ["play", key, row, seed, turns]  -> [what it says at reset, [step, ...]]
    ["replay", key, row, seed, turns]   the same, and behind it what "finish" returns
    ["act", key, turn]               -> step: [[observation, ...], done]
    ["finish", key]                  -> [reward, calls, errors]

Whatever else stands in a line is an error: the episode is over, and the process goes on.

There are two kinds of class:

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
import ctypes
import inspect
import json
import math
import os
import random
import reprlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from potluck.confined import Confined, NotReady
from potluck.episode import EnvironmentFailed, ToolCall, Turn
from potluck.files import one_line
from potluck.tasks.base import TaskError, number_of
from potluck.tasks.rewards import load_function
from potluck.template import tool_schemas
from potluck.types import Observation

EnvironmentKind = Literal["game", "environment"]
MOST_CALLS = 64
"""Tool calls of one turn."""
CUT = " [cut]"
"""Mark of an observation of which the rest is left out."""
NOT_TOOLS = ("reset", "get_reward")
NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000
SLACK = 4.0
"""Seconds on the clock for each that the processor may compute: machines are busy."""


class Spec(msgspec.Struct, frozen=True):
    """All that the process of an environment is told."""

    kind: EnvironmentKind | None
    """Kind; None: a class with ``step`` is a game."""
    name: str
    """Class: ``FILE.py:NAME`` or ``MODULE:NAME``."""
    observation_bytes: int = 4096
    offline: bool = True
    described: bool = True
    """False: nothing asks "about", of which the schemas of tools take a second."""


class Process(Confined):
    """A process that plays, as other processes see it."""

    def __init__(
        self, spec: Spec, limit_s: float, limit_bytes: int, variables: Mapping[str, str]
    ) -> None:
        """Start nothing yet. ``limit_s``: the processor's time for each line."""
        words = msgspec.json.encode(spec).decode()
        super().__init__(__name__, limit_s, limit_bytes, words, variables=variables)
        self._name, self._limit_s, self._gib = spec.name, limit_s, f"{limit_bytes / 2**30:g} GiB"

    def call(self, *line: Any, within_s: float = math.inf) -> Any:
        """Ask, as above; raise EnvironmentFailed for an error, or no answer within the limits.
        ``within_s``: seconds on the clock, where that is less."""
        clock_s = min(SLACK * self._limit_s, within_s)
        try:
            # Asked once: a new process knows no episode of the one that ended.
            said = self.ask(json.dumps(line) + "\n", clock_s, tries=1)
            ended = f"it ended its process, or took more than {self._limit_s:g} s or {self._gib}"
        except NotReady as error:
            said = str(error).removeprefix("TaskError: ")
            ended = f"its process ended as it began; task.memory_gib leaves it {self._gib}"
        if said.startswith("["):
            return json.loads(said)
        raise EnvironmentFailed(f"{self._name}: {one_line(said or ended)}")


def prepare(spec: str) -> Callable[[bytes], str]:
    wanted = msgspec.json.decode(spec, type=Spec)
    has_network = not (wanted.offline and leave_network())
    factory, _ = load_function(wanted.kind or "environment", wanted.name)
    host = Host(wanted, factory, has_network=has_network)
    return lambda line: json.dumps(host.answer(*json.loads(line)))


def leave_network() -> bool:
    """Enter a network without any device; return False where the system lets no process do so."""
    user, group = os.getuid(), os.getgid()
    leave = getattr(ctypes.CDLL(None), "unshare", None)
    # root may, as it is; anybody else as a user of a space of their own, under the same number.
    if leave is None:
        return False
    if leave(NEW_NETWORK) == 0:
        return True
    if has_left := not leave(NEW_USER | NEW_NETWORK):
        maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
        for name, line in maps.items():
            with suppress(OSError):
                Path("/proc/self", name).write_text(line)
    return has_left


class Host:
    """Instances of one class, each reset for one episode after another."""

    def __init__(self, spec: Spec, factory: Callable[[], Any], *, has_network: bool) -> None:
        """Construct a first one, which tells what there is to call."""
        is_game = spec.kind is None and callable(getattr(factory(), "step", None))
        self._kind = spec.kind or ("game" if is_game else "environment")
        self._factory, self._most_bytes = factory, spec.observation_bytes
        self._free, self._live = [self._made()], dict[int, "Instance"]()
        if not spec.described:
            return
        made = self._free[0].made
        named, seeded = getattr(made, "actions", ()), getattr(made, "seeded", True) is not False
        texts = [str(text) for text in named] if isinstance(named, list | tuple) else []
        self._about = self._kind, *self._free[0].about(), has_network, texts, seeded

    def _made(self) -> "Instance":
        return KINDS[self._kind](self._factory, self._most_bytes)

    def answer(self, verb: str, key: int = 0, *rest: Any) -> Any:
        """Do what a line asks for; raise anything where it cannot be done."""
        if verb == "about":
            return self._about
        instance = self._live.pop(key, None)
        said: Any = ()
        if verb in ("play", "replay"):
            self._free += [instance] if instance else []
            instance = self._free.pop() if self._free else self._made()
            row, seed, turns = rest
            said = instance.play(row, seed, msgspec.convert(turns, list[Turn]))
        elif instance is None:
            raise LookupError(f"no episode {key} is being played")
        elif verb == "act":
            said = instance.act(msgspec.convert(rest[0], Turn))
        if verb in ("play", "act"):
            self._live[key] = instance  # one that raised may be in any state, and is used no more
        else:
            paid = instance.finish()
            self._free.append(instance)
            said = (*said, paid) if said else paid
        return msgspec.to_builtins(said)


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
        self._takes = inspect.signature(self.made.reset).parameters.values()

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
        if not any(p.kind is p.VAR_KEYWORD for p in self._takes):
            row = {p.name: row[p.name] for p in self._takes if p.name in row}
        said = self.settled(self.made.reset(**row))
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
        """End the episode; return its reward, tool calls and errors."""
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
        return tool_schemas(self._tools.values()), self._pays

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
            tasks = [self.loop.create_task(each) for _, each in waiting]
            gathered = asyncio.gather(*tasks, return_exceptions=True)
            results = self.loop.run_until_complete(gathered)
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


def _text(result: Any) -> str:
    """Write a result as TRL does, but blocks of text joined, as a template does."""
    if isinstance(result, list) and result:
        texts = [part.get("text") if isinstance(part, dict) else None for part in result]
        if all(isinstance(text, str) for text in texts):
            return "".join(map(str, texts))
    return str(result)
