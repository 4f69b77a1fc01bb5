"""Code that a recipe names: the functions of ``[[reward]]``, imported and looked at.

Whoever calls ``Reward.load`` runs a stranger's file. That is for a person to allow
(``--trust-code``); nothing in this room asks for it.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from potluck.tasks.base import TaskError

Format = Literal["text", "messages"]


@dataclass(frozen=True, slots=True)
class Reward:
    """One function and what it counts for."""

    name: str
    """As the recipe has it: "rewards.py:correct", "package.module:correct", or "task"."""
    function: Callable[..., Any] | None
    """None: the grading of the task itself."""
    source: str
    """SHA-256 of the file that the function came from; not of what that file imports."""
    weight: float = 1.0
    format: Format = "text"
    """``messages``: prompts and completions are lists of messages, as TRL has them where the
    data set's prompts are."""

    @classmethod
    def load(cls, name: str, *, weight: float = 1.0, format: Format = "text") -> "Reward":
        """Imports, and so runs, the file or module that ``name`` begins with.

        Raises:
            TaskError: no such file or module, it cannot be imported, or has no such function.
        """
        if name == "task":
            return cls(name, None, "", weight, format)
        place, _, attribute = name.rpartition(":")
        module, file = _from_file(name, place) if place.endswith(".py") else _module(name, place)
        function = getattr(module, attribute, None)
        if not callable(function):
            found = "is no function" if hasattr(module, attribute) else "is not there"
            raise TaskError(f"reward {name!r}: {attribute!r} {found} in {place}")
        return cls(name, function, _sha256(file), weight, format)


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """What ``function`` takes, as far as Python can tell."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # of a function in C: nothing is known, so it gets everything
        return [inspect.Parameter("anything", inspect.Parameter.VAR_KEYWORD)]


def _from_file(name: str, place: str) -> tuple[ModuleType, Path]:
    file = Path(place).expanduser()
    if not file.is_file():
        raise TaskError(
            f"reward {name!r}: there is no file {file}; a relative path begins in the current "
            f"directory, {Path.cwd()}"
        )
    # By its content: two functions of one file share a module, a changed file is another one.
    own_name = f"potluck_reward_{hashlib.sha256(str(file.absolute()).encode()).hexdigest()[:12]}"
    own_name += _sha256(file)[:12]
    if own_name in sys.modules:
        return sys.modules[own_name], file
    spec = importlib.util.spec_from_file_location(own_name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[own_name] = module  # before it runs, as an import does: dataclasses look there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[own_name]
        raise _not_imported(name, error) from error
    return module, file


def _module(name: str, place: str) -> tuple[ModuleType, Path]:
    try:
        module = importlib.import_module(place)
    except Exception as error:
        raise _not_imported(name, error) from error
    if not (file := getattr(module, "__file__", None)):
        raise TaskError(f"reward {name!r}: module {place} has no file; name one that has")
    return module, Path(file)


def _not_imported(name: str, error: Exception) -> TaskError:
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    return TaskError(
        f"reward {name!r} cannot be imported ({reason}); expected a module on Python's path, or "
        f"a file FILE.py:FUNCTION"
    )


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
