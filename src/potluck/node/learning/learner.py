"""The learner: what the completions of a round do to a model.

    scored = learner.score(batch)            pi_start, filter, weights: decided once a round
    gradient = learner.gradient(scored)      of the whole batch, unclipped; each untrusted author's
                                             part is scaled to its bound (``trust.bounded_scale``)
    learner.step(gradient)                   clip it, one step of the optimiser

``learn`` is these three for a round. Its passes, and the model that each of them sees:

    update 1    score and gradient in one pass, by the model of the round's start: so its
                log-probabilities *are* pi_start. Each micro-batch is scored first (``_forward``
                fills ``scored`` in place), then its loss uses those weights. In two passes, by the
                same model, if dropout makes training mode another policy, or if a weight needs the
                whole batch
    update n    gradient, by the model after update n - 1: R = pi_theta / pi_start is no longer 1
    reference   read once a round, in the pass that scores, and in no later one

Trusted authors and the KL share a pass; each author that is not trusted has one of its own, as its
norm is bounded. With several processes as one node, all of them call these functions, or none, and
what one finds out about a row is told to all, so that each decides the same.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from potluck.model import LanguageModel, LearningRate
from potluck.model.training import adapter_off, trained
from potluck.node.learning.base import Learning, UpdateReport, silent
from potluck.node.learning.batch import Batch, Scored
from potluck.node.learning.group import SINGLE_PROCESS, ProcessGroup
from potluck.node.learning.passes import (
    Gradient,
    Portion,
    has_dropout,
    norm_of,
    portions_of,
    require_foreign,
)
from potluck.node.learning.score import candidates, completed, policy_loss, score_rows, unscored
from potluck.node.storage import checkpoint
from potluck.objective.losses import kl_loss
from potluck.objective.trust import bounded_scale
from potluck.rollout.base import Progress
from potluck.types import NonFiniteError


@dataclass(frozen=True, eq=False)
class Learner(Learning):
    """A model, its optimiser, and how they learn."""

    policy: LanguageModel
    optimizer: torch.optim.Optimizer
    temperature: float
    gradient_clip_norm: float
    micro_batch_tokens: int
    processes: ProcessGroup = SINGLE_PROCESS
    """Processes over which ``policy`` is spread."""
    learning_rate: LearningRate | None = None
    """Rate of each update; None: the optimiser's own."""
    reference: LanguageModel | None = None
    """Model that the KL is measured to: ``policy`` itself, whose adapter is then switched off, or
    a frozen one. None: there is no KL."""
    start: str = ""
    """Model that training began with, as the recipe names it; checkpoints keep its digest."""

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.policy.network.parameters())

    def save(self, folder: Path, round: int, *, card: str) -> None:
        self.processes.broadcast("save", self.name)
        checkpoint.save(folder, round, self.policy, self.optimizer, start=self.start, card=card)

    def learn(self, batch: Batch, progress: Progress, *, round: int = 0) -> UpdateReport:
        """Take ``objective.updates_per_round`` optimiser steps on ``batch``.

            L = 1/B sum_i L_i = sum over micro-batches of  rows/B * (mean of their L_i)

        B is ``batch.rows_counted``. Rows that a filter or a zero advantage keeps out of the passes
        still count in it, so that the others do not grow for their absence. Untrusted rows do not
        count, yet their part is divided by the same B. With other loss types tokens stand for rows
        (``share_of``). The KL has a mean of its own, over all own rows. A batch of which nothing
        is left to learn moves nothing, momentum included.

        Raise NonFiniteError if a number of this node's own making is not finite; one that a
        foreign completion caused costs that completion alone.
        """
        self.processes.broadcast("learn", self.name, batch, torch.initial_seed(), round)
        report = self._updates(batch, round * self.objective.updates_per_round, progress)
        self.policy.empty_cache()  # or it stays in torch, and another process may want it
        if self.reference:
            self.reference.empty_cache()
        return report

    def _updates(self, batch: Batch, due: int, progress: Progress) -> UpdateReport:
        self._set_rate(due)
        scored, gradient = self.score_and_gradient(batch, progress)
        updates, loss, norm, shares = 0, 0.0, 0.0, gradient.shares
        for update in range(self.objective.updates_per_round):
            if update:
                gradient = self.gradient(scored, progress)
                scored = scored.without(gradient.dropped)
            # Without a trusted lesson others add nothing, and Adam must not move by momentum alone.
            lessons_B = (scored.kept_advantage_B * batch.trusted_B != 0) | self._kl_rows(batch)
            if not lessons_B.any():
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
        scored = unscored(batch, has_reference=self.reference is not None)
        kl_B = self._kl_rows(batch)
        rows_B = kl_B | (candidates(batch, self.name, self.objective) != 0)
        self.policy.network.eval()
        with torch.no_grad():
            for portion in self._portions(batch, rows_B, silent):
                self._forward(portion, scored, kl_B, is_first=True)
        return self._completed(scored)

    def gradient(self, scored: Scored, progress: Progress = silent) -> Gradient:
        """Compute the gradient of the whole batch, unclipped; neither weights nor moments move.
        Raise NonFiniteError if that of an own completion, or a parameter, is not finite."""
        dropped = dict[int, str]()
        while True:
            gradient = self._bounded_sum(scored, scored.kept_advantage_B, progress)
            if math.isfinite(gradient.norm):
                return replace(gradient, dropped=dropped)
            del gradient
            found = self._rows_to_blame(scored)
            scored, dropped = scored.without(found), dropped | found

    def score_and_gradient(
        self, batch: Batch, progress: Progress = silent
    ) -> tuple[Scored, Gradient]:
        """Return ``score(batch)`` and its ``gradient``, in one forward pass where that can be: not
        for a batch with a row that makes a number non-finite, nor where ``_in_two_passes``."""
        if self._in_two_passes:
            scored = self.score(batch)
        else:
            scored = unscored(batch, has_reference=self.reference is not None)
            advantage_B = candidates(batch, self.name, self.objective)
            gradient = self._bounded_sum(scored, advantage_B, progress)
            scored = self._completed(scored)
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

    def _bounded_sum(self, scored: Scored, advantage_B: Tensor, progress: Progress) -> Gradient:
        """Compute the gradient of all rows with an advantage: a pass for the trusted ones and the
        KL, and one for each author that is not trusted, whose part is added within its bound."""
        batch, teaches_B = scored.batch, advantage_B != 0
        kl_B, nothing_B = self._kl_rows(batch), torch.zeros_like(teaches_B)
        total = self._pass(scored, kl_B | (batch.trusted_B & teaches_B), kl_B, progress)
        rows, norms, trusted_norm = batch.untrusted, dict[str, float](), total.norm
        for author in rows:
            added = self._pass(scored, batch.by(author) & teaches_B, nothing_B, progress)
            scale = bounded_scale(
                added.norm,
                rows[author],
                trusted_norm=trusted_norm,
                trusted_rows=batch.rows_counted,
                untrusted_rows=rows.total(),
            )
            norms[author] = scale * added.norm
            total = total.plus(added, scale)
            del added  # the next author's part needs its memory
        whole = sum(norms.values()) + trusted_norm
        shares = {author: norm / whole if whole else 0.0 for author, norm in norms.items()}
        return replace(total, shares=shares)

    def _pass(self, scored: Scored, rows_B: Tensor, kl_B: Tensor, progress: Progress) -> Gradient:
        """Compute the gradient of the policy loss of ``rows_B``, and of the KL of ``kl_B``, in one
        pass, which also scores rows that have no scores yet; it may be infinite."""
        network, loss = self.policy.network, 0.0
        is_first = not scored.read_B[rows_B].any()
        network.zero_grad()
        network.train()
        for portion in self._portions(scored.batch, rows_B, progress):
            loss += self._forward_backward(portion, scored, kl_B, is_first=is_first)
        network.eval()
        tensors = [parameter.grad for parameter in trained(network)]
        network.zero_grad()
        loss = sum(self.processes.all_gather(loss)) / self.processes.size
        return Gradient(tensors, loss, norm_of(tensors))

    def _portions(self, batch: Batch, rows_B: Tensor, progress: Progress) -> Iterator[Portion]:
        return portions_of(
            batch,
            rows_B,
            token_budget=self.micro_batch_tokens,
            shares_prompts=self.policy.shares_prompts,
            computes_twice=self.policy.computes_twice,
            processes=self.processes,
            progress=progress,
        )

    def _forward(self, portion: Portion, scored: Scored, kl_B: Tensor, *, is_first: bool) -> Tensor:
        """Compute ln pi_theta of a portion's rows; in their first pass it is ln pi_start, too."""
        micro = portion.micro
        if is_first:
            self._read_reference(portion, scored, kl_B)  # before the graph below takes memory
        logp_MT, entropy_MT = self.policy.logp_and_entropy(
            micro.prompts, micro.tokens, temperature=self.temperature, observed=micro.observed
        )
        if is_first and len(portion.row_M):
            found = logp_MT.detach().cpu(), entropy_MT.cpu()
            score_rows(self, scored, portion, found)
        return logp_MT

    def _read_reference(self, portion: Portion, scored: Scored, kl_B: Tensor) -> None:
        at = kl_B[portion.row_M].nonzero().squeeze(1)
        # Of several processes all make a pass, or none.
        if not (len(at) or (self.processes.size > 1 and kl_B.any())):
            return
        assert self.reference is not None
        assert scored.logp_reference_BT is not None
        rows = portion.micro.rows(at if len(at) else torch.tensor([0]))
        with torch.no_grad(), adapter_off(self.reference.network):
            read = self.reference.logp(
                rows.prompts, rows.tokens, temperature=self.temperature, observed=rows.observed
            )
        scored.logp_reference_BT[portion.row_M[at], : read.shape[1]] = read[: len(at)].cpu()

    def _forward_backward(
        self, portion: Portion, scored: Scored, kl_B: Tensor, *, is_first: bool
    ) -> float:
        """Add the gradient of a portion's loss; return that loss. No graph outlives it."""
        logp_MT = self._forward(portion, scored, kl_B, is_first=is_first)
        terms = self._losses(portion, scored, kl_B, logp_MT)
        if not terms:
            if self.processes.size > 1:  # the others' collectives wait for this process
                (0.0 * logp_MT.sum()).backward()
            return 0.0
        loss = sum(terms[1:], terms[0])
        loss.backward()
        return loss.item()

    def _losses(
        self, portion: Portion, scored: Scored, kl_B: Tensor, logp_MT: Tensor
    ) -> list[Tensor]:
        """Compute a portion's terms of the policy loss and the KL: those that it has rows of."""
        (row_M, micro), batch, device = portion, scored.batch, logp_MT.device
        kept_M, own_M, terms = scored.kept_advantage_B[row_M], kl_B[row_M], []
        if kept_M.any():
            loss = policy_loss(self, portion, scored, logp_MT)
            counted = batch.rows_counted, batch.tokens_counted
            terms.append(self._share((len(kept_M), int(micro.mask_BT.sum())), counted) * loss)
        if own_M.any():
            assert scored.logp_reference_BT is not None
            reference_MT = scored.logp_reference_BT[row_M[own_M], : logp_MT.shape[1]].to(device)
            mask_MT = micro.mask_BT[own_M].to(device)
            kl = kl_loss(logp_MT[own_M.to(device)], reference_MT, mask_MT, self.objective)
            terms.append(self._share(micro.size(own_M), batch.size(kl_B)) * kl)
        return terms

    def _share(self, part: tuple[int, int], whole: tuple[int, int]) -> float:
        """Return the factor on the mean over ``part``, its rows and tokens. The gradient becomes
        the mean over the processes, and the loss is a sum over rows, so it has their number."""
        rows, tokens = (count * self.processes.size for count in part)
        return self.share((rows, tokens), whole)

    def _kl_rows(self, batch: Batch) -> Tensor:
        """Return a mask [B] of the rows whose distance from the reference is in the loss."""
        return batch.by(self.name) & (self.reference is not None)

    def _completed(self, scored: Scored) -> Scored:
        """Put the scores of all processes together, drop foreign rows whose log-probability is not
        finite, and apply a weight that needs the whole batch."""
        mine = [scored.metrics_BK, scored.logp_start_BT, scored.entropy_BT, scored.kept_advantage_B]
        if scored.logp_reference_BT is not None:
            mine.append(scored.logp_reference_BT)
        for theirs in self.processes.all_gather(mine):
            read_B = theirs[0][:, 0].isfinite()
            for column_B, found_B in zip(mine, theirs, strict=True):
                column_B[read_B] = found_B[read_B]
        return completed(self, scored, self.policy)

    def _rows_to_blame(self, scored: Scored) -> dict[int, str]:
        """Find, one by one, the rows whose gradient alone is not finite. Rare, so it may be slow.
        Raise NonFiniteError if one of them is this node's own, or no single row is at fault."""
        found, nothing_B = {}, torch.zeros_like(scored.batch.trusted_B)
        for row in scored.kept_advantage_B.nonzero().squeeze(1).tolist():
            alone_B = torch.zeros_like(scored.kept_advantage_B)
            alone_B[row] = scored.kept_advantage_B[row]
            alone = replace(scored, kept_advantage_B=alone_B)
            if not math.isfinite(self._pass(alone, alone_B != 0, nothing_B, silent).norm):
                completion = scored.batch.completions[row]
                require_foreign(completion, "gradient", self.policy, self.name)
                found[row] = "gradient"
        if not found:
            raise NonFiniteError(
                f"{self.name!r}: the gradient of the batch is not finite, though that of "
                f"each completion is; lower micro_batch_tokens or the learning rate"
            )
        return found

    def _set_rate(self, update: int) -> None:
        if self.learning_rate:
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate.at(update)

    @cached_property
    def _in_two_passes(self) -> bool:
        """True with a weight that needs all scores, or where training is another policy."""
        needs_batch = self.weight is not None and self.weight.needs_batch
        return needs_batch or has_dropout(self.policy)
