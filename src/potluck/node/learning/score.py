"""Scoring: the decisions about a batch before the round's first update, kept through all.

candidates   the advantages of the rows that may teach; the others need no forward pass
logp_start   ln pi_start, the learner's own reading of every candidate
kept         the advantages as the filter and the weights leave them
metrics      what the author reports add up
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from potluck.model import LanguageModel
from potluck.node.learning.base import Learning
from potluck.node.learning.batch import Batch, Scored
from potluck.node.learning.passes import Portion, require_foreign
from potluck.objective.filters import divergence_from_author, filter_advantages
from potluck.objective.losses import LOSSES
from potluck.objective.methods import ObjectiveConfig, Others
from potluck.objective.others import select_others, sequence_likelihood
from potluck.objective.weights import ScoredRows, Weight, untrusted_likelihood
from potluck.types import NonFiniteError

METRICS = (
    "tokens", "ratio_sum", "k1", "k3", "capped", "weight", "weight_square",
    "likelihood", "weight_min", "surprise",
)  # fmt: skip
"""Names of the K numbers that are kept of each completion."""


def candidates(batch: Batch, me: str, objective: ObjectiveConfig) -> Tensor:
    """Return the advantages that need a forward pass, 0 for the rows that teach nothing. Of an
    author that is not trusted only successes may, as others' failures tell little of one's own."""
    # First the untrusted, whatever the method is; then the trusted others by the method.
    own_B, advantage_B = batch.by(me), torch.where(batch.silenced_B, 0.0, batch.advantage_B)
    emphasised_B = own_B & (advantage_B > 0)
    advantage_B = torch.where(emphasised_B, advantage_B * objective.own_success_weight, advantage_B)
    untrusted: Others = "none" if objective.others == "none" else "successes"
    advantage_B = select_others(advantage_B, batch.trusted_B, untrusted)
    return select_others(advantage_B, own_B | ~batch.trusted_B, objective.others)


def unscored(batch: Batch, *, has_reference: bool) -> Scored:
    """Make the scores of a batch of which no row was read; such a row teaches nothing."""
    rows, nothing_BT = len(batch.completions), torch.zeros_like(batch.logp_gen_BT)
    return Scored(
        batch,
        logp_start_BT=nothing_BT,
        entropy_BT=nothing_BT.clone(),
        kept_advantage_B=torch.zeros_like(batch.advantage_B),
        metrics_BK=torch.full((rows, len(METRICS)), torch.nan, dtype=torch.float64),
        logp_reference_BT=nothing_BT.clone() if has_reference else None,
    )


def score_rows(
    learner: Learning, scored: Scored, portion: Portion, found: tuple[Tensor, Tensor]
) -> None:
    """Apply the filter and the weights to the rows of a portion, and measure them, in place;
    ``found`` are their ln pi_start and entropies. A weight that needs the whole batch is left to
    ``completed``."""
    (row_M, micro), (start_MT, entropy_MT) = portion, found
    objective, weight = learner.objective, learner.weight
    kept_M = candidates(micro, learner.name, objective)
    if objective.filter:
        divergence_M = divergence_from_author(
            start_MT,
            micro.logp_gen_BT,
            micro.mask_BT,
            estimator=objective.divergence_estimator,
            reduce=objective.divergence_reduce,
        )
        kept_M = filter_advantages(kept_M, divergence_M, limit=objective.divergence_limit)
    rows = _rows(micro, kept_M, torch.ones_like(micro.trusted_B), found, learner.name)
    if weight and not weight.needs_batch:
        kept_M = kept_M * _of_trusted(weight, rows, objective)
    width = start_MT.shape[1]
    scored.logp_start_BT[row_M, :width] = start_MT
    scored.entropy_BT[row_M, :width] = entropy_MT
    scored.kept_advantage_B[row_M] = kept_M * untrusted_likelihood.of(rows, objective)
    scored.metrics_BK[row_M] = row_metrics(
        start_MT, micro.logp_gen_BT, micro.mask_BT, weight_cap=objective.weight_cap
    )


def row_metrics(
    logp_start_BT: Tensor, logp_gen_BT: Tensor, mask_BT: Tensor, *, weight_cap: float
) -> Tensor:
    """Return [B, K] float64: the numbers of ``METRICS`` for each completion; ``AuthorReport`` says
    what they mean. Where ``logp_gen_BT`` is NaN, as the author told none, so is all that needs it;
    only ``weight_min`` then takes ln pi_gen for 0."""
    claims_BT = ~logp_gen_BT.isnan()
    claimed_BT = torch.where(claims_BT, logp_gen_BT, 0.0)
    least_B = torch.where(mask_BT, logp_start_BT - claimed_BT, math.inf).amin(dim=1)
    ratio_BT = torch.where(mask_BT, logp_start_BT - logp_gen_BT, 0.0)
    capped_B = ((ratio_BT > math.log(weight_cap)) & mask_BT).sum(dim=1)
    weight_BT = torch.where(mask_BT, ratio_BT.double().exp(), 0.0)
    columns = {
        "tokens": mask_BT.sum(dim=1),
        "ratio_sum": ratio_BT.double().sum(dim=1),
        "k1": divergence_from_author(logp_start_BT, logp_gen_BT, mask_BT, estimator="k1"),
        "k3": divergence_from_author(logp_start_BT, logp_gen_BT, mask_BT, estimator="k3"),
        "capped": torch.where((claims_BT | ~mask_BT).all(dim=1), capped_B.double(), math.nan),
        "weight": weight_BT.sum(dim=1),
        "weight_square": weight_BT.square().sum(dim=1),
        "likelihood": sequence_likelihood(logp_start_BT, mask_BT),
        "weight_min": least_B.double().exp(),
        "surprise": -torch.where(mask_BT, logp_start_BT, 0.0).double().sum(dim=1),
    }
    return torch.stack([columns[name].double() for name in METRICS], dim=1)


def _weigh_batch(learner: Learning, scored: Scored, weight: Weight) -> Scored:
    kept_B, read_B = scored.kept_advantage_B, scored.read_B
    both = scored.logp_start_BT, scored.entropy_BT
    logp_start_BT, entropy_BT = (torch.where(read_B.unsqueeze(1), each, 0.0) for each in both)
    rows = _rows(scored.batch, kept_B, read_B, (logp_start_BT, entropy_BT), learner.name)
    weight_B = _of_trusted(weight, rows, learner.objective)
    if bad := (kept_B != 0).logical_and(~weight_B.isfinite()).sum().item():
        name = getattr(weight.of, "__name__", "a weight of one's own")
        raise NonFiniteError(
            f"the weight {name!r} is not finite for {bad} of {len(kept_B)} completions; a weight "
            f"is a finite number for each row that was read"
        )
    return replace(scored, kept_advantage_B=torch.where(kept_B == 0, 0.0, kept_B * weight_B))


def completed(learner: Learning, scored: Scored, policy: LanguageModel | None = None) -> Scored:
    """Drop foreign rows whose log-probability is not finite; raise NonFiniteError for an own one,
    or a weight of a ``policy`` that is here. Apply a weight that needs the whole batch."""
    rows = (~scored.logp_start_BT.isfinite().all(dim=1)).nonzero().squeeze(1).tolist()
    for row in rows:
        require_foreign(scored.batch.completions[row], "log-probability", policy, learner.name)
    scored = scored.without(dict.fromkeys(rows, "log-probability"))
    if learner.weight and learner.weight.needs_batch:
        return _weigh_batch(learner, scored, learner.weight)
    return scored


def policy_loss(learner: Learning, portion: Portion, scored: Scored, logp_MT: Tensor) -> Tensor:
    """Compute the mean loss of a portion's rows."""
    (row_M, micro), device = portion, logp_MT.device
    start_MT = scored.logp_start_BT[row_M, : logp_MT.shape[1]].to(device)
    mask_MT, trusted_M = micro.mask_BT.to(device), micro.trusted_B.to(device)
    # The claims of an author that is not trusted are not read: its weight is P^c.
    gen_MT = torch.where(trusted_M.unsqueeze(1), micro.logp_gen_BT.to(device), start_MT)
    kept_M = scored.kept_advantage_B[row_M].to(device)
    loss = learner.loss or LOSSES[learner.objective.importance]
    return loss(logp_MT, start_MT, gen_MT, kept_M, mask_MT, learner.objective)


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
