"""The loop: what a node does in one round, top to bottom. Start reading here.

    write      its share of the round's problems          (rollout, swarm)
    send       what it wrote, to everybody                (exchange)
    collect    what everybody wrote                       (exchange)
    grade      every completion, its own included         (tasks)
    learn      from all of them                           (objective, learner)

How this departs from GRPO: a group may be another model's, which the importance weight and
the filter make up for (F-TIS, arXiv:2605.22537); there is no KL term to a reference model,
as in the paper (section 2).
"""

import hashlib
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

from potluck.config import SamplingConfig
from potluck.exchange import Exchange, Round
from potluck.node.batch import pack
from potluck.node.learner import Learner
from potluck.node.record import Record
from potluck.node.report import RoundReport, report_of
from potluck.rollout import Engine, Order, Sampled
from potluck.swarm import Plan, Share
from potluck.tasks import Task
from potluck.types import Completion, Group, NonFiniteError, Problem

Progress = Callable[[str, str, int, int], None]
"""Called with (node, phase, done, total) during everything that takes long."""


@dataclass(frozen=True, eq=False)
class Node:
    """One participant: its model, its task, and its line to the others."""

    name: str
    weights: Mapping[str, float]
    """How much each node of the swarm writes, this one included."""
    task: Task
    engine: Engine
    learner: Learner
    exchange: Exchange
    record: Record
    plan: Plan
    group_size: int
    sampling: SamplingConfig
    seed: int
    """Of the run: equal on every node."""
    deadline_s: float
    progress: Progress

    def step(self, round: int, problems: Sequence[Problem]) -> RoundReport:
        """One round of a node that has a process to itself."""
        if (kept := self.record.kept_round(round)) is not None:
            return self.learn_again(round, problems, kept)
        spent = self.write_and_send(round, problems)
        return self.collect_and_learn(round, problems, spent)

    def write_and_send(self, round: int, problems: Sequence[Problem]) -> dict[str, float]:
        """Returns the seconds that each phase took."""
        with _Clock() as writing:
            written = self._write(round, problems)
        with _Clock() as sending:
            self.exchange.send(round, written)
        return {"write": writing.seconds, "exchange": sending.seconds}

    def collect_and_learn(
        self, round: int, problems: Sequence[Problem], spent: Mapping[str, float]
    ) -> RoundReport:
        with _Clock() as waiting:
            arrived = self.exchange.collect(round, deadline_s=self.deadline_s)
        size_bytes = self.record.keep_round(round, arrived.completions)
        seconds = {**spent, "exchange": spent["exchange"] + waiting.seconds}
        return self._learn(round, problems, arrived, seconds, size_bytes)

    def learn_again(
        self, round: int, problems: Sequence[Problem], kept: Sequence[Completion]
    ) -> RoundReport:
        """A round whose completions are on disk: after a crash they need not be written again."""
        asked = {share.node for share in self._shares(round, problems)}
        missing = tuple(sorted(asked - {c.author for c in kept}))
        size_bytes = self.record.keep_round(round, kept)
        arrived = Round(tuple(kept), missing, late=())
        return self._learn(round, problems, arrived, {"write": 0.0, "exchange": 0.0}, size_bytes)

    def _write(self, round: int, problems: Sequence[Problem]) -> list[Completion]:
        by_id = {p.id: p for p in problems}
        shares = self._shares(round, problems)
        orders = [Order(by_id[s.problem_id], s.count) for s in shares if s.node == self.name]
        language = self.learner.language
        dice = torch.Generator(language.device).manual_seed(self._seed(round, "write"))
        draw = Sampled(dice, self.sampling.temperature, self.sampling.top_k, self.sampling.top_p)
        with _naming(round, self.name):
            return self.engine.write(
                orders,
                draw,
                author=self.name,
                progress=lambda done, total: self.progress(self.name, "write", done, total),
            )

    def _learn(
        self,
        round: int,
        problems: Sequence[Problem],
        arrived: Round,
        spent: Mapping[str, float],
        size_bytes: int,
    ) -> RoundReport:
        batch = lesson = None
        with _Clock() as learning, _naming(round, self.name):
            asked = self._asked_for(round, problems, arrived.completions)
            usable = [c for c in asked if self._is_usable(c)]
            groups = self._grade(round, problems, usable)
            if groups:
                batch = pack(
                    groups,
                    self.learner.language.prompt,
                    scale=self.learner.objective.advantage_scale,
                )
                torch.manual_seed(self._seed(round, "learn"))  # dropout, where there is any
                lesson = self.learner.learn(
                    batch, lambda done, total: self.progress(self.name, "learn", done, total)
                )
        report = report_of(
            round,
            self.name,
            batch,
            [reward for group in groups for reward in group.rewards],
            lesson,
            unasked=len(arrived.completions) - len(asked),
            unusable=len(asked) - len(usable),
            missing=arrived.missing,
            late=len(arrived.late),
            size_bytes=size_bytes,
            seconds={**spent, "learn": learning.seconds},
        )
        self.record.add("metrics", [asdict(report)])
        return report

    def _asked_for(
        self, round: int, problems: Sequence[Problem], arrived: Iterable[Completion]
    ) -> list[Completion]:
        """What the plan asked of its author; a peer cannot write itself a larger share."""
        count = {(s.problem_id, s.node): s.count for s in self._shares(round, problems)}
        return [c for c in arrived if c.index < count.get((c.problem_id, c.author), 0)]

    def _is_usable(self, completion: Completion) -> bool:
        """Whether it can be what it says: ids this model knows, not too long, and ended as told.

        ``end`` decides what a completion may earn, so it is looked up in the tokens: "stop"
        is a stop token at the end, and there is none anywhere else.
        """
        language, token_T = self.learner.language, completion.token_T
        stops_T = np.isin(token_T, list(language.stop_ids))
        return (
            bool((token_T < language.vocabulary).all())
            and len(token_T) <= self.sampling.max_new_tokens
            and not stops_T[:-1].any()
            and bool(stops_T[-1]) == (completion.end == "stop")
        )

    def _shares(self, round: int, problems: Sequence[Problem]) -> list[Share]:
        ids = [problem.id for problem in problems]
        return self.plan(ids, self.weights, self.group_size, round=round)

    def _grade(
        self, round: int, problems: Sequence[Problem], completions: Iterable[Completion]
    ) -> list[Group]:
        """One group per problem of which anything came, with rewards of our own."""
        written = defaultdict(list)
        for completion in completions:
            written[completion.problem_id].append(completion)
        groups, lines = [], []
        for problem in problems:
            if not (group := written[problem.id]):
                continue
            texts = [self.learner.language.text(c.token_T) for c in group]
            rewards = self.task.rewards([problem] * len(group), group, texts)
            for c, text, reward in zip(group, texts, rewards, strict=True):
                if not math.isfinite(reward):
                    raise NonFiniteError(
                        f"the task's reward for completion {c.index} of {c.problem_id!r} by "
                        f"{c.author!r} is {reward}; a reward is a finite number"
                    )
                who = {"problem": c.problem_id, "author": c.author, "index": c.index}
                lines.append({"round": round, **who, "reward": reward, "end": c.end, "text": text})
            groups.append(Group(problem, tuple(group), tuple(rewards)))
        self.record.add("completions", lines)
        return groups

    def _seed(self, round: int, what: str) -> int:
        """63 bits that no other (run seed, round, node, purpose) has."""
        raw = hashlib.sha256(f"{self.seed}/{round}/{self.name}/{what}".encode()).digest()
        return int.from_bytes(raw[:8], "little") >> 1


def step_together(
    nodes: Sequence[Node], round: int, problems: Sequence[Problem]
) -> list[RoundReport]:
    """One round of nodes that share a process: all write and send, then all learn.

    One thread, so a run repeats to the last bit and a debugger can follow it.
    """
    kept = [node.record.kept_round(round) for node in nodes]
    if all(completions is not None for completions in kept):
        pairs = zip(nodes, kept, strict=True)
        return [node.learn_again(round, problems, kept or ()) for node, kept in pairs]
    spent = [node.write_and_send(round, problems) for node in nodes]
    pairs_spent = zip(nodes, spent, strict=True)
    return [node.collect_and_learn(round, problems, seconds) for node, seconds in pairs_spent]


class _Clock:
    """Seconds that a block took."""

    seconds = 0.0

    def __enter__(self) -> "_Clock":
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._start


class _naming:
    """Says in which round and on which node a number stopped being finite."""

    def __init__(self, round: int, node: str) -> None:
        self.where = f"round {round}, node {node!r}"

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, NonFiniteError):
            raise NonFiniteError(f"{self.where}: {error}") from error
