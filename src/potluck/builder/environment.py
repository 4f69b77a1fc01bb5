"""The grade of a user's environment: found when a run begins, and kept in its folder."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from potluck.files import write_atomically
from potluck.node.storage.folder import ENVIRONMENT
from potluck.tasks import Task
from potluck.tasks.base import environment_of
from potluck.tasks.environments.check import MOST_ROWS, Checked
from potluck.tasks.environments.hosted import HostedEnvironment
from potluck.tasks.environments.task import EnvironmentTask


class KeptGrade(msgspec.Struct, frozen=True):
    """Contents of a run's ENVIRONMENT."""

    name: str
    source: str
    """SHA-256 of the file of the class; empty: it is of a module."""
    found: Checked


def grade(task: EnvironmentTask, run: Path | None, say: Callable[[str], None]) -> None:
    """Give the task's environment the grade that the folder ``run``, or that of a node in it,
    remembers of it; else play it, and grade it by that. Raise EnvironmentFailed if it cannot be
    played."""
    environment = task.environment
    before: KeptGrade | None = None
    files = (run / ENVIRONMENT, *sorted(run.glob(f"*/{ENVIRONMENT}"))) if run else ()
    if kept := next((file for file in files if file.is_file()), None):
        with suppress(OSError, msgspec.MsgspecError):
            before = msgspec.json.decode(kept.read_bytes(), type=KeptGrade)
    known = before and (before.name.rpartition("/")[2], before.source)
    if before and known == (_shown(environment), _source(environment)):
        environment.found, environment.grade = before.found, before.found.grade
    else:
        say(f"{_shown(environment)}: played several times over, to see whether it repeats")
        environment.check(task.ids("train")[:MOST_ROWS])


def keep_grade(task: Task, folder: Path) -> None:
    """Keep what was found of the task's environment, if there was anything to find."""
    environment = environment_of(task)
    if isinstance(environment, HostedEnvironment) and (found := environment.found):
        kept = KeptGrade(environment.name, _source(environment), found)
        write_atomically(folder / ENVIRONMENT, msgspec.json.encode(kept) + b"\n")


def notes_on_environment(task: Task) -> list[str]:
    """Write a line on the grade of the task's environment, and one on each doubt."""
    environment = environment_of(task)
    if not (isinstance(environment, HostedEnvironment) and (found := environment.found)):
        return []
    why = f": {found.why[0]}" if found.grade == "own" else ""
    notes = [f"environment {_shown(environment)}: {found}{why}", *found.warnings]
    if environment.grade != "own" and environment.has_network:
        notes.append(
            f"environment {_shown(environment)}: this system lets no process leave the network, so "
            f"what peers write is played where a network can be reached"
        )
    return notes


def _shown(environment: HostedEnvironment) -> str:
    return environment.name.rpartition("/")[2]


def _source(environment: HostedEnvironment) -> str:
    file = Path(environment.name.rpartition(":")[0])
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.suffix == ".py" else ""
