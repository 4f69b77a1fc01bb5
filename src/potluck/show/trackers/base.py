"""A tracker, what it is told when it starts, and the names of the numbers that it gets."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from potluck.reports.tokens import Recorded

TableRows = Sequence[Mapping[str, Any]]
GROUPED = {"reward_mean": "reward/mean", "own_reward_mean": "reward/own"}
"""Fields of a round whose curves belong into one picture; the others keep their names."""


@dataclass(frozen=True, slots=True)
class About:
    """One node's run, as a tracker is told of it when it starts."""

    project: str
    group: str
    """Name that the runs of one potluck have in common."""
    node: str
    folder: Path
    """Folder of the whole run, all nodes."""
    first_round: int
    """Round where a resumed run goes on; this one and later ones will be told anew."""
    resumed: bool
    recipe: Mapping[str, Any]
    """Recipe as plain data, every default spelled out."""
    wandb_mode: Literal["online", "offline"]
    completions: int = 0
    """Rows of the table of a round's completions; 0: there is none."""

    @property
    def name(self) -> str:
        """Name in a list of runs: nodes of different groups often have one name."""
        return f"{self.group}/{self.node}"


class Recording(NamedTuple):
    """A recorded completion, of any author."""

    line: Recorded
    messages: list[dict[str, Any]]
    """Question and answer; or the question and what was said in the episode."""


class Tracker(Protocol):
    """One node's curves. Made by a function that is given an ``About``; may raise anything."""

    def log(self, round: int, values: Mapping[str, float]) -> None:
        """Add a point at ``round`` to each curve; may be called several times for one round."""

    def table(self, round: int, rows: TableRows, recorded: Sequence[Recording]) -> None:
        """Show completions of ``round``: own ``rows``, or all that are ``recorded``."""

    def alert(self, round: int, title: str, text: str) -> None:
        """Draw attention to what was told in ``round``."""

    def close(self, *, failed: bool) -> None:
        """End the curves: called once, however the run ended."""


def round_values(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a line of metrics.jsonl, under names that trackers fold by; None is
    left out, and a list of names (of missing nodes) is given by its length.

    >>> source = {"k3": 0.25, "k1": None}
    >>> round_values({"round": 3, "reward_mean": 0.5, "sources": {"south": source}, "missing": ()})
    {'reward/mean': 0.5, 'sources/south/k3': 0.25, 'missing': 0}
    """
    named = {GROUPED.get(key, key): value for key, value in metrics.items() if key != "round"}
    return dict(_numbers(named))


def evaluation_values(line: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a line of evaluation.jsonl; reward functions by their names.

    >>> evaluation_values({"round": 5, "validation": 0.75, "problems": 200})
    {'evaluation/validation': 0.75, 'evaluation/problems': 200}
    >>> evaluation_values({"round": 5, "rewards": {"brief": -0.1}, "partial": True})
    {'evaluation/brief': -0.1}
    """
    named = {k: v for k, v in line.items() if k not in ("round", "rewards", "partial", "at_end")}
    return dict(_numbers({"evaluation": {**line.get("rewards", {}), **named}}))


def _numbers(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    for key, value in tree.items():
        match value:
            case int() | float():
                yield above + key, value
            case Mapping():
                yield from _numbers(value, f"{above}{key}/")
            case tuple() | list():
                yield above + key, len(value)
