"""One cell, from its recipe to its result, in a process of its own.

    runs/reproduce/SCALE/NAME          the run's folder; removed when the result is written
    runs/reproduce/SCALE/NAME.begun    what it was begun with; locked while it is worked on
    runs/reproduce/SCALE/NAME.log      what the process said; removed when all went well
    runs/reproduce/SCALE/NAME.before   of paper scale: a half of a run that could not go on

Imported by the runner, so torch is imported only in the functions that the process runs.
"""

import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec.structs import replace

from potluck.config import RunConfig, as_tree, from_tree
from potluck.reproduce.cells import Cell
from potluck.reproduce.result import CellResult, result_file
from potluck.reproduce.suite import Scale
from potluck.reproduce.work.begun import go_on, make_room, note
from potluck.reproduce.work.estimates import Keeps, is_to_run, state_of
from potluck.reproduce.work.lock import locked
from potluck.types import PotluckError


@dataclass(frozen=True, slots=True)
class Order:
    """What a process is to run: a cell as plain data, and where everything is."""

    scale: Scale
    family: str
    models: tuple[str, ...]
    setting: str
    seed: int
    recipe: dict[str, Any]
    digest: str
    experiments: Path
    """The suite's folder. Models' folders are looked up from its parent on."""
    runs: Path
    code: Mapping[str, str]
    """Digests of the code that runs, see ``code_digests``."""
    keeps: Keeps
    keep_run: bool

    @property
    def cell(self) -> Cell:
        config = from_tree(self.recipe)
        return Cell(
            self.scale, self.family, self.models, self.setting, self.seed, config, self.digest
        )


def order(
    cell: Cell,
    *,
    experiments: Path,
    runs: Path,
    code: Mapping[str, str],
    keeps: Keeps,
    keep_run: bool,
) -> Order:
    return Order(
        cell.scale,
        cell.family,
        cell.models,
        cell.setting,
        cell.seed,
        as_tree(cell.config),  # a RunConfig cannot be sent to another process
        cell.digest,
        experiments.resolve(),
        runs.resolve(),
        dict(code),
        keeps,
        keep_run,
    )


def as_run(cell: Cell) -> RunConfig:
    """The recipe as it is run here; the numbers that come out are the same.

    A tiny cell has one thread of the CPU, whatever else the machine has, as the sum of floats
    depends on where it is taken. It takes seconds, so it is saved at the end and at Ctrl-C only.
    """
    if cell.scale == "tiny":
        nodes = {name: replace(node, device="cpu") for name, node in cell.config.node.items()}
        return replace(cell.config, node=nodes, threads=1, checkpoint_every=0)
    return cell.config


def work(order: Order, line: Connection) -> None:
    """The process. Says on ``line``: ("busy" | "begun" | "say" | "round" | "done" |
    "stopped" | "failed", what)."""
    os.setpgid(0, 0)  # Ctrl-C in a terminal reaches the runner alone, which hands it on once
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        os.chdir(order.experiments.parent)
        _work(order, order.cell, line)
    except (PotluckError, OSError) as error:  # the place, or a result that cannot be read
        line.send(("failed", str(error)))


def _work(order: Order, cell: Cell, line: Connection) -> None:
    place = order.runs / order.scale
    place.mkdir(parents=True, exist_ok=True)
    with locked(place / f"{cell.name}.begun") as begun:
        if begun is None:
            line.send(("busy", None))
        elif not is_to_run(state_of(order.experiments, cell, order.code), order.keeps):
            line.send(("done", None))  # another command was faster
        else:
            log = place / f"{cell.name}.log"
            _speak_into(log)
            _run_and_tell(order, cell, place / cell.name, begun, log, line)


def _run_and_tell(
    order: Order, cell: Cell, folder: Path, begun: IO[str], log: Path, line: Connection
) -> None:
    try:
        result = _run(order, cell, folder, begun, line)
        if result:
            _write(order, cell, result)
    except (PotluckError, OSError) as error:
        print(error, file=sys.stderr, flush=True)
        line.send(("failed", str(error)))
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        line.send(("failed", f"{type(error).__name__}: {error} (all: {log})"))
    else:
        if result is None:
            line.send(("stopped", None))
            return
        line.send(("done", {name: node.greedy[-1] for name, node in result.node.items()}))
        _clear(begun, [] if order.keep_run else [folder, log])


def _clear(begun: IO[str], rest: Sequence[Path]) -> None:
    """The result is written, so what cannot be removed fails nothing."""
    try:
        begun.truncate(0)  # whoever runs the cell again does not go on with this run
        for path in rest:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        Path(begun.name).unlink()
    except OSError as error:
        print(f"cannot clear away: {error}", file=sys.stderr, flush=True)  # into the log


def _run(
    order: Order, cell: Cell, folder: Path, begun: IO[str], line: Connection
) -> CellResult | None:
    """None: it was asked to stop."""
    from potluck.launch import run
    from potluck.reproduce.work.collect import base_digests, collect

    config, bases = as_run(cell), base_digests(cell.config)
    circumstances = {"recipe": cell.digest, "code": dict(order.code), "bases": bases}
    spent_s, hindrance = go_on(folder, config, begun, circumstances)
    if hindrance:
        what = make_room(folder, cell.scale)
        line.send(("say", f"{cell.name}: {what}, as it cannot go on: {hindrance}"))
    note(begun, circumstances, spent_s)  # of a run that is killed the rest is not known
    resume = folder.exists()
    result = run(config, folder, resume=resume, display=_Told(line, config))
    spent_s += time.process_time()
    note(begun, circumstances, spent_s)
    if result.interrupted:
        return None
    return collect(cell, folder, bases=bases, code=order.code, cpu_s=spent_s)


def _write(order: Order, cell: Cell, result: CellResult) -> None:
    from potluck.node.record import write_whole

    path = result_file(order.experiments, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, msgspec.json.encode(result) + b"\n")


class _Told:
    """A display that tells the runner of every round of the last node, which ends it."""

    def __init__(self, line: Connection, config: RunConfig) -> None:
        self._line, self._last = line, list(config.node)[-1]
        self._begun = False

    def phase(self, node: str, name: str, done: int, total: int) -> None:
        if not self._begun:  # from here on Ctrl-C is a wish to the run
            self._begun = True
            self._line.send(("begun", None))

    def round_done(self, node: str, metrics: dict[str, Any]) -> None:
        if node == self._last:
            self._line.send(("round", metrics["round"] + 1))

    def evaluated(self, node: str, evaluation: dict[str, Any]) -> None: ...

    def say(self, text: str) -> None:
        print(text, flush=True)  # into the log


def _end_with_parent() -> None:
    """A runner that was killed can tell its processes nothing; what they do is wanted by nobody."""
    parent = parent_process()
    assert parent
    parent.join()
    os._exit(1)


def _speak_into(log: Path) -> None:
    """Whatever this process says, libraries in C included, goes to a file."""
    with log.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
