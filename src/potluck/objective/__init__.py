"""Section 3 of the paper as pure functions on tensors. Imports torch and nothing else."""

from potluck.objective.advantages import group_advantages
from potluck.objective.filters import divergence_from_author, filter_advantages
from potluck.objective.losses import no_is_loss, tis_loss, vis_loss

__all__ = [
    "divergence_from_author",
    "filter_advantages",
    "group_advantages",
    "no_is_loss",
    "tis_loss",
    "vis_loss",
]
