"""Chained addition and subtraction, worked off from the left: longer answers than ``digits``.

    question   "34+7-5+8="
    solution   "34+7=41;41-5=36;36+8=44#44"     notation "steps"
               "+7 41*-5 36*+8 44#44"           notation "terse"

A chain begins with a number of two digits and goes on with numbers of one; no running
total leaves 0 to 99. Each step needs the result of the one before, so one slip spoils what
follows. Only what follows the ``#`` is graded, so models that were brought up on different
notations can work on one task: a difference of expertise.
"""

import random
import re
from collections.abc import Sequence
from typing import Literal

from potluck.tasks.base import Split, TaskError, binary_rewards, digest_of
from potluck.types import Completion, Problem

Notation = Literal["steps", "terse"]

SPLIT_SIZES: dict[Split, int] = {
    "train": 20_000,
    "validation": 1_000,
    "out-of-distribution": 1_000,
}
CHAIN = re.compile(r"[1-9][0-9](?:[+-][1-9])+")
LONGEST = 32
"""Numbers of a chain, at most."""


class Chain:
    """Chains of ``terms`` numbers; out of distribution: of ``other_terms``."""

    def __init__(self, *, terms: int = 6, other_terms: int = 8) -> None:
        if terms == other_terms:
            raise TaskError(
                f"chain has terms = other_terms = {terms}; another length is what is out of "
                f"distribution"
            )
        # The validation problems are drawn first and the training problems avoid them.
        held_out = _chains(terms, SPLIT_SIZES["validation"], avoid=set())
        self._ids: dict[Split, list[str]] = {
            "validation": held_out,
            "train": _chains(terms, SPLIT_SIZES["train"], avoid=set(held_out)),
            "out-of-distribution": _chains(
                other_terms, SPLIT_SIZES["out-of-distribution"], avoid=set()
            ),
        }
        everything = (self.problem(id) for ids in self._ids.values() for id in ids)
        self.digest = digest_of("chain 1: one '#', then the result", everything)

    def ids(self, split: Split) -> Sequence[str]:
        return self._ids[split]

    def problem(self, id: str) -> Problem:
        name, _, chain = id.partition("/")
        if name != "chain" or len(chain) > 2 * LONGEST or not CHAIN.fullmatch(chain):
            raise TaskError(f"{id!r} is no problem of chain; they look like 'chain/34+7-5+8'")
        return Problem(id, f"{chain}=", str(totals(chain)[-1]))

    def rewards(
        self,
        problems: Sequence[Problem],
        completions: Sequence[Completion],
        texts: Sequence[str],
    ) -> list[float]:
        # Exactly one '#', the result, and nothing else behind it.
        correct = [
            text.partition("#")[1:] == ("#", problem.answer)
            for problem, text in zip(problems, texts, strict=True)
        ]
        return binary_rewards(correct, completions)


def solution(problem: Problem, notation: Notation) -> str:
    """What a model that does everything right writes, the stop token aside."""
    chain = problem.question.removesuffix("=")
    total, steps = int(chain[:2]), []
    for number, reached in zip(signed(chain), totals(chain), strict=True):
        long, terse = f"{total}{number:+d}={reached}", f"{number:+d} {reached}"
        steps.append(long if notation == "steps" else terse)
        total = reached
    return (";" if notation == "steps" else "*").join(steps) + f"#{problem.answer}"


def signed(chain: str) -> list[int]:
    """The numbers after the first, with their signs."""
    return [int(number) for number in re.findall(r"[+-][1-9]", chain)]


def totals(chain: str) -> list[int]:
    """The running total after each number but the first."""
    reached, total = [], int(chain[:2])
    for number in signed(chain):
        total += number
        reached.append(total)
    return reached


def draw_chain(dice: random.Random, terms: int) -> str:
    """A chain whose running totals stay within 0 to 99."""
    total = dice.randint(10, 99)
    chain = str(total)
    for _ in range(terms - 1):
        number = dice.choice([n for n in range(-9, 10) if n and 0 <= total + n <= 99])
        total += number
        chain += f"{number:+d}"
    return chain


def _chains(terms: int, count: int, *, avoid: set[str]) -> list[str]:
    """``count`` different problems, the same on every machine."""
    dice = random.Random(f"chain/{terms}/{len(avoid)}")
    chosen: dict[str, None] = {}
    while len(chosen) < count:
        if (id := f"chain/{draw_chain(dice, terms)}") not in avoid:
            chosen[id] = None
    return list(chosen)
