"""Scoring: the decisions about a batch before the round's first update, kept through all.

    candidates   the advantages of the rows that may teach; the others need no forward pass
    logp_start   ln pi_start, the learner's own reading of every candidate
    kept         the advantages as the filter and the weights leave them
    metrics      what the author reports add up

With several processes as one node, each reads rows of its own, and ``merge_scores`` makes one
``Scored`` of what all of them found: each then decides the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from potluck.node.learning.batch import Batch, RowScores, Scored, Turn
from potluck.node.metrics import METRICS, row_metrics
from potluck.objective.filters import divergence_from_author, filter_advantages
from potluck.objective.methods import ObjectiveConfig, Others
from potluck.objective.others import select_others
from potluck.objective.weights import ScoredRows, Weight, untrusted_likelihood
from potluck.types import NonFiniteError


def candidates(batch: Batch, me: str, objective: ObjectiveConfig) -> Tensor:
    """Return the advantages that need a forward pass, 0 for the rows that teach nothing. Of an
    author that is not trusted only successes may, as others' failures tell little of one's own."""
    own_B, advantage_B = batch.by(me), torch.where(batch.silenced_B, 0.0, batch.advantage_B)
    emphasised_B = own_B & (advantage_B > 0)
    advantage_B = torch.where(emphasised_B, advantage_B * objective.own_success_weight, advantage_B)
    untrusted: Others = "none" if objective.others == "none" else "successes"
    advantage_B = select_others(advantage_B, batch.trusted_B, untrusted)
    return select_others(advantage_B, own_B | ~batch.trusted_B, objective.others)


@dataclass(frozen=True, slots=True, eq=False)
class Scoring:
    """Scores of the rows of a pass, found turn by turn."""

    name: str
    """Name of the learner."""
    objective: ObjectiveConfig
    weight: Weight | None
    unread_B: Tensor | None
    """True at the rows whose KL is in the loss; None: there is no reference."""
    found: list[RowScores] = field(default_factory=list)

    def of(self, turn: Turn, logp_MT: Tensor, entropy_MT: Tensor) -> RowScores:
        """Apply the filter and the weights to a turn's rows, and measure them, by ln pi_theta,
        which is ln pi_start now. A weight that needs the whole batch is left to ``weigh_batch``."""
        micro, objective = turn.micro, self.objective
        start_MT, entropy_MT = logp_MT.cpu(), entropy_MT.cpu()
        kept_M = candidates(micro, self.name, objective)
        if objective.filter:
            divergence_M = divergence_from_author(
                start_MT,
                micro.logp_gen_BT,
                micro.mask_BT,
                estimator=objective.divergence_estimator,
                reduce=objective.divergence_reduce,
            )
            # Of authors that are not trusted no failure is left.
            near_M = torch.where(micro.trusted_B, divergence_M, 0.0)
            kept_M = filter_advantages(kept_M, near_M, limit=objective.divergence_limit)
        read_M = torch.ones_like(micro.trusted_B)
        rows = _rows(micro, kept_M, read_M, (start_MT, entropy_MT), self.name)
        if self.weight and not self.weight.needs_batch:
            kept_M = kept_M * _of_trusted(self.weight, rows, objective)
        kept_M = kept_M * untrusted_likelihood.of(rows, objective)
        metrics_MK = row_metrics(
            start_MT, micro.logp_gen_BT, micro.mask_BT, weight_cap=objective.weight_cap
        )
        given = turn.row_M, start_MT, entropy_MT, kept_M, metrics_MK, turn.reference_MT
        scores = RowScores(*given)
        self.found.append(scores)
        return scores


def merge_scores(batch: Batch, scores: Iterable[RowScores]) -> Scored:
    """Put the scores of all rows together; a row without a score teaches nothing."""
    logp_start_BT = torch.zeros_like(batch.logp_gen_BT)
    entropy_BT = torch.zeros_like(logp_start_BT)
    kept_advantage_B = torch.zeros_like(batch.advantage_B)
    metrics_BK = torch.full((len(batch.completions), len(METRICS)), torch.nan, dtype=torch.float64)
    logp_reference_BT = None
    for row_M, logp_start_MT, entropy_MT, kept_advantage_M, metrics_MK, logp_reference_MT in scores:
        logp_start_BT[row_M, : logp_start_MT.shape[1]] = logp_start_MT
        entropy_BT[row_M, : entropy_MT.shape[1]] = entropy_MT
        kept_advantage_B[row_M] = kept_advantage_M
        metrics_BK[row_M] = metrics_MK
        if logp_reference_MT is not None:
            if logp_reference_BT is None:
                logp_reference_BT = torch.zeros_like(logp_start_BT)
            logp_reference_BT[row_M, : logp_reference_MT.shape[1]] = logp_reference_MT
    found = logp_start_BT, entropy_BT, kept_advantage_B, metrics_BK
    return Scored(batch, *found, {}, logp_reference_BT)


def weigh_batch(scored: Scored, me: str, objective: ObjectiveConfig, weight: Weight) -> Scored:
    """Apply a weight that needs the whole batch."""
    kept_B = scored.kept_advantage_B
    read_B = scored.metrics_BK[:, 0].isfinite()
    read_B[list(scored.dropped)] = False
    both = scored.logp_start_BT, scored.entropy_BT
    logp_start_BT, entropy_BT = (torch.where(read_B.unsqueeze(1), each, 0.0) for each in both)
    rows = _rows(scored.batch, kept_B, read_B, (logp_start_BT, entropy_BT), me)
    weight_B = _of_trusted(weight, rows, objective)
    if bad := (kept_B != 0).logical_and(~weight_B.isfinite()).sum().item():
        name = getattr(weight.of, "__name__", "a weight of one's own")
        raise NonFiniteError(
            f"the weight {name!r} is not finite for {bad} of {len(kept_B)} completions; a weight "
            f"is a finite number for each row that was read"
        )
    return replace(scored, kept_advantage_B=torch.where(kept_B == 0, 0.0, kept_B * weight_B))


def _of_trusted(weight: Weight, rows: ScoredRows, objective: ObjectiveConfig) -> Tensor:
    return torch.where(rows.trusted_B, weight.of(rows, objective), 1.0)


def _rows(
    batch: Batch, advantage_B: Tensor, read_B: Tensor, found: tuple[Tensor, Tensor], me: str
) -> ScoredRows:
    logp_start_BT, entropy_BT = found
    return ScoredRows(
        advantage_B=advantage_B,
        read_B=read_B,
        own_B=batch.by(me),
        trusted_B=batch.trusted_B,
        logp_start_BT=logp_start_BT,
        entropy_BT=entropy_BT,
        logp_gen_BT=batch.logp_gen_BT,
        mask_BT=batch.mask_BT,
        bytes_B=batch.bytes_B,
        reward_B=batch.reward_B,
        group_B=batch.group_B,
        texts=batch.texts,
    )
