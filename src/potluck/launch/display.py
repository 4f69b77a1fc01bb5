"""Where a run says how far it is, and what it comes to."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


class Display(Protocol):
    """Where a run says how far it is. Called often; takes no time."""

    def phase(self, node: str, name: str, done: int, total: int) -> None: ...
    def round_done(self, node: str, metrics: dict[str, Any]) -> None: ...
    def evaluated(self, node: str, evaluation: dict[str, Any]) -> None: ...
    def say(self, text: str) -> None: ...


class Silent:
    """Says nothing: the display of ``run`` unless it is given one."""

    def phase(self, node: str, name: str, done: int, total: int) -> None: ...
    def round_done(self, node: str, metrics: dict[str, Any]) -> None: ...
    def evaluated(self, node: str, evaluation: dict[str, Any]) -> None: ...
    def say(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class RunResult:
    folder: Path
    rounds: int
    """Rounds done, those before a resume included."""
    interrupted: bool
    """Whether Ctrl-C ended it; a checkpoint stands, and ``resume`` goes on."""
    accuracy: Mapping[str, float]
    """Of each node at the end, on the validation problems; empty if none were asked for."""
