"""The loop: one round of a node, top to bottom. Start reading here.

    generate   its share of the round's problems          (rollout, schedule)
    send       its completions to all nodes               (exchange)
    collect    the completions of all nodes               (exchange)
    select     what was asked for and can be used         (selection)
    grade      every completion, its own included         (tasks)
    learn      from all of them                           (objective)

How this departs from GRPO: a group may be another model's, which the method's weights make up
for (F-TIS, arXiv:2605.22537; LWS, docs/method.md); there is no KL term to a reference model, as
in the paper (section 2), unless [objective] beta asks for one.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

from potluck.config import SamplingConfig
from potluck.exchange import Round
from potluck.node.learning.batch import Scored, pack
from potluck.node.learning.learner import Learner
from potluck.node.learning.read import UnreadReason, read
from potluck.node.participant import Clock, Participant, Spent
from potluck.node.report import report_of
from potluck.node.sample import sample
from potluck.node.selection import Selection, Selector
from potluck.objective.methods import reads_author_logp
from potluck.reports import RoundReport
from potluck.rollout.base import (
    Engine,
    OpenWriting,
    Overlapping,
    RandomSampler,
    Requests,
    RolloutRequest,
)
from potluck.rollout.texts.base import BYTES_A_TOKEN
from potluck.schedule import Share
from potluck.tasks import Task
from potluck.tasks.base import graded
from potluck.types import Completion, Group, NonFiniteError, Row


@dataclass(frozen=True, eq=False, kw_only=True)
class Node(Participant):
    """One participant that learns: its model, its task, and its line to the others."""

    selector: Selector
    task: Task
    engine: Engine
    learner: Learner
    sampling: SamplingConfig
    sends_logp: bool
    """False: its completions go without log-probabilities, as no learner of the run reads them."""
    sends_text: bool
    """True: its completions go as text too, as some reader may have another tokenizer."""
    trusts: Callable[[str], bool]
    """Function that tells of an author if it is trusted: see ``objective/trust.py``."""
    rounds: int
    """Rounds of the run: none beyond them is begun."""
    begun: dict[int, tuple[Sequence[Share], OpenWriting]] = field(default_factory=dict)
    """Shares of a later round that are being written, see ``begin``."""

    def generate_and_send(self, round: int, shares: Sequence[Share]) -> Spent:
        """Write these shares of the round and send them."""
        with Clock() as generating:
            completions = self._generate(round, shares)
        if not self.sends_logp:
            completions = [replace(c, logp_T=None) for c in completions]
        if self.sends_text:
            policy, asked = self.learner.policy, self.task.problem
            most_bytes = BYTES_A_TOKEN * self.sampling.max_new_tokens
            completions = [
                policy.spelled(c, asked(c.problem_id), most_bytes=most_bytes) for c in completions
            ]
        with Clock() as sending:
            self.exchange.send(round, completions)
        return Spent(
            generating.seconds,
            sending.seconds,
            server_apart=self.engine.server_apart if completions else None,
        )

    @property
    def overlaps(self) -> bool:
        """Return whether its engine can write while the weights change."""
        return isinstance(self.engine, Overlapping)

    def begin(self, round: int, shares: Sequence[Share]) -> None:
        """Begin to write these shares of a later round with the weights as they are now, where the
        engine can while they change; ``generate_and_send`` of that round waits for the rest."""
        if round >= self.rounds or not isinstance(self.engine, Overlapping):
            return
        if writing := self.engine.begin(*self._ordered(round, shares), author=self.name):
            self.begun[round] = shares, writing

    def abandon(self) -> None:
        """Break off what was begun and is not waited for any more."""
        while self.begun:
            _, (_, writing) = self.begun.popitem()
            writing.abandon()

    def _generate(self, round: int, shares: Sequence[Share]) -> list[Completion]:
        def progress(done: int, total: int) -> None:
            self.progress(self.name, "write", done, total)

        _, begun = self.begun.pop(round, (shares, None))
        with _error_context(round, self.name):
            if begun:
                return begun.collect(progress)
            self.abandon()  # the others are ahead, and the round that was begun is skipped
            requests, sampler = self._ordered(round, shares)
            return self.engine.generate(requests, sampler, author=self.name, progress=progress)

    def _ordered(self, round: int, shares: Sequence[Share]) -> tuple[Requests, RandomSampler]:
        """Return what an engine is asked for these shares."""
        requests = [RolloutRequest(self.task.problem(s.problem_id), s.count) for s in shares]
        policy = self.learner.policy
        generator = torch.Generator(policy.device).manual_seed(self.seed(round, "write"))
        return requests, RandomSampler(generator, self.sampling.drawing)

    def use(self, round: int, arrived: Round, spent: Spent, size_bytes: int) -> RoundReport:
        """Select, grade and learn from the completions of all."""
        update = None
        with Clock() as learning, _error_context(round, self.name):
            selection = self.selector.select(round, arrived, self._read)
            groups = self._grade(round, selection)
            self.selector.keep(round, groups)
            if groups:
                scale = self.learner.objective.advantage_scale
                batch = pack(groups, scale=scale, trusts=self.trusts)
                torch.manual_seed(self.seed(round, "learn"))  # dropout, where there is any
                update = self.learner.learn(
                    batch,
                    lambda done, total: self.progress(self.name, "learn", done, total),
                    round=round,
                )
                self._record_sample(round, groups, update.scored, size_bytes)
        report = report_of(
            round,
            self.name,
            groups,
            update,
            selection=selection,
            arrived=arrived,
            size_bytes=size_bytes,
            server_apart=spent.server_apart,
            server_apart_first=self._first_apart(spent.server_apart),
            seconds=spent.seconds(learning.seconds),
        )
        return self.keep(report)

    def _read(self, completion: Completion) -> Row | UnreadReason:
        needs_logp = reads_author_logp(self.learner.objective) and self.trusts(completion.author)
        problem = self.task.problem(completion.problem_id)
        policy = self.learner.policy
        return read(completion, problem, policy, self.sampling, needs_logp=needs_logp)

    def _grade(self, round: int, selected: Selection) -> list[Group]:
        """Reward every completion by the node's own task, and record it."""
        groups, lines = [], []
        for rows, kept in zip(selected.groups, selected.kept, strict=True):
            written = [row.completion for row in rows]
            problem = self.task.problem(written[0].problem_id)
            texts = [row.text for row in rows]
            rewards, by_function = graded(self.task, [problem] * len(rows), written, texts)
            parts = {name: tuple(values) for name, values in by_function.items()}
            for at, (c, text, reward) in enumerate(zip(written, texts, rewards, strict=True)):
                if not math.isfinite(reward):
                    raise NonFiniteError(
                        f"the task's reward for completion {c.index} of {c.problem_id!r} by "
                        f"{c.author!r} is {reward}; a reward is a finite number"
                    )
                origin = {"problem": c.problem_id, "author": c.author, "index": c.index}
                paid = {"reward": reward}
                if [*parts] != ["task"]:
                    paid |= {f"reward/{name}": values[at] for name, values in parts.items()}
                lines.append({"round": round, **origin, **paid, "end": c.end, "text": text})
            groups.append(Group(problem, rows, tuple(rewards), parts, kept))
        self.record.add("completions", lines)
        return groups

    def _record_sample(
        self, round: int, groups: Sequence[Group], scored: Scored, size_bytes: int
    ) -> None:
        policy, objective = self.learner.policy, self.learner.objective
        room = self.record.room_for_sample(size_bytes)
        lines = sample(round, groups, scored, policy, objective, me=self.name, size_bytes=room)
        self.record.add_sample(lines)

    def _first_apart(self, now: float | None) -> float | None:
        """Return the ``server_apart`` of the run's first writing, where a server writes."""
        first = None if now is None else self.record.first("metrics", "server_apart")
        return now if first is None else first


