"""The learner: what the completions of a round do to a model.

    scored = learner.score(batch)            pi_start, filter, weights: decided once a round
    gradient = learner.gradient(scored)      of the whole batch, unclipped; each untrusted author's
                                             part is scaled to its bound before it is added
                                             (``Passes.bounded_sum``, ``trust.bounded_scale``)
    learner.step(gradient)                   clip it, one step of the optimiser

``learn`` is these three for a round. Its passes, and the model that each of them sees:

    update 1    score and gradient in one pass, by the model of the round's start: so its
                log-probabilities *are* pi_start. In two passes, by the same model, if dropout makes
                training mode another policy, or if a weight needs the whole batch
    update n    gradient, by the model after update n - 1: R = pi_theta / pi_start is no longer 1
    reference   read once a round, in the pass that scores, and in no later one

A pass has micro-batches, and in each the loss is a sum of terms (``terms.py``). Trusted authors and
the KL share a pass; each author that is not trusted has one of its own, as its norm is bounded.

With several processes as one node, all of them call these functions, or none. Each reads rows
of its own, and what is found out about a row is told to all, so that each decides the same.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from potluck.model import LanguageModel, LearningRate
from potluck.model.lora import trained
from potluck.node.learning.batch import Batch, Scored
from potluck.node.learning.group import SINGLE_PROCESS, Learn, ProcessGroup
from potluck.node.learning.guard import rows_to_blame, without_unreadable
from potluck.node.learning.passes import Gradient, Passes, has_dropout
from potluck.node.learning.score import Scoring, candidates, merge_scores, weigh_batch
from potluck.node.learning.terms import Terms
from potluck.objective.losses import LOSSES, Loss
from potluck.objective.methods import ObjectiveConfig
from potluck.objective.weights import Weight, weight_of
from potluck.rollout.base import Progress


def silent(done: int, total: int) -> None:
    """Ignore progress: the default ``Progress``."""


@dataclass(frozen=True, slots=True, eq=False)
class UpdateReport:
    """The updates of one round."""

    updates: int
    """Optimiser steps taken; 0 where nothing was left to learn."""
    loss: float
    """Loss of the last update, over the whole batch, KL included; dimensionless."""
    gradient_norm: float
    """L2 norm of the last update's gradient before it was clipped."""
    learning_rate: float
    """Rate of the last update; of the one that was due where none was made."""
    scored: Scored
    shares: Mapping[str, float]
    """``Gradient.shares`` of the last update."""


