"""Potluck: collaborative GRPO for language models that differ.

    >>> import potluck
    >>> config = potluck.load(potluck.STARTING_RECIPE, ["rounds=2"])
    >>> config.objective.weight_cap
    2.0

``potluck.run(config, "runs/first")`` then trains its nodes together.
"""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from potluck.config import ConfigError, RunConfig, load
from potluck.types import Completion, Group, PotluckError, Problem

if TYPE_CHECKING:
    from potluck.launch import RunResult, run

__all__ = [
    "STARTING_RECIPE",
    "Completion",
    "ConfigError",
    "Group",
    "PotluckError",
    "Problem",
    "RunConfig",
    "RunResult",
    "load",
    "run",
]

STARTING_RECIPE = Path(__file__).parent / "recipe.toml"
"""What ``potluck new`` writes, and what the demo runs."""

try:
    __version__ = version("potluck")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.0.0"


def __getattr__(name: str) -> Any:
    # Torch and transformers take seconds to import; whoever only reads a recipe is spared.
    if name in ("run", "RunResult"):
        from potluck import launch

        return getattr(launch, name)
    raise AttributeError(f"module 'potluck' has no attribute {name!r}")
