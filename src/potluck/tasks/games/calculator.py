"""Chains of sums to be worked off with a calculator: an example of tools.

    question   34+57-29=
    model      add(a=34,b=57)               91
               subtract(a=91,b=29)          62
               62

A chain is worked off from the left, and no running total leaves 0 to 999. The last turn, in which
nothing is called, has to be the result and nothing else.
"""

from typing import Annotated

from msgspec import Meta

from potluck.tasks.arithmetic import SPLIT_SIZES, Arithmetic, chains_of
from potluck.tasks.environments.task import EnvironmentTask, PlayOptions


class CalculatorOptions(PlayOptions, frozen=True, kw_only=True, tag_field="name", tag="calculator"):
    """Chains of sums with a calculator to call, made up: an example of tools for small models."""

    terms: Annotated[int, Meta(ge=3, le=16)] = 3
    """Numbers of each chain, in training and validation."""
    other_terms: Annotated[int, Meta(ge=3, le=16)] = 4
    """Numbers of each chain out of distribution."""
    train_problems: Annotated[int, Meta(ge=0, le=SPLIT_SIZES["train"])] = 2000
    """Problems to train on, the first of those that are drawn; 0: all of them."""

    def make(self) -> EnvironmentTask:
        place = f"{__name__}:{Calculator.__name__}"
        return EnvironmentTask(self.chains(), self, "environment", place, row=lambda id: {})

    def chains(self) -> Arithmetic:
        """Draw the chains, of numbers of two digits, without a calculator."""
        return Arithmetic(
            "calculator/34+57",
            r"[1-9][0-9](?:[+-][1-9][0-9]){1,31}",
            chains_of(digits=2),
            self.terms,
            self.other_terms,
            train=self.train_problems,
            right=lambda problem, text: text == problem.answer,
        )


class Calculator:
    """An environment of TRL's kind: its methods are tools."""

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
