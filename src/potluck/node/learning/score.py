"""Scoring: the decisions about a batch before the round's first update, kept through all.

    candidates   the advantages of the rows that may teach; the others need no forward pass
    logp_start   ln pi_start, the learner's own reading of every candidate
    kept         the advantages as the filter and the weights leave them
    metrics      what the author reports add up

With several processes as one node, each reads rows of its own, and ``merge_scores`` makes one
``Scored`` of what all of them found: each then decides the same.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from potluck.node.learning.batch import Batch, Scored
from potluck.node.metrics import METRICS, row_metrics
from potluck.objective.filters import divergence_from_author, filter_advantages
from potluck.objective.methods import ObjectiveConfig, Others
from potluck.objective.others import select_others, sequence_likelihood, weigh_by_likelihood


class RowScores(NamedTuple):
    """The scores of some rows of a batch; pickled between the processes of one node."""

    row_M: Tensor
    logp_start_MT: Tensor
    kept_advantage_M: Tensor
    metrics_MK: Tensor
    logp_reference_MT: Tensor | None = None


def candidates(batch: Batch, me: str, objective: ObjectiveConfig) -> Tensor:
    """Return the advantages that need a forward pass, 0 for the rows that teach nothing. Of an
    author that is not trusted only successes may, as others' failures tell little of one's own."""
    own_B, advantage_B = batch.by(me), batch.advantage_B
    emphasised_B = own_B & (advantage_B > 0)
    advantage_B = torch.where(emphasised_B, advantage_B * objective.own_success_weight, advantage_B)
    untrusted: Others = "none" if objective.others == "none" else "successes"
    advantage_B = select_others(advantage_B, batch.trusted_B, untrusted)
    return select_others(advantage_B, own_B | ~batch.trusted_B, objective.others)


def score_rows(
    row_M: Tensor, micro: Batch, logp_start_MT: Tensor, me: str, objective: ObjectiveConfig
) -> RowScores:
    """Apply the filter and the weights to the rows of a micro-batch, and measure them.

    Args:
        row_M: their places in the batch.
        micro: these rows.
        logp_start_MT: ln pi_start, nats, on the CPU and without gradient.
        me: the learner's name.
    """
    metrics_MK = row_metrics(
        logp_start_MT, micro.logp_gen_BT, micro.mask_BT, weight_cap=objective.weight_cap
    )
    kept_advantage_M, own_M, trusted_M = (
        candidates(micro, me, objective),
        micro.by(me),
        micro.trusted_B,
    )
    if objective.filter:
        divergence_M = divergence_from_author(
            logp_start_MT,
            micro.logp_gen_BT,
            micro.mask_BT,
            estimator=objective.divergence_estimator,
            reduce=objective.divergence_reduce,
        )
        near_M = torch.where(trusted_M, divergence_M, 0.0)  # of the others no failure is left
        kept_advantage_M = filter_advantages(
            kept_advantage_M, near_M, limit=objective.divergence_limit
        )
    if objective.others == "likely-successes":
        length_M = micro.bytes_B if objective.likelihood_unit == "byte" else None
        kept_advantage_M = weigh_by_likelihood(
            kept_advantage_M,
            own_M | ~trusted_M,
            sequence_likelihood(logp_start_MT, micro.mask_BT, length_B=length_M),
            exponent=objective.likelihood_exponent,
        )
    likelihood_M = sequence_likelihood(logp_start_MT, micro.mask_BT)
    kept_advantage_M = weigh_by_likelihood(
        kept_advantage_M, trusted_M, likelihood_M, exponent=objective.untrusted_exponent
    )
    return RowScores(row_M, logp_start_MT, kept_advantage_M, metrics_MK)


def merge_scores(batch: Batch, scores: Iterable[RowScores]) -> Scored:
    """Put the scores of all rows together; a row without a score teaches nothing."""
    logp_start_BT = torch.zeros_like(batch.logp_gen_BT)
    kept_advantage_B = torch.zeros_like(batch.advantage_B)
    metrics_BK = torch.full((len(batch.completions), len(METRICS)), torch.nan, dtype=torch.float64)
    logp_reference_BT = None
    for row_M, logp_start_MT, kept_advantage_M, metrics_MK, logp_reference_MT in scores:
        logp_start_BT[row_M, : logp_start_MT.shape[1]] = logp_start_MT
        kept_advantage_B[row_M] = kept_advantage_M
        metrics_BK[row_M] = metrics_MK
        if logp_reference_MT is not None:
            if logp_reference_BT is None:
                logp_reference_BT = torch.zeros_like(logp_start_BT)
            logp_reference_BT[row_M, : logp_reference_MT.shape[1]] = logp_reference_MT
    return Scored(batch, logp_start_BT, kept_advantage_B, metrics_BK, {}, logp_reference_BT)
