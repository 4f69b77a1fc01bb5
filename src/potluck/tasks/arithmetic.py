"""Arithmetic with the working written out: tasks for models of half a million weights.

    Digits     question   "734+258="        solution   "4+8+0=12;3+5+1=9;7+2+0=9#992"
    Chain      question   "34+7-5+8="       solution   "34+7=41;41-5=36;36+8=44#44"

A chain is worked off from the left, and no running total leaves 0 to 99. Only the result after the
``#`` is graded, so models that were brought up on different notations (by ``scripts/solutions.py``)
can work on one task.
"""

import random
import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from typing import Annotated, Literal

from msgspec import Meta

from potluck.tasks.base import Split, TaskError, TaskOptions, binary_rewards, digest_of
from potluck.types import Completion, Problem

ChainSigns = Literal["any", "alike", "+", "-"]
SPLIT_SIZES: dict[Split, int] = {"train": 20_000, "validation": 1_000, "out-of-distribution": 1_000}


class DigitsOptions(TaskOptions, frozen=True, kw_only=True, tag_field="name", tag="digits"):
    """Sums of two numbers, made up: a task for small models, with nothing to download."""

    width: Annotated[int, Meta(ge=3, le=8)] = 3
    """Digits of each number, in training and validation."""
    other_width: Annotated[int, Meta(ge=2, le=8)] = 4
    """Digits of each number out of distribution."""
    train_problems: Annotated[int, Meta(ge=0, le=SPLIT_SIZES["train"])] = 0
    """Problems to train on, the first of those that are drawn; 0: all of them."""

    def make(self) -> "Arithmetic":
        sizes, form = (self.width, self.other_width), r"[0-9]{1,18}\+[0-9]{1,18}"
        return Arithmetic("digits/734+258", form, _draw_sum, *sizes, train=self.train_problems)


class ChainOptions(TaskOptions, frozen=True, kw_only=True, tag_field="name", tag="chain"):
    """Chains of additions and subtractions, made up: a longer task for small models."""

    terms: Annotated[int, Meta(ge=4, le=16)] = 6
    """Numbers of each chain, in training and validation."""
    other_terms: Annotated[int, Meta(ge=4, le=16)] = 8
    """Numbers of each chain out of distribution."""
    signs: ChainSigns = "any"
    """Signs of each chain: any, all alike, all "+" or all "-"."""
    other_signs: ChainSigns = "any"
    """The same, out of distribution."""

    def make(self) -> "Arithmetic":
        sizes, form = (self.terms, self.other_terms), r"[1-9][0-9](?:[+-][1-9]){1,31}"
        draw, draw_other = map(chains_of, (self.signs, self.other_signs))
        return Arithmetic("chain/34+7-5+8", form, draw, *sizes, draw_other=draw_other)


Draw = Callable[[random.Random, int], str]
"""Draws a problem of a size."""


class Arithmetic:
    """Problems that are drawn at random, all different, the same on every machine."""

    notes: tuple[str, ...] = ()

    def __init__(
        self,
        example: str,
        form: str,
        draw: Draw,
        size: int,
        other_size: int,
        *,
        draw_other: Draw | None = None,
        train: int = 0,
        right: Callable[[Problem, str], bool] | None = None,
    ) -> None:
        """Draw the problems of every split; out of distribution of ``other_size``. An id is like
        ``example``: a name, and what is to be worked out, which has the ``form``. ``right`` grades
        in place of ``is_right``. Raise TaskError if nothing is another out of distribution."""
        self._example, name = example, example.partition("/")[0]
        self._form, self._right = re.compile(f"{name}/{form}"), right or is_right
        within, beyond = (draw, size), (draw_other or draw, other_size)
        if within == beyond:
            key = "width" if name == "digits" else "terms"
            same = f"{name} has {key} = other_{key} = {size}"
            raise TaskError(f"{same}; another {key} is what is out of distribution")
        counts = tuple(SPLIT_SIZES.items())
        ids, self.digest = _drawn(name, within, beyond, counts, train or None)
        self._ids: dict[Split, list[str]] = {split: [*its] for split, its in ids.items()}

    def ids(self, split: Split) -> Sequence[str]:
        return self._ids[split]

    def problem(self, id: str) -> Problem:
        if not self._form.fullmatch(id):
            raise TaskError(f"{id!r} is no problem of this task; they look like {self._example!r}")
        return _problem(id)

    def rewards(
        self, problems: Sequence[Problem], completions: Sequence[Completion], texts: Sequence[str]
    ) -> list[float]:
        correct = [self._right(p, text) for p, text in zip(problems, texts, strict=True)]
        return binary_rewards(correct, completions)


