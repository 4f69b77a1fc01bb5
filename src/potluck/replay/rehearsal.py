"""A node lives its rounds again, by another method or the same, and is measured in each."""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import transformers
from msgspec.structs import replace

from potluck.assemble import make_learner, make_nodes, make_task, require_same_task
from potluck.config import METHODS, Method, RunConfig
from potluck.dashboard.text import mean
from potluck.exchange import Round
from potluck.node import Batch, Learner, Lesson, Node, evaluate, examiner
from potluck.node.statistics import SourceReport, source_reports
from potluck.replay.lines import Line
from potluck.replay.on_policy import cosine, first_gradient, fresh_groups, on_policy_gradient
from potluck.replay.plan import Plan
from potluck.replay.tape import Tape
from potluck.tasks import Task
from potluck.types import Group, NonFiniteError

NOT_LIVE = {"write": 0.0, "exchange": 0.0}
"""Seconds that a node has spent when it collects."""

# A bar for each model that is loaded would tear the replay's own.
transformers.logging.disable_progress_bar()


@dataclass(frozen=True, eq=False)
class Watched(Learner):
    """Learns as ever, and keeps each batch with what came of it."""

    lessons: list[tuple[Batch, Lesson]] = field(default_factory=list)

    def learn(self, batch: Batch, progress: Callable[[int, int], None]) -> Lesson:
        lesson = super().learn(batch, progress)
        self.lessons.append((batch, lesson))
        return lesson


def replay(plan: Plan, *, say: Callable[[str], None], trust_code: bool = False) -> Iterator[Line]:
    """A line as soon as it is measured: node by node, method by method, round by round.

    A method that breaks down (``NonFiniteError``) ends there, is said, and the next one begins.

    Raises:
        NonFiniteError: every method broke down, on every node.
        ReplayError: a round is missing, or the model is not the run's.
        PotluckError: a model or a task that cannot be loaded, or is another one.
    """
    if plan.config.threads:
        torch.set_num_threads(plan.config.threads)
    task = make_task(plan.config, trust_code=trust_code)
    require_same_task(plan.run, task)
    tapes = [Tape(plan.run, plan.config.name, name, rounds) for name, rounds in plan.rounds.items()]
    for tape in tapes:  # all before the first one learns, which takes minutes
        learner = make_learner(plan.config, tape.node, plan.run / tape.node, 0)
        tape.require_same_model(learner, task, plan.config.node[tape.node])
        del learner
    ended = 0
    for tape in tapes:
        for method in plan.methods:
            # What a node writes down of itself is in the run's folder already, or in the lines.
            with TemporaryDirectory(prefix="potluck-replay-") as scratch:
                node = node_of(plan.config, method, tape, task, Path(scratch))
                try:
                    yield from rehearse(node, method, tape, plan.config)
                    ended += 1
                except NonFiniteError as error:
                    say(f"{method} broke down: {error}")
    if not ended:
        raise NonFiniteError("every method broke down; nothing can be compared")


def node_of(config: RunConfig, method: Method, tape: Tape, task: Task, scratch: Path) -> Node:
    """The node as it was before its first round, with another method and the tape as its line.

    What a server wrote is on the tape, and here the model writes by itself.
    """
    own = {name: replace(node, server=None) for name, node in config.node.items()}
    config = replace(config, node=own, objective=replace(config.objective, **METHODS[method]))
    learner = make_learner(config, tape.node, scratch / tape.node, 0)
    (node,) = make_nodes(
        config,
        scratch,
        task,
        {tape.node: learner},
        {tape.node: tape},
        lambda node, phase, done, total: None,
        0,
    )
    return node


def rehearse(node: Node, method: str, tape: Tape, config: RunConfig) -> Iterator[Line]:
    """Lives the tape's rounds; nothing that is measured on the way changes what is learned.

    Raises:
        NonFiniteError: a number of the method's making is not finite.
    """
    every, last = config.evaluation.every, tape.rounds[-1]
    watched = Watched(**vars(node.learner))
    live = dataclasses.replace(node, learner=watched)
    for round in tape.rounds:
        groups = _fresh(node, round, tape.collect(round, deadline_s=0))
        estimates = [on_policy_gradient(node.learner, each) for each in groups]
        with first_gradient(node.learner.optimizer) as caught:
            report = live.collect_and_learn(round, NOT_LIVE)
        # Of a round in which nothing came there is no lesson.
        everyone = _everyone(*watched.lessons.pop()) if watched.lessons else None
        evaluated = round == last or (every and (round + 1) % every == 0)
        yield Line(
            node=node.name,
            method=method,
            round=round,
            cosine=mean(cosine(mine, estimate) for mine in caught for estimate in estimates),
            ceiling=cosine(*estimates) if estimates else None,
            effective_sample_size=everyone.effective_sample_size if everyone else None,
            log_ratio_mean=everyone.log_ratio_mean if everyone else None,
            filtered_share=report.filtered_share,
            own_reward_mean=mean(r for each in groups for group in each for r in group.rewards),
            gradient_norm=report.gradient_norm,
            updates=report.updates,
            validation=_validation(node, config) if evaluated else None,
            sources={author: asdict(source) for author, source in report.sources.items()},
        )


def _fresh(node: Node, round: int, came: Round) -> list[list[Group]]:
    """Two times the model's own completions of the round's problems; none where nothing came."""
    there = {c.problem_id for c in came.completions}
    shares = node.agenda.shares(round, {c.author for c in came.completions})
    asked = list(dict.fromkeys(s.problem_id for s in shares if s.problem_id in there))
    return [fresh_groups(node, round, asked, take=take) for take in (0, 1)] if asked else []


def _everyone(batch: Batch, lesson: Lesson) -> SourceReport:
    """All completions as if they were one author's."""
    nobody = [""] * len(batch.completions)
    return source_reports(
        nobody,
        torch.zeros(len(nobody)),  # rewards: their mean stands in the report of the round
        batch.mask_BT.sum(dim=1),
        batch.advantage_B,
        lesson.heard_B,
        lesson.statistics_B8,
        lesson.dropped,
    )[""]


def _validation(node: Node, config: RunConfig) -> float | None:
    """As the run evaluates."""
    found = evaluate(
        node.learner.language,
        examiner(node.engine, config),
        node.task,
        "validation",
        count=config.evaluation.problems,
        progress=lambda *_: None,
    )
    return found.accuracy if found else None
