"""Terms of the loss: each has its rows, its share of the whole, and its loss.

    PolicyTerm   rows with an advantage: of all trusted authors, or of one that is not trusted
    KLTerm       this node's own rows, where there is a reference

The loss of a batch is the sum of its terms, and a term that of its micro-batches:

    L = sum over terms, micro-batches of  share * (mean over the micro-batch)
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.node.learning.batch import Batch, RowScores, Turn
from potluck.objective.losses import Loss, kl_loss, share_of
from potluck.objective.methods import ObjectiveConfig


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """The terms of one learner."""

    name: str
    objective: ObjectiveConfig
    loss_of: Loss
    longest: int
    """Limit of a completion in tokens."""
    processes: int
    """Their number. The gradient becomes the mean over them, and the loss is a sum over rows, so
    each share is multiplied by it."""
    has_reference: bool

    def by_author(self, batch: Batch, advantage_B: Tensor) -> dict[str, list["Term"]]:
        """Return the terms that share a pass: under "" the trusted rows and the KL, and under its
        name each other author, whose part is bounded by itself."""
        trusted_B = batch.trusted_B
        terms: dict[str, list[Term]] = {
            "": [
                self.policy(batch, torch.where(trusted_B, advantage_B, 0.0)),
                KLTerm(self, kl_rows_B := self.kl_rows(batch), batch.size(kl_rows_B)),
            ]
        }
        for author in batch.untrusted:
            rows_B = batch.by(author)
            terms[author] = [self.policy(batch, torch.where(rows_B, advantage_B, 0.0))]
        return terms

    def policy(self, batch: Batch, advantage_B: Tensor) -> "Term":
        return PolicyTerm(self, advantage_B != 0, (batch.rows_counted, batch.tokens_counted))

    def kl_rows(self, batch: Batch) -> Tensor:
        """Return a mask [B] of the rows whose distance from the reference is in the loss."""
        return batch.by(self.name) & self.has_reference


@dataclass(frozen=True, slots=True, eq=False)
class Term(ABC):
    """A part of the loss: a mean over some rows of a batch."""

    of: Terms
    rows_B: Tensor
    """True at the rows that need a pass."""
    whole: tuple[int, int]
    """Rows and tokens that the mean is over, in the whole batch; for the policy the trusted ones,
    in the pass of an untrusted author too."""

    @abstractmethod
    def loss(self, turn: Turn, logp_MT: Tensor, scores: RowScores) -> Tensor | None:
        """Compute a turn's part of the loss; None where it has no row of this term."""

    def share(self, part: tuple[int, int]) -> float:
        """Return the factor on the mean over ``part``, its rows and tokens."""
        rows, tokens = (count * self.of.processes for count in part)
        loss_type = self.of.objective.loss_type
        return share_of((rows, tokens), self.whole, loss_type, longest=self.of.longest)


class PolicyTerm(Term):
    """The policy loss."""

    def loss(self, turn: Turn, logp_MT: Tensor, scores: RowScores) -> Tensor | None:
        micro, kept_M, device = turn.micro, scores.kept_advantage_M, logp_MT.device
        if not kept_M.any():
            return None
        start_MT, mask_MT = scores.logp_start_MT.to(device), micro.mask_BT.to(device)
        # The claims of an author that is not trusted are not read: its weight is P^c.
        trusted_M1 = micro.trusted_B.unsqueeze(1).to(device)
        gen_MT = torch.where(trusted_M1, micro.logp_gen_BT.to(device), start_MT)
        given = logp_MT, start_MT, gen_MT, kept_M.to(device), mask_MT, self.of.objective
        return self.share((len(kept_M), int(micro.mask_BT.sum()))) * self.of.loss_of(*given)


class KLTerm(Term):
    """The KL divergence from the reference."""

    def loss(self, turn: Turn, logp_MT: Tensor, scores: RowScores) -> Tensor | None:
        own_M, device = self.rows_B[turn.row_M], logp_MT.device
        if not own_M.any():
            return None
        assert scores.logp_reference_MT is not None
        reference_MT = scores.logp_reference_MT[own_M].to(device)
        mask_MT = turn.micro.mask_BT[own_M].to(device)
        kl = kl_loss(logp_MT[own_M.to(device)], reference_MT, mask_MT, self.of.objective)
        return self.share(turn.micro.size(own_M)) * kl
