"""The plan of a replay, its rows, and the table of their means; none of them loads torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from potluck.config import RunConfig, load
from potluck.fields import hint
from potluck.intervals import t_interval
from potluck.objective.methods import METHODS, reads_author_logp
from potluck.reports import mean
from potluck.reports.comparison import within
from potluck.reports.runs import read_run
from potluck.show.terminal.text import decimal, label, new_table, percent
from potluck.types import PotluckError

DEFAULT_METHODS = ("nois", "tis", "f-tis", "lws")
LEGEND = """\
the mean over all rounds; [...]: 95 %, paired over rounds, by Student's t
cosine: of the method's gradient with that of the model's own fresh completions
ceiling: of two such on-policy gradients with each other; noise keeps it below 1
sample size: effective, 1 where all tokens weigh alike; ln ratio: nats a token"""
COSINES = "cosine", "ceiling"
MEANS = {
    "cosine": "cosine",
    "ceiling": "ceiling",
    "effective_sample_size": "sample size",
    "log_ratio_mean": "ln ratio",
    "filtered_share": "filtered",
    "validation": "greedy",
}
"""Fields whose means are in the table, and the heads of their columns."""


class ReplayError(PotluckError):
    """A run cannot be replayed, or not like this."""


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """A replay whose nodes, methods and rounds are there."""

    run: Path
    config: RunConfig
    methods: tuple[str, ...]
    rounds: Mapping[str, tuple[int, ...]]
    """The rounds that each node learned from, oldest first; a node that was away left some out."""
    out: Path


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """A measurement of one node, method and round; docs/replay.md has the meaning of each field.
    None: nothing to measure."""

    node: str
    method: str
    round: int
    cosine: float | None
    ceiling: float | None
    effective_sample_size: float | None
    log_ratio_mean: float | None
    filtered_share: float | None
    own_reward_mean: float | None
    gradient_norm: float
    updates: int
    validation: float | None
    sources: Mapping[str, Mapping[str, Any]]


def make_plan(
    run: Path,
    *,
    methods: str | None = None,
    node: str = "",
    rounds: int | None = None,
    out: Path | None = None,
) -> ReplayPlan:
    """Check a replay and make ``out``, so that it does not fail at its first row, after minutes;
    raise RunReadError if ``run`` is no run, ReplayError if it has not what is asked for.

    By default replayed are ``DEFAULT_METHODS``, or those of them that need no log-probabilities if
    the run's nodes sent none, on each node that has done a round here.
    """
    recorded, config = read_run(run), load(run / "recipe.json")
    if methods is None:
        sent = config.sends_logp
        chosen = [m for m in DEFAULT_METHODS if sent or not reads_author_logp(METHODS[m])]
    else:
        chosen = list(dict.fromkeys(name.strip() for name in methods.split(",") if name.strip()))
    if not chosen:
        raise ReplayError(f"--method is {methods!r}; choose some of {','.join(METHODS)}")
    if unknown := [name for name in chosen if ":" not in name and name not in METHODS]:
        raise ReplayError(f"--method has {unknown[0]!r}; {hint(unknown[0], METHODS)}")
    if node and node not in config.node:
        raise ReplayError(f"--node is {node!r}, which {run} has not; {hint(node, config.node)}")
    # A crash may leave the file of a round whose line is missing: it was not learned from.
    found = {
        each.name: tuple(line.round for line in each.rounds)[:rounds]
        for each in recorded.nodes
        if each.rounds and node in ("", each.name) and each.name in config.trained_here
    }
    if not found:
        raise ReplayError(
            f"{f'the node {node!r}' if node else 'no node'} of {run} has {'no' if node else 'a'} "
            f"round that could be replayed; rounds are kept in a node's folder: name a run of "
            f"this machine that has done one"
        )
    place = out or run / "replay"
    try:
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise ReplayError(f"{place} exists; --out names another folder, or remove it")
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReplayError(
            f"cannot write to {place}: {error.strerror}; --out names another folder"
        ) from None
    return ReplayPlan(run, config, tuple(chosen), found, place)


def by_curve(rows: Iterable[ReplayRow]) -> dict[tuple[str, str], list[ReplayRow]]:
    """Sort the rows by (node, method), in the order in which they came."""
    found: dict[tuple[str, str], list[ReplayRow]] = {}
    for row in rows:
        found.setdefault((row.node, row.method), []).append(row)
    return found


def table(rows: Sequence[ReplayRow], console: Console) -> Table:
    made = new_table(console, ("node", "method", "rounds"), [*MEANS.values()])
    for column in made.columns[1:3]:
        column.no_wrap = True
    for (node, method), curve in by_curve(rows).items():
        rounds = f"{curve[0].round + 1}-{curve[-1].round + 1}"
        means = {name: mean(getattr(row, name) for row in curve) for name in MEANS}
        shown = ((percent if "share" in name else decimal)(y) for name, y in means.items())
        made.add_row(Text(node), label(method), rounds, *shown)
    return made


def differences_table(rows: Sequence[ReplayRow], console: Console) -> Table:
    """Return a table of mean differences of a node's methods, over the rounds of both."""
    made = new_table(console, ("node", "A - B"), ("rounds", *COSINES))
    for ((node, b), theirs), ((other, a), ours) in combinations(by_curve(rows).items(), 2):
        by_round = {row.round: row for row in theirs}
        pairs = [(row, by_round[row.round]) for row in ours if row.round in by_round]
        if node == other:
            gaps = [_gap([(getattr(x, n), getattr(y, n)) for x, y in pairs]) for n in COSINES]
            made.add_row(Text(node), Text(f"{label(a)} - {label(b)}"), str(len(pairs)), *gaps)
    return made


def _gap(pairs: Iterable[tuple[float | None, float | None]]) -> Text:
    known = [a - b for a, b in pairs if a is not None and b is not None]
    return Text(within(t_interval(known)) if len(known) > 1 else "-")
