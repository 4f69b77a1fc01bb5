"""One cell, from its recipe to its result, in a process of its own. It imports torch.

Beside the run's folder, runs/reproduce/SCALE/NAME, stand .json (its origin), .log (the output),
.lock (held while a process works on it) and .before (half of a run that could not be resumed).
"""

import os
import platform
import re
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import torch
from filelock import FileLock, Timeout
from msgspec.structs import replace

import potluck
import potluck.reports.events
from potluck import run as run_nodes  # here: its two seconds are the server's, not each cell's
from potluck.evaluation.compare import evaluate_models
from potluck.evaluation.request import EvaluationRequest
from potluck.files import write_atomically
from potluck.reports import RoundReport
from potluck.reports.runs import COMPLETIONS, Run, WrittenCompletion, read_lines
from potluck_experiments.cell_files import (
    IDENTITY,
    CellResult,
    NodeResult,
    NotationCurve,
    add_results,
    cell_file,
    read_result,
)
from potluck_experiments.cells import CellSpec
from potluck_experiments.origin import Code, base_digest
from potluck_experiments.suite import OF_MINUTES, ExperimentError, Scale

MOST_SAMPLED = 100
"""Validation problems, the first ones, that 8 answers are sampled to."""
NUMBER = {"number": re.compile(r"\s*-?[0-9]+\s*(\n|$)")}
"""What an answer to a problem of the scale real can be: its form, whatever its value."""
NOTATIONS = {
    "digits": {"columns": re.compile(r"[0-9]\+"), "terse": re.compile(r"[0-9]{2}")},
    "jsonl": {  # scripts/word_problems.py
        "prose": re.compile(r" (?!Step [0-9])[A-Z]"),
        "list": re.compile(r" (Step [0-9]|\([0-9]\)|[0-9]\. )"),
    },
}
"""Beginnings of an answer that tell its notation, by task."""


class Origin(msgspec.Struct, frozen=True):
    """The beginnings of a run. A resumed run keeps the code that it was begun with."""

    recipe: str
    bases: dict[str, str]
    code: Code
    cpu_s: float = 0.0  # Core time so far; that of a run that was killed is not known


class Work(msgspec.Struct, frozen=True):
    """A cell to run, where, and how."""

    cell: CellSpec
    experiments: Path
    runs: Path
    code: Code
    again: bool  # Whether a result that is there already is to be replaced
    keep_run: bool

    @property
    def folder(self) -> Path:
        return self.runs / self.cell.scale / self.cell.name


def run_cell(work: Work, line: Connection, stop: Event) -> None:
    """Run a cell and send its end: ("done" | "busy" | "stopped" | "failed", text); before that
    ("say", text) and ("round", rounds done). ``stop`` asks the run to save itself and end."""
    os.chdir(work.experiments.parent)  # recipes name models from there on
    try:
        work.folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{work.folder}.lock", timeout=0):
            if read_result(work.experiments, work.cell) and not work.again:
                line.send(("done", "done"))  # another command was faster
                return
            with open(f"{work.folder}.log", "ab") as log:  # output of libraries in C, too
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            line.send(_run(work, line, stop))
    except Timeout:
        line.send(("busy", "another command is running it; left to that one"))
    except (potluck.PotluckError, OSError) as error:
        print(error, file=sys.stderr, flush=True)
        line.send(("failed", str(error)))
    except Exception as error:
        traceback.print_exc()
        line.send(("failed", f"{type(error).__name__}: {error} (all: {work.folder}.log)"))


