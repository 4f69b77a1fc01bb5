"""Settings of an engine, which it and its options know; without torch, as recipes name options."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from potluck.types import Sampling

if TYPE_CHECKING:
    from potluck.episode import Environment


def ignore(told: str) -> None:
    """Take news, and do nothing."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings that hold for every engine; a node and its run give them."""

    max_new_tokens: int
    max_total_tokens: int
    """Longest prompt and completion together, if the model's context is no shorter."""
    dtype: str = "float32"
    """Format that the model computes in while it writes, as torch names it."""
    rows: int = 512
    """Completions that are written at once, at most."""
    node: str = ""
    folder: Path = Path()
    """Folder of the run."""
    adapter: bool = False
    """The node trains an adapter (LoRA)."""
    sampling: Sampling = Sampling()  # noqa: RUF009 - it is frozen
    """How an author without weights is to draw; other engines are handed a sampler."""
    environment: "Environment | None" = None
    """Environment in which completions are episodes; None: they are single answers."""
    notify: Callable[[str], None] = ignore

    def longest(self, context: int | None) -> int:
        """Count the tokens of a prompt and all behind it, for a model with this ``context``."""
        return min(self.max_total_tokens, context or self.max_total_tokens)
