"""One cell, from its recipe to its result, in a process of its own.

    runs/reproduce/SCALE/NAME          the run's folder; removed when the result is written
    runs/reproduce/SCALE/NAME.begun    what it was begun with; locked while it is worked on
    runs/reproduce/SCALE/NAME.log      what the process said; removed when all went well

Imported by the runner, so torch is imported only in the functions that the process runs.
"""

import fcntl
import json
import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec.structs import replace

from potluck.config import RunConfig, as_tree, from_tree
from potluck.reproduce.cells import Cell
from potluck.reproduce.result import CellResult, read_result, result_file
from potluck.reproduce.suite import Scale
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
    stale_again: bool
    """Whether a result of other code is run again."""
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
    stale_again: bool,
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
        stale_again,
        keep_run,
    )


def is_finished(
    experiments: Path, cell: Cell, code: Mapping[str, str], *, stale_again: bool
) -> bool:
    """Whether its result stands; one that is stale does, unless stale cells are run again."""
    result = read_result(experiments, cell)
    return result is not None and not (stale_again and result.changed_since(code))


def as_run(cell: Cell) -> RunConfig:
    """The recipe as it is run here; the numbers that come out are the same.

    A tiny cell has one thread, as the sum of floats depends on their number, and takes
    minutes, so it is saved at the end and at Ctrl-C only.
    """
    if cell.scale == "tiny":
        return replace(cell.config, threads=1, checkpoint_every=0)
    return cell.config


def work(order: Order, line: Connection) -> None:
    """The process. Says on ``line``: ("busy" | "begun" | "round" | "done" | "stopped" |
    "failed", what)."""
    os.setpgid(0, 0)  # Ctrl-C in a terminal reaches the runner alone, which hands it on once
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.chdir(order.experiments.parent)
    place = order.runs / order.scale
    place.mkdir(parents=True, exist_ok=True)
    cell = order.cell
    with _locked(place / f"{cell.name}.begun") as begun:
        if begun is None:
            line.send(("busy", None))
        elif is_finished(order.experiments, cell, order.code, stale_again=order.stale_again):
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
        if not order.keep_run:
            shutil.rmtree(folder)
            log.unlink()
            Path(begun.name).unlink()
        line.send(("done", {name: node.greedy[-1] for name, node in result.node.items()}))


def _run(
    order: Order, cell: Cell, folder: Path, begun: IO[str], line: Connection
) -> CellResult | None:
    """None: it was asked to stop."""
    from potluck.launch import run
    from potluck.reproduce.work.collect import base_digests, collect

    config, bases = as_run(cell), base_digests(cell.config)
    circumstances = {"recipe": cell.digest, "code": dict(order.code), "bases": bases}
    spent_s = _go_on(folder, config, begun, circumstances)
    _note(begun, circumstances, spent_s)  # of a run that is killed the rest is not known
    resume = folder.exists()
    result = run(config, folder, resume=resume, display=_Told(line, config))
    spent_s += time.process_time()
    _note(begun, circumstances, spent_s)
    if result.interrupted:
        return None
    return collect(cell, folder, bases=bases, code=order.code, cpu_s=spent_s)


def _go_on(
    folder: Path, config: RunConfig, begun: IO[str], circumstances: Mapping[str, Any]
) -> float:
    """CPU seconds that the run has taken so far; one that cannot go on is removed.

    It cannot without a checkpoint of all nodes, or where recipe, code or base models
    are others now.
    """
    from potluck.assemble import first_round

    with suppress(ValueError, TypeError, KeyError):
        begun.seek(0)
        was = json.load(begun)
        spent_s = float(was.pop("cpu_s"))
        if was == circumstances and first_round(folder, config):
            return spent_s
    if folder.exists():
        shutil.rmtree(folder)
    return 0.0


def _note(begun: IO[str], circumstances: Mapping[str, Any], spent_s: float) -> None:
    begun.seek(0)
    begun.truncate()
    json.dump({**circumstances, "cpu_s": spent_s}, begun)
    begun.flush()


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


@contextmanager
def _locked(path: Path) -> Iterator[IO[str] | None]:
    """The file, ours alone until this process ends; None: it is another one's."""
    while True:
        with path.open("a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
                return
            # Who held it before us may have removed it since we opened it.
            if _is_at(file, path):
                yield file
                return


def _is_at(file: IO[str], path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


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
