"""The learner: score a batch, ask for the gradient, take a step.

    scored = learner.score(batch)            pi_start, filter, metrics: decided once a round
    gradient = learner.gradient(scored)      of the whole batch, unclipped; of authors that are
                                             not trusted as much as is within their bound
    learner.step(gradient)                   clip it, one step of the optimiser

``learn`` is these three for a round. Its first update needs one forward pass for both score
and gradient: that pass has the weights of the round's start, so its log-probabilities *are*
pi_start (``score_and_gradient``).

With several processes as one node, all of them call these functions, or none. Each reads rows
of its own, and what is found out about a row is told to all, so that each decides the same.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from potluck.model import LanguageModel, LearningRate
from potluck.model.lora import adapter_off, trained
from potluck.model.sharding import full_tensor
from potluck.node.learning.batch import Batch, Piece, Scored, micro_batches
from potluck.node.learning.group import SINGLE_PROCESS, Learn, ProcessGroup
from potluck.node.learning.score import RowScores, candidates, merge_scores, score_rows
from potluck.objective.losses import LOSSES, Loss, kl_loss, share_of
from potluck.objective.methods import ObjectiveConfig
from potluck.objective.trust import bounded_scale
from potluck.rollout.base import Progress
from potluck.types import Completion, NonFiniteError


def silent(done: int, total: int) -> None:
    """Ignore progress: the default ``Progress``."""


@dataclass(frozen=True, slots=True, eq=False)
class Gradient:
    """The gradient of a batch's loss, before it is clipped."""

    tensors: Sequence[Tensor | None]
    """Gradient of each trained parameter (``lora.trained``); None where the loss does not reach
    it."""
    loss: float
    """Loss over the whole batch; dimensionless."""
    norm: float
    """L2 norm over all parameters; finite."""
    dropped: Mapping[int, str]
    """Foreign rows that had to be left out as they made a number non-finite, and which."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Share of each author that is not trusted in the sum of its parts' norms, 0..1."""


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

    def learn(self, batch: Batch, progress: Progress, *, round: int = 0) -> UpdateReport:
        """Take ``objective.updates_per_round`` optimiser steps on ``batch``.

            L = 1/B sum_i L_i = sum over micro-batches of  rows/B * (mean of their L_i)

        A row of zero advantage has L_i = 0, so it is spared the forward and backward
        pass. It still counts in B: the others do not grow for its absence. Rows of authors
        that are not trusted do not count: silent or not, they change no other's part. A batch
        of which nothing is left to learn moves nothing, momentum included. With a reference there
        is a KL to learn from in each completion of one's own, so none of them is spared.

        Args:
            round: number of the round, which decides the learning rate.

        Raises:
            NonFiniteError: a number of this node's own making is not finite. One that a
                foreign completion caused costs that completion, and no more.
        """
        self.processes.broadcast(Learn(self.name, batch, torch.initial_seed(), round))
        self._set_rate(due := round * self.objective.updates_per_round)
        scored, gradient = self.score_and_gradient(batch, progress)
        updates, loss, norm, shares = 0, 0.0, 0.0, gradient.shares
        # Without a trusted lesson others add nothing, and Adam must not move by momentum alone.
        while (scored.kept_advantage_B * batch.trusted_B).any() or self._tethered(batch).any():
            self._set_rate(due + updates)
            self.step(gradient)
            updates, loss = updates + 1, gradient.loss
            norm, shares = gradient.norm, gradient.shares
            if updates == self.objective.updates_per_round:
                break
            del gradient  # the next one needs its memory
            gradient = self.gradient(scored, progress)
            scored = scored.without(gradient.dropped)
        del gradient  # or its memory stays in torch, and another process may want it
        self.policy.empty_cache()
        if self.reference:
            self.reference.empty_cache()
        rate = self.optimizer.param_groups[0]["lr"]
        return UpdateReport(updates, loss, norm, rate, scored, shares)

    def score(self, batch: Batch) -> Scored:
        """Compute ln pi_start, filter and weights of every row that may teach, without dropout.

        Raises:
            NonFiniteError: a log-probability of an own completion, or a weight, is not finite.
        """
        scores = []
        self.policy.network.eval()
        tethered_B = self._tethered(batch)
        with torch.no_grad():
            for piece in self._turns(batch, self._candidates(batch), tethered_B, silent):
                reference_MT, logp_MT = self._reference_logp(piece), self._logp(piece.rows)
                if len(piece.row_M):
                    scores.append(self._score_rows(piece, logp_MT, reference_MT))
        return self._merge_scores(batch, scores)

    def gradient(self, scored: Scored, progress: Progress = silent) -> Gradient:
        """Compute the gradient of the whole batch, unclipped; neither weights nor moments move.

        Raises:
            NonFiniteError: the gradient of an own completion, or a weight, is not finite.
        """
        dropped: dict[int, str] = {}
        while not math.isfinite((gradient := self._gradient(scored, progress)).norm):
            del gradient
            # Which row is it? Rare, so finding out may be slow.
            found = self._rows_without_finite_gradient(scored)
            scored, dropped = scored.without(found), dropped | found
        return replace(gradient, dropped=dropped)

    def gradient_of(self, scored: Scored, kept_B: Tensor, progress: Progress = silent) -> Gradient:
        """Compute the gradient of the rows ``kept_B``, advantages or 0, whatever bounds hold for
        their authors, without a KL. Its norm may be infinite."""
        return self._part(scored, kept_B, torch.zeros_like(kept_B, dtype=torch.bool), progress)

    def score_and_gradient(
        self, batch: Batch, progress: Progress = silent
    ) -> tuple[Scored, Gradient]:
        """Return ``score(batch)`` and its ``gradient``, in one forward pass where that can be.

        It cannot with dropout, where training mode is another policy than evaluation mode,
        nor for a batch with a row that makes a number non-finite.
        """
        if self._has_dropout:
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
        scores: list[RowScores] = []

        def part(advantage_B: Tensor, tethered_B: Tensor) -> Gradient:
            loss = 0.0
            self._begin()
            for piece in self._turns(batch, advantage_B, tethered_B, progress):
                reference_MT, logp_MT = self._reference_logp(piece), self._logp(piece.rows)
                start_MT, kept_M = logp_MT.detach(), piece.rows.advantage_B[:0]
                if len(piece.row_M):
                    scores.append(self._score_rows(piece, start_MT, reference_MT))
                    kept_M = scores[-1].kept_advantage_M
                loss += self._backward(logp_MT, start_MT, reference_MT, kept_M, piece)
                del logp_MT, start_MT  # or the graph of a filtered piece outlives its turn
            return self._collect_gradient(loss)

        tethered_B = self._tethered(batch)
        gradient = _bounded_sum(batch, self._candidates(batch), tethered_B, part)
        return self._merge_scores(batch, scores), gradient

    def _gradient(self, scored: Scored, progress: Progress) -> Gradient:
        return _bounded_sum(
            scored.batch,
            scored.kept_advantage_B,
            self._tethered(scored.batch),
            lambda kept_B, tethered_B: self._part(scored, kept_B, tethered_B, progress),
        )

    def _part(
        self, scored: Scored, kept_B: Tensor, tethered_B: Tensor, progress: Progress
    ) -> Gradient:
        loss, reference_BT = 0.0, scored.logp_reference_BT
        self._begin()
        for piece in self._turns(scored.batch, kept_B, tethered_B, progress):
            row_M, width = piece.row_M, piece.rows.mask_BT.shape[1]
            start_MT = scored.logp_start_BT[row_M, :width]
            reference_MT = start_MT if reference_BT is None else reference_BT[row_M, :width]
            logp_MT = self._logp(piece.rows)
            loss += self._backward(logp_MT, start_MT, reference_MT, kept_B[row_M], piece)
            del logp_MT
        return self._collect_gradient(loss)

    def _turns(
        self, batch: Batch, advantage_B: Tensor, tethered_B: Tensor, progress: Progress
    ) -> Iterator[Piece]:
        """Yield this process's part of each turn: rows with an advantage or a KL.

        The model is spread over the processes, so a pass is made by all or by none: one that
        has no rows left goes through a row of another's.
        """
        row_X = ((advantage_B != 0) | tethered_B).nonzero().squeeze(1)
        pieces = list(micro_batches(batch, row_X, token_budget=self.micro_batch_tokens))
        done = 0
        for first in range(0, len(pieces), self.processes.size):
            turn = pieces[first : first + self.processes.size]
            row_M = turn[self.processes.rank] if self.processes.rank < len(turn) else row_X[:0]
            rows = batch.rows(row_M if len(row_M) else turn[0][-1:])
            yield Piece(row_M, rows, tethered_B[row_M], batch.size(tethered_B))
            done += sum(map(len, turn))
            progress(done, len(row_X))

    def _candidates(self, batch: Batch) -> Tensor:
        return candidates(batch, self.name, self.objective)

    def _tethered(self, batch: Batch) -> Tensor:
        """Return True at the rows whose distance from the reference is in the loss."""
        return batch.by(self.name) & (self.reference is not None)

    def _score_rows(self, piece: Piece, start_MT: Tensor, reference_MT: Tensor) -> RowScores:
        scores = score_rows(piece.row_M, piece.rows, start_MT.cpu(), self.name, self.objective)
        return scores._replace(logp_reference_MT=reference_MT) if self.reference else scores

    def _reference_logp(self, piece: Piece) -> Tensor:
        """Return ln p under the reference, nats, of the rows that have a KL; 0 in the others."""
        logp_MT = torch.zeros(piece.rows.mask_BT.shape)
        at = piece.tethered_M.nonzero().squeeze(1)
        # Of several processes all make a pass, or none.
        if self.reference and (len(at) or (self.processes.size > 1 and piece.whole[0])):
            rows = piece.rows.rows(at if len(at) else torch.tensor([0]))
            with torch.no_grad(), adapter_off(self.reference.network):
                read = self.reference.logp(rows.prompts, rows.tokens, temperature=self.temperature)
            logp_MT[at, : read.shape[1]] = read[: len(at)].cpu()
        return logp_MT

    def _set_rate(self, update: int) -> None:
        if self.learning_rate:
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate.at(update)

    def _logp(self, micro: Batch) -> Tensor:
        return self.policy.logp(micro.prompts, micro.tokens, temperature=self.temperature)

    def _begin(self) -> None:
        self.optimizer.zero_grad()
        self.policy.network.train()

    def _backward(
        self,
        logp_MT: Tensor,
        start_MT: Tensor,
        reference_MT: Tensor,
        kept_M: Tensor,
        piece: Piece,
    ) -> float:
        """Add the gradient of a piece's part of the loss; return that part.

        The gradient becomes the mean over the processes, and the loss is a sum over rows, so
        each part is multiplied by their number.
        """
        rows, device, parts = piece.rows, logp_MT.device, []
        mask_MT = rows.mask_BT.to(device)
        if kept_M.any():
            start_MT, whole = start_MT.to(device), (rows.rows_counted, rows.tokens_counted)
            # The claims of an author that is not trusted are not read: its weight is P^c.
            gen_MT = torch.where(
                rows.trusted_B.unsqueeze(1).to(device), rows.logp_gen_BT.to(device), start_MT
            )
            loss_of = self.loss or LOSSES[self.objective.importance]
            given = (logp_MT, start_MT, gen_MT, kept_M.to(device), mask_MT, self.objective)
            parts.append(
                self._share(rows.size(torch.ones_like(piece.tethered_M)), whole) * loss_of(*given)
            )
        if piece.tethered_M.any():
            own_M, share = piece.tethered_M, self._share(rows.size(piece.tethered_M), piece.whole)
            both = logp_MT[own_M.to(device)], reference_MT[own_M].to(device)
            parts.append(share * kl_loss(*both, rows.mask_BT[own_M].to(device), self.objective))
        if not parts:
            if self.processes.size > 1:  # the others' collectives wait for this process
                (0.0 * logp_MT.sum()).backward()
            return 0.0
        loss = sum(parts[1:], parts[0])
        loss.backward()
        return loss.item()

    def _share(self, part: tuple[int, int], whole: tuple[int, int]) -> float:
        rows, tokens = (count * self.processes.size for count in part)
        return share_of((rows, tokens), whole, self.objective.loss_type, longest=self.longest)

    def _collect_gradient(self, loss: float) -> Gradient:
        """Take the gradient out of the parameters."""
        self.policy.network.eval()
        parameters = trained(self.policy.network)
        tensors = [parameter.grad for parameter in parameters]
        self.optimizer.zero_grad()
        loss = sum(self.processes.all_gather(loss)) / self.processes.size
        return Gradient(tensors, loss, _norm(tensors), {})

    def _merge_scores(self, batch: Batch, scores: list[RowScores]) -> Scored:
        """Merge what all processes found; drop foreign rows whose log-probability is not finite."""
        scored = merge_scores(
            batch, [part for parts in self.processes.all_gather(scores) for part in parts]
        )
        bad_B = ~scored.logp_start_BT.isfinite().all(dim=1)
        rows = bad_B.nonzero().squeeze(1).tolist()
        for row in rows:
            self._require_foreign(batch.completions[row], "log-probability")
        return scored.without(dict.fromkeys(rows, "log-probability"))

    def _rows_without_finite_gradient(self, scored: Scored) -> dict[int, str]:
        """Find, one by one, the rows whose gradient alone is not finite.

        Raises:
            NonFiniteError: one of them is our own, or no single row is at fault.
        """
        found = {}
        for row in scored.kept_advantage_B.nonzero().squeeze(1).tolist():
            alone_B = torch.zeros_like(scored.kept_advantage_B)
            alone_B[row] = scored.kept_advantage_B[row]
            if not math.isfinite(self.gradient_of(scored, alone_B).norm):
                self._require_foreign(scored.batch.completions[row], "gradient")
                found[row] = "gradient"
        if not found:
            raise NonFiniteError(
                f"{self.name!r}: the gradient of the batch is not finite, though that of "
                f"each completion is; lower micro_batch_tokens or the learning rate"
            )
        return found

    def _require_foreign(self, completion: Completion, what: str) -> None:
        """Raise NonFiniteError if a weight is not finite, or if the completion is our own."""
        for name, parameter in self.policy.network.named_parameters():
            if not full_tensor(parameter.isfinite().all()):
                raise NonFiniteError(
                    f"{self.name!r}: the weights {name!r} are not finite; lower the "
                    f"learning rate, in a new run (its model can be a checkpoint of this one)"
                )
        if completion.author == self.name:
            raise NonFiniteError(
                f"{self.name!r}: the {what} of completion {completion.index} of "
                f"{completion.problem_id!r} by {completion.author!r}, its own, is not finite; "
                f"lower the learning rate"
            )

    @cached_property
    def _has_dropout(self) -> bool:
        """Tell if training mode draws random numbers: then it is not the evaluated policy.

        It asks the random generators, not the modules: some models keep a rate under any name.
        """
        device, token_T = self.policy.device, np.zeros(1, np.int32)
        before = _random_states(device)
        self.policy.network.train()
        with torch.no_grad():
            self.policy.logp([token_T], [token_T], temperature=1.0)
        self.policy.network.eval()
        drawn = not all(map(torch.equal, before, _random_states(device)))
        torch.set_rng_state(before[0])
        if device.type != "cpu":
            torch.get_device_module(device).set_rng_state(before[1], *_index(device))
        return drawn


