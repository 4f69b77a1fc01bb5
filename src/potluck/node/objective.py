"""The objective that a recipe chose: its filter and its loss, on a batch."""

from torch import Tensor

from potluck.config import ObjectiveConfig
from potluck.node.batch import Batch
from potluck.objective import (
    divergence_from_author,
    filter_advantages,
    no_is_loss,
    tis_loss,
    vis_loss,
)


def silence(batch: Batch, logp_start_BT: Tensor, objective: ObjectiveConfig) -> Tensor:
    """heard_B: the advantages as the filter leaves them; NoIS, VIS and TIS have none."""
    if not objective.filter:
        return batch.advantage_B
    divergence_B = divergence_from_author(
        logp_start_BT,
        batch.logp_gen_BT,
        batch.mask_BT,
        estimator=objective.divergence_estimator,
        reduce=objective.divergence_reduce,
    )
    return filter_advantages(batch.advantage_B, divergence_B, limit=objective.divergence_limit)


def policy_loss(
    logp_BT: Tensor, logp_start_BT: Tensor, batch: Batch, objective: ObjectiveConfig
) -> Tensor:
    """The loss that ``objective.importance`` names, as the mean over ``batch``'s rows."""
    device, epsilon = logp_BT.device, objective.clip_epsilon
    advantage_B, mask_BT = batch.advantage_B.to(device), batch.mask_BT.to(device)
    logp_gen_BT, logp_start_BT = batch.logp_gen_BT.to(device), logp_start_BT.to(device)
    match objective.importance:
        case "none":
            return no_is_loss(
                logp_BT, advantage_B, mask_BT, logp_start_BT=logp_start_BT, clip_epsilon=epsilon
            )
        case "vanilla":
            return vis_loss(logp_BT, logp_gen_BT, advantage_B, mask_BT, clip_epsilon=epsilon)
        case "truncated":
            return tis_loss(
                logp_BT,
                logp_gen_BT,
                advantage_B,
                mask_BT,
                logp_start_BT=logp_start_BT,
                weight_cap=objective.weight_cap,
                clip_epsilon=epsilon,
            )
