"""Which answers are right: one notion for pass@k, ``evaluate``, ``show``, the page and controls.

An answer is right if the reward function that decides scores it 1 or more, before its weight, and
it was not cut off. ``[evaluation] right`` names that function. Without a name it is the only one
all of whose numbers are 0 or 1, penalties left out (a weight below 0). Where there is none, or more
than one, nothing is called right: a sum of rewards says how good an answer is, and no more.

No function declares what it may score, so its numbers tell: of all completions that a run's nodes
have graded, or of all answers of an evaluation. Whoever reads a run goes by all of its rounds, so
that early and late ones are judged alike. As one other number rules a function out for good, that
changes twice at most while a run goes on: to the one that is left, and to none. An alert tells it.
Everything is graded here: nothing that a peer says counts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from potluck.types import OUT_OF_ROOM

TASK = "task"
"""Name of a task's own grading."""


def is_full(function: str, number: float, end: str) -> bool:
    """Tell whether a function scores an answer in full: 1 or more, and it was not cut off. What a
    cut one earns is 0 at most, which a task's own grading knows by itself."""
    is_cut = end in OUT_OF_ROOM and function != TASK
    return number >= 1 - 1e-9 and not is_cut  # parts that make 1 may make a little less in floats


def is_binary(numbers: Iterable[float]) -> bool:
    """Tell whether all numbers are 0 or 1."""
    return all(number in (0, 1) for number in numbers)


def short_names(functions: Sequence[str]) -> list[str]:
    """Leave the files out of names of reward functions, where that tells them apart.

    >>> short_names(["rewards.py:brief", "task", "a.py:of", "b.py:of"])
    ['brief', 'task', 'a.py:of', 'b.py:of']
    """
    short = [name.rpartition(":")[2] for name in functions]
    told = [
        name if short.count(own) > 1 else own for name, own in zip(functions, short, strict=True)
    ]
    return [f"{n}-{i}" if told.count(n) > 1 else n for i, n in enumerate(told, 1)]


@dataclass(frozen=True, slots=True)
class RightRule:
    """Which function of a recipe decides what is right."""

    named: str = ""
    """Name that the recipe gives; empty: the functions' numbers tell."""
    weights: Mapping[str, float] = field(default_factory=lambda: {TASK: 1.0})
    """Weight of each reward function, by its short name."""

    @classmethod
    def of(cls, rewards: Sequence[tuple[str, float]], right: str) -> "RightRule":
        """Read ``[[reward]]``, as (function, weight), and ``[evaluation] right``, which names one
        of them in short or in full, or the task's own grading. Raise ValueError if it is none."""
        full = [function for function, _ in rewards] or [TASK]
        short = short_names(full)
        known = dict(zip([*short, *full], [*short, *short], strict=True))
        if right and right != TASK and right not in known:
            raise ValueError(
                f"[evaluation] right is {right!r}; choose one of {', '.join({**known, TASK: ''})}, "
                f"or add it as a [[reward]], with weight = 0 if it is not to count"
            )
        weights = [weight for _, weight in rewards] or [1.0]
        return cls(known.get(right, right), dict(zip(short, weights, strict=True)))

    def candidates(self, binary: Mapping[str, bool]) -> list[str]:
        """List the functions that may decide: the named one, or all whose numbers are 0 or 1.
        ``binary`` says of each function that graded whether its numbers are."""
        if self.named in binary:
            return [self.named]
        return [name for name, its in binary.items() if its and self.weights.get(name, 1.0) >= 0]

    def function(self, binary: Mapping[str, bool]) -> str | None:
        """Find the function that decides; None: no function does."""
        found = self.candidates(binary)
        return found[0] if len(found) == 1 else None

    def in_words(self, binary: Mapping[str, bool]) -> str:
        """Say in a line what is right, and how to say otherwise."""
        found = self.candidates(binary)
        if len(found) == 1:
            name = "the task's own grading" if found == [TASK] else found[0]
            other = "" if self.named in binary else "; [evaluation] right names another function"
            return f"right: what {name} scores 1 or more{other}"
        why = (
            f"{' and '.join(found)} score nothing but 0 and 1"
            if found
            else f"{', '.join(binary)} score{'s' * (len(binary) == 1)} other numbers than 0 and 1"
        )
        return f"no answer is called right: {why}; [evaluation] right names what decides"


def merged(*found: Mapping[str, bool]) -> dict[str, bool]:
    """Put together of what several places say whether functions scored nothing but 0 and 1."""
    whole: dict[str, bool] = {}
    for each in found:
        for name, its in each.items():
            whole[name] = whole.get(name, True) and its
    return whole
