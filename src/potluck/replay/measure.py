"""Measurements of each round: a method's gradient beside that of the model's own completions."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace

import torch
from msgspec.structs import replace as changed
from torch import Tensor

from potluck.config import RunConfig
from potluck.evaluation.grade import evaluate, evaluation_engine
from potluck.exchange import Received
from potluck.files import derived_seed
from potluck.node.learning.batch import Batch, Scored, UpdateReport, pack, silent
from potluck.node.learning.learner import Learner
from potluck.node.learning.passes import Gradient
from potluck.node.loop import Node
from potluck.node.participant import Spent
from potluck.node.report import author_reports
from potluck.objective.methods import METHODS
from potluck.replay.plan import ReplayRow
from potluck.reports import AuthorReport, mean
from potluck.rollout.base import RandomSampler, RolloutRequest
from potluck.tasks.base import graded
from potluck.types import Group, Row

Direction = Sequence[Tensor | None]
"""The tensors of a ``Gradient``, in main memory."""


@dataclass(frozen=True, eq=False)
class RecordingLearner(Learner):
    """A learner that keeps a round's first gradient, and what it scored."""

    directions: list[Direction] = field(default_factory=list)
    scored: list[Scored] = field(default_factory=list)

    @classmethod
    def of(cls, learner: Learner) -> "RecordingLearner":
        """Return a copy of ``learner`` that shares its model and its optimiser."""
        names = [each.name for each in dataclasses.fields(Learner)]
        return cls(**{name: getattr(learner, name) for name in names})

    def learn(
        self, batch: Batch, progress: Callable[[int, int], None], *, round: int = 0
    ) -> UpdateReport:
        update = super().learn(batch, progress, round=round)
        self.scored[:] = [update.scored]
        return update

    def step(self, gradient: Gradient) -> None:
        if not self.directions:
            self.directions.append(direction_of(gradient))
        super().step(gradient)


def replay_node(
    node: Node, method: str, rounds: Sequence[int], config: RunConfig
) -> Iterator[ReplayRow]:
    """Replay the rounds on a node whose exchange has them; measuring changes nothing in it. Raise
    NonFiniteError if the method gives a number that is not finite."""
    engine, learner = evaluation_engine(node.engine, config), node.learner
    assert isinstance(learner, Learner)
    every, count = config.evaluation.every, config.evaluation.problems
    for round in rounds:
        recorded = node.exchange.finish(round, Received())
        came = recorded.completions
        if config.pace == "free":  # what was drawn then depended on what had come
            ids = [c.problem_id for c in came if c.author == node.name]
        else:
            there = {c.problem_id for c in came}
            shares = node.pace.agenda.shares(round, {c.author for c in came})
            ids = [share.problem_id for share in shares if share.problem_id in there]
        asked = list(dict.fromkeys(ids))
        groups = [fresh_groups(node, round, asked, take=take) for take in (0, 1) if asked]
        estimates = [on_policy_gradient(learner, each) for each in groups]
        recording = RecordingLearner.of(learner)
        live = replace(node, learner=recording)
        report = live.use(round, recorded, Spent(), size_bytes=0)
        # A round in which nothing came is not scored.
        everyone = _everyone(*recording.scored) if recording.scored else None
        found = None
        if round == rounds[-1] or (every and (round + 1) % every == 0):
            found = evaluate(node.learner.policy, engine, node.task, "validation", count, silent)
        yield ReplayRow(
            node=node.name,
            method=method,
            round=round,
            cosine=mean(
                cosine(mine, estimate) for mine in recording.directions for estimate in estimates
            ),
            ceiling=cosine(*estimates) if estimates else None,
            effective_sample_size=everyone.effective_sample_size if everyone else None,
            log_ratio_mean=everyone.log_ratio_mean if everyone else None,
            filtered_share=report.filtered_share,
            own_reward_mean=mean(r for each in groups for group in each for r in group.rewards),
            gradient_norm=report.gradient_norm,
            updates=report.updates,
            validation=found.accuracy if found else None,
            sources={author: asdict(source) for author, source in report.sources.items()},
        )


def _everyone(scored: Scored) -> AuthorReport:
    """Report all completions as if they were one author's."""
    rows = len(scored.batch.completions)
    # Rewards are left out: their mean stands in the report of the round.
    return author_reports(scored, [0.0] * rows, authors=["everyone"] * rows)["everyone"]


def fresh_groups(node: Node, round: int, problem_ids: Sequence[str], *, take: int) -> list[Group]:
    """Sample a whole group of each problem from the node's model as it is now, and grade it. Each
    ``take`` is drawn by itself; methods draw alike, so they are compared with the same
    estimates."""
    seed = derived_seed(f"{node.pace.agenda.seed}/{round}/{node.name}/on-policy/{take}")
    device, size = node.learner.policy.device, node.pace.agenda.group_size
    generator = torch.Generator(device).manual_seed(seed)
    sampler = RandomSampler(generator, node.config.sampling.drawing)
    problems = [node.task.problem(id) for id in problem_ids]
    requests = [RolloutRequest(problem, size) for problem in problems]
    written = node.engine.generate(requests, sampler, author=node.name, progress=silent)
    replays, groups = node.replays(), []
    for problem in problems:
        readings = [node.read(c, replays=replays) for c in written if c.problem_id == problem.id]
        rows = tuple(row for row in readings if isinstance(row, Row))
        if rows:  # an environment may have broken off all
            columns = [(row.completion, row.text, row.episode) for row in rows]
            rewards, _ = graded(node.task, [problem] * len(rows), *zip(*columns, strict=True))
            groups.append(Group(problem, rows, tuple(rewards)))
    return groups


def on_policy_gradient(learner: Learner, groups: Sequence[Group]) -> Direction | None:
    """Return the gradient of plain GRPO on the model's own ``groups``, or None where no completion
    has an advantage. Moves neither the weights nor the optimiser's state."""
    if not groups:
        return None
    plain = changed(learner.objective, **METHODS["nois"].fields, own_success_weight=1.0)
    batch = pack(groups, scale=plain.advantage_scale)
    if not batch.advantage_B.any():
        return None
    torch.manual_seed(0)  # dropout, where there is any; a node seeds anew before it learns
    plainly = replace(learner, objective=plain, custom_weight=None)
    return direction_of(plainly.score_and_gradient(batch)[1])


def direction_of(gradient: Gradient) -> Direction:
    """Copy a gradient to main memory, so that a step does not clip it."""
    return [None if g is None else g.cpu().clone() for g in gradient.tensors]


def cosine(a: Direction | None, b: Direction | None) -> float | None:
    """Return <a, b> / (|a| |b|), -1..1; None where one of the two is zero, so points nowhere.

    >>> cosine([torch.tensor([3.0]), torch.tensor([4.0])], [torch.tensor([1.0]), None])
    0.6
    """
    if a is None or b is None:
        return None
    product = math.sqrt(_dot(a, a) * _dot(b, b))
    return _dot(a, b) / product if product else None


def _dot(a: Direction, b: Direction) -> float:
    return sum(
        float(x.double().flatten() @ y.double().flatten())
        for x, y in zip(a, b, strict=True)
        if x is not None and y is not None
    )
