"""Keys of [task] that all environments share."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from potluck.fields import Positive
from potluck.tasks.base import TaskError, TaskOptions
from potluck.tasks.environments.kinds import KINDS, EnvironmentKind


class PlayOptions(TaskOptions, frozen=True, kw_only=True):
    """Limits of episodes. A task without an environment has none."""

    max_turns: Annotated[int, Meta(ge=1, le=4096)] = 16
    """Turns of an episode, at most."""
    observation_bytes: Annotated[int, Meta(ge=64)] = 4096
    """Bytes of each text of an environment; the rest is cut off, with a mark."""
    step_s: Positive = 5.0
    """Seconds that a reset or a step may compute, or four times as many on the clock. An episode
    of another node, played again, may take twice as long in all."""
    memory_gib: Positive = 4.0
    """Memory (address space) of a process in which environments run."""
    seed: int = 0
    """Seed of an environment: with the problem's id it decides what ``reset`` gets as ``seed``."""

    @property
    def code(self) -> Mapping[str, str]:
        return {key: name for key in KINDS if (name := getattr(self, key, ""))}

    def play(self) -> tuple[EnvironmentKind, str] | None:
        """Return the kind and the place of the class to play in; None: there is none. Raise
        TaskError where there are two."""
        found = [(kind, self.code[kind]) for kind in KINDS if kind in self.code]
        if len(found) > 1:
            said = " and ".join(f"task.{key} is {name!r}" for key, name in found)
            raise TaskError(f"{said}; name one of them")
        return found[0] if found else None
