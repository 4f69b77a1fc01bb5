"""All that one server shows: the runs and the experiments that are found below them.

An id is a path below the folder that is watched. It is looked up among those that were found, and
never joined to a path, so no id leads out of it.
"""

import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path

from potluck.reports import EvaluationReport, RoundReport, mean
from potluck.reports.runs import EVALUATION, METRICS, STATUS, RunReadError, read_recipe, read_status
from potluck.reports.tail import newest
from potluck.show.web.folder import NotHereError, WatchedRun, run_changed_s
from potluck.show.web.page import ExperimentFeed, experiment_feeds
from potluck.show.web.states import MOST_NODES, Here, facts_of, node_views
from potluck.show.web.views import RunEntry, StartView, State
from potluck.types import NODE_NAME, RunFolderError

DEEPEST = 4
"""Levels of folders below the one that is watched."""
MOST_RUNS, MOST_FOLDERS = 200, 5000
END_BYTES = 1 << 18
WINDOW = 5
WORST: tuple[State, ...] = (
    *("silent", "quarantined", "recovering", "training"),
    *("stopped", "awaited", "unknown", "ended"),
)
"""States, the first of which that a node has is the run's."""


class Place:
    """Folders of runs; one run of id "" if that is all there is to see."""

    def __init__(self, folders: Sequence[Path], *, begins: bool = False) -> None:
        self._folders = tuple(folders)
        # Made here: what ends from now on has ended, however late the first page is opened.
        self._begun = WatchedRun(folders[0], begins=True) if begins else None
        for folder in folders:
            if not begins and not folder.is_dir():
                raise RunFolderError(
                    f"there is no folder {folder}; name a run, or a folder of runs or experiments "
                    f"(`potluck run` makes runs/NAME)"
                )
        self._feeds = experiment_feeds()

    def start(self) -> StartView:
        found, is_cut = self._find()
        changed_s = {run: run_changed_s(path) for run, (path, feed) in found.items() if not feed}
        runs = sorted(changed_s, key=lambda run: changed_s[run], reverse=True)
        return StartView(
            place="/".join(self._folders[0].absolute().parts[-2:]).lstrip("/"),
            runs=[_entry(found[run][0], run, changed_s[run]) for run in runs[:MOST_RUNS]],
            experiments=[
                entry
                for name, (folder, feed) in found.items()
                for entry in (feed.entries(folder, name) if feed else ())
            ],
            is_cut=is_cut or len(runs) > MOST_RUNS,
        )

    def run(self, run: str) -> WatchedRun:
        path, feed = self._find()[0].get(run, (None, None))
        if path and not feed:
            return self._begun or WatchedRun(path)
        raise NotHereError(f"there is no run {run[:80]!r} here; the start page lists all")

    def experiment(self, experiment: str) -> object:
        for name, (path, feed) in self._find()[0].items():
            if feed and (view := feed.view(path, name, experiment)):
                return view
        raise NotHereError(f"there is no experiment {experiment[:80]!r} here")

    def _find(self) -> tuple[dict[str, tuple[Path, ExperimentFeed | None]], bool]:
        """Find runs and folders of other feeds, by id; True: there were more folders."""
        if len(self._folders) == 1 and (self._begun or _is_run(self._folders[0])):
            return {"": (self._folders[0], None)}, False
        found: dict[str, tuple[Path, ExperimentFeed | None]] = {}
        places = ((top, each) for top in self._folders for each in _below(top, DEEPEST))
        for top, path in islice(places, MOST_FOLDERS):
            its = path.relative_to(top if len(self._folders) == 1 else top.parent)
            name = "/".join(its.parts)  # "" of the folder itself
            is_here = [None] if _is_run(path) else [f for f in self._feeds if f.is_here(path)]
            for feed in is_here:
                while name in found:  # two folders of one name
                    name += "~"
                found[name] = path, feed
        return found, next(places, None) is not None


def _below(folder: Path, depth: int) -> Iterator[Path]:
    """Yield a folder and those below it; a run has no other inside."""
    yield folder
    if not depth or _is_run(folder):
        return
    try:
        inside = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
        folders = [each for each in inside if each.is_dir() and not each.is_symlink()]
    except OSError:
        return
    for each in folders:
        yield from _below(each, depth - 1)


def _is_run(folder: Path) -> bool:
    return (folder / "recipe.json").is_file()


def _entry(folder: Path, run: str, changed_s: float) -> RunEntry:
    # A status is old a second later, so its run's line is not kept.
    read = _read.__wrapped__ if any(folder.glob(f"*/{STATUS}")) else _read
    return read(folder, run, changed_s)


@lru_cache(MOST_RUNS)
def _read(folder: Path, run: str, changed_s: float) -> RunEntry:
    """Read a run's line of the start page from the ends of its files."""
    try:
        recipe = read_recipe(folder)
    except RunReadError as error:
        return RunEntry(run=run, name=folder.name, error=str(error))
    here: dict[str, Here] = {}
    reward: dict[str, float | None] = {}
    accuracy: dict[str, float | None] = {}
    is_partial = False
    for each in sorted(folder.iterdir())[: 4 * MOST_NODES]:
        if not NODE_NAME.fullmatch(each.name) or not each.is_dir():
            continue
        rows, status = list(newest(each / METRICS, RoundReport, END_BYTES)), read_status(each)
        if not rows and status is None:
            continue
        here[each.name] = Here(status, rows[-1].round + 1 if rows else 0)
        reward[each.name] = mean(row.own_reward_mean for row in rows[-WINDOW:])
        graded = list(newest(each / EVALUATION, EvaluationReport, END_BYTES))
        is_partial |= any(row.partial for row in rows) or any(each.partial for each in graded)
        known = [report.validation for report in graded if report.validation is not None]
        accuracy[each.name] = known[-1] if known else None
    nodes = node_views(here, facts_of(recipe, time.time()))
    ours = [node for node in nodes if node.name in here]
    states = {node.state for node in ours} or {"unknown"}
    heard_s = (node.heard_s for node in ours if node.heard_s is not None)
    return RunEntry(
        run=run,
        name=recipe.name,
        rounds=recipe.end,
        done=max((node.round for node in ours), default=0),
        nodes=[node.name for node in nodes],
        state=next(each for each in WORST if each in states),
        reward=reward,
        accuracy=accuracy,
        is_partial=is_partial,
        changed_s=max(heard_s, default=changed_s if here else None),
    )