def step_together(nodes: Sequence[Participant], round: int) -> list[RoundReport]:
    """Do one round of nodes that share a process: all write and send, then all learn.

    One thread, so a run repeats to the last bit and a debugger can follow it.
    """
    if kept := _kept(nodes, round):
        if not _kept(nodes, round + 1):
            _begin(nodes, round + 1)
        return [node.learn_again(round, its) for node, its in zip(nodes, kept, strict=True)]
    shares = [node.shares(round) for node in nodes]
    spent = [node.generate_and_send(round, its) for node, its in zip(nodes, shares, strict=True)]
    _begin(nodes, round + 1)
    # All keep the round before one learns from it: after a crash nobody writes it again.
    came = [node.collect(round, so_far) for node, so_far in zip(nodes, spent, strict=True)]
    return [node.use(round, *each) for node, each in zip(nodes, came, strict=True)]


def _begin(nodes: Sequence[Participant], round: int) -> None:
    for node in nodes:
        if isinstance(node, Node):
            node.begin(round, node.shares(round))


def _kept(nodes: Sequence[Participant], round: int) -> list[Round]:
    """Return the round as each node kept it; nothing unless all did."""
    kept = [arrived for node in nodes if (arrived := node.record.kept_round(round))]
    return kept if len(kept) == len(nodes) else []


@contextmanager
def _error_context(round: int, node: str) -> Iterator[None]:
    """Add the round and the node to a NonFiniteError."""
    try:
        yield
    except NonFiniteError as error:
        raise NonFiniteError(f"round {round}, node {node!r}: {error}") from error
