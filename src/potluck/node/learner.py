"""The learner: the updates that a round makes of its batch.

An update is one optimiser step on all completions of the round. Decided once, in the first
update's forward pass, and kept through all of them: pi_start, every token's weight, and
which completions are silenced. That pass has the weights of the round's start, so its
log-probabilities *are* pi_start, and one pass serves the filter, the statistics and the
loss. (With dropout they are not, and a second pass without it is made.)

Where several processes are one node, each goes through its own rows, and what is found out
about a row is told to all: each then decides the same, and each pass is made by all or none.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from potluck.config import ObjectiveConfig
from potluck.node.batch import Batch, micro_batches
from potluck.node.objective import policy_loss, silence
from potluck.node.statistics import COLUMNS, row_statistics
from potluck.node.team import ALONE, Learn, Team
from potluck.rollout import LanguageModel
from potluck.rollout.lora import trained
from potluck.rollout.sharding import whole
from potluck.types import Completion, NonFiniteError

RANDOM = ("dropout", "layerdrop", "jitter")
"""In the name of a rate: what training does at random, and evaluation does not."""


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """What a round's updates were made of."""

    updates: int
    """Optimiser steps taken; 0 where nothing was left to learn."""
    loss: float
    """Of the last update, over the whole batch; dimensionless."""
    gradient_norm: float
    """L2, of the last update, before it was clipped."""
    heard_B: Tensor
    """The advantages as the filter left them."""
    statistics_B8: Tensor
    """Of ``row_statistics``, NaN for rows that had no advantage."""
    dropped: dict[int, str]
    """Foreign rows that made a number non-finite, and which number."""


@dataclass(frozen=True, eq=False)
class Learner:
    """A model, its optimiser, and how they learn."""

    name: str
    """Of this node: its own completions are held to a stricter rule than a peer's."""
    language: LanguageModel
    optimizer: torch.optim.Optimizer
    objective: ObjectiveConfig
    temperature: float
    gradient_clip_norm: float
    micro_batch_tokens: int
    team: Team = ALONE
    """The processes over which ``language`` is spread."""

    def learn(self, batch: Batch, progress: Callable[[int, int], None]) -> Lesson:
        """Takes ``objective.updates_per_round`` optimiser steps on ``batch``.

            L = 1/B sum_i L_i = sum over micro-batches of  rows/B * (mean of their L_i)

        A row of zero advantage has L_i = 0, so it is spared the forward and backward
        pass. It still counts in B: the others do not grow for its silence. A batch of
        which nothing is left to learn moves nothing, momentum included.

        Raises:
            NonFiniteError: a number of this node's own making is not finite. One that a
                foreign completion caused costs that completion, and no more.
        """
        self.team.call(Learn(self.name, batch, torch.initial_seed()))
        round = _Round(self, batch)
        taken, norm = 0, 0.0
        for update in range(self.objective.updates_per_round):
            norm = self._gradient(round, update, progress)
            if not round.heard_B.any():
                break
            self.optimizer.step()
            taken += 1
        self.optimizer.zero_grad()
        self.language.network.eval()
        self.language.give_memory_back()
        loss = round.loss if taken else 0.0
        return Lesson(taken, loss, norm, round.heard_B, round.statistics_B8, round.dropped)

    def _gradient(
        self, round: "_Round", update: int, progress: Callable[[int, int], None]
    ) -> float:
        """Leaves the clipped gradient of the whole batch in the parameters; returns its norm."""
        parameters = trained(self.language.network)
        while True:
            self.optimizer.zero_grad()
            self.language.network.train()
            row_X = round.heard_B.nonzero().squeeze(1)
            round.backward(row_X, update, progress)
            length = torch.nn.utils.clip_grad_norm_(parameters, self.gradient_clip_norm)
            norm = float(whole(length))
            if math.isfinite(norm):
                return norm
            # All over again without the rows that the filter silenced meanwhile. If there were
            # none: which row is it? Rare, so finding out may be slow.
            if len(row_X) == int((round.heard_B != 0).sum()):
                round.drop_rows_without_finite_gradient(update)