@lru_cache(maxsize=8)  # several runs of one process have one task
def _drawn(
    name: str,
    within: tuple[Draw, int],
    beyond: tuple[Draw, int],
    counts: tuple[tuple[Split, int], ...],
    train: int | None,
) -> tuple[dict[Split, list[str]], str]:
    """Return the ids of every split, not to be changed, and the digest of their problems."""

    def drawn(split: Split, how: tuple[Draw, int], avoid: Sequence[str] = ()) -> list[str]:
        draw, size = how
        generator, taken = random.Random(f"{name}/{size}/{len(avoid)}"), set(avoid)
        chosen: dict[str, None] = {}
        while len(chosen) < dict(counts)[split]:
            if (id := f"{name}/{draw(generator, size)}") not in taken:
                chosen[id] = None
        return list(chosen)

    # The validation problems are drawn first and the training problems avoid them.
    held_out = drawn("validation", within)
    trained = drawn("train", within, held_out)
    near = held_out + trained if within[1] == beyond[1] else ()
    ids: dict[Split, list[str]] = {
        "validation": held_out,
        "train": trained[:train],
        "out-of-distribution": drawn("out-of-distribution", beyond, near),
    }
    result = "sum" if name == "digits" else "result"
    everything = (_problem(id) for split in ids.values() for id in split)
    return ids, digest_of(f"{name} 1: one '#', then the {result}", everything)


def _problem(id: str) -> Problem:
    asked = id.partition("/")[2]
    return Problem(id, f"{asked}=", str(sum(map(int, re.findall(r"[+-]?\d+", asked)))))


def is_right(problem: Problem, text: str) -> bool:
    """Tell whether one ``#`` stands in ``text`` and the result, and nothing else, follows it."""
    return text.partition("#")[1:] == ("#", problem.answer)


def draw_chain(
    generator: random.Random, terms: int, signs: ChainSigns = "any", *, digits: int = 1
) -> str:
    """Draw a chain that goes on with numbers of so many digits, and whose running totals have one
    digit more at most, and are not below 0."""
    alike: tuple[ChainSigns, ...] = ("+", "-")
    sign = generator.choice(alike) if signs == "alike" else signs
    total = generator.randint(10, 99)
    chain, low, high = str(total), 10 ** (digits - 1), 10**digits
    for _ in range(terms - 1):
        possible = [*range(max(1 - high, -total), 1 - low)] if sign != "+" else []
        if sign != "-":
            possible += range(low, min(high, 10 * high - total))
        if not possible:
            return draw_chain(generator, terms, sign, digits=digits)
        number = generator.choice(possible)
        total += number
        chain += f"{number:+d}"
    return chain


@cache
def chains_of(signs: ChainSigns = "any", digits: int = 1) -> Draw:
    """Return what draws such chains, one function for all, so that ``_drawn`` knows it again."""
    return partial(draw_chain, signs=signs, digits=digits)


def _draw_sum(generator: random.Random, width: int) -> str:
    low, high = 10 ** (width - 1), 10**width - 1
    return f"{generator.randint(low, high)}+{generator.randint(low, high)}"
