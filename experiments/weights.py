"""Weights that were tried beside the package's own, on pairs set aside: TUNING.md has the numbers.

    potluck run RECIPE --set objective.weight=experiments/weights.py:relative --trust-code

P says how likely a text is per token, so its level depends on the task: in language it is .5 for a
model's own texts, too. Held against P of the model's own successes it would not.
"""

import torch
from torch import Tensor

from potluck.objective.methods import ObjectiveConfig
from potluck.objective.weights import ScoredRows, batch_weight


def _relative(rows: ScoredRows, options: ObjectiveConfig, most: float) -> Tensor:
    """Weigh others' completions by min(most, P / P_own)^c, P_own that of own successes.

    P_own is a geometric mean; without a right answer that teaches, that of own ones that do.
    """
    own_B = rows.own_B & rows.read_B
    right_B = own_B & (rows.reward_B > 0)
    log_B = rows.likelihood_B.log()
    of_B = right_B if right_B.any() else own_B
    own = log_B[of_B].mean().exp() if of_B.any() else torch.tensor(1.0)
    ratio_B = (rows.likelihood_B / own).clamp(max=most) ** options.likelihood_exponent
    return torch.where(rows.own_B, torch.ones_like(ratio_B), ratio_B)


@batch_weight
def relative(rows: ScoredRows, options: ObjectiveConfig) -> Tensor:
    """Weigh by min(1, P / P_own)^c."""
    return _relative(rows, options, 1.0)


@batch_weight
def relative_to_two(rows: ScoredRows, options: ObjectiveConfig) -> Tensor:
    """Weigh by min(2, P / P_own)^c: a text that is likelier than one's own counts more."""
    return _relative(rows, options, 2.0)
