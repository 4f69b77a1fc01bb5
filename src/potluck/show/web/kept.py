"""A page in a file: the same page with its data inside, small enough to be sent around.

What does not fit is left out, the least needed first, and that is said.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from potluck.reports.runs import read_recipe
from potluck.show.web.feed import NotHereError
from potluck.show.web.folder import WatchedRun
from potluck.show.web.metrics import read_pairs
from potluck.show.web.views import Columns, Kept, KeptRun, KeptTable, PairView, TextsView

MOST_BYTES = 20_000_000
"""Largest data of a kept page."""
WHOLE_PAIRS = 64
"""Pairs of a run that have all their rounds; of more each has POINTS."""
POINTS = 200
SURPRISING_ROUNDS = 5
"""Rounds that are kept of a node beside the newest: those of the most surprising completions."""


def keep(
    runs: Mapping[str, Path],
    *,
    title: str,
    lead: Sequence[str] = (),
    table: KeptTable | None = None,
    labels: Mapping[str, str] | None = None,
) -> tuple[Kept, list[str]]:
    """Return the data of a kept page, and what was left out, in words. Raise RunReadError for a
    folder that is no run."""
    kept, left_out = {}, []
    for run, folder in runs.items():
        kept[run], left = _keep_run(folder, run)
        left_out += [f"{run or folder.name}: {each}" if len(runs) > 1 else each for each in left]
    whole = Kept(title=title, lead=list(lead), table=table, labels=dict(labels or {}), runs=kept)
    return _fitting(whole, left_out)


def _keep_run(folder: Path, run: str) -> tuple[KeptRun, list[str]]:
    read_recipe(folder)  # it tells what is wrong
    feed, left_out = WatchedRun(folder, run), list[str]()
    feed.look()
    view = feed.view()
    here = [node.name for node in view.nodes or [] if node.known == "here"]
    whole = [pair for node in here for pair in read_pairs(folder / node).values()]
    pairs = [_thin(pair, POINTS) for pair in whole] if len(whole) > WHOLE_PAIRS else whole
    if pairs != whole:
        left_out.append(f"rounds of {len(pairs)} pairs beyond {POINTS} of each")
    texts = [each for node in here for each in _texts(feed, node)]
    left_out.append("completions of other rounds than the newest and the most surprising")
    return KeptRun(view=view, pairs=pairs, texts=texts), left_out


def _texts(feed: WatchedRun, node: str) -> list[TextsView]:
    """Return a node's newest round, and those of its most surprising completions."""
    try:
        newest = feed.texts(node)
    except NotHereError:  # a node that has not begun
        return []
    rounds = dict.fromkeys(place.round for place in newest.surprising)
    shown = {text.round for text in newest.texts}
    others = [round for round in rounds if round not in shown][:SURPRISING_ROUNDS]
    return [newest, *(feed.texts(node, round) for round in others)] if newest.texts else []


def _thin(pair: PairView, points: int) -> PairView:
    return replace(pair, columns=thinned(pair.columns, points))


def thinned(columns: Columns, points: int) -> Columns:
    """Return about ``points`` rows, evenly spread, the first and the last among them.

    >>> thinned({"round": [0, 1, 2, 3, 4, 5, 6]}, 3)
    {'round': [0, 3, 6]}
    """
    count = len(columns["round"])
    if count <= points:
        return columns
    rows = [round(at * (count - 1) / (points - 1)) for at in range(points)]
    return {name: [column[row] for row in rows] for name, column in columns.items()}


def _fitting(kept: Kept, left_out: list[str]) -> tuple[Kept, list[str]]:
    """Leave out more until it fits."""
    steps: dict[str, Callable[[KeptRun], KeptRun]] = {
        "all completions": lambda run: replace(run, texts=[]),
        "all pairs": lambda run: replace(run, pairs=[]),
        f"rounds of all curves beyond {POINTS}": _thin_curves,
    }
    for what, step in steps.items():
        if len(msgspec.json.encode(kept)) <= MOST_BYTES:
            break
        runs = {name: step(run) for name, run in kept.runs.items()}
        if runs != kept.runs:
            left_out = [*left_out, what]
        kept = replace(kept, runs=runs)
    return kept, left_out


def _thin_curves(run: KeptRun) -> KeptRun:
    curves = {
        name: replace(each, columns=thinned(each.columns, POINTS))
        for name, each in (run.view.curves or {}).items()
    }
    return replace(run, view=replace(run.view, curves=curves))
