"""A node replays its recorded rounds, with one method after the other, and measures each: the
method's gradient beside that of the model's own completions."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor

from potluck.builder.nodes import make_learner, make_participants
from potluck.builder.objective import load_weight
from potluck.builder.task import make_task
from potluck.config import NodeConfig, RunConfig
from potluck.evaluation.grade import evaluate, evaluation_engine
from potluck.exchange import Received, Round
from potluck.files import derived_seed
from potluck.node.learning.base import UpdateReport, silent
from potluck.node.learning.batch import Batch, Scored, pack
from potluck.node.learning.learner import Learner
from potluck.node.learning.passes import Gradient
from potluck.node.loop import Node
from potluck.node.participant import Spent
from potluck.node.report import author_reports
from potluck.node.storage import checkpoint
from potluck.node.storage.record import Record
from potluck.node.storage.same_run import require_same_files
from potluck.objective.methods import METHODS, ObjectiveConfig, Trust, reads_author_logp
from potluck.objective.weights import Weight
from potluck.replay.plan import ReplayError, ReplayPlan, ReplayRow
from potluck.reports import AuthorReport, mean
from potluck.rollout.base import RandomSampler, RolloutRequest
from potluck.rollout.compare import first_turn
from potluck.rollout.options import HFOptions
from potluck.tasks import Task
from potluck.tasks.base import graded
from potluck.types import Group, NonFiniteError, Row

LOOKED_AT = 32
"""Completions by which a model is recognised."""
Direction = Sequence[Tensor | None]
"""The tensors of a ``Gradient``, in main memory."""


class RecordedExchange:
    """One node's recorded rounds: the part of an ``Exchange`` that a replay asks for."""

    def __init__(self, run: Path, name: str, node: str, rounds: Sequence[int]) -> None:
        """Take the ``rounds`` that ``node`` learned from; raise ReplayError if one is missing or
        damaged. ``name`` is the run's in its messages."""
        self.run, self.node, self.rounds = run, node, tuple(rounds)
        kept = run / node / "rounds"
        if not kept.is_dir():  # Record would make it, and a replay writes nothing into a run
            raise ReplayError(f"no {kept} is here, but {node!r} learned from it; bring it back")
        self._record = Record(run / node, run=name, node=node)
        self.has_logp = True
        for at, round in enumerate(self.rounds):
            came = self._record.kept_round(round)
            if came is None:
                place = kept / f"{round:06d}.ptlk"
                way_out = f"--rounds {at} replays those before it" if at else "bring it back"
                raise ReplayError(
                    f"{place} is missing or damaged, but {node!r} learned from it; {way_out}"
                )
            self.has_logp &= all(c.logp_T is not None for c in came.completions)

    def finish(self, round: int, received: Received) -> Round:
        kept = self._record.kept_round(round)
        if kept is None:
            raise ReplayError(f"round {round} of {self.node!r} in {self.run} went away meanwhile")
        return kept

    def require_same_model(self, learner: Learner, task: Task, node: NodeConfig) -> None:
        """Raise ReplayError unless the model is the one that wrote the node's first round: a recipe
        names a place, where another may lie by now. Without log-probabilities of it nothing is
        compared."""
        came = self.finish(first := self.rounds[0], Received()).completions
        own = [first_turn(c) for c in came if c.author == self.node and c.logp_T is not None]
        if not (own := own[:LOOKED_AT]):
            return
        prompts = [learner.policy.prompt(task.problem(c.problem_id)) for c in own]
        apart = learner.policy.logp_gap(prompts, own, temperature=learner.temperature)
        allowed = node.engine.log_probability_tolerance(node.sampling_dtype)
        if not apart <= allowed:
            raise ReplayError(
                f"the model of {self.node!r}, {node.model}, is not the one that wrote round "
                f"{first} of {self.run}: it differs by {apart:.3g} nats a token in the mean, at "
                f"most {allowed:g} was expected; bring that model back"
            )


