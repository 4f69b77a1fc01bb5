"""The loop: one round of a node, top to bottom. Start reading here.

    generate   its share of the round's problems          (rollout, pace)
    send       its completions to all nodes               (exchange)
    receive    the completions of others                  (pace, exchange)
    select     what was asked for and can be used         (pace)
    grade      every completion, its own included         (tasks)
    test       others' habits, which may silence answers  (objective/habit)
    learn      from all of them                           (learning, objective)

Begin with ``step``, at the end of this file. A node's pace (``node/pace/``) says which problems the
node writes, whether it waits, and what is compared with what; whom a round waits for is decided in
``exchange/protocol/rules.py``. How this departs from GRPO: a group may be another model's, which
the method's weights make up for (F-TIS, arXiv:2605.22537; LWS, docs/method.md); there is no KL term
to a reference model, as in the paper (section 2), unless [objective] beta asks for one.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from potluck.config import RunConfig
from potluck.exchange import Received, Round
from potluck.node.learning.base import Learning, UpdateReport
from potluck.node.learning.batch import pack
from potluck.node.participant import Clock, GradedRound, Participant, Spent
from potluck.node.report import lines_of, report_of, sample
from potluck.node.selection import Replays, Selection, UnreadReason, read
from potluck.objective.habit import GradedAnswer, HabitTest, silenced_answers
from potluck.objective.methods import reads_author_logp
from potluck.reports import RoundReport
from potluck.right import is_binary, is_full, merged
from potluck.rollout.base import Engine, OpenWriting, RandomSampler
from potluck.rollout.texts.base import BYTES_A_TOKEN
from potluck.schedule import Share
from potluck.tasks.base import environment_of, graded
from potluck.tasks.faults import Commonest, Kind, commonest_answer, fault_of
from potluck.types import Completion, Group, NonFiniteError, Problem, Row


@dataclass(frozen=True, eq=False, kw_only=True)
class Node(Participant):
    """One participant that learns: its model, its task, and its line to the others."""

    config: RunConfig
    engine: Engine
    learner: Learning
    sends_text: bool
    """True: completions go as text too, as some reader may have another tokenizer."""
    trusts: Callable[[str], bool]
    """Function that tells of an author if it is trusted: see ``objective/trust.py``."""
    habits: HabitTest | None = None
    """Test of others' habits; None: their successes are learned from as the weight has it."""
    begun: dict[int, tuple[Sequence[Share], OpenWriting]] = field(default_factory=dict)
    """The later round that is being written while this node learns, if any."""
    compared: list[int] = field(default_factory=list)
    """The round whose writing was compared with what learns: the first one of this process."""

    def draw(self, round: int, received: Received) -> Sequence[Share]:
        return self.begun[round][0] if round in self.begun else super().draw(round, received)

    def generate_and_send(self, round: int, shares: Sequence[Share]) -> Spent:
        with Clock() as generating, error_context(round, self.name):
            completions = self.write(round, shares)
        with Clock() as sending:
            self.exchange.send(round, completions)
        mismatch = self.engine.server_mismatch if completions else None
        return Spent(generating.seconds, sending.seconds, server_mismatch=mismatch)

    def write(self, round: int, shares: Sequence[Share]) -> list[Completion]:
        """Return the completions of these shares, as they are sent."""
        policy, sampling = self.learner.policy, self.config.sampling
        if round in self.begun:
            completions = self.begun.pop(round)[1].collect(self._progress("write"))
        else:
            self.abandon()  # the others are ahead, and the round that was begun is skipped
            ask, sampler = self.requests(shares), self._sampler(round)
            progress = self._progress("write")
            completions = self.engine.generate(ask, sampler, author=self.name, progress=progress)
            if not self.compared and completions:
                self.engine.require_one_model(ask, sampler, completions)
                self.compared.append(round)
        if not self.config.sends_logp:  # no learner of the run reads them
            completions = [replace(c, logp_T=None) for c in completions]
        if self.sends_text:
            asked, most_bytes = self.task.problem, BYTES_A_TOKEN * sampling.max_new_tokens
            return [
                policy.spelled(c, asked(c.problem_id), most_bytes=most_bytes) for c in completions
            ]
        return [replace(c, text=None) if c.turns else c for c in completions]

    def begin(self, round: int, received: Received, written: Collection[str]) -> None:
        if round < self.config.rounds and self.engine.overlaps:
            shares = self.pace.draw(round, received, written=written)
            ask, sampler = self.requests(shares), self._sampler(round)
            if writing := self.engine.begin(ask, sampler, author=self.name):
                self.begun[round] = shares, writing

    def abandon(self) -> None:
        """Break off what was begun and is not waited for any more."""
        while self.begun:
            _, (_, writing) = self.begun.popitem()
            writing.abandon()

    def _sampler(self, round: int) -> RandomSampler:
        generator = torch.Generator(self.learner.policy.device)
        generator.manual_seed(self.seed(round, "write"))
        return RandomSampler(generator, self.config.sampling.drawing)

    def grade(self, round: int, arrived: Round) -> GradedRound:
        with Clock() as grading, error_context(round, self.name):
            read = partial(self.read, replays=self.replays())
            selection = self.pace.select(round, arrived, read)
            groups = self._grade(round, selection)
        return GradedRound(selection, groups, grading.seconds)

    def use(
        self,
        round: int,
        graded: GradedRound | None,
        arrived: Round,
        spent: Spent,
        size_bytes: int,
    ) -> RoundReport:
        assert graded  # a node that learns has graded
        selection, groups = graded.selection, graded.groups
        with Clock() as learning, error_context(round, self.name):
            self.pace.remember(round, groups)
            answers = [
                GradedAnswer(group.problem.id, row.completion.author, reward, row.text)
                for group in groups
                for row, reward in zip(group.rows, group.rewards, strict=True)
            ]
            habits = self.habits.habits(answers) if self.habits else {}
            silenced = silenced_answers(answers, habits)
            update = self._learn(round, groups, silenced) if groups else None
            if update:
                room = self.record.room_for_sample(size_bytes)
                lines = sample(round, groups, update.scored, self.learner, size_bytes=room)
                self.record.add_sample(lines)
        report = report_of(round, self.name, groups, update, habits, selection, arrived)
        nothing = Counter[str](self._earned_nothing(groups))
        constant = self._constant(groups)
        attendance, apart = self.pace.attendance, spent.server_mismatch
        first = None if apart is None else self.record.first("metrics", "server_apart")
        report = replace(
            report,
            own_earned_nothing=dict(nothing),
            own_commonest_answer=constant.answer if constant else "",
            own_commonest_share=constant.share if constant else None,
            own_commonest_right=constant.right if constant else None,
            size_bytes=size_bytes,
            server_apart=apart,
            server_apart_first=apart if first is None else first,
            seconds=spent.seconds(graded.seconds + learning.seconds),
            absent=tuple(sorted(attendance.absent(round))),
            heard=attendance.note(round, arrived, report.sources, me=self.name),
            finished=self._finished(arrived),
        )
        return self.keep(report)

    def _earned_nothing(self, groups: Sequence[Group]) -> list[Kind]:
        """List why own completions earned nothing; not of those that are right, as far as the round
        tells, and that a penalty cost what they had earned."""
        paid = ({name: is_binary(its) for name, its in each.parts.items()} for each in groups)
        decides = self.config.right_rule.function(merged(*paid))
        found = list[Kind]()
        for group in groups:
            numbers = group.parts[decides] if decides else group.rewards
            for row, reward, number in zip(group.rows, group.rewards, numbers, strict=True):
                one = row.completion
                is_right = decides and is_full(decides, number, one.end)
                if one.author == self.name and reward <= 0 and not is_right:
                    found.append(fault_of(self.task, group.problem, one, row.text).kind)
        return found

    def _constant(self, groups: Sequence[Group]) -> Commonest | None:
        """Find the answer that this node's completions give most often."""
        problems, texts = list[Problem](), list[str]()
        for group in groups:
            for row in group.rows:
                if row.completion.author == self.name:
                    problems.append(group.problem)
                    texts.append(row.text)
        return commonest_answer(self.task, problems, texts)

    def _finished(self, arrived: Round) -> tuple[str, ...]:
        last = self.config.rounds - 1
        return tuple(sorted(name for name, newest in arrived.newest.items() if newest >= last))

    def _learn(self, round: int, groups: Sequence[Group], silenced: Sequence[bool]) -> UpdateReport:
        scale = self.learner.objective.advantage_scale
        batch = pack(groups, scale=scale, trusts=self.trusts, silenced=silenced)
        torch.manual_seed(self.seed(round, "learn"))  # dropout, where there is any
        return self.learner.learn(batch, self._progress("learn"), round=round)

    def replays(self) -> Replays | None:
        """Make what replays a round's episodes; None: the task has no environment."""
        environment = environment_of(self.task)
        return Replays(environment, self.name) if environment else None

    def read(self, completion: Completion, *, replays: Replays | None) -> Row | UnreadReason:
        """Read a completion of any author with this node's model."""
        needs_logp = reads_author_logp(self.learner.objective) and self.trusts(completion.author)
        problem = self.task.problem(completion.problem_id)
        given = completion, problem, self.learner.policy, self.config.sampling
        return read(*given, needs_logp=needs_logp, replays=replays)

    def _grade(self, round: int, selected: Selection) -> list[Group]:
        groups = []
        for rows, past in zip(selected.groups, selected.past_rewards, strict=True):
            written = [row.completion for row in rows]
            problem = self.task.problem(written[0].problem_id)
            texts, episodes = [row.text for row in rows], [row.episode for row in rows]
            given = [problem] * len(rows), written, texts, episodes
            rewards, by_function = graded(self.task, *given)
            for c, reward in zip(written, rewards, strict=True):
                if not math.isfinite(reward):
                    raise NonFiniteError(
                        f"the task's reward for completion {c.index} of {c.problem_id!r} by "
                        f"{c.author!r} is {reward}; a reward is a finite number"
                    )
            parts = {name: tuple(values) for name, values in by_function.items()}
            groups.append(Group(problem, rows, tuple(rewards), parts, past))
        self.record.add_problems(round, [group.problem for group in groups])
        self.record.add("completions", [line for each in groups for line in lines_of(round, each)])
        return groups


