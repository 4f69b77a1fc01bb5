"""Runs on the start page: the ends of their files, read again when these have changed."""

import time
from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec.structs import replace

from potluck.reports import EvaluationReport, RoundReport, mean
from potluck.reports.runs import (
    EVALUATION,
    METRICS,
    STATUS,
    RecipeRead,
    RunReadError,
    read_recipe,
    read_status,
)
from potluck.reports.tail import newest
from potluck.show.web.bounds import MOST_NODES
from potluck.show.web.states import Here, facts_of, node_views
from potluck.show.web.views import NodeView, RunEntry, State
from potluck.types import NODE_NAME

END_BYTES = 1 << 18
"""Bytes of a metrics.jsonl that are read, from its end."""
WINDOW = 5
"""Rounds in the mean reward."""
WORST: tuple[State, ...] = (
    *("silent", "quarantined", "recovering", "training"),
    *("stopped", "awaited", "unknown", "ended"),
)
"""States, the first of which that a node has is the run's."""


def run_entry(folder: Path, run: str, cache: dict[str, tuple[float, RunEntry]]) -> RunEntry:
    """Return a run's line of the start page; ``cache`` keeps it as long as its files are those."""
    try:
        recipe = read_recipe(folder)
    except RunReadError as error:
        return RunEntry(run=run, name=folder.name, error=str(error))
    changed_s = run_changed_s(folder)
    # A status is old a second later, so its run's line is never kept.
    is_kept = run in cache and not any(folder.glob(f"*/{STATUS}"))
    if not is_kept or cache[run][0] != changed_s:
        cache[run] = (changed_s, _read(folder, run, recipe))
    return cache[run][1]


def run_changed_s(folder: Path) -> float:
    """Return when a run last wrote, in seconds since 1970; 0: it is gone."""
    try:
        return max(each.stat().st_mtime for each in (folder, *folder.glob("*/*.jsonl")))
    except OSError:
        return 0.0


def entry_of(entry: RunEntry, nodes: Collection[NodeView], order: Sequence[State]) -> RunEntry:
    """Add the nodes to an entry; its state is the first of ``order`` that one of them has."""
    states = {node.state for node in nodes} or {"unknown"}
    return replace(
        entry,
        done=max((node.round for node in nodes), default=0),
        nodes=[node.name for node in nodes],
        state=next(state for state in order if state in states),
        changed_s=max((n.heard_s for n in nodes if n.heard_s is not None), default=entry.changed_s),
    )


def _read(folder: Path, run: str, recipe: RecipeRead) -> RunEntry:
    here: dict[str, Here] = {}
    reward: dict[str, float | None] = {}
    accuracy: dict[str, float | None] = {}
    changed_s: list[float] = []
    for each in sorted(folder.iterdir())[: 4 * MOST_NODES]:
        if not NODE_NAME.fullmatch(each.name) or not each.is_dir():
            continue
        rows = list(newest(each / METRICS, RoundReport, END_BYTES))
        status = read_status(each)
        if not rows and status is None:
            continue
        here[each.name] = Here(status, rows[-1].round + 1 if rows else 0)
        reward[each.name] = mean(row.own_reward_mean for row in rows[-WINDOW:])
        graded = newest(each / EVALUATION, EvaluationReport, END_BYTES)
        known = [report.validation for report in graded if report.validation is not None]
        accuracy[each.name] = known[-1] if known else None
        if rows:
            changed_s.append((each / METRICS).stat().st_mtime)
    nodes = node_views(here, facts_of(recipe, time.time()))
    entry = RunEntry(
        run=run,
        name=recipe.name,
        rounds=recipe.end,
        reward=reward,
        accuracy=accuracy,
        changed_s=max(changed_s, default=None),
    )
    shown = entry_of(entry, [node for node in nodes if node.name in here], WORST)
    return replace(shown, nodes=[node.name for node in nodes])
