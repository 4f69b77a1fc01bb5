"""What a task promises."""

import hashlib
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol

from potluck.types import Completion, PotluckError, Problem

Split = Literal["train", "validation", "out-of-distribution"]


class TaskError(PotluckError):
    """A task that has no such problem, or data that cannot be used; says what to do."""


class Task(Protocol):
    """Problems, and what counts as right. A pure value: equal on every node."""

    @property
    def digest(self) -> str:
        """Hash of every problem and of the rules of grading. Nodes of one run share it."""
        ...

    def ids(self, split: Split) -> Sequence[str]:
        """The problems of a split, in an order that is the same on every node.

        No problem is in two splits. A split that the task does not have is empty.
        """
        ...

    def problem(self, id: str) -> Problem:
        """Raises TaskError if the task has no such problem."""
        ...

    def rewards(
        self,
        problems: Sequence[Problem],
        completions: Sequence[Completion],
        texts: Sequence[str],
    ) -> list[float]:
        """One finite reward for each completion; ``texts`` are the decoded completions.

        Texts come from models and from peers: grading one never raises, runs
        nothing that it says, and takes bounded time.
        """
        ...


def binary_rewards(correct: Iterable[bool], completions: Sequence[Completion]) -> list[float]:
    """1.0 for a correct completion that its model ended itself, else 0.0.

    One that ran into the length limit earns nothing, whatever it holds so far
    (``docs/paper-notes.md``, decision 8).
    """
    pairs = zip(correct, completions, strict=True)
    return [float(right and c.end == "stop") for right, c in pairs]


def look_up(problems: Mapping[str, Problem], id: str, *, example: str) -> Problem:
    """The problem of this id.

    Raises:
        TaskError: there is none; ``example`` shows what ids look like.
    """
    if id not in problems:
        raise TaskError(
            f"{example.partition('/')[0]} has no problem {reprlib.repr(id)}; its {len(problems)} "
            f"look like {example!r}, counted from 0"
        )
    return problems[id]


def digest_of(rules: str, problems: Iterable[Problem]) -> str:
    """SHA-256 over the rules of grading and every problem, in order."""
    whole = hashlib.sha256(rules.encode())
    for p in problems:
        for field in (p.id, p.question, p.answer, p.system):
            raw = field.encode()
            whole.update(len(raw).to_bytes(4, "little") + raw)
    return whole.hexdigest()
