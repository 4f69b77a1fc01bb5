"""Run nodes: all in this process, one in this process, or a process for each."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from potluck.launch.in_process import join, run
    from potluck.launch.rounds import RunResult

__all__ = ["RunResult", "join", "run"]


def __getattr__(name: str) -> Any:
    """Load torch with the first use of a name: ``local_swarm`` needs none."""
    if name in __all__:
        home = "rounds" if name == "RunResult" else "in_process"
        return getattr(import_module(f"potluck.launch.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
