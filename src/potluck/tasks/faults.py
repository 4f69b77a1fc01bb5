"""Why an answer earned nothing: four kinds, so that a model that never keeps the form is not taken
for one that cannot do the task."""

from collections.abc import Callable
from typing import Literal, NamedTuple, cast

from potluck.tasks.base import Task
from potluck.types import Completion

Kind = Literal["cut", "empty", "form", "wrong"]
KINDS: tuple[Kind, ...] = ("cut", "empty", "form", "wrong")


class Fault(NamedTuple):
    kind: Kind
    what: str
    """The kind in words; of a form, what was expected."""


def fault_of(task: Task, completion: Completion, text: str) -> Fault:
    """Find why a completion that earned nothing did so, the plainest cause first. Tasks with a form
    of answers have a method ``lacking(text)``, which tells what a text lacks of it."""
    if completion.end != "stop":
        return Fault("cut", "cut off before their end")
    if not text.strip():
        return Fault("empty", "empty")
    lacking = cast("Callable[[str], str] | None", getattr(task, "lacking", None))
    if lacking and (lacks := lacking(text)):
        return Fault("form", lacks)
    return Fault("wrong", "a wrong answer")
