"""A whole run on this machine: every node of the recipe in one process, phase by phase.

One thread, so the same recipe gives the same numbers, and a debugger can follow it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import transformers

from potluck.assemble import (
    first_round,
    go_on_from,
    make_learners,
    make_nodes,
    make_task,
    notes_on,
    require_folder,
    require_one_stop,
    require_partners,
    require_problems,
    require_room,
    require_same_task,
    require_servers,
    require_team,
)
from potluck.config import RunConfig, as_tree
from potluck.node import Evaluation, Node, Progress, checkpoint, evaluate, step_together
from potluck.node.card import card_of
from potluck.node.followers import follow
from potluck.node.record import write_whole
from potluck.node.team import Processes, Save, Stop, Team, assembled
from potluck.signals import interrupts
from potluck.swarm import problems_of_round
from potluck.tasks import Task
from potluck.trackers import About, Tracked, require_trackers
from potluck.types import PotluckError

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
    trust_code: bool = False,
) -> RunResult:
    """Trains every node of ``config`` together, in ``folder``.

    Args:
        folder: must not exist or be empty, unless ``resume``.
        resume: goes on from the newest checkpoint that all nodes have. On the same
            machine, torch and thread count, the whole run then equals an
            uninterrupted one to the bit.
        trust_code: whether functions that ``[[reward]]`` names may be imported and run.

    Raises:
        PotluckError: one of its kinds, see ``types.py``; the message says what to do.
    """
    folder, display = Path(folder), display or Silent()
    if config.threads:
        torch.set_num_threads(config.threads)
    with assembled() as team:
        if isinstance(team, Processes) and team.rank:
            return _follow(team, config, folder)
        try:
            result = _lead(team, config, folder, resume, display, trust_code)
        except (PotluckError, OSError) as error:
            team.call(Stop(error))
            raise
        team.call(Stop(result))
        return result


def _follow(team: Processes, config: RunConfig, folder: Path) -> RunResult:
    """Takes part in what the first process of a node does, and ends as it does."""
    with interrupts() as interrupted:
        outcome = follow(
            team, lambda first: make_learners(config, folder, first, team), interrupted
        )
    if isinstance(outcome, RunResult):
        return outcome
    assert isinstance(outcome, Exception)
    raise outcome


def _lead(
    team: Team,
    config: RunConfig,
    folder: Path,
    resume: bool,
    display: Display,
    trust_code: bool,
) -> RunResult:
    # Nothing is written before everything that can be wrong with a recipe has been looked at.
    require_folder(folder, config, resume)
    require_trackers(config.log.to, wandb_mode=config.log.wandb_mode)
    task = make_task(config, trust_code=trust_code)
    require_problems(config, task)
    require_same_task(folder, task)
    notes = notes_on(config, task)
    require_partners(config)
    lengths = require_room(config, task)
    require_servers(config, longest_prompt=max(lengths))
    require_team(config, team)
    first = first_round(folder, config) if resume else 0
    learners = make_learners(config, folder, first, team)
    require_one_stop({name: learner.language for name, learner in learners.items()})
    _write_recipe(folder, config, task)
    if resume:
        display.say(go_on_from(folder, config, first))
    tracked = Tracked(display, config.log.to, _told(config, folder, first, resume))
    with tracked as display, interrupts() as interrupted:
        for note in notes:
            display.say(note)

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
                    _save(nodes, config, done)
                if interrupted():
                    raise _Stopped
            _save(nodes, config, done)  # whatever happens to the evaluation, what was learned stays
            last = _evaluate(nodes, config, done, progress, display, at_end=True)
            _write_cards(nodes, config, done)
        except _Stopped:
            last, stopped = {}, True
        _save(nodes, config, done)
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
        engine = node.engine.limited_to(
            max_new_tokens=wanted.max_new_tokens or config.sampling.max_new_tokens,
            # A limit of its own means it: then only the model's context bounds it further.
            max_total_tokens=UNBOUNDED
            if wanted.max_new_tokens
            else config.sampling.max_total_tokens,
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


def _save(nodes: list[Node], config: RunConfig, done: int) -> None:
    for node in nodes:
        folder = node.record.folder
        if done not in checkpoint.rounds_saved(folder):
            card = card_of(config, node.name, folder, done)
            # From here to the end of their part the others wait for us: nothing may fail.
            node.learner.team.call(Save(node.name))
            checkpoint.save(folder, done, node.learner.language, node.learner.optimizer, card=card)


def _write_cards(nodes: list[Node], config: RunConfig, done: int) -> None:
    """Once more, as now there is a last evaluation to tell of."""
    for node in nodes:
        folder = node.record.folder
        card = card_of(config, node.name, folder, done)
        write_whole(checkpoint.checkpoint_folder(folder, done) / "README.md", card.encode())


def _told(config: RunConfig, folder: Path, first: int, resume: bool) -> list[About]:
    """What the trackers of each node are told of it at the beginning."""
    return [
        About(
            project=config.log.project,
            group=config.log.group or config.name,
            node=name,
            folder=folder,
            first_round=first,
            resumed=resume,
            recipe=as_tree(config),
            wandb_mode=config.log.wandb_mode,
        )
        for name in config.node
    ]


def _write_recipe(folder: Path, config: RunConfig, task: Task) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "recipe.json", (json.dumps(as_tree(config), indent=2) + "\n").encode())
    write_whole(folder / "task.json", (json.dumps({"digest": task.digest}) + "\n").encode())


class _Stopped(Exception):
    """Ctrl-C at a moment when nothing is half done."""
