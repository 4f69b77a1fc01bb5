"""Folders as one feed: the runs and the experiments that are found below them.

An id is a path below the folder that is watched. It is looked up among those that were found, and
never joined to a path, so no id leads out of it.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from potluck.show.web.bounds import MOST_FOLDERS, MOST_RUNS
from potluck.show.web.entries import run_changed_s, run_entry
from potluck.show.web.feed import ExperimentFeed, NotHereError, RunFeed, experiment_feeds
from potluck.show.web.folder import WatchedRun
from potluck.show.web.views import RunEntry, StartView
from potluck.types import RunFolderError

DEEPEST = 4
"""Levels of folders below the one that is watched."""
FRESH_S = 1.0
"""Age of the start page's data from which they are read again."""


@dataclass(slots=True)
class _Found:
    runs: dict[str, Path] = field(default_factory=dict)
    experiments: dict[str, tuple[Path, ExperimentFeed]] = field(default_factory=dict)
    looked_into: int = 0


class Place:
    """Feed of folders; of one run if that is all there is to see."""

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
        self._lock = threading.Lock()
        self._start: tuple[float, StartView] | None = None
        self._entries: dict[str, tuple[float, RunEntry]] = {}

    def start(self) -> StartView:
        with self._lock:
            now_s = time.monotonic()
            if self._start is None or now_s - self._start[0] > FRESH_S:
                self._start = (now_s, self._read())
            return self._start[1]

    def _read(self) -> StartView:
        found = self._find()
        newest = sorted(found.runs, key=lambda run: run_changed_s(found.runs[run]), reverse=True)
        return StartView(
            place="/".join(self._folders[0].absolute().parts[-2:]).lstrip("/"),
            runs=[run_entry(found.runs[run], run, self._entries) for run in newest[:MOST_RUNS]],
            experiments=[
                entry
                for name, (folder, feed) in found.experiments.items()
                for entry in feed.entries(folder, name)
            ],
            is_cut=len(newest) > MOST_RUNS or found.looked_into >= MOST_FOLDERS,
        )

    def _find(self) -> _Found:
        found = _Found()
        if len(self._folders) == 1 and (self._begun or _is_run(self._folders[0])):
            found.runs[""] = self._folders[0]
            return found
        for folder in self._folders:
            before = folder.name if len(self._folders) > 1 else ""
            for path, feed in self._walk(folder, DEEPEST, found):
                below = path.relative_to(folder).as_posix()
                name = "/".join(part for part in (before, "" if below == "." else below) if part)
                while name in found.runs or name in found.experiments:  # two folders of one name
                    name += "~"
                if feed:
                    found.experiments[name] = path, feed
                else:
                    found.runs[name] = path
        return found

    def run(self, run: str) -> RunFeed:
        if path := self._find().runs.get(run):
            return self._begun or WatchedRun(path, run)
        raise NotHereError(
            f"there is no run {run[:80]!r} here; the start page lists those that are"
        )

    def experiment(self, experiment: str) -> object:
        for name, (path, feed) in self._find().experiments.items():
            if view := feed.view(path, name, experiment):
                return view
        raise NotHereError(f"there is no experiment {experiment[:80]!r} here")

    def _walk(
        self, folder: Path, depth: int, found: _Found
    ) -> Iterator[tuple[Path, ExperimentFeed | None]]:
        """Yield the runs below a folder, and folders of other feeds; a run has no other inside."""
        found.looked_into += 1
        if found.looked_into > MOST_FOLDERS:
            return
        if _is_run(folder):
            yield folder, None
            return
        try:
            inside = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
            folders = [each for each in inside if each.is_dir() and not each.is_symlink()]
        except OSError:
            return
        yield from ((folder, feed) for feed in self._feeds if feed.is_here(folder))
        for each in folders if depth else ():
            yield from self._walk(each, depth - 1, found)


def _is_run(folder: Path) -> bool:
    return (folder / "recipe.json").is_file()
