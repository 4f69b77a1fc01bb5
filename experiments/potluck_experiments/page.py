"""Cells on the page of ``potluck watch``, which finds this module by its entry point.

An experiment there is one family of a scale, from cells/<scale>/<name>.json: its cells are compared
with each other. While cells run, progress.json beside them tells how many there will be. The page
is page.js.
"""

import time
from importlib.resources import files
from itertools import islice
from pathlib import Path

import msgspec

from potluck.reports.tail import DAMAGED, read_small
from potluck.show.web.views import Columns, ExperimentEntry

PROGRESS = "progress.json"
MOST_CELLS = 5000
CELL_BYTES = 4 << 20
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


class _Cell(msgspec.Struct):
    family: str
    models: list[str]
    setting: str
    seed: int
    node: dict[str, _Node] = {}


class _Progress(msgspec.Struct):
    """Contents of progress.json."""

    total: dict[str, int]
    """Cells planned, by family."""
    running: list[str] = []
    time_s: float = 0.0


_decode_cell = msgspec.json.Decoder(_Cell).decode


def script() -> str:
    return (files("potluck_experiments") / "page.js").read_text(encoding="utf-8")


def is_here(folder: Path) -> bool:
    """Tell if this is a folder of one scale's cells."""
    return folder.parent.name == "cells" and any(folder.glob("*.json"))


def entries(folder: Path, name: str) -> list[ExperimentEntry]:
    """Return a line for each family that has cells in ``folder``, or will have."""
    progress = _progress(folder)
    cells: dict[str, list[Path]] = {}
    for file in _files(folder):
        cells.setdefault(_family_of(file.name), []).append(file)
    found = []
    for family in sorted({*cells, *(progress.total if progress else ())}):
        files, running = cells.get(family, []), progress.running if progress else []
        found.append(
            ExperimentEntry(
                experiment=_id(name, family),
                name=f"{folder.name}: {family}",
                done=len(files),
                total=progress.total.get(family) if progress else None,
                running=[each for each in running if _family_of(each) == family],
                changed_s=max(map(_changed_s, files), default=None),
            )
        )
    return found


def view(folder: Path, name: str, experiment: str) -> ExperimentView | None:
    """Return the curves of the family with this id; None if this folder has none of it."""
    cells = []
    for file in _files(folder):
        family = _family_of(file.name)
        if _id(name, family) != experiment:
            continue
        data = read_small(file, CELL_BYTES)
        try:
            cell = _decode_cell(data) if data else None
        except DAMAGED:
            continue
        if cell:
            cells.append(_curves(cell))
    if not cells:
        return None
    return ExperimentView(name=f"{folder.name}: {experiment.rpartition(':')[2]}", cells=cells)


def _id(name: str, family: str) -> str:
    return f"{name}:{family}"


def _family_of(file: str) -> str:
    """Return the first part of a cell's name: FAMILY.MODELS.SETTING.SEED.json."""
    return file.partition(".")[0]


def _files(folder: Path) -> list[Path]:
    found = (each for each in sorted(folder.glob("*.json")) if each.name != PROGRESS)
    return list(islice(found, MOST_CELLS))


def _changed_s(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _progress(folder: Path) -> _Progress | None:
    data = read_small(folder / PROGRESS, CELL_BYTES)
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
