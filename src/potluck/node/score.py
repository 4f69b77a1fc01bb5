"""Scoring: the decisions about a batch before the round's first update, kept through all.

    logp_start   ln pi_start, the learner's own reading of every row with an advantage
    kept         the advantages as the filter leaves them
    metrics      what the author reports add up

With several processes as one node, each reads rows of its own, and ``merge_scores`` makes one
``Scored`` of what all of them found: each then decides the same.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from potluck.node.batch import Batch, Scored
from potluck.node.metrics import METRICS, row_metrics
from potluck.objective.filters import divergence_from_author, filter_advantages
from potluck.objective.methods import ObjectiveConfig


class RowScores(NamedTuple):
    """The scores of some rows of a batch; pickled between the processes of one node."""

    row_M: Tensor
    logp_start_MT: Tensor
    kept_advantage_M: Tensor
    metrics_MK: Tensor


def score_rows(
    row_M: Tensor, micro: Batch, logp_start_MT: Tensor, objective: ObjectiveConfig
) -> RowScores:
    """Apply the filter to the rows of a micro-batch, and measure them.

    Args:
        row_M: their places in the batch.
        micro: these rows.
        logp_start_MT: ln pi_start, nats, on the CPU and without gradient.
    """
    metrics_MK = row_metrics(
        logp_start_MT, micro.logp_gen_BT, micro.mask_BT, weight_cap=objective.weight_cap
    )
    kept_advantage_M = micro.advantage_B
    if objective.filter:
        divergence_M = divergence_from_author(
            logp_start_MT,
            micro.logp_gen_BT,
            micro.mask_BT,
            estimator=objective.divergence_estimator,
            reduce=objective.divergence_reduce,
        )
        kept_advantage_M = filter_advantages(
            kept_advantage_M, divergence_M, limit=objective.divergence_limit
        )
    return RowScores(row_M, logp_start_MT, kept_advantage_M, metrics_MK)


def merge_scores(batch: Batch, scores: Iterable[RowScores]) -> Scored:
    """Put the scores of all rows together; rows of which there are none have no advantage."""
    logp_start_BT = torch.zeros_like(batch.logp_gen_BT)
    kept_advantage_B = batch.advantage_B.clone()
    metrics_BK = torch.full((len(batch.completions), len(METRICS)), torch.nan, dtype=torch.float64)
    for row_M, logp_start_MT, kept_advantage_M, metrics_MK in scores:
        logp_start_BT[row_M, : logp_start_MT.shape[1]] = logp_start_MT
        kept_advantage_B[row_M] = kept_advantage_M
        metrics_BK[row_M] = metrics_MK
    return Scored(batch, logp_start_BT, kept_advantage_B, metrics_BK, {})
