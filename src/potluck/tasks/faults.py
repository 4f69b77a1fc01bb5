"""Why an answer earned nothing: four kinds, so that a model that never keeps the form is not taken
for one that cannot do the task."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, cast

from potluck.tasks.base import Task
from potluck.types import Completion, Problem

Kind = Literal["cut", "empty", "form", "wrong"]
KINDS: tuple[Kind, ...] = ("cut", "empty", "form", "wrong")


class Fault(NamedTuple):
    kind: Kind
    what: str
    """The kind in words; of a form, what was expected."""


class Commonest(NamedTuple):
    """The answer that a model gives most often to different problems."""

    answer: str
    share: float
    """Share of its completions with this answer."""
    right: float
    """Share of the problems to which it is the right one."""


def commonest_answer(
    task: Task, problems: Sequence[Problem], texts: Sequence[str]
) -> Commonest | None:
    """Find the commonest answer of ``texts``, each to its problem; None: no text has one, the task
    does not know answers, or all are to one problem."""
    answer_of = cast("Callable[[Problem, str], str] | None", getattr(task, "answer_of", None))
    golds = {problem.id: problem.answer.strip() for problem in problems}
    if answer_of is None or len(golds) < 2:
        return None
    counts = Counter(filter(None, map(answer_of, problems, texts)))
    if not counts:
        return None
    answer, count = max(counts.items(), key=lambda item: item[1])
    right = sum(gold == answer for gold in golds.values())
    return Commonest(answer, count / len(texts), right / len(golds))


def fault_of(task: Task, problem: Problem, completion: Completion, text: str) -> Fault:
    """Find why a completion that earned nothing did so, the plainest cause first. Tasks with a form
    of answers have a method ``lacking(problem, text)``, which tells what a text lacks of it."""
    if completion.end != "stop":
        return Fault("cut", "cut off before their end")
    if not text.strip():
        return Fault("empty", "empty")
    lacking = cast("Callable[[Problem, str], str] | None", getattr(task, "lacking", None))
    if lacking and (lacks := lacking(problem, text)):
        return Fault("form", lacks)
    return Fault("wrong", "a wrong answer")