@dataclass(frozen=True, eq=False)
class Learner:
    """A model, its optimiser, and how they learn."""

    name: str
    """Name of this node: an own completion that makes a number non-finite is an error."""
    policy: LanguageModel
    optimizer: torch.optim.Optimizer
    objective: ObjectiveConfig
    temperature: float
    gradient_clip_norm: float
    micro_batch_tokens: int
    processes: ProcessGroup = SINGLE_PROCESS
    """Processes over which ``policy`` is spread."""
    learning_rate: LearningRate | None = None
    """Rate of each update; None: the optimiser's own, for all."""
    longest: int = 1
    """Limit of a completion in tokens, which ``loss_type = "dr_grpo"`` divides by."""
    loss: Loss | None = None
    """Own loss of the recipe; None: that of its importance scheme."""
    reference: LanguageModel | None = None
    """Model that the KL is measured to: ``policy`` itself, whose adapter is then switched off, or
    a frozen one. None: there is no KL."""
    weight: Weight | None = None
    """Own weight of trusted authors' completions; None: that of the method."""

    def learn(self, batch: Batch, progress: Progress, *, round: int = 0) -> UpdateReport:
        """Take ``objective.updates_per_round`` optimiser steps on ``batch``.

            L = 1/B sum_i L_i = sum over micro-batches of  rows/B * (mean of their L_i)

        B is ``batch.rows_counted``: the trusted rows, those included that a filter or a zero
        advantage spares the forward and backward pass, so that the others do not grow for their
        absence; but not a row that is compared with untrusted ones alone. Untrusted rows do not
        count, yet their own part is divided by the same B. With other loss types tokens stand for
        rows (``share_of``). The KL has a mean of its own, over own rows. A batch of which nothing
        is left to learn moves nothing, momentum included. With a reference there
        is a KL to learn from in each completion of one's own, so none of them is spared.

        ``round`` decides the learning rate. Raise NonFiniteError if a number of this node's own
        making is not finite; one that a foreign completion caused costs that completion alone.
        """
        self.processes.broadcast(Learn(self.name, batch, torch.initial_seed(), round))
        report = self._updates(batch, round * self.objective.updates_per_round, progress)
        self.policy.empty_cache()  # or it stays in torch, and another process may want it
        if self.reference:
            self.reference.empty_cache()
        return report

    def _updates(self, batch: Batch, due: int, progress: Progress) -> UpdateReport:
        self._set_rate(due)
        scored, gradient = self.score_and_gradient(batch, progress)
        updates, loss, norm, shares = 0, 0.0, 0.0, gradient.shares
        has_kl = bool(self._terms.kl_rows(batch).any())
        for update in range(self.objective.updates_per_round):
            if update:
                gradient = self.gradient(scored, progress)
                scored = scored.without(gradient.dropped)
            # Without a trusted lesson others add nothing, and Adam must not move by momentum alone.
            if not (has_kl or (scored.kept_advantage_B * batch.trusted_B).any()):
                break
            self._set_rate(due + update)
            self.step(gradient)
            updates, loss, norm = update + 1, gradient.loss, gradient.norm
            shares = gradient.shares
            del gradient  # the next one needs its memory
        rate = self.optimizer.param_groups[0]["lr"]
        return UpdateReport(updates, loss, norm, rate, scored, shares)

    def score(self, batch: Batch) -> Scored:
        """Compute ln pi_start, filter and weights of every row that may teach, without dropout.
        Raise NonFiniteError if an own completion's log-probability, or a parameter, is not finite.
        """
        scoring = self._scoring(batch)
        rows_B = candidates(batch, self.name, self.objective) != 0
        self._passes.score(batch, rows_B | self._terms.kl_rows(batch), scoring)
        return self._merged(batch, scoring)

    def gradient(self, scored: Scored, progress: Progress = silent) -> Gradient:
        """Compute the gradient of the whole batch, unclipped; neither weights nor moments move.
        Raise NonFiniteError if that of an own completion, or a parameter, is not finite."""
        batch, dropped = scored.batch, dict[int, str]()
        while True:
            terms = self._terms.by_author(batch, scored.kept_advantage_B)
            gradient = self._passes.bounded_sum(batch, terms, scored, progress)
            if math.isfinite(gradient.norm):
                return replace(gradient, dropped=dropped)
            del gradient
            found = rows_to_blame(scored, self.gradient_of, self.policy, self.name)
            scored, dropped = scored.without(found), dropped | found

    def gradient_of(self, scored: Scored, kept_B: Tensor) -> Gradient:
        """Compute the gradient of the rows ``kept_B``, advantages or 0, whatever bounds hold for
        their authors, without a KL. Its norm may be infinite."""
        batch, scored = scored.batch, replace(scored, kept_advantage_B=kept_B)
        return self._passes.gradient(batch, [self._terms.policy(batch, kept_B)], scored, silent)

    def score_and_gradient(
        self, batch: Batch, progress: Progress = silent
    ) -> tuple[Scored, Gradient]:
        """Return ``score(batch)`` and its ``gradient``, in one forward pass where that can be.

        It cannot with dropout, where training mode is another policy than evaluation mode, with a
        weight that needs the whole batch, nor for a batch with a row that makes a number
        non-finite.
        """
        if self._in_two_passes:
            scored = self.score(batch)
        else:
            scored, gradient = self._in_one_pass(batch, progress)
            if not scored.dropped and math.isfinite(gradient.norm):
                return scored, gradient
            del gradient
        gradient = self.gradient(scored, progress)
        return scored.without(gradient.dropped), gradient

    def step(self, gradient: Gradient) -> None:
        """Clip the gradient, in place, and take one step of the optimiser with it."""
        parameters = trained(self.policy.network)
        for parameter, tensor in zip(parameters, gradient.tensors, strict=True):
            parameter.grad = tensor
        torch.nn.utils.clip_grad_norm_(parameters, self.gradient_clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _in_one_pass(self, batch: Batch, progress: Progress) -> tuple[Scored, Gradient]:
        scoring = self._scoring(batch)
        terms = self._terms.by_author(batch, candidates(batch, self.name, self.objective))
        gradient = self._passes.bounded_sum(batch, terms, scoring, progress)
        return self._merged(batch, scoring), gradient

    def _scoring(self, batch: Batch) -> Scoring:
        unread_B = self._terms.kl_rows(batch) if self.reference else None
        return Scoring(self.name, self.objective, self._weight, unread_B)

    def _merged(self, batch: Batch, scoring: Scoring) -> Scored:
        every = [part for parts in self.processes.all_gather(scoring.found) for part in parts]
        scored = without_unreadable(merge_scores(batch, every), self.policy, self.name)
        if self._weight and self._weight.needs_batch:
            return weigh_batch(scored, self.name, self.objective, self._weight)
        return scored

    def _set_rate(self, update: int) -> None:
        if self.learning_rate:
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate.at(update)

    @cached_property
    def _passes(self) -> Passes:
        mine = self.policy, self.reference, self.temperature, self.micro_batch_tokens
        return Passes(*mine, self.processes)

    @cached_property
    def _terms(self) -> Terms:
        loss, has_reference = self.loss or LOSSES[self.objective.importance], bool(self.reference)
        mine = self.name, self.objective, loss, self.longest, self.processes.size, has_reference
        return Terms(*mine)

    @cached_property
    def _weight(self) -> Weight | None:
        return self.weight or weight_of(self.objective)

    @cached_property
    def _in_two_passes(self) -> bool:
        needs_batch = self._weight is not None and self._weight.needs_batch
        return needs_batch or has_dropout(self.policy)
