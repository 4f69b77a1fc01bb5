"""The loop: what a node does in one round, top to bottom. Start reading here.

    write      its share of the round's problems          (rollout, swarm)
    send       what it wrote, to everybody                (exchange)
    collect    what everybody wrote                       (exchange)
    sift       out what is not as it was asked for        (sieve)
    grade      every completion, its own included         (tasks)
    learn      from all of them                           (objective, learner)

How this departs from GRPO: a group may be another model's, which the importance weight and
the filter make up for (F-TIS, arXiv:2605.22537); there is no KL term to a reference model,
as in the paper (section 2).
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache

import numpy as np
import torch

from potluck.config import SamplingConfig
from potluck.exchange import Exchange, Round
from potluck.node.batch import pack
from potluck.node.learner import Learner
from potluck.node.record import Record
from potluck.node.report import RoundReport, report_of
from potluck.node.sieve import Sieve
from potluck.rollout import Engine, Order, Sampled
from potluck.swarm import Agenda
from potluck.tasks import Task
from potluck.types import Completion, Group, NonFiniteError, Problem

Progress = Callable[[str, str, int, int], None]
"""Called with (node, phase, done, total) during everything that takes long."""


@dataclass(frozen=True, eq=False)
class Node:
    """One participant: its model, its task, and its line to the others."""

    name: str
    agenda: Agenda
    """What every round asks of whom; equal on every node."""
    sieve: Sieve
    task: Task
    engine: Engine
    learner: Learner
    exchange: Exchange
    record: Record
    sampling: SamplingConfig
    deadline_s: float
    progress: Progress

    def next_round(self, done: int) -> int:
        """The round to do after ``done`` rounds: that one, unless the others are far ahead.

        What is written for a round that they have left by more than ``max_staleness`` is of use
        to nobody; who was away goes on where they are, and has what it missed as late groups.
        Rounds that this node did live before a crash come first.
        """
        others = self.exchange.round_of_others()
        if others - done <= self.sieve.max_staleness:
            return done
        kept = self.record.next_kept(done)
        return others if kept is None else min(kept, others)

    def write_and_send(self, round: int) -> dict[str, float]:
        """Returns the seconds that each phase took."""
        with _Clock() as writing:
            written = self._write(round)
        with _Clock() as sending:
            self.exchange.send(round, written)
        return {"write": writing.seconds, "exchange": sending.seconds}

    def collect_and_learn(self, round: int, spent: Mapping[str, float]) -> RoundReport:
        with _Clock() as waiting:
            arrived = self.exchange.collect(
                round,
                deadline_s=self.deadline_s,
                waiting=lambda came, all: self.progress(self.name, "wait", came, all),
            )
        size_bytes = self.record.keep_round(round, arrived)
        seconds = {**spent, "exchange": spent["exchange"] + waiting.seconds}
        return self._learn(round, arrived, seconds, size_bytes)

    def learn_again(self, round: int, kept: Round) -> RoundReport:
        """A round whose completions are on disk: after a crash they need not be written again."""
        return self._learn(round, kept, {"write": 0.0, "exchange": 0.0}, self.record.size(round))

    def _write(self, round: int) -> list[Completion]:
        shares = self.agenda.shares_of(round, self.name)
        orders = [Order(self.task.problem(s.problem_id), s.count) for s in shares]
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
        self, round: int, arrived: Round, spent: Mapping[str, float], size_bytes: int
    ) -> RoundReport:
        batch = lesson = None
        with _Clock() as learning, _naming(round, self.name):
            prompt = cache(self.learner.language.prompt)
            sifted = self.sieve.sift(round, arrived, lambda c: self._is_usable(c, prompt))
            groups = self._grade(round, sifted.groups)
            if groups:
                batch = pack(
                    groups,
                    prompt,
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
            sifted=sifted,
            arrived=arrived,
            size_bytes=size_bytes,
            seconds={**spent, "learn": learning.seconds},
        )
        self.record.add("metrics", [asdict(report)])
        return report

    def _is_usable(self, completion: Completion, prompt: Callable[[Problem], np.ndarray]) -> bool:
        """Whether it can be what it says: ids this model knows, not too long, and ended as told.

        ``end`` decides what a completion may earn, so it is looked up in the tokens: "stop"
        is a stop token at the end, and there is none anywhere else.
        """
        language, token_T = self.learner.language, completion.token_T
        prompt_P = prompt(self.task.problem(completion.problem_id))
        room = min(self.sampling.max_new_tokens, self.sampling.max_total_tokens - len(prompt_P))
        stops_T = np.isin(token_T, list(language.stop_ids))
        return (
            bool((token_T < language.vocabulary).all())
            and len(token_T) <= room
            and not stops_T[:-1].any()
            and bool(stops_T[-1]) == (completion.end == "stop")
        )

    def _grade(self, round: int, written: Iterable[tuple[Completion, ...]]) -> list[Group]:
        """Groups with rewards of our own."""
        groups, lines = [], []
        for group in written:
            problem = self.task.problem(group[0].problem_id)
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
            groups.append(Group(problem, group, tuple(rewards)))
        self.record.add("completions", lines)
        return groups

    def _seed(self, round: int, what: str) -> int:
        """63 bits that no other (run seed, round, node, purpose) has."""
        raw = hashlib.sha256(f"{self.agenda.seed}/{round}/{self.name}/{what}".encode()).digest()
        return int.from_bytes(raw[:8], "little") >> 1


def step_together(nodes: Sequence[Node], round: int) -> list[RoundReport]:
    """One round of nodes that share a process: all write and send, then all learn.

    One thread, so a run repeats to the last bit and a debugger can follow it.
    """
    kept = [node.record.kept_round(round) for node in nodes]
    if all(arrived is not None for arrived in kept):
        pairs = zip(nodes, kept, strict=True)
        return [node.learn_again(round, arrived) for node, arrived in pairs if arrived]
    spent = [node.write_and_send(round) for node in nodes]
    pairs_spent = zip(nodes, spent, strict=True)
    return [node.collect_and_learn(round, seconds) for node, seconds in pairs_spent]


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