def _run(work: Work, line: Connection, stop: Event) -> tuple[str, str]:
    cell, folder, note = work.cell, work.folder, Path(f"{work.folder}.json")
    config = config_of(cell)
    bases = {name: base_digest(config.node[name].model) for name in cell.models}
    fresh = Origin(cell.digest, bases, work.code)
    begun = _resumable(cell, folder, note, fresh)
    if folder.exists() and not begun:
        before = Path(f"{folder}.before")
        shutil.rmtree(before if cell.scale in OF_MINUTES else folder, ignore_errors=True)
        if cell.scale in OF_MINUTES:
            folder.rename(before)
        line.send(("say", f"{cell.name}: half of a run cannot go on, so it is begun anew"))
    origin = begun or fresh
    write_atomically(note, msgspec.json.encode(origin))
    display = LineDisplay(line, stop, cell.models[-1])
    # Of this clone, or its user trusts the other one: potluck_experiments.cli.
    ended = run_nodes(config, folder, resume=bool(begun), display=display, trust_code=True)
    origin = replace(origin, cpu_s=origin.cpu_s + time.process_time())
    write_atomically(note, msgspec.json.encode(origin))
    if ended.interrupted:
        return "stopped", "stopped; the same command goes on with it"
    # In words it would take as long as all that the run wrote.
    sampled = {} if cell.scale == "words" else pass_at_8(cell, folder)
    result = collect(cell, folder, origin, sampled)
    file = cell_file(work.experiments, cell.scale, cell.family)
    add_results(file, [msgspec.json.encode(result) + b"\n"])
    note.unlink()  # a cell that is run again does not go on with this run
    if not work.keep_run:
        shutil.rmtree(folder, ignore_errors=True)
        Path(f"{folder}.log").unlink(missing_ok=True)
    return "done", ", ".join(f"{name} {it.greedy[-1]:.3f}" for name, it in result.node.items())


def config_of(cell: CellSpec) -> potluck.RunConfig:
    """Return the recipe as it is run here: a cell of seconds has one thread of the CPU, as the sum
    of floats depends on where it is taken, and is saved at the end only."""
    if cell.scale in OF_MINUTES:
        return cell.config
    learners = {name: replace(cell.config.node[name], device="cpu") for name in cell.models}
    nodes = {**cell.config.node, **learners}
    return replace(cell.config, node=nodes, threads=1, checkpoint_every=0)


def _resumable(cell: CellSpec, folder: Path, note: Path, fresh: Origin) -> Origin | None:
    """Return the origin of half a run that can go on: saved, of the same cell, and of a scale whose
    cells take minutes."""
    saved = all(any((folder / name / "checkpoints").glob("*")) for name in fresh.bases)
    if cell.scale not in OF_MINUTES or not saved or not note.exists():
        return None
    was = msgspec.json.decode(note.read_bytes(), type=Origin)
    return was if (was.recipe, was.bases) == (fresh.recipe, fresh.bases) else None


class LineDisplay:
    """A display that reports the rounds of the last model, which ends each, and heeds ``stop``."""

    def __init__(self, line: Connection, stop: Event, last: str) -> None:
        self.line, self.stop, self.last, self.asked = line, stop, last, False

    def show(self, event: potluck.reports.events.Event) -> None:
        match event:
            case potluck.reports.events.RoundDone(node=self.last):
                self.line.send(("round", 1))
        if isinstance(event, potluck.reports.events.Told):
            print(event.text, flush=True)  # into the log
        if self.stop.is_set() and not self.asked:
            self.asked = True
            os.kill(os.getpid(), signal.SIGINT)  # the run saves itself, as at Ctrl-C


def pass_at_8(cell: CellSpec, folder: Path) -> dict[str, float]:
    """Return the chance that one of 8 answers to a validation problem is right, by model."""
    found, problems = {}, min(MOST_SAMPLED, cell.config.evaluation.problems)
    for name in cell.models:
        asked = EvaluationRequest(
            str(folder / name), recipe=folder, overrides=[f"evaluation.problems={problems}"],
            split="validation", k=8, trust_code=True,
        )  # fmt: skip
        report = evaluate_models(asked, progress=lambda *_: None)
        (measure,) = (m for m in report["splits"][0]["measures"] if m["measure"] == "pass@8")
        found[name] = round(measure["A"]["value"], 6)
    return found


def collect(
    cell: CellSpec, folder: Path, origin: Origin, pass_at_8: Mapping[str, float]
) -> CellResult:
    """Read a finished run folder into the cell's result."""
    run = potluck.read_run(folder)
    return CellResult(
        **{name: getattr(cell, name) for name in IDENTITY},
        recipe=cell.digest,
        commit=origin.code.commit,
        uncommitted=origin.code.uncommitted,
        machine=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        torch=str(torch.__version__),
        cpu_s=round(origin.cpu_s, 1),
        node={
            n.name: _node_result(run, n, origin.bases[n.name], pass_at_8.get(n.name), cell.scale)
            for n in run.nodes
            if n.name in cell.models
        },
    )


