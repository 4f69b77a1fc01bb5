"""Whether what is measured was also trained on: the same question in two splits.

A split is a promise that its problems are new to whoever trained on another one. Data
sets break it more often than one thinks. What to do about it depends on what is measured,
so an overlap is told and is no error; one id in two splits is, for that is a mistake.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import get_args

from potluck.tasks.base import Split, Task, TaskError


@dataclass(frozen=True, slots=True)
class Overlap:
    """Problems of one split that another one asks too."""

    split: Split
    of: int
    """Problems in ``split``."""
    other: Split
    ids: tuple[str, ...]
    """Those of ``split``, in its order; at least one."""

    def __str__(self) -> str:
        be = "is" if len(self.ids) == 1 else "are"
        return (
            f"overlap: {len(self.ids)} of {self.of} {self.split} problems {be} also in "
            f"{self.other}, first {self.ids[0]}"
        )


def overlaps(task: Task) -> Iterator[Overlap]:
    """Each pair of splits that have a question in common, after ``normalised``.

    Paraphrases and translations are not found, nor the same sum with other names in it.

    Raises:
        TaskError: one id is in two splits.
    """
    # Train first: each later split is asked what of it an earlier one has.
    asked: dict[Split, dict[str, str]] = {
        split: {id: normalised(task.problem(id).question) for id in task.ids(split)}
        for split in get_args(Split)
    }
    for earlier, later in combinations(asked, 2):
        if twice := asked[earlier].keys() & asked[later].keys():
            raise TaskError(
                f"{min(twice)!r} is in {earlier} and in {later}; a problem belongs to one split"
            )
        known = set(asked[earlier].values())
        same = tuple(id for id, question in asked[later].items() if question in known)
        if same:
            yield Overlap(later, len(asked[later]), earlier, same)


def normalised(question: str) -> str:
    """``question`` without what two copies of it may differ in: case, and kinds of space.

    Digits and signs stay: another number is another problem.

    >>> normalised("What  is\\n9 + 9?") == normalised("what is 9 + 9? ")
    True
    >>> normalised("9 + 9") == normalised("9 - 9")
    False
    """
    return " ".join(question.casefold().split())
