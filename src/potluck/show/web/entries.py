"""Runs on the start page: the ends of their files, read again when these have changed."""

import time
from pathlib import Path

from potluck.reports import EvaluationReport, RoundReport, mean
from potluck.reports.runs import (
    EVALUATION,
    METRICS,
    RecipeRead,
    RunReadError,
    read_recipe,
    read_status,
)
from potluck.reports.tail import newest
from potluck.show.web.bounds import MOST_NODES
from potluck.show.web.states import Here, facts_of, node_views
from potluck.show.web.views import RunEntry, State
from potluck.types import NODE_NAME

END_BYTES = 1 << 18
"""Bytes of a metrics.jsonl that are read, from its end."""
WINDOW = 5
"""Rounds in the mean reward."""
WORST: tuple[State, ...] = (
    *("silent", "quarantined", "recovering", "training"),
    *("stopped", "unknown", "ended"),
)
"""States, the first of which that a node has is the run's."""


def run_entry(folder: Path, run: str, cache: dict[str, tuple[object, RunEntry]]) -> RunEntry:
    """Return a run's line of the start page; ``cache`` keeps it as long as its files are those."""
    try:
        recipe = read_recipe(folder)
    except RunReadError as error:
        return RunEntry(run=run, name=folder.name, error=str(error))
    # A status is old a second later, so its run's line is never kept.
    stamp = [] if any(folder.glob("*/status.json")) else _stamp(folder)
    if stamp and run in cache and cache[run][0] == stamp:
        return cache[run][1]
    entry = _read(folder, run, recipe)
    cache[run] = (stamp, entry)
    return entry


def _stamp(folder: Path) -> list[tuple[str, int, int]]:
    found = []
    for file in sorted(folder.glob("*/*.jsonl"))[: 4 * MOST_NODES]:
        now = file.stat()
        found.append((str(file), now.st_size, now.st_mtime_ns))
    return found


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
    states = {node.state for node in nodes if node.name in here} or {"unknown"}
    return RunEntry(
        run=run,
        name=recipe.name,
        rounds=recipe.rounds,
        done=max((node.round for node in nodes), default=0),
        nodes=[node.name for node in nodes],
        state=next(state for state in WORST if state in states),
        reward=reward,
        accuracy=accuracy,
        changed_s=max(changed_s, default=None),
    )
