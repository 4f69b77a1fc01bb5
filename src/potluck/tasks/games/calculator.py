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
from typing import Annotated

from msgspec import Meta

from potluck.tasks.arithmetic import SPLIT_SIZES, Arithmetic, require_another
from potluck.tasks.base import TaskError, binary_rewards
from potluck.tasks.environments.options import PlayOptions
from potluck.tasks.environments.task import EnvironmentTask
from potluck.types import Completion, Problem

CHAIN = re.compile(r"[1-9][0-9](?:[+-][1-9][0-9]){1,31}")
LARGEST = 999


class CalculatorOptions(PlayOptions, frozen=True, kw_only=True, tag_field="name", tag="calculator"):
    """Chains of sums with a calculator to call, made up: an example of tools for small models."""

    terms: Annotated[int, Meta(ge=3, le=16)] = 3
    """Numbers of each chain, in training and validation."""
    other_terms: Annotated[int, Meta(ge=3, le=16)] = 4
    """Numbers of each chain out of distribution."""
    train_problems: Annotated[int, Meta(ge=0, le=SPLIT_SIZES["train"])] = 2000
    """Problems to train on, the first of those that are drawn; 0: all of them."""

    def make(self) -> EnvironmentTask:
        require_another("calculator", "terms", self.terms, self.other_terms)
        chains = Chains(self.terms, self.other_terms, self.train_problems)
        place = f"{__name__}:{Calculator.__name__}"
        return EnvironmentTask(chains, self, "environment", place, row=lambda id: {})


class Calculator:
    """An environment as TRL's ``environment_factory`` has it: its methods are tools."""

    seeded = False

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
        right = (p.answer == text for p, text in zip(problems, texts, strict=True))
        return binary_rewards(right, completions)


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
