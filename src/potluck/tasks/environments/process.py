"""A process of an environment, as this side sees it."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from potluck.confined import Confined, NotReady
from potluck.episode import EnvironmentFailed
from potluck.files import one_line
from potluck.tasks.environments.kinds import Spec

SLACK = 4.0
"""Seconds on the clock for each that the processor may compute: machines are busy."""


class Process(Confined):
    """A process that plays."""

    def __init__(
        self, spec: Spec, limit_s: float, limit_bytes: int, variables: Mapping[str, str]
    ) -> None:
        """Start nothing yet. ``limit_s`` is of each line, of the processor."""
        host, words = "potluck.tasks.environments.host", msgspec.json.encode(spec).decode()
        super().__init__(host, limit_s, limit_bytes, words, variables=variables)
        self._name, self._limit_s, self._gib = spec.name, limit_s, f"{limit_bytes / 2**30:g} GiB"

    def call(self, *line: Any) -> Any:
        """Ask for what ``host.py`` says; raise EnvironmentFailed where it answers with an error,
        or with none within the limits."""
        try:
            said = self.ask(json.dumps(line) + "\n", SLACK * self._limit_s)
            ended = f"it ended its process, or took more than {self._limit_s:g} s or {self._gib}"
        except NotReady as error:
            said = str(error).removeprefix("TaskError: ")
            ended = f"its process ended as it began; task.memory_gib leaves it {self._gib}"
        if said.startswith("["):
            return json.loads(said)
        raise EnvironmentFailed(f"{self._name}: {one_line(said or ended)}")
