"""A node replays its recorded rounds, with one method after the other."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from msgspec.structs import replace

from potluck.builder.nodes import make_learner, make_nodes
from potluck.builder.objective import load_weight
from potluck.builder.task import make_task
from potluck.config import NodeConfig, RunConfig
from potluck.exchange import Received, Round
from potluck.node.learning.learner import Learner
from potluck.node.loop import Node
from potluck.node.storage.record import Record
from potluck.node.storage.resume import require_same_files
from potluck.objective.methods import METHODS, ObjectiveConfig, Trust, reads_author_logp
from potluck.objective.weights import Weight
from potluck.replay.measure import replay_node
from potluck.replay.plan import ReplayError, ReplayPlan, ReplayRow
from potluck.rollout.options import HFOptions
from potluck.tasks import Task
from potluck.types import Completion, NonFiniteError

LOOKED_AT = 32
"""Completions by which a model is recognised."""


class RecordedExchange:
    """One node's recorded rounds: the part of an ``Exchange`` that a replay asks for."""

    def __init__(self, run: Path, name: str, node: str, rounds: Sequence[int]) -> None:
        """Take the ``rounds`` that ``node`` learned from; raise ReplayError if one is missing or
        damaged. ``name`` is the run's in its messages."""
        self.run, self.node, self.rounds = run, node, tuple(rounds)
        kept = run / node / "rounds"
        if not kept.is_dir():  # Record would make it, and a replay writes nothing into a run
            raise ReplayError(
                f"there is no {kept}, but {node!r} learned from rounds; bring it back"
            )
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
        own = [_first_turn(c) for c in came if c.author == self.node and c.logp_T is not None]
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


def _first_turn(completion: Completion) -> Completion:
    """Cut an episode behind its first turn, which is read without an environment."""
    c, logp_T = completion, completion.logp_T
    if not c.turns or logp_T is None:
        return c
    only = slice(c.turns[0])
    return Completion(c.problem_id, c.author, c.index, c.token_T[only], logp_T[only], "length")


def replay(
    plan: ReplayPlan, *, say: Callable[[str], None], trust_code: bool = False
) -> Iterator[ReplayRow]:
    """Yield each row when it is measured: node by node, method by method, round by round. A method
    that breaks down ends there; ``say`` tells. Raise NonFiniteError if all did; and another
    PotluckError for what would stop a method, before one begins."""
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
        plain = replace(plan.config, objective=_objective(plan.config, "nois"))
        learner = make_learner(plain, recorded.node, plan.run / recorded.node, 0)
        if recorded.has_logp:
            recorded.require_same_model(learner, task, plan.config.node[recorded.node])
        else:
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
    return make_nodes(*made, sends_text=False)[0]


def _objective(config: RunConfig, method: str) -> ObjectiveConfig:
    """Return the recipe's objective with a method's choices, those of LWS for a weight of one's
    own, and without the recipe's own code, which would replace that of every method."""
    its = config.objective
    fields = METHODS[method if method in METHODS else "lws"].fields
    # A method is compared as it stands, so with everybody trusted unless the recipe says nobody.
    trust: Trust = "nobody" if its.trust == "nobody" else "everybody"
    weight = ObjectiveConfig().weight if its.has_custom_weight else its.weight
    return replace(its, **fields, trust=trust, loss="", weight=weight)


def _weight(config: RunConfig, method: str, trust_code: bool) -> Weight | None:
    """Load a weight of one's own; raise as ``load_weight``. None: it is a method."""
    if method in METHODS:
        return None
    objective = replace(config.objective, weight=method)
    return load_weight(replace(config, objective=objective), trust_code=trust_code)
