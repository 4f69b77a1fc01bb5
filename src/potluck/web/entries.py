"""Runs on the start page: the ends of their files, read again when these have changed."""

import time
from pathlib import Path

import msgspec

from potluck.display.text import mean
from potluck.reports import EvaluationReport
from potluck.status import FolderStatus
from potluck.types import NODE_NAME
from potluck.web.metrics import DAMAGED
from potluck.web.recipe import RunRecipe, read_recipe
from potluck.web.states import MOST_NODES, Facts, Here, node_views
from potluck.web.tail import Tail, read_small
from potluck.web.views import RunEntry, State

END_BYTES = 1 << 18
"""Bytes of a metrics.jsonl that are read, from its end."""
WINDOW = 5
"""Rounds in the mean reward."""
STATUS_BYTES = 1 << 20
WORST: tuple[State, ...] = (
    *("silent", "quarantined", "recovering", "training"),
    *("stopped", "unknown", "ended"),
)
"""States, the first of which that a node has is the run's."""


class _Line(msgspec.Struct):
    round: int
    own_reward_mean: float | None = None


def run_entry(folder: Path, run: str, cache: dict[str, tuple[object, RunEntry]]) -> RunEntry:
    """Return a run's line of the start page; ``cache`` keeps it as long as its files are those."""
    recipe = read_recipe(folder)
    if recipe is None:
        return RunEntry(run=run, name=folder.name, error="its recipe.json cannot be read")
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
        try:
            now = file.stat()
        except OSError:
            continue
        found.append((str(file), now.st_size, now.st_mtime_ns))
    return found


def _read(folder: Path, run: str, recipe: RunRecipe) -> RunEntry:
    here: dict[str, Here] = {}
    reward: dict[str, float | None] = {}
    accuracy: dict[str, float | None] = {}
    changed_s: list[float] = []
    for each in sorted(folder.iterdir())[: 4 * MOST_NODES]:
        metrics = each / "metrics.jsonl"
        if not NODE_NAME.fullmatch(each.name) or not (each / "recipe.json").parent.is_dir():
            continue
        rows, status = _last_rows(metrics), _status(each)
        if not rows and status is None:
            continue
        here[each.name] = Here(status, rows[-1].round + 1 if rows else 0)
        reward[each.name] = mean(row.own_reward_mean for row in rows[-WINDOW:])
        accuracy[each.name] = _accuracy(each / "evaluation.jsonl")
        if metrics.is_file():
            changed_s.append(metrics.stat().st_mtime)
    facts = Facts(recipe.rounds, recipe.max_staleness, recipe.models, time.time())
    nodes = node_views(here, facts)
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


def _last_rows(file: Path) -> list[_Line]:
    rows = []
    for line in _end_of(file):
        try:
            rows.append(msgspec.json.decode(line, type=_Line))
        except DAMAGED:
            continue
    return rows


def _accuracy(file: Path) -> float | None:
    found = None
    for line in _end_of(file):
        try:
            at = msgspec.json.decode(line, type=EvaluationReport).validation
        except DAMAGED:
            continue
        found = found if at is None else at
    return found


def _end_of(file: Path) -> list[bytes]:
    tail = Tail(file)
    tail.look()
    tail.start_near_end(END_BYTES)
    return [line for _, line in tail.lines()]


def _status(folder: Path) -> FolderStatus | None:
    data = read_small(folder / "status.json", STATUS_BYTES)
    try:
        return msgspec.json.decode(data, type=FolderStatus) if data else None
    except DAMAGED:
        return None