def _bounded_sum(
    batch: Batch, kept_B: Tensor, tethered_B: Tensor, part: Callable[[Tensor, Tensor], Gradient]
) -> Gradient:
    """Return the gradient of the rows ``kept_B`` and of the KL of the rows ``tethered_B``; ``part``
    returns that of some of them. It is made in one part for all trusted rows, the KL among them,
    and one for each other author, within its bound."""
    rows = Counter(
        completion.author
        for completion, trusted in zip(batch.completions, batch.trusted_B.tolist(), strict=True)
        if not trusted
    )
    total = part(torch.where(batch.trusted_B, kept_B, 0.0), tethered_B)
    norms, trusted_norm = dict.fromkeys(sorted(rows), 0.0), total.norm
    for author in norms:
        added = part(torch.where(batch.by(author), kept_B, 0.0), torch.zeros_like(tethered_B))
        scale = bounded_scale(
            added.norm,
            rows[author],
            trusted_norm=trusted_norm,
            trusted_rows=batch.rows_counted,
            untrusted_rows=rows.total(),
        )
        norms[author] = scale * added.norm
        tensors = [_plus(*both, scale) for both in zip(total.tensors, added.tensors, strict=True)]
        total = Gradient(tensors, total.loss + scale * added.loss, _norm(tensors), {})
        del added, tensors  # the next author's part needs their memory
    whole = sum(norms.values()) + trusted_norm
    shares = {author: norm / whole if whole else 0.0 for author, norm in norms.items()}
    return replace(total, shares=shares)


def _plus(a: Tensor | None, b: Tensor | None, scale: float) -> Tensor | None:
    if a is None or b is None:
        return a if b is None else b * scale
    return a.add_(b, alpha=scale)


def _norm(tensors: Sequence[Tensor | None]) -> float:
    norm = torch.nn.utils.get_total_norm([g for g in tensors if g is not None])
    return float(full_tensor(norm))


def _random_states(device: torch.device) -> list[Tensor]:
    """Return the state of the CPU's generator, and of the device's own: layers may use either."""
    if device.type == "cpu":
        return [torch.get_rng_state()]
    own = torch.get_device_module(device).get_rng_state(*_index(device))
    return [torch.get_rng_state(), own]


def _index(device: torch.device) -> tuple[torch.device, ...]:
    return () if device.type == "mps" else (device,)  # mps is one device
