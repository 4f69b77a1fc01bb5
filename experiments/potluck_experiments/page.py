"""Cells on the page of ``potluck watch``, which finds this module by its entry point.

An experiment there is one family of a scale, cells/<scale>/<family>.jsonl, a line a cell: its cells
are compared with each other. While cells run, progress.json beside them tells how many there will
be. The page is page.js.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec

from potluck.reports.tail import DAMAGED, read_small
from potluck.show.web.views import Columns, ExperimentEntry

PROGRESS = "progress.json"
MOST_CELLS = 5000
FILE_BYTES = 64 << 20
STALE_S = 60.0
"""Age from which a progress.json is what a killed command has left; it is written more often."""


class CellCurves(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of an experiment."""

    group: str
    """Cells of one group are compared: family, models, as "size: digits-large + digits-small"."""
    setting: str
    seed: int
    nodes: dict[str, Columns]
    """Columns of each node: round, sampled, tokens, seconds; and, shorter, greedy_round, greedy."""


class ExperimentView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    cells: list[CellCurves]


class _Node(msgspec.Struct):
    eval_rounds: list[float] = []
    greedy: list[float | None] = []
    sampled: list[float | None] = []
    tokens: list[float | None] = []
    seconds: list[float | None] = []


class _Name(msgspec.Struct, frozen=True):
    family: str
    models: tuple[str, ...]
    setting: str
    seed: int


class _Cell(_Name, frozen=True):
    node: dict[str, _Node] = {}


class _Progress(msgspec.Struct):
    """Contents of progress.json."""

    total: dict[str, int]
    """Cells planned, by family."""
    running: list[str] = []
    time_s: float = 0.0


Kind = TypeVar("Kind", bound=_Name)


def script() -> str:
    return (files("potluck_experiments") / "page.js").read_text(encoding="utf-8")


def is_here(folder: Path) -> bool:
    """Tell if this is a folder of one scale's cells."""
    return folder.parent.name == "cells" and any(folder.glob("*.json*"))


def entries(folder: Path, name: str) -> list[ExperimentEntry]:
    """Return a line for each family that has cells in ``folder``, or will have."""
    progress = _progress(folder)
    files = {file.stem: file for file in sorted(folder.glob("*.jsonl"))}
    found = []
    for family in sorted({*files, *(progress.total if progress else ())}):
        file, running = files.get(family), progress.running if progress else []
        found.append(
            ExperimentEntry(
                experiment=_id(name, family),
                name=f"{folder.name}: {family}",
                done=_count(file) if file else 0,
                total=progress.total.get(family) if progress else None,
                running=[cell for cell in running if cell.partition(".")[0] == family],
                changed_s=_changed_s(file) if file else None,
            )
        )
    return found


def view(folder: Path, name: str, experiment: str) -> ExperimentView | None:
    """Return the curves of the family with this id; None if this folder has none of it."""
    for file in sorted(folder.glob("*.jsonl")):
        if _id(name, file.stem) == experiment:
            last = {_key(cell): cell for cell in _cells(file, _Cell)}
            cells = [_curves(last[key]) for key in islice(sorted(last), MOST_CELLS)]
            return ExperimentView(name=f"{folder.name}: {file.stem}", cells=cells)
    return None


def _id(name: str, family: str) -> str:
    return f"{name}:{family}"


def _key(cell: _Name) -> tuple[str, tuple[str, ...], str, int]:
    return cell.family, cell.models, cell.setting, cell.seed


def _cells(file: Path, kind: type[Kind]) -> Iterator[Kind]:
    """Yield the cells of a file, one that was run again twice; damaged lines are left out."""
    decode = msgspec.json.Decoder(kind).decode
    for line in (read_small(file, FILE_BYTES) or b"").splitlines():
        with suppress(*DAMAGED):
            yield decode(line)


def _count(file: Path) -> int:
    """Count the cells of a file."""
    try:
        about = file.stat()
    except OSError:
        return 0
    return _count_once(file, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=256)
def _count_once(file: Path, changed_ns: int, size: int) -> int:
    """Count them once, unless the file changes."""
    return len({_key(cell) for cell in _cells(file, _Name)})


def _changed_s(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _progress(folder: Path) -> _Progress | None:
    data = read_small(folder / PROGRESS, FILE_BYTES)
    try:
        found = msgspec.json.decode(data, type=_Progress) if data else None
    except DAMAGED:
        return None
    return found if found and time.time() - found.time_s < STALE_S else None


def _curves(cell: _Cell) -> CellCurves:
    return CellCurves(
        group=f"{cell.family}: {' + '.join(cell.models)}",
        setting=cell.setting,
        seed=cell.seed,
        nodes={name: _columns(node) for name, node in cell.node.items()},
    )


def _columns(node: _Node) -> Columns:
    return {
        "round": [float(at) for at in range(len(node.sampled))],
        "sampled": node.sampled,
        "tokens": node.tokens,
        "seconds": node.seconds,
        "greedy_round": list(node.eval_rounds),
        "greedy": node.greedy,
    }
