"""The origins of cells: base models, made by a script where they are missing, and code.

Has the code that a cell ran changed since? Git tells. The first cells did not record the commit of
their code: theirs is the one that brought their file, at which the code was the one that they ran.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import NamedTuple

import potluck
from potluck_experiments.cells import CellSpec, cells_of
from potluck_experiments.results import CellResult, read_result, result_file
from potluck_experiments.suite import ExperimentError, Suite

STEP = re.compile(r"step (\d+)/(\d*[1-9]\d*)")
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


def missing_bases(suite: Suite, cells: Sequence[CellSpec]) -> list[str]:
    """Return the folders that the cells' nodes name and that do not exist, by name."""
    made = [cell for cell in cells if suite.scales[cell.scale].bases]
    models = {node.model for cell in made for node in cell.config.node.values()}
    root = suite.folder.resolve().parent
    return sorted(m for m in models if ":" not in m and not (root / m).is_dir())


def make_missing_bases(
    suite: Suite, cells: Sequence[CellSpec], *, jobs: int, say: Callable[[str], None]
) -> None:
    """Run the scale's script for each, ``jobs`` at a time. Ctrl-C reaches the scripts, too."""
    missing, script = missing_bases(suite, cells), suite.scales[cells[0].scale].bases
    if missing:
        say(f"making {len(missing)} base models, once: {', '.join(missing)}")
    with ThreadPoolExecutor(jobs) as pool:
        make = partial(_make, suite.folder.resolve().parent, script, say)
        for model in pool.map(make, missing):
            say(f"made {model}")


def _make(root: Path, script: str, say: Callable[[str], None], model: str) -> str:
    """Make one beside its place, so that a half of one is never taken for it; tell how far it is,
    which the script says in lines such as "step 70/700"."""
    place = root / model
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as beside:
        script_run = subprocess.Popen(
            [sys.executable, script, beside, "--only", place.name], cwd=root,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0"}, text=True,
            stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, errors="replace",
        )  # fmt: skip
        last = "it said nothing"
        with script_run:
            for line in filter(str.strip, script_run.stdout or ()):
                last = line.strip()
                if step := STEP.fullmatch(last):
                    say(f"{model}: {int(step[1]) / int(step[2]):.0%}")
        made = Path(beside) / place.name
        if script_run.returncode or not made.is_dir():
            raise ExperimentError(
                f"cannot make {model}: {script} ended with code {script_run.returncode}: {last}"
            )
        with suppress(OSError):  # another command was faster
            made.rename(place)
    return model


def require_same_bases(suite: Suite, cells: Sequence[CellSpec]) -> None:
    """Refuse to run cells beside finished ones that began from different models: a script makes
    others elsewhere, as sums of floats depend on the machine."""
    root, scale = suite.folder.resolve().parent, cells[0].scale
    named = {(c.family, name): n.model for c in cells for name, n in c.config.node.items()}
    digests = {model: base_digest(model, root) for model in set(named.values())}
    replaced = {cell.name for cell in cells}
    for cell in cells_of(suite, suite.experiments, scale, suite.scales[scale].seeds):
        result = None if cell.name in replaced else read_result(suite.folder, cell)
        for name, node in result.node.items() if result else ():
            model = named.get((cell.family, name))
            if model and node.base != digests[model]:
                raise ExperimentError(
                    f"{model} ({digests[model]}) is another model than the finished cell "
                    f"{cell.name} began from ({node.base}), so they cannot be compared; bring that "
                    f"one back, run every cell with this one (--all --again), or do so in a copy "
                    f"of {suite.folder} beside it, without its cells (--experiments)"
                )


def base_digest(model: str, root: Path = Path()) -> str:
    """Return 16 hex digits over the weights of a model's folder; any other name as it is."""
    weights, files = hashlib.sha256(), sorted((root / model).glob("*.safetensors"))
    for file in files:
        with file.open("rb") as stream:
            hashlib.file_digest(stream, lambda: weights)
    return weights.hexdigest()[:16] if files else model


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
    changed = cache(partial(_changed, root))
    for cell, result in cells:
        file = result_file(folder, cell).resolve().relative_to(root).as_posix()
        files = changed(result.commit or brought.get(file, UNKNOWN))
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
    found: dict[str, str] = {}
    words = ("log", "--format=commit %H", "--name-only", "--relative", "--", str(folder.resolve()))
    for part in "\n".join(["", *(_git(root, *words) or ())]).split("\ncommit ")[1:]:
        commit, *files = part.splitlines()
        found = dict.fromkeys(files, commit) | found
    return found


def _git(root: Path, *words: str) -> list[str] | None:
    """Return the lines that git prints; None where it fails or is not installed."""
    try:
        command = ["git", "-C", str(root), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else [line for line in done.stdout.splitlines() if line]
