"""Column addition with a written scratchpad: small enough for models of half a million weights.

    question   "734+258="
    solution   "4+8+0=12;3+5+1=9;7+2+0=9#992"     notation "columns"
               "480 12*351 9*720 9#992"           notation "terse"

Digits are added from the right, each with the carry, and the sum follows the ``#``.
Only what follows the ``#`` is graded, so models that were brought up on different
notations can work on one task: a difference of expertise.
"""

import random
from collections.abc import Sequence
from typing import Literal

from potluck.tasks.base import Split, TaskError, binary_rewards, digest_of
from potluck.types import Completion, Problem

Notation = Literal["columns", "terse"]

SPLIT_SIZES: dict[Split, int] = {
    "train": 20_000,
    "validation": 1_000,
    "out-of-distribution": 1_000,
}


class Digits:
    """Sums of two numbers of ``width`` digits; out of distribution: of ``other_width``."""

    def __init__(self, *, width: int = 3, other_width: int = 4) -> None:
        if width == other_width:
            raise TaskError(
                f"digits has width = other_width = {width}; another width is what is out of "
                f"distribution"
            )
        # The validation problems are drawn first and the training problems avoid them.
        held_out = _sums(width, SPLIT_SIZES["validation"], avoid=set())
        self._ids: dict[Split, list[str]] = {
            "validation": held_out,
            "train": _sums(width, SPLIT_SIZES["train"], avoid=set(held_out)),
            "out-of-distribution": _sums(
                other_width, SPLIT_SIZES["out-of-distribution"], avoid=set()
            ),
        }
        everything = (self.problem(id) for ids in self._ids.values() for id in ids)
        self.digest = digest_of("digits 1: one '#', then the sum", everything)

    def ids(self, split: Split) -> Sequence[str]:
        return self._ids[split]

    def problem(self, id: str) -> Problem:
        a, plus, b = id.removeprefix("digits/").partition("+")
        if not (id.startswith("digits/") and plus and _is_number(a) and _is_number(b)):
            raise TaskError(f"{id!r} is no problem of digits; they look like 'digits/734+258'")
        return Problem(id, f"{a}+{b}=", str(int(a) + int(b)))

    def rewards(
        self,
        problems: Sequence[Problem],
        completions: Sequence[Completion],
        texts: Sequence[str],
    ) -> list[float]:
        correct = [is_right(p, text) for p, text in zip(problems, texts, strict=True)]
        return binary_rewards(correct, completions)


def is_right(problem: Problem, text: str) -> bool:
    """Whether exactly one ``#`` stands in ``text`` and the sum, and nothing else, follows it."""
    return text.partition("#")[1:] == ("#", problem.answer)


def solution(problem: Problem, notation: Notation) -> str:
    """What a model that does everything right writes, the stop token aside."""
    a, b = problem.question.removesuffix("=").split("+")
    carry, steps = 0, []
    for x, y in zip(reversed(a), reversed(b), strict=True):
        total = int(x) + int(y) + carry
        columns, terse = f"{x}+{y}+{carry}={total}", f"{x}{y}{carry} {total}"
        steps.append(columns if notation == "columns" else terse)
        carry = total // 10
    return (";" if notation == "columns" else "*").join(steps) + f"#{problem.answer}"


def _sums(width: int, count: int, *, avoid: set[str]) -> list[str]:
    """``count`` different problems, the same on every machine."""
    possible = (9 * 10 ** (width - 1)) ** 2 - len(avoid)
    if possible < count:
        raise TaskError(f"digits of width {width} have {possible} problems, {count} are needed")
    dice = random.Random(f"digits/{width}/{len(avoid)}")
    low, high = 10 ** (width - 1), 10**width - 1
    chosen: dict[str, None] = {}
    while len(chosen) < count:
        id = f"digits/{dice.randint(low, high)}+{dice.randint(low, high)}"
        if id not in avoid:
            chosen[id] = None
    return list(chosen)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
