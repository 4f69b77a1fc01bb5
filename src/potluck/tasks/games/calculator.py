"""Chains of sums to be worked off with a calculator: an example of tools.

    question   34+57-29=
    model      add(a=34,b=57)               91
               subtract(a=91,b=29)          62
               62

A chain is worked off from the left, and no running total leaves 0 to 999. The last turn, in which
nothing is called, has to be the result and nothing else.
"""

import random
import re
from collections.abc import Sequence

from potluck.tasks.arithmetic import Arithmetic
from potluck.tasks.base import TaskError, binary_rewards
from potluck.types import Completion, Problem

CHAIN = re.compile(r"[1-9][0-9](?:[+-][1-9][0-9]){1,31}")
LARGEST = 999


class Calculator:
    """An environment as TRL's ``environment_factory`` has it: its methods are tools."""

    def reset(self) -> None:
        """Begin; there is nothing to say."""

    def add(self, a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: The first number.
            b: The second number.
        """
        return int(a) + int(b)

    def subtract(self, a: int, b: int) -> int:
        """Subtract a number from another.

        Args:
            a: The number to subtract from.
            b: The number to subtract.
        """
        return int(a) - int(b)


class Chains(Arithmetic):
    """Chains of ``terms`` numbers of two digits; out of distribution: of ``other_terms``."""

    def __init__(self, terms: int, other_terms: int, train_problems: int) -> None:
        super().__init__(
            "calculator", draw_chain, terms, other_terms, train_problems=train_problems
        )

    def problem(self, id: str) -> Problem:
        name, _, chain = id.partition("/")
        if name != "calculator" or not CHAIN.fullmatch(chain):
            raise TaskError(f"{id!r} is no chain of calculator; they look like 'calculator/34+57'")
        return Problem(id, f"{chain}=", str(sum(map(int, re.findall(r"[+-]?\d+", chain)))))

    def rewards(
        self, problems: Sequence[Problem], completions: Sequence[Completion], texts: Sequence[str]
    ) -> list[float]:
        return binary_rewards((p.answer == t for p, t in zip(problems, texts)), completions)


def draw_chain(generator: random.Random, terms: int) -> str:
    """Draw a chain whose running totals stay within 0 to LARGEST."""
    total = generator.randint(10, 99)
    chain = str(total)
    while terms := terms - 1:
        numbers = [n for n in range(-99, 100) if abs(n) > 9 and 0 <= total + n <= LARGEST]
        number = generator.choice(numbers)
        total += number
        chain += f"{number:+d}"
    return chain
