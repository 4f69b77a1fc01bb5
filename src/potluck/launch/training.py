"""The rounds of the nodes of one process, from the first look at a recipe to the end."""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from msgspec.structs import replace

from potluck.assemble import (
    first_round,
    go_on_from,
    make_learners,
    make_nodes,
    make_task,
    notes_on,
    require_one_prompt,
    require_one_stop,
    require_partners,
    require_problems,
    require_room,
    require_same_task,
    require_servers,
    require_team,
    terms_of,
)
from potluck.config import RunConfig, as_tree
from potluck.exchange import Exchange, Terms
from potluck.launch.display import Display, RunResult
from potluck.node import Evaluation, Node, Progress, checkpoint, evaluate, examiner, step_together
from potluck.node.card import card_of
from potluck.node.followers import follow
from potluck.node.record import write_whole
from potluck.node.team import Processes, Save, Stop, Team, assembled
from potluck.signals import interrupts
from potluck.tasks import Task
from potluck.trackers import About, Tracked, require_trackers
from potluck.types import PotluckError

# A run has a display of its own; a bar for each file that is loaded or saved only tears it.
transformers.logging.disable_progress_bar()

Meet = Callable[
    [Mapping[str, Terms], Display, Progress], AbstractContextManager[Mapping[str, Exchange]]
]
"""Opens the exchange of each node of this process, waits for whom it waits for; closes it."""


@dataclass(frozen=True)
class Part:
    """The nodes of a run that this process is."""

    config: RunConfig
    """Of the whole run."""
    names: tuple[str, ...]
    all_here: bool
    """Whether the models of all others are on this machine too, so that they can be looked at."""
    look: Callable[[], None]
    """Raises RunFolderError unless the folder is free, or that of the run that goes on."""
    meet: Meet

    @property
    def mine(self) -> RunConfig:
        """The recipe, as if there were no other nodes."""
        nodes = {name: self.config.node[name] for name in self.names}
        return replace(self.config, node=nodes)


def take_part(
    part: Part, folder: Path, *, resume: bool, display: Display, trust_code: bool
) -> RunResult:
    """Trains the nodes of this process, which may be one of several that are one node."""
    if part.config.threads:
        torch.set_num_threads(part.config.threads)
    with assembled() as team:
        if isinstance(team, Processes) and team.rank:
            return _follow(team, part.mine, folder)
        try:
            result = _lead(part, team, folder, resume, display, trust_code)
        except (PotluckError, OSError) as error:
            team.call(Stop(error))
            raise
        team.call(Stop(result))
        return result


def _follow(team: Processes, mine: RunConfig, folder: Path) -> RunResult:
    """Takes part in what the first process of a node does, and ends as it does."""
    with interrupts() as interrupted:
        outcome = follow(team, lambda first: make_learners(mine, folder, first, team), interrupted)
    if isinstance(outcome, RunResult):
        return outcome
    assert isinstance(outcome, Exception)
    raise outcome


def _lead(
    part: Part, team: Team, folder: Path, resume: bool, display: Display, trust_code: bool
) -> RunResult:
    """Looks at everything that can be wrong with the recipe, then lives its rounds."""
    config, mine = part.config, part.mine
    # Nothing is written before everything that can be wrong with a recipe has been looked at.
    part.look()
    require_trackers(config.log.to, wandb_mode=config.log.wandb_mode)
    task = make_task(config, trust_code=trust_code)
    require_problems(config, task)
    require_same_task(folder, task)
    notes = notes_on(config, task)
    require_partners(config if part.all_here else mine)
    require_one_prompt(config if part.all_here else mine, task)
    lengths = require_room(mine, task)
    require_servers(mine, longest_prompt=max(lengths))
    require_team(mine, team)
    first = first_round(folder, mine) if resume else 0
    learners = make_learners(mine, folder, first, team)
    languages = {name: learner.language for name, learner in learners.items()}
    require_one_stop(languages)
    _write_recipe(folder, config, task)
    if resume:
        who = f"{part.names[0]}: " if len(part.names) < len(config.node) else ""
        display.say(who + go_on_from(folder, mine, first))
    tracked = Tracked(display, config.log.to, _told(mine, folder, first, resume))
    with tracked as display, interrupts() as interrupted:
        for note in notes:
            display.say(note)

        def progress(node: str, phase: str, done: int, total: int) -> None:
            display.phase(node, phase, done, total)
            # Learning changes the model, so it is not broken off half-way.
            if phase != "learn" and interrupted():
                raise _Stopped

        try:
            with part.meet(terms_of(config, task, languages), display, progress) as exchanges:
                nodes = make_nodes(config, folder, task, learners, exchanges, progress, first)
                return _live(nodes, config, folder, first, display, progress, interrupted)
        except _Stopped:  # before the first round
            return RunResult(folder, first, True, {})


def _live(
    nodes: list[Node],
    config: RunConfig,
    folder: Path,
    first: int,
    display: Display,
    progress: Progress,
    interrupted: Callable[[], bool],
) -> RunResult:
    """The rounds from ``first`` to the last one."""
    done, stopped = first, False
    seen, saved = first - 1, first  # rounds up to which was evaluated, and saved
    last: dict[str, Evaluation] = {}
    try:
        while (round := nodes[0].next_round(done)) < config.rounds:
            # Rounds may be skipped, so "every five" is the first one after each fifth.
            if (every := config.evaluation.every) and round // every > seen // every:
                _evaluate(nodes, config, round, progress, display, at_end=False)
                seen = round
            reports = step_together(nodes, round)
            for node, report in zip(nodes, reports, strict=True):
                display.round_done(node.name, asdict(report))
            done = round + 1
            if (every := config.checkpoint_every) and done // every > saved // every:
                _save(nodes, config, done)
                saved = done
            if interrupted():
                raise _Stopped
        _save(nodes, config, done)  # whatever happens to the evaluation, what was learned stays
        last = _evaluate(nodes, config, done, progress, display, at_end=True)
        _write_cards(nodes, config, done)
    except _Stopped:
        stopped = True
    _save(nodes, config, done)
    accuracy = {name: evaluation.accuracy for name, evaluation in last.items()}
    return RunResult(folder, done, stopped, accuracy)


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
        engine = examiner(node.engine, config)

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