def step(nodes: Sequence[Participant], round: int) -> list[RoundReport]:
    """Do one round of nodes that share a process: all write and send, then all grade, then all
    learn. Nodes at their own pace do it one by one. One thread: a run repeats to the last bit, a
    debugger can follow."""
    # After a crash: this round is stored, so nothing is written again, only learned.
    if stored := _stored(nodes, round):
        if not _stored(nodes, round + 1):
            for node, its in zip(nodes, stored, strict=True):
                own = {c.problem_id for c in its.completions if c.author == node.name}
                node.begin(round + 1, its.received_by(node.name, round), own)
        again = [
            (its, Spent(), node.record.size(round)) for node, its in zip(nodes, stored, strict=True)
        ]
        return _grade_and_learn(nodes, round, again)
    opened = [node.open(round) for node in nodes]
    sent = [node.send(each) for node, each in zip(nodes, opened, strict=True)]
    for node, each in zip(nodes, sent, strict=True):
        node.begin(round + 1, each.looked, {share.problem_id for share in each.shares})
    # All store the round before one learns from it: after a crash nobody writes it again.
    arrived = [node.receive(each) for node, each in zip(nodes, sent, strict=True)]
    return _grade_and_learn(nodes, round, arrived)


def _grade_and_learn(
    nodes: Sequence[Participant], round: int, arrived: Sequence[tuple[Round, Spent, int]]
) -> list[RoundReport]:
    """Let all grade before one learns: where a reward fails, all models are of the same round."""
    graded = [
        node.grade(round, received) for node, (received, _, _) in zip(nodes, arrived, strict=True)
    ]
    return [
        node.use(round, its, *each) for node, each, its in zip(nodes, arrived, graded, strict=True)
    ]


@contextmanager
def error_context(round: int, node: str) -> Iterator[None]:
    """Add the round and the node to a NonFiniteError."""
    try:
        yield
    except NonFiniteError as error:
        raise NonFiniteError(f"round {round + 1}, node {node!r}: {error}") from error


def _stored(nodes: Sequence[Participant], round: int) -> list[Round]:
    """Return the round as each node stored it; nothing unless all did."""
    stored = [arrived for node in nodes if (arrived := node.record.kept_round(round))]
    return stored if len(stored) == len(nodes) else []
