"""Potluck: collaborative GRPO for language models that differ.

    >>> import potluck
    >>> config = potluck.load(potluck.STARTING_RECIPE, ["rounds=2"])
    >>> config.objective.weight_cap
    2.0

``potluck.run(config, "runs/first")`` then trains its nodes together. The names in ``__all__`` are
the public interface; docs/api.md describes them.
"""

from potluck.search_path import leave_module_folder

leave_module_folder()  # before anything else is imported

# A command of this package comes through here before it can say where no modules are looked for
# (``potluck.cli``). So this file imports nothing, not even from Python itself, until it is asked.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from potluck.builder.plan import plan_cost
    from potluck.config import ConfigError, RunConfig, as_tree, from_tree, load
    from potluck.launch.in_process import BackgroundRun, join, run
    from potluck.launch.rounds import RunResult
    from potluck.show.notebook import read_run
    from potluck.show.terminal.comparison import Comparison, compare
    from potluck.types import Completion, Group, PotluckError, Problem
    from potluck.version import __version__

    STARTING_RECIPE: Path
    """Recipe that ``potluck new`` writes and the demo runs."""

__all__ = [
    "STARTING_RECIPE", "BackgroundRun", "Comparison", "Completion", "ConfigError", "Group",
    "PotluckError", "Problem", "RunConfig", "RunResult", "__version__", "as_tree", "compare",
    "from_tree", "join", "load", "plan_cost", "read_run", "run",
]  # fmt: skip

# Modules of names that are imported at their first use: torch takes seconds, which a process that
# reads a recipe does not need; one for a stranger's code reads none, which spares it half a second.
LAZY = {
    name: f"potluck.{module}"
    for module, names in {
        "builder.plan": ["plan_cost"],
        "config": ["ConfigError", "RunConfig", "as_tree", "from_tree", "load"],
        "launch.in_process": ["BackgroundRun", "join", "run"],
        "launch.rounds": ["RunResult"],
        "show.notebook": ["read_run"],
        "show.terminal.comparison": ["Comparison", "compare"],
        "types": ["Completion", "Group", "PotluckError", "Problem"],
        "version": ["__version__"],
    }.items()
    for name in names
}


def __getattr__(name: str) -> "Any":
    from importlib import import_module
    from pathlib import Path

    if name == "STARTING_RECIPE":
        return Path(__file__).parent / "recipe.toml"
    if name in ("config", "types", "version"):
        return import_module(f"potluck.{name}")
    if name not in LAZY:
        raise AttributeError(f"module 'potluck' has no attribute {name!r}")
    return getattr(import_module(LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *LAZY, "STARTING_RECIPE"})
