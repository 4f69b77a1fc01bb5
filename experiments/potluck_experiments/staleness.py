"""Staleness of finished cells, told by git: has the code that a cell ran changed since?

A new cell records the commit of its code. The cells that were run before this was recorded have
the commit that brought their file: at those commits the code was the one that they ran.
"""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import potluck
from potluck_experiments.cells import CellSpec
from potluck_experiments.results import CellResult, result_file

UNKNOWN = "unknown"  # commit of code that is not in this repository: installed from elsewhere
PATHS = tuple(f"src/potluck/{part}" for part in (
    "types.py", "fields.py", "config", "objective", "tasks", "model", "rollout", "schedule.py",
    "node", "builder", "launch", "exchange/memory.py", "exchange/transport.py", "exchange/wire",
))  # fmt: skip
"""Parts of the package that decide a cell's numbers. It runs in one process: no network."""


class Code(NamedTuple):
    """A commit, and the files of PATHS that differed from it."""

    commit: str
    uncommitted: tuple[str, ...] = ()


def code_now(root: Path) -> Code:
    """Return the code that runs here."""
    head = _git(root, "rev-parse", "HEAD")
    is_here = Path(potluck.__file__).resolve().is_relative_to(root.resolve() / "src")
    return Code(head[0], _changed(root, head[0]) or ()) if head and is_here else Code(UNKNOWN)


def changed_since(
    folder: Path, cells: Iterable[tuple[CellSpec, CellResult]]
) -> dict[str, tuple[str, ...] | None]:
    """Return the files that have changed since each cell ran, by its name; None: git cannot tell.
    ``folder`` is ``experiments/`` of a clone."""
    root, found = folder.resolve().parent, {}
    brought = _commits_of_files(root, folder / "cells")
    by_commit: dict[str, tuple[str, ...] | None] = {UNKNOWN: None}
    for cell, result in cells:
        file = result_file(folder, cell).resolve().relative_to(root).as_posix()
        commit = result.commit or brought.get(file, UNKNOWN)
        if commit not in by_commit:
            by_commit[commit] = _changed(root, commit)
        files = by_commit[commit]
        found[cell.name] = None if files is None else (*files, *result.uncommitted)
    return found


def _changed(root: Path, commit: str) -> tuple[str, ...] | None:
    """Return the files of PATHS that differ from a commit, new ones too; None: no such commit."""
    tracked = _git(root, "diff", "--name-only", commit, "--", *PATHS)
    new = _git(root, "ls-files", "--others", "--exclude-standard", "--", *PATHS)
    return None if tracked is None or new is None else tuple(sorted({*tracked, *new}))


def _commits_of_files(root: Path, folder: Path) -> dict[str, str]:
    """Return the last commit of each file; nothing in a clone without its history."""
    if _git(root, "rev-parse", "--is-shallow-repository") != ["false"]:
        return {}
    commit, found = "", dict[str, str]()
    words = ("log", "--format=commit %H", "--name-only", "--relative", "--", str(folder.resolve()))
    for line in _git(root, *words) or ():
        if line.startswith("commit "):
            commit = line.removeprefix("commit ")
        else:
            found.setdefault(line, commit)
    return found


def _git(root: Path, *words: str) -> list[str] | None:
    """Return the lines that git prints; None where it fails or is not installed."""
    try:
        command = ["git", "-C", str(root), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else [line for line in done.stdout.splitlines() if line]