def replay(
    plan: ReplayPlan, *, say: Callable[[str], None], trust_code: bool = False
) -> Iterator[ReplayRow]:
    """Yield each row when it is measured: node by node, method by method, round by round. A method
    that breaks down ends there; ``say`` tells. Raise NonFiniteError if all did, and another
    PotluckError, before one begins, for what would stop a method."""
    if plan.config.threads:
        torch.set_num_threads(plan.config.threads)
    task = make_task(plan.config, trust_code=trust_code, run=plan.run, say=say)
    require_same_files(plan.run, {"digest": task.digest})
    recordings = [
        RecordedExchange(plan.run, plan.config.name, name, rounds)
        for name, rounds in plan.rounds.items()
    ]
    for method in plan.methods:
        _weight(plan.config, method, trust_code)  # it tells what is wrong, before anything learns
    objectives = {method: _objective(plan.config, method) for method in plan.methods}
    needing = [method for method, its in objectives.items() if reads_author_logp(its)]
    # In a run that sent them, one that came without was left out, and is so again.
    if needing and not (plan.config.sends_logp or all(each.has_logp for each in recordings)):
        free = ",".join(name for name in METHODS if not reads_author_logp(METHODS[name]))
        raise ReplayError(
            f"the completions of {plan.run} came without log-probabilities, as its own method "
            f"needs none, but {', '.join(needing)} cannot do without; choose --method {free}"
        )
    for recorded in recordings:  # all before the first one learns, which takes minutes
        start = plan.config.node[recorded.node].model
        is_known = checkpoint.require_same_start(plan.run / recorded.node, start)
        plain = replace(plan.config, objective=_objective(plan.config, "nois"))
        learner = make_learner(plain, recorded.node, plan.run / recorded.node, 0)
        if recorded.has_logp:
            recorded.require_same_model(learner, task, plan.config.node[recorded.node])
        elif not is_known:
            say(f"{recorded.node}: without log-probabilities no test tells if its model is the one")
        del learner
    ended = 0
    for recorded in recordings:
        for method in plan.methods:
            # The node's own records are in the run's folder already, or in the rows.
            with TemporaryDirectory(prefix="potluck-replay-") as scratch:
                made = plan.config, method, recorded, task, Path(scratch)
                node = node_of(*made, trust_code=trust_code)
                try:
                    yield from replay_node(node, method, recorded.rounds, plan.config)
                    ended += 1
                except NonFiniteError as error:
                    say(f"{method} broke down: {error}")
    if not ended:
        raise NonFiniteError("every method broke down; nothing can be compared")


def node_of(
    config: RunConfig,
    method: str,
    recorded: RecordedExchange,
    task: Task,
    scratch: Path,
    *,
    trust_code: bool = False,
) -> Node:
    """Make the node as it was before its first round, with this method and recorded rounds. What
    another engine wrote is recorded; here the model writes by itself."""
    own = {
        name: replace(node, engine=HFOptions()) if node.engine.has_weights else node
        for name, node in config.node.items()
    }
    config = replace(config, node=own, objective=_objective(config, method))
    name = recorded.node
    learner = make_learner(config, name, scratch / name, 0)
    learner = dataclasses.replace(learner, custom_weight=_weight(config, method, trust_code))
    exchanges: dict[str, Any] = {name: recorded}
    made = config, scratch, task, {name: learner}, exchanges, lambda *_: None
    return make_participants(*made, sends_text=False)[0][0]


def _objective(config: RunConfig, method: str) -> ObjectiveConfig:
    """Return the recipe's objective with a method's choices, for a weight of one's own those of
    LWS; without the recipe's own code, which would replace that of every method."""
    its = config.objective
    fields = METHODS[method if method in METHODS else "lws"].fields
    # A method is compared as it stands, so with everybody trusted unless the recipe says nobody.
    trust: Trust = "nobody" if its.trust == "nobody" else "everybody"
    weight = ObjectiveConfig().weight if its.has_custom_weight else its.weight
    return replace(its, **fields, trust=trust, loss="", weight=weight)


def _weight(config: RunConfig, method: str, trust_code: bool) -> Weight | None:
    if method in METHODS:
        return None
    objective = replace(config.objective, weight=method)
    return load_weight(replace(config, objective=objective), trust_code=trust_code)


@dataclass(frozen=True, eq=False)
class RecordingLearner(Learner):
    """A learner that keeps a round's first gradient, and what it scored."""

    directions: list[Direction] = field(default_factory=list)
    scored: list[Scored] = field(default_factory=list)

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
    """Replay rounds that the node's exchange has; raise NonFiniteError if the method gives one."""
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
        shared = {each.name: getattr(learner, each.name) for each in dataclasses.fields(Learner)}
        recording = RecordingLearner(**shared)
        live = dataclasses.replace(node, learner=recording)
        graded = live.grade(round, recorded)
        report = live.use(round, graded, recorded, Spent(), size_bytes=0)
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
            validation=found.mean if found else None,
            sources={author: asdict(source) for author, source in report.sources.items()},
        )


def _everyone(scored: Scored) -> AuthorReport:
    """Report all completions as if they were one author's, without their rewards."""
    rows = len(scored.batch.completions)
    return author_reports(scored, [0.0] * rows, authors=["everyone"] * rows)["everyone"]


def fresh_groups(node: Node, round: int, problem_ids: Sequence[str], *, take: int) -> list[Group]:
    """Sample a whole group of each problem from the node's model as it is now, and grade it. Each
    ``take`` is drawn by itself; methods draw alike, to be compared with the same estimates."""
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
    plain = replace(learner.objective, **METHODS["nois"].fields, own_success_weight=1.0)
    batch = pack(groups, scale=plain.advantage_scale)
    if not batch.advantage_B.any():
        return None
    torch.manual_seed(0)  # dropout, where there is any; a node seeds anew before it learns
    plainly = dataclasses.replace(learner, objective=plain, custom_weight=None)
    return direction_of(plainly.score_and_gradient(batch)[1])


def direction_of(gradient: Gradient) -> Direction:
    """Copy a gradient to main memory, so that a step does not clip it."""
    return [None if g is None else g.cpu().clone() for g in gradient.tensors]


def cosine(a: Direction | None, b: Direction | None) -> float | None:
    """Return <a, b> / (|a| |b|), -1..1; None where one of the two is zero, so points nowhere."""
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
