"""A process of an environment, which is started when it is asked, and again after it ended."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from potluck.confined import Confined
from potluck.episode import EnvironmentFailed, Step
from potluck.files import one_line
from potluck.tasks.environments.kinds import Spec
from potluck.types import Observation

SLACK = 4.0
"""Seconds on the clock for each that the processor may compute: machines are busy."""


class Process:
    """One process, asked by one thread at a time."""

    def __init__(
        self, spec: Spec, limit_s: float, limit_bytes: int, variables: Mapping[str, str]
    ) -> None:
        """Start nothing yet. ``limit_s`` is of each line, of the processor."""
        self.spec, self._variables = spec, variables
        self._limit_s, self._limit_bytes = limit_s, limit_bytes
        self._running: Confined | None = None

    @property
    def running(self) -> Confined | None:
        if self._running and self._running.process.poll() is not None:
            self.end()
        return self._running

    def ask(self, *line: Any) -> Any:
        """Ask for what ``host.py`` says; raise EnvironmentFailed where it answers with an error,
        or with none within the limits."""
        try:
            said = self._started().ask(json.dumps(line) + "\n", SLACK * self._limit_s)
        except BrokenPipeError:  # it ended a moment ago
            said = ""
        if said.startswith("["):
            return json.loads(said)
        if not said:
            self.end()
            limits = f"{self._limit_s:g} s or {self._limit_bytes / 2**30:g} GiB"
            said = f"it ended its process, or took more than {limits}"
        raise EnvironmentFailed(f"{self.spec.name}: {one_line(said)}")

    def _started(self) -> Confined:
        if (running := self.running) is None:
            words = msgspec.json.encode(self.spec).decode()
            host, limits = "potluck.tasks.environments.host", (self._limit_s, self._limit_bytes)
            running = self._running = Confined(host, *limits, words, variables=self._variables)
            if running.state != "ready":
                self.end()
                limit = f"{self._limit_bytes / 2**30:g} GiB"
                ended = f"its process ended as it began; task.memory_gib leaves it {limit}"
                said = running.state or ended
                raise EnvironmentFailed(f"{self.spec.name}: {said.removeprefix('TaskError: ')}")
        return running

    def kill(self) -> None:
        """Have it end while another thread waits for it, which then hears that it ended."""
        if running := self._running:
            running.process.kill()

    def end(self) -> None:
        if self._running:
            self._running.end()
        self._running = None


def step_of(said: Any) -> Step:
    """Read a step of ``host.py``."""
    observations, done = said
    return Step(msgspec.convert(observations, tuple[Observation, ...]), done)
