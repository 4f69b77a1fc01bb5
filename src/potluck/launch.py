"""A whole run on this machine: every node of the recipe in one process, phase by phase.

One thread, so the same recipe gives the same numbers, and a debugger can follow it.
"""

import json
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
import transformers

from potluck.assemble import (
    first_round,
    go_on_from,
    make_learner,
    make_nodes,
    make_task,
    require_folder,
    require_one_stop,
    require_partners,
    require_room,
)
from potluck.config import RunConfig, as_tree
from potluck.node import Evaluation, Node, Progress, checkpoint, evaluate, step_together
from potluck.node.record import write_whole
from potluck.rollout import HFEngine
from potluck.swarm import problems_of_round

UNBOUNDED = 2**31

# A run has a display of its own; a bar for each file that is loaded or saved only tears it.
transformers.logging.disable_progress_bar()


class Display(Protocol):
    """Where a run says how far it is. Called often; takes no time."""

    def phase(self, node: str, name: str, done: int, total: int) -> None: ...
    def round_done(self, node: str, metrics: dict[str, Any]) -> None: ...
    def evaluated(self, node: str, evaluation: dict[str, Any]) -> None: ...
    def say(self, text: str) -> None: ...


class Silent:
    """Says nothing: the display of ``run`` unless it is given one."""

    def phase(self, node: str, name: str, done: int, total: int) -> None: ...
    def round_done(self, node: str, metrics: dict[str, Any]) -> None: ...
    def evaluated(self, node: str, evaluation: dict[str, Any]) -> None: ...
    def say(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class RunResult:
    folder: Path
    rounds: int
    """Rounds done, those before a resume included."""
    interrupted: bool
    """Whether Ctrl-C ended it; a checkpoint stands, and ``resume`` goes on."""
    accuracy: Mapping[str, float]
    """Of each node at the end, on the validation problems; empty if none were asked for."""


def run(
    config: RunConfig,
    folder: Path | str,
    *,
    resume: bool = False,
    display: Display | None = None,
) -> RunResult:
    """Trains every node of ``config`` together, in ``folder``.

    Args:
        folder: must not exist or be empty, unless ``resume``.
        resume: goes on from the newest checkpoint that all nodes have. On the same
            machine, torch and thread count, the whole run then equals an
            uninterrupted one to the bit.

    Raises:
        PotluckError: one of its kinds, see ``types.py``; the message says what to do.
    """
    folder, display = Path(folder), display or Silent()
    if config.threads:
        torch.set_num_threads(config.threads)
    # Nothing is written before everything that can be wrong with a recipe has been looked at.
    require_folder(folder, config, resume)
    task = make_task(config)
    require_partners(config)
    require_room(config, task)
    first = first_round(folder, config) if resume else 0
    learners = {name: make_learner(config, name, folder / name, first) for name in config.node}
    require_one_stop({name: learner.language for name, learner in learners.items()})
    _write_recipe(folder, config)
    if resume:
        display.say(go_on_from(folder, config, first))
    with _interrupts() as interrupted:

        def progress(node: str, phase: str, done: int, total: int) -> None:
            display.phase(node, phase, done, total)
            # Learning changes the model, so it is not broken off half-way.
            if phase != "learn" and interrupted():
                raise _Stopped

        nodes = make_nodes(config, folder, task, learners, progress, first)
        done, stopped = first, False
        try:
            while done < config.rounds:
                if config.evaluation.every and done % config.evaluation.every == 0:
                    _evaluate(nodes, config, done, progress, display, at_end=False)
                _round(nodes, config, done, display)
                done += 1
                if config.checkpoint_every and done % config.checkpoint_every == 0:
                    _save(nodes, done)
                if interrupted():
                    raise _Stopped
            _save(nodes, done)  # whatever happens to the evaluation, what was learned stays
            last = _evaluate(nodes, config, done, progress, display, at_end=True)
        except _Stopped:
            last, stopped = {}, True
        _save(nodes, done)
    accuracy = {name: evaluation.accuracy for name, evaluation in last.items()}
    return RunResult(folder, done, stopped, accuracy)


def _round(nodes: list[Node], config: RunConfig, round: int, display: Display) -> None:
    task = nodes[0].task
    ids = problems_of_round(
        task.ids("train"), seed=config.seed, round=round, count=config.problems_per_round
    )
    reports = step_together(nodes, round, [task.problem(id) for id in ids])
    for node, report in zip(nodes, reports, strict=True):
        display.round_done(node.name, asdict(report))


def _evaluate(
    nodes: list[Node],
    config: RunConfig,
    round: int,
    progress: Progress,
    display: Display,
    *,
    at_end: bool,
) -> dict[str, Evaluation]:
    """Each node's accuracy by itself; returns that on the validation problems."""
    results = {}
    for node in nodes:
        language, wanted = node.learner.language, config.evaluation
        # A limit of its own means it: then only the model's context bounds it further.
        total = UNBOUNDED if wanted.max_new_tokens else config.sampling.max_total_tokens
        engine = HFEngine(
            language,
            max_new_tokens=wanted.max_new_tokens or config.sampling.max_new_tokens,
            max_total_tokens=total,
            rows=config.node[node.name].sampling_rows,
        )

        def moved(done: int, total: int, name: str = node.name) -> None:
            progress(name, "evaluate", done, total)

        line: dict[str, Any] = {"round": round}
        if seen := evaluate(
            language, engine, node.task, "validation", count=wanted.problems, progress=moved
        ):
            line |= {"validation": seen.accuracy, "problems": seen.problems}
            results[node.name] = seen
        if at_end and (
            other := evaluate(
                language,
                engine,
                node.task,
                "out-of-distribution",
                count=wanted.out_of_distribution,
                progress=moved,
            )
        ):
            line |= {"out_of_distribution": other.accuracy}
            line |= {"out_of_distribution_problems": other.problems}
        if len(line) > 1:
            node.record.add("evaluation", [line])
            display.evaluated(node.name, line)
    return results


def _save(nodes: list[Node], done: int) -> None:
    for node in nodes:
        folder = node.record.folder
        if done not in checkpoint.rounds_saved(folder):
            checkpoint.save(folder, done, node.learner.language, node.learner.optimizer)


def _write_recipe(folder: Path, config: RunConfig) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "recipe.json", (json.dumps(as_tree(config), indent=2) + "\n").encode())


class _Stopped(Exception):
    """Ctrl-C at a moment when nothing is half done."""


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Makes the first Ctrl-C a wish that the loop asks for; the second one is the usual."""
    wished = False

    def wish(signal_number: int, frame: FrameType | None) -> None:
        nonlocal wished
        if wished:
            raise KeyboardInterrupt
        wished = True

    # A scheduler that wants its machine back says SIGTERM.
    wishes = (signal.SIGINT, signal.SIGTERM)
    try:
        before = {wanted: signal.signal(wanted, wish) for wanted in wishes}
    except ValueError:  # not the main thread: whoever runs that one decides
        yield lambda: False
        return
    try:
        yield lambda: wished
    finally:
        for wanted, handler in before.items():
            signal.signal(wanted, handler)
