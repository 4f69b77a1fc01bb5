"""What a node had of its rounds, as its line to the others: the recording is the exchange."""

from collections.abc import Sequence
from pathlib import Path

import torch

from potluck.config import NodeConfig
from potluck.exchange import Round, Waiting
from potluck.exchange.base import silent
from potluck.node import Learner, Record
from potluck.replay.plan import ReplayError
from potluck.tasks import Task
from potluck.types import Completion

TOLERANCE = {"float32": 0.01, "bfloat16": 0.1}
"""By how much a model may differ from itself, nats a token in the mean, by what it wrote in.
Another machine or the compact codec cost up to 0.001, bfloat16 about 0.003 and more."""
LOOKED_AT = 32
"""Completions by which a model is recognised."""


class Tape:
    """An ``Exchange`` that plays one node's rounds, and records nothing."""

    def __init__(self, run: Path, name: str, node: str, rounds: Sequence[int]) -> None:
        """
        Args:
            run: its folder.
            name: what the run is called, in its messages.
            rounds: those that ``node`` learned from.

        Raises:
            ReplayError: one of them is missing or damaged.
        """
        self.run, self.node, self.rounds = run, node, tuple(rounds)
        kept = run / node / "rounds"
        if not kept.is_dir():  # Record would make it, and a replay writes nothing into a run
            raise ReplayError(
                f"there is no {kept}, but {node!r} learned from rounds; bring it back"
            )
        self._record = Record(run / node, run=name, node=node)
        for at, round in enumerate(self.rounds):
            if self._record.kept_round(round) is None:
                place = run / node / "rounds" / f"{round:06d}.ptlk"
                way_out = f"--rounds {at} replays those before it" if at else "bring it back"
                raise ReplayError(
                    f"{place} is missing or damaged, but {node!r} learned from it; {way_out}"
                )

    def send(self, round: int, batch: Sequence[Completion]) -> None:
        """What is written now is not in the recording."""

    def collect(self, round: int, *, deadline_s: float, waiting: Waiting = silent) -> Round:
        kept = self._record.kept_round(round)
        if kept is None:
            raise ReplayError(f"round {round} of {self.node!r} in {self.run} went away meanwhile")
        return kept

    def round_of_others(self) -> int:
        return 0

    def close(self) -> None: ...

    def require_same_model(self, learner: Learner, task: Task, node: NodeConfig) -> None:
        """Raises ReplayError unless the model is the one that wrote the node's first round.

        A recipe names a place, and another model may lie there by now. A node that wrote nothing
        in its first round cannot be asked.
        """
        first = self.rounds[0]
        came = self.collect(first, deadline_s=0).completions
        own = [c for c in came if c.author == self.node][:LOOKED_AT]
        if not own:
            return
        apart = sum(_apart(learner, task, c) for c in own) / sum(len(c.token_T) for c in own)
        allowed = node.server.tolerance if node.server else TOLERANCE[node.sampling_dtype]
        if not apart <= allowed:
            raise ReplayError(
                f"the model of {self.node!r}, {node.model}, is not the one that wrote round "
                f"{first} of {self.run}: it differs by {apart:.3g} nats a token in the mean, at "
                f"most {allowed:g} was expected; bring that model back"
            )


@torch.no_grad()
def _apart(learner: Learner, task: Task, completion: Completion) -> float:
    """Sum over tokens of |ln p now - ln p then|, nats; inf of ids that the model does not know."""
    language, token_T = learner.language, completion.token_T
    if token_T.max() >= language.vocabulary:
        return float("inf")
    prompt_P = language.prompt(task.problem(completion.problem_id))
    logp_1T = language.logp([prompt_P], [token_T], temperature=learner.temperature)
    return float((logp_1T[0].cpu() - torch.tensor(completion.logp_T)).abs().sum())
