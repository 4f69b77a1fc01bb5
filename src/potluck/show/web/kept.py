"""A page in a file: the same page with its data inside, small enough to be sent around.

What does not fit is left out, the least needed first, and that is said.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from potluck.reports.runs import read_recipe
from potluck.show.web.feed import NotHereError
from potluck.show.web.folder import WatchedRun, read_pairs
from potluck.show.web.views import Columns, Kept, KeptRun, KeptTable, TextsView

MOST_BYTES = 20_000_000
POINTS = 200
"""Rounds of a pair or a node that stay where all are too many."""


def keep(
    runs: Mapping[str, Path],
    *,
    title: str,
    lead: Sequence[str] = (),
    table: KeptTable | None = None,
    labels: Mapping[str, str] | None = None,
) -> tuple[Kept, list[str]]:
    """Return the data of a kept page, and what was left out; RunReadError for no run."""
    kept = Kept(
        title=title,
        lead=list(lead),
        table=table,
        labels=dict(labels or {}),
        runs={run: _keep_run(folder) for run, folder in runs.items()},
    )
    left_out = ["completions of other rounds than the newest"]
    steps: dict[str, Callable[[KeptRun], KeptRun]] = {
        f"rounds of all pairs and curves beyond {POINTS}": _thin,
        "all completions": lambda run: replace(run, texts=[]),
        "all pairs": lambda run: replace(run, pairs=[]),
    }
    for what, step in steps.items():
        if len(msgspec.json.encode(kept)) <= MOST_BYTES:
            break
        fewer = {name: step(run) for name, run in kept.runs.items()}
        left_out += [what] if fewer != kept.runs else []
        kept = replace(kept, runs=fewer)
    return kept, left_out


def _keep_run(folder: Path) -> KeptRun:
    read_recipe(folder)  # it tells what is wrong
    feed = WatchedRun(folder)
    feed.look()
    view = feed.view()
    here = [node.name for node in view.nodes or [] if node.known == "here"]
    pairs = [pair for node in here for pair in read_pairs(folder / node).values()]
    texts = list[TextsView]()
    for node in here:
        with suppress(NotHereError):  # it has not begun
            newest = feed.texts(node)
            texts.append(replace(newest, rounds=newest.rounds[-1:]))
    return KeptRun(view=view, pairs=pairs, texts=texts)


def _thinned(columns: Columns) -> Columns:
    """Return about POINTS rows, evenly spread, the first and the last among them."""
    count = len(columns["round"])
    if count <= POINTS:
        return columns
    rows = [round(at * (count - 1) / (POINTS - 1)) for at in range(POINTS)]
    return {name: [column[row] for row in rows] for name, column in columns.items()}


def _thin(run: KeptRun) -> KeptRun:
    pairs = [replace(pair, columns=_thinned(pair.columns)) for pair in run.pairs]
    curves = (run.view.curves or {}).items()
    thin = {name: replace(each, columns=_thinned(each.columns)) for name, each in curves}
    return replace(run, pairs=pairs, view=replace(run.view, curves=thin))
