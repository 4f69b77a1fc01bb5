"""Base models that experiments begin with, made by a script where they are missing."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from potluck.reproduce.cells import Cell, cells_of
from potluck.reproduce.result import read_result
from potluck.reproduce.suite import ExperimentError, Suite
from potluck.reproduce.work.collect import base_digest
from potluck.signals import interrupts


@dataclass(slots=True)
class _Making:
    model: str
    place: Path
    """Where it is to be."""
    beside: Path
    """Where it is made, so that a half of one is never taken for it."""
    process: subprocess.Popen[bytes]
    log: IO[bytes]


def missing_bases(suite: Suite, cells: Sequence[Cell]) -> list[str]:
    """Folders that the cells' nodes name and that are not there, in the order of their names."""
    root = suite.folder.resolve().parent
    scales = {cell.scale for cell in cells if suite.scales[cell.scale].bases}
    models = {
        node.model for cell in cells if cell.scale in scales for node in cell.config.node.values()
    }
    return sorted(m for m in models if ":" not in m and not (root / m).is_dir())


def make_missing_bases(
    suite: Suite, cells: Sequence[Cell], *, jobs: int, say: Callable[[str], None]
) -> None:
    """Runs the scale's script for each, ``jobs`` at a time: ``python SCRIPT FOLDER --only NAME``.

    Raises:
        ExperimentError: the script failed; with its last words.
        KeyboardInterrupt: Ctrl-C or SIGTERM; the scripts are gone, and so are halves of models.
    """
    waiting = missing_bases(suite, cells)
    if not waiting:
        return
    root = suite.folder.resolve().parent
    script = suite.scales[cells[0].scale].bases
    if not (root / script).is_file():
        raise ExperimentError(
            f"there is no model {waiting[0]}, and no script {root / script} that makes it; "
            f"'bases' in {cells[0].scale}.toml names it"
        )
    say(f"making {len(waiting)} base models, once: {', '.join(waiting)}")
    with interrupts() as interrupted:
        _make_all(root, script, waiting, jobs, say, interrupted)


def _make_all(
    root: Path,
    script: str,
    waiting: list[str],
    jobs: int,
    say: Callable[[str], None],
    interrupted: Callable[[], bool],
) -> None:
    running: list[_Making] = []
    try:
        while waiting or running:
            if interrupted():
                raise KeyboardInterrupt
            while waiting and len(running) < jobs:
                running.append(_start(root, script, waiting.pop(0)))
            for one in running:
                if one.process.poll() is not None:
                    running.remove(one)
                    _take(one, script, say)
                    break
            else:
                time.sleep(0.2)
    finally:
        for one in running:
            one.process.kill()
            one.process.wait()
            _forget(one)


def require_same_bases(suite: Suite, cells: Sequence[Cell]) -> None:
    """What is compared has to begin from the same models, and a script makes others elsewhere:
    sums of floats depend on the machine.

    Args:
        cells: those that are to be run.

    Raises:
        ExperimentError: another, finished cell of the scale began from another model than is here.
    """
    root, scale = suite.folder.resolve().parent, cells[0].scale
    here = {
        (cell.family, name): (node.model, base_digest(node.model, root))
        for cell in cells
        for name, node in cell.config.node.items()
    }
    replaced = {cell.name for cell in cells}
    for cell in cells_of(suite, suite.experiments, scale, suite.scales[scale].seeds):
        result = None if cell.name in replaced else read_result(suite.folder, cell)
        for name, node in result.node.items() if result else ():
            model, digest = here.get((cell.family, name), ("", node.base))
            if node.base != digest:
                raise ExperimentError(
                    f"{model} ({digest}) is another model than the finished cell {cell.name} began "
                    f"from ({node.base}), so they cannot be compared; bring that one back, run "
                    f"every cell with this one (--all --again), or do so in a copy "
                    f"of {suite.folder} beside it, without its cells (--experiments)"
                )


def _start(root: Path, script: str, model: str) -> _Making:
    place = root / model
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    log = (beside / "log").open("w+b")
    process = subprocess.Popen(
        [sys.executable, script, str(beside), "--only", place.name],
        cwd=root,
        env={**os.environ, "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0"},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        process_group=0,  # Ctrl-C reaches us alone
    )
    return _Making(model, place, beside, process, log)


def _take(one: _Making, script: str, say: Callable[[str], None]) -> None:
    try:
        made = one.beside / one.place.name
        if one.process.returncode or not made.is_dir():
            one.log.seek(0)
            words = one.log.read().decode(errors="replace").strip().splitlines()
            raise ExperimentError(
                f"cannot make {one.model}: {script} ended with code {one.process.returncode}: "
                f"{words[-1] if words else 'it said nothing'}"
            )
        try:
            made.rename(one.place)
        except OSError:
            if not one.place.is_dir():  # else another command was faster
                raise
        say(f"made {one.model}")
    finally:
        _forget(one)


def _forget(one: _Making) -> None:
    one.log.close()
    shutil.rmtree(one.beside, ignore_errors=True)
