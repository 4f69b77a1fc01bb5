"""Environments in a process apart, the only place where the code of a user's class runs.

A line asks, as JSON, and a line answers (``confined.py``). A key names an episode:

    ["about"]                        -> [kind, tool schemas, true if it pays a reward, true if it
                                         can reach a network, turns to try, false if it has no seed]
    ["play", key, row, seed, turns]  -> [what it says at reset, [step, ...]]
    ["replay", key, row, seed, turns]   the same, and behind it what "finish" returns
    ["act", key, turn]               -> step: [[observation, ...], done]
    ["finish", key]                  -> [reward, calls, errors]

Whatever else stands in a line is an error: the episode is over, and the process goes on.
"""

import ctypes
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from potluck.confined import Confined, NotReady
from potluck.episode import EnvironmentFailed, Turn
from potluck.files import one_line
from potluck.tasks.environments.kinds import KINDS, Instance, Spec
from potluck.tasks.rewards import load_function

NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000
SLACK = 4.0
"""Seconds on the clock for each that the processor may compute: machines are busy."""


class Process(Confined):
    """A process that plays, as other processes see it."""

    def __init__(
        self, spec: Spec, limit_s: float, limit_bytes: int, variables: Mapping[str, str]
    ) -> None:
        """Start nothing yet. ``limit_s`` is of each line, of the processor."""
        words = msgspec.json.encode(spec).decode()
        super().__init__(__name__, limit_s, limit_bytes, words, variables=variables)
        self._name, self._limit_s, self._gib = spec.name, limit_s, f"{limit_bytes / 2**30:g} GiB"

    def call(self, *line: Any) -> Any:
        """Ask, as above; raise EnvironmentFailed where it answers with an error,
        or with none within the limits."""
        try:
            # Asked once: a new process knows no episode of the one that ended.
            said = self.ask(json.dumps(line) + "\n", SLACK * self._limit_s, tries=1)
            ended = f"it ended its process, or took more than {self._limit_s:g} s or {self._gib}"
        except NotReady as error:
            said = str(error).removeprefix("TaskError: ")
            ended = f"its process ended as it began; task.memory_gib leaves it {self._gib}"
        if said.startswith("["):
            return json.loads(said)
        raise EnvironmentFailed(f"{self._name}: {one_line(said or ended)}")


def prepare(spec: str) -> Callable[[bytes], str]:
    """Import the class, and make what answers a line."""
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
        self._free, self._live = [self._made()], dict[int, Instance]()
        if not spec.described:
            return
        made = self._free[0].made
        named, seeded = getattr(made, "actions", ()), getattr(made, "seeded", True) is not False
        texts = [str(text) for text in named] if isinstance(named, list | tuple) else []
        self._about = self._kind, *self._free[0].about(), has_network, texts, seeded

    def _made(self) -> Instance:
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
