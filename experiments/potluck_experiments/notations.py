"""How a model's own way of writing moves, from what it wrote in each notation.

A model's own notation is the one that it is named after; the other is its partner's.
"""

from collections.abc import Iterable, Iterator
from statistics import mean
from typing import Final, NamedTuple

from potluck_experiments.cell_files import NodeResult
from potluck_experiments.kinds import BEFORE, DEFAULT, Kind

SETTINGS: Final = ("half", "quarter", "own-part", BEFORE, DEFAULT)
FEW = 5
"""Number of answers below which their mean reward is left out."""


class Habit(NamedTuple):
    """Numbers of one model over some rounds. None: too few answers."""

    share: float | None  # Of its answers in either notation those in the other
    own: float | None  # Mean reward in its own notation
    other: float | None


def habit_of(node: NodeResult, role: str, rounds: range) -> Habit:
    """Pool a model's answers of these rounds."""
    total = {
        name: (sum(curve.written[at] for at in rounds), sum(curve.right[at] for at in rounds))
        for name, curve in node.notations.items()
    }
    written, right = total.pop(role, (0, 0))
    others, others_right = map(sum, zip(*total.values(), strict=True)) if total else (0, 0)
    return Habit(
        others / (written + others) if written + others else None,
        right / written if written >= FEW else None,
        others_right / others if others >= FEW else None,
    )


class Writers(NamedTuple):
    """Models of a kind that write in more than one notation."""

    kind: Kind
    roles: tuple[str, ...]

    @property
    def title(self) -> str:
        return self.kind.title + f", {self.roles[0]}" * (len(self.roles) < len(self.kind.roles))

    @property
    def rounds(self) -> int:
        return len(next(self.kind.nodes(self.kind.method)).sampled)

    @property
    def settings(self) -> list[str]:
        return [its for its in SETTINGS if any(self.kind.nodes(its, self.roles[0]))]


def writers(kinds: Iterable[Kind]) -> Iterator[Writers]:
    """Yield the two of a pair together, and each of a larger group by itself."""
    for kind in kinds:
        every = {role: list(kind.nodes(kind.halves[0], role)) for role in kind.roles}
        both = [
            role for role, its in every.items() if all({role} < set(node.notations) for node in its)
        ]
        if both == kind.roles:
            yield Writers(kind, tuple(both))
        else:
            yield from (Writers(kind, (role,)) for role in both)


def over_pairs(of: Writers, setting: str, rounds: range, field: str) -> list[float]:
    """Return a field of Habit for each base pair that has it: the mean over models and seeds."""
    found = []
    for pair in of.kind.pairs:
        habits = [
            getattr(habit_of(node, role, rounds), field)
            for role in of.roles
            for node in of.kind.nodes(setting, role, [pair])
        ]
        if known := [value for value in habits if value is not None]:
            found.append(mean(known))
    return found