def _node_result(
    run: Any, node: Any, base: str, pass_at_8: float | None, scale: Scale
) -> NodeResult:
    rounds, evaluations = node.rounds, node.evaluations
    shares = {
        "sampled": [each.own_reward_mean for each in rounds],
        "greedy": [each.validation for each in evaluations],
        "filtered_share": [each.filtered_share for each in rounds],
    }
    at_end = [each.out_of_distribution for each in evaluations if each.round == run.recipe.rounds]
    whole = [each.round for each in rounds] == list(range(run.recipe.rounds))
    if not (whole and at_end) or None in (at_end[0], *chain(*shares.values())):
        raise ExperimentError(
            f"{run.folder / node.name} tells of {len(rounds)} of {run.recipe.rounds} rounds, or "
            f"lacks rewards or evaluations; an experiment's recipe needs [evaluation] problems and "
            f"out_of_distribution above 0, and enough problems for every node to write in each "
            f"round; remove {run.folder} to run it again"
        )
    own = [each.sources.get(node.name) for each in rounds]
    others = [its for each in rounds for author, its in each.sources.items() if author != node.name]
    spent = [(each.seconds.get("write"), each.seconds.get("learn")) for each in rounds]
    # Six decimals: more say nothing, and make the files twice as long.
    return NodeResult(
        eval_rounds=tuple(each.round for each in evaluations),
        **{name: tuple(round(value, 6) for value in values) for name, values in shares.items()},
        out_of_distribution=round(at_end[0], 6),
        tokens=tuple(source.tokens if source else 0 for source in own),
        seconds=tuple(round(sum(filter(None, both)), 3) for both in spent),
        base=base,
        pass_at_8=pass_at_8,
        others_k1=_mean(its.k1_positive for its in others),
        others_likelihood=_mean(its.likelihood_positive for its in others),
        others_taken=_of_others(rounds, node.name, "success_weight"),
        others_silenced=_of_others(rounds, node.name, "silenced_share"),
        entropy=_by_round(rounds, "entropy"),
        length=_by_round(rounds, "own_length_mean"),
        commonest=_by_round(rounds, "own_commonest_share"),
        groups_alike=_by_round(rounds, "groups_alike"),
        unreadable=tuple(
            sum(chain.from_iterable(reasons.values() for reasons in report.unreadable.values()))
            for report in rounds
        ),
        notations=_notations(run, node.name, scale),
    )


def _by_round(rounds: Sequence[RoundReport], field: str) -> tuple[float | None, ...]:
    """Return a number of each round's report."""
    return tuple(_mean([getattr(report, field)], digits=4) for report in rounds)


def _of_others(rounds: Sequence[RoundReport], me: str, field: str) -> tuple[float | None, ...]:
    """Return a share of the others' successes by round, the mean over authors; empty where it
    is 0 throughout. A run of an older release has none."""
    found = [
        _mean((getattr(its, field, None) for name, its in each.sources.items() if name != me), 3)
        for each in rounds
    ]
    return tuple(found) if any(found) else ()


def _notations(run: Run, me: str, scale: Scale) -> dict[str, NotationCurve]:
    """Count this model's answers, and the right ones, by notation and round."""
    beginnings = NOTATIONS.get(run.recipe.settings.get("task.name", ""), {})
    if scale == "real":
        beginnings = NUMBER
    own = {
        (line.round, line.problem, line.index): line  # a later line replaces an earlier one
        for line in read_lines(run.folder / me / COMPLETIONS, WrittenCompletion)
        if beginnings and line.author == me
    }
    found = {}
    for name, beginning in beginnings.items():
        its = [line for line in own.values() if beginning.match(line.text)]
        written = Counter(line.round for line in its)
        right = Counter(line.round for line in its if line.reward > 0)
        if its:
            curves = ([count[at] for at in range(run.recipe.rounds)] for count in (written, right))
            found[name] = NotationCurve(*map(tuple, curves))
    return found


def _mean(values: Iterable[float | None], digits: int = 6) -> float | None:
    """Return the mean of what was measured."""
    found = [value for value in values if value is not None]
    return round(fmean(found), digits) if found else None
