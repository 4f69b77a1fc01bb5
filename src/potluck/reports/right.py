"""Rules of what is right in a run, read from its folder: see ``potluck/right.py``."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from potluck.reports.rounds import RoundReport
from potluck.reports.runs import (
    METRICS,
    RecipeRead,
    RunReadError,
    WrittenCompletion,
    read_lines,
)
from potluck.right import RightRule, is_binary, merged


def binary_of(rounds: Iterable[RoundReport]) -> dict[str, bool]:
    """Tell of each function whether it paid nothing but 0 and 1 in all ``rounds``; nothing of
    rounds of 0.2.0, which have not noted it."""
    noted = (
        {name: its.binary for name, its in report.rewards.items() if its.binary is not None}
        for report in rounds
    )
    return merged(*noted)


def binary_in(lines: Iterable[WrittenCompletion]) -> dict[str, bool]:
    """Tell the same of the completions that are at hand."""
    binary: dict[str, bool] = {}
    for line in lines:
        for name, number in line.paid.items():
            binary[name] = binary.get(name, True) and is_binary([number])
    return binary


def rule_of(recipe: RecipeRead) -> RightRule:
    """Read the rule; of a recipe that contradicts itself none is named."""
    rewards = [(each.function, each.weight) for each in recipe.reward]
    with suppress(ValueError):
        return RightRule.of(rewards, recipe.evaluation.right)
    return RightRule.of(rewards, "")


def binary_in_run(folder: Path) -> dict[str, bool]:
    """Tell of each function whether it paid nothing but 0 and 1 in a run, as far as its nodes have
    noted it; damaged lines are told where the run is read."""
    found = []
    for file in folder.glob(f"*/{METRICS}"):
        with suppress(RunReadError):
            found.append(binary_of(read_lines(file, RoundReport)))
    return merged(*found)


def function_of(runs: Sequence[tuple[RightRule, Mapping[str, bool]]]) -> str | None:
    """Find the one function that decides in all of several runs, of which each has its rule and
    what its functions paid; None: none does, or they name different ones."""
    binary = merged(*(its for _, its in runs))
    found = {rule.function(binary) for rule, _ in runs}
    return found.pop() if len(found) == 1 else None
