"""Folders as one feed: the runs and the experiments that are found below them.

An id is a path below the folder that is watched. It is looked up among those that were found, and
never joined to a path, so no id leads out of it.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from potluck.show.web.cells import experiment_entries, read_experiment
from potluck.show.web.entries import run_entry
from potluck.show.web.feed import NotHereError, RunFeed
from potluck.show.web.folder import WatchedRun
from potluck.show.web.views import ExperimentView, RunEntry, StartView
from potluck.types import RunFolderError

MOST_RUNS = 200
MOST_FOLDERS = 5000
"""Folders that are looked into, for all that is watched."""
DEEPEST = 4
"""Levels of folders below the one that is watched."""
FRESH_S = 1.0
"""Age of the start page's data from which they are read again."""


@dataclass(slots=True)
class _Found:
    runs: dict[str, Path] = field(default_factory=dict)
    cells: dict[str, Path] = field(default_factory=dict)
    """Folders of one scale's cells."""
    looked_into: int = 0


class Place:
    """Feed of folders; of one run if that is all there is to see."""

    def __init__(self, folders: Sequence[Path], *, begins: bool = False) -> None:
        self._folders = tuple(folders)
        self._begins = begins
        for folder in folders:
            if not begins and not folder.is_dir():
                raise RunFolderError(
                    f"there is no folder {folder}; name a run, or a folder of runs or experiments "
                    f"(`potluck run` makes runs/NAME)"
                )
        self._lock = threading.Lock()
        self._start: tuple[float, StartView] | None = None
        self._entries: dict[str, tuple[object, RunEntry]] = {}

    def start(self) -> StartView:
        with self._lock:
            now_s = time.monotonic()
            if self._start is None or now_s - self._start[0] > FRESH_S:
                self._start = (now_s, self._read())
            return self._start[1]

    def _read(self) -> StartView:
        found = self._find()
        newest = sorted(found.runs, key=lambda run: _changed_s(found.runs[run]), reverse=True)
        return StartView(
            place="/".join(self._folders[0].absolute().parts[-2:]).lstrip("/"),
            runs=[run_entry(found.runs[run], run, self._entries) for run in newest[:MOST_RUNS]],
            experiments=[
                entry
                for name, folder in found.cells.items()
                for entry in experiment_entries(folder, name)
            ],
            is_cut=len(newest) > MOST_RUNS or found.looked_into >= MOST_FOLDERS,
        )

    def _find(self) -> _Found:
        found = _Found()
        if len(self._folders) == 1 and (self._begins or _is_run(self._folders[0])):
            found.runs[""] = self._folders[0]
            return found
        for folder in self._folders:
            before = folder.name if len(self._folders) > 1 else ""
            for path, kind in _walk(folder, DEEPEST, found):
                below = path.relative_to(folder).as_posix()
                name = "/".join(part for part in (before, "" if below == "." else below) if part)
                where = found.runs if kind == "run" else found.cells
                while name in where:  # two folders of one name
                    name += "~"
                where[name] = path
        return found

    def run(self, run: str) -> RunFeed:
        if path := self._find().runs.get(run):
            return WatchedRun(path, run, begins=self._begins)
        raise NotHereError(
            f"there is no run {run[:80]!r} here; the start page lists those that are"
        )

    def experiment(self, experiment: str) -> ExperimentView:
        for name, path in self._find().cells.items():
            if view := read_experiment(path, name, experiment):
                return view
        raise NotHereError(f"there is no experiment {experiment[:80]!r} here")


def _is_run(folder: Path) -> bool:
    return (folder / "recipe.json").is_file()


def _walk(folder: Path, depth: int, found: _Found) -> Iterator[tuple[Path, str]]:
    """Yield the runs below a folder, and folders of cells; a run has no other one inside."""
    found.looked_into += 1
    if found.looked_into > MOST_FOLDERS:
        return
    if _is_run(folder):
        yield folder, "run"
        return
    try:
        inside = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
        folders = [each for each in inside if each.is_dir() and not each.is_symlink()]
    except OSError:
        return
    if folder.parent.name == "cells" and any(each.suffix == ".json" for each in inside):
        yield folder, "cells"
    for each in folders if depth else ():
        yield from _walk(each, depth - 1, found)


def _changed_s(run: Path) -> float:
    try:
        return max(each.stat().st_mtime for each in (run, *run.glob("*/metrics.jsonl")))
    except OSError:
        return 0.0