class _Round:
    """One batch on its way through the updates of one round."""

    def __init__(self, learner: Learner, batch: Batch) -> None:
        self.learner, self.batch = learner, batch
        self.start_BT = torch.zeros_like(batch.logp_gen_BT)
        self.heard_B = batch.advantage_B.clone()
        self.statistics_B8 = torch.full(
            (len(batch.completions), len(COLUMNS)), torch.nan, dtype=torch.float64
        )
        self.dropped: dict[int, str] = {}
        self.loss = 0.0
        self._has_dropout = _has_dropout(learner.language.network)

    def backward(self, row_X: Tensor, update: int, progress: Callable[[int, int], None]) -> None:
        """Adds the gradient of these rows' part of the batch's loss."""
        self.loss, done = 0.0, 0
        team, budget = self.learner.team, self.learner.micro_batch_tokens
        pieces = list(micro_batches(self.batch, row_X, token_budget=budget))
        for first in range(0, len(pieces), team.size):
            turn = pieces[first : first + team.size]
            self._backward_turn(turn, update)
            done += sum(map(len, turn))
            progress(done, len(row_X))
        self.loss = sum(team.gather(self.loss)) / team.size

    def _backward_turn(self, turn: Sequence[Tensor], update: int) -> None:
        """One backward pass: each process its piece of ``turn``, all at the same time.

        The gradient is the mean over the processes, and the loss a sum over rows, so each part
        is taken times their number.
        """
        turn, micro, logp_MT = self._forward(turn)
        if not turn:
            return
        team, width = self.learner.team, logp_MT.shape[1]
        row_M = _piece(turn, team.rank)
        if update == 0:
            self._look_at(row_M, micro, self._start(micro, logp_MT))
        if not self.heard_B[torch.cat(list(turn))].any():
            return
        heard_M = self.heard_B[row_M]
        if heard_M.any():
            micro, share = replace(micro, advantage_B=heard_M), len(row_M) * team.size
            loss = policy_loss(
                logp_MT, self.start_BT[row_M, :width], micro, self.learner.objective
            ) * (share / len(self.batch.completions))
        else:
            loss = 0.0 * logp_MT.sum()  # the others cannot go through the layers without us
        loss.backward()
        self.loss += loss.item()

    def _forward(self, turn: Sequence[Tensor]) -> tuple[Sequence[Tensor], Batch, Tensor]:
        """(turn, micro-batch, logp_MT with gradient) without the rows that turn out non-finite.

        Where other processes have rows and this one has none (any more), the two are of one
        of theirs. The turn is empty where nobody has any.
        """
        while any(map(len, turn)):
            row_M = _piece(turn, self.learner.team.rank)
            if not len(row_M):
                row_M = next(piece for piece in turn if len(piece))[-1:]
            micro = self.batch.rows(row_M)
            logp_MT = self._logp(micro)
            bad_M = ~logp_MT.detach().isfinite().all(dim=1).cpu()
            told = self.learner.team.gather(row_M[bad_M].tolist())
            bad = list(dict.fromkeys(row for rows in told for row in rows))
            if not bad:
                return turn, micro, logp_MT
            # Masking a NaN is not enough: behind it, 0 * NaN would reach the weights.
            for row in bad:
                self._drop(row, "log-probability")
            turn = [piece[~torch.isin(piece, torch.tensor(bad))] for piece in turn]
        return [], self.batch, torch.zeros(0, 0)

    def _logp(self, micro: Batch) -> Tensor:
        tokens = [c.token_T for c in micro.completions]
        return self.learner.language.logp(
            micro.prompts, tokens, temperature=self.learner.temperature
        )

    def _start(self, micro: Batch, logp_MT: Tensor) -> Tensor:
        if not self._has_dropout:
            return logp_MT.detach()
        network = self.learner.language.network.eval()
        with torch.no_grad():
            start_MT = self._logp(micro)
        network.train()
        if not all(self.learner.team.gather(bool(start_MT.isfinite().all()))):
            raise NonFiniteError(
                f"{self.learner.name!r}: without dropout a log-probability is not finite, with it "
                f"all are; lower the learning rate"
            )
        return start_MT

    def _look_at(self, row_M: Tensor, micro: Batch, start_MT: Tensor) -> None:
        """Keeps pi_start of rows, their statistics, and the filter's word on them: everybody's."""
        found = None
        if len(row_M):
            start_MT, objective = start_MT.cpu(), self.learner.objective
            statistics_M8 = row_statistics(
                start_MT, micro.logp_gen_BT, micro.mask_BT, weight_cap=objective.weight_cap
            )
            found = row_M, start_MT, statistics_M8, silence(micro, start_MT, objective)
        for every in self.learner.team.gather(found):
            if every:
                row_M, start_MT, statistics_M8, heard_M = every
                self.start_BT[row_M, : start_MT.shape[1]] = start_MT
                self.statistics_B8[row_M] = statistics_M8
                self.heard_B[row_M] = heard_M

    def drop_rows_without_finite_gradient(self, update: int) -> None:
        """Finds, one by one, the rows whose gradient alone is not finite, and drops them.

        Raises:
            NonFiniteError: one of them is our own, or no single row is at fault.
        """
        optimizer, network = self.learner.optimizer, self.learner.language.network
        dropped_before = len(self.dropped)
        for row in self.heard_B.nonzero().squeeze(1).tolist():
            optimizer.zero_grad()
            self._backward_turn([torch.tensor([row])], update)
            gradients = [p.grad for p in network.parameters() if p.grad is not None]
            if not whole(torch.nn.utils.get_total_norm(gradients)).isfinite():
                self._drop(row, "gradient")
        if len(self.dropped) == dropped_before:
            raise NonFiniteError(
                f"{self.learner.name!r}: the gradient of the batch is not finite, though that of "
                f"each completion is; lower micro_batch_tokens or the learning rate"
            )

    def _drop(self, row: int, what: str) -> None:
        completion = self.batch.completions[row]
        for name, parameter in self.learner.language.network.named_parameters():
            if not whole(parameter.isfinite().all()):
                raise NonFiniteError(
                    f"{self.learner.name!r}: the weights {name!r} are not finite; lower the "
                    f"learning rate, in a new run (its model can be a checkpoint of this one)"
                )
        if completion.author == self.learner.name:
            raise NonFiniteError(
                f"{self.learner.name!r}: the {what} of {_named(completion)}, its "
                f"own, is not finite; lower the learning rate"
            )
        self.dropped[row] = what
        self.heard_B[row] = 0.0


def _has_dropout(network: torch.nn.Module) -> bool:
    """Whether training mode is another policy than evaluation mode.

    Some models keep a rate as a plain number and call the function: those are found by name.
    """
    return any(
        (isinstance(module, torch.nn.Dropout) and module.p > 0)
        or any(
            isinstance(value, float) and value > 0 and any(word in name for word in RANDOM)
            for name, value in vars(module).items()
        )
        for module in network.modules()
    )


def _piece(turn: Sequence[Tensor], rank: int) -> Tensor:
    """The rows of a turn that are a process's own; there may be none."""
    return turn[rank] if rank < len(turn) else torch.zeros(0, dtype=torch.long)


def _named(completion: Completion) -> str:
    return f"completion {completion.index} of {completion.problem_id!r} by {completion.author!r}"
