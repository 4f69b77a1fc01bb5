"""Numbers that are not finite: a foreign row that causes one is left out, else the run stops."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from potluck.model import LanguageModel
from potluck.model.sharding import full_tensor
from potluck.node.learning.batch import Scored
from potluck.node.learning.passes import Gradient
from potluck.types import Completion, NonFiniteError


def without_unreadable(scored: Scored, policy: LanguageModel, name: str) -> Scored:
    """Drop the foreign rows whose log-probability is not finite; raise NonFiniteError if a weight
    of the policy, or a row of ``name``'s own, is to blame."""
    rows = (~scored.logp_start_BT.isfinite().all(dim=1)).nonzero().squeeze(1).tolist()
    for row in rows:
        _require_foreign(scored.batch.completions[row], "log-probability", policy, name)
    return scored.without(dict.fromkeys(rows, "log-probability"))


def rows_to_blame(
    scored: Scored,
    gradient_of: Callable[[Scored, Tensor], Gradient],
    policy: LanguageModel,
    name: str,
) -> dict[int, str]:
    """Find, one by one, the rows whose gradient alone is not finite. Rare, so it may be slow. Raise
    NonFiniteError if one of them is ``name``'s own, or no single row is at fault."""
    found = {}
    for row in scored.kept_advantage_B.nonzero().squeeze(1).tolist():
        alone_B = torch.zeros_like(scored.kept_advantage_B)
        alone_B[row] = scored.kept_advantage_B[row]
        if not math.isfinite(gradient_of(scored, alone_B).norm):
            _require_foreign(scored.batch.completions[row], "gradient", policy, name)
            found[row] = "gradient"
    if not found:
        raise NonFiniteError(
            f"{name!r}: the gradient of the batch is not finite, though that of "
            f"each completion is; lower micro_batch_tokens or the learning rate"
        )
    return found


def _require_foreign(completion: Completion, what: str, policy: LanguageModel, name: str) -> None:
    """Raise NonFiniteError if a weight is not finite, or if the completion is ``name``'s own."""
    for weight, parameter in policy.network.named_parameters():
        if not full_tensor(parameter.isfinite().all()):
            raise NonFiniteError(
                f"{name!r}: the weights {weight!r} are not finite; lower the "
                f"learning rate, in a new run (its model can be a checkpoint of this one)"
            )
    if completion.author == name:
        raise NonFiniteError(
            f"{name!r}: the {what} of completion {completion.index} of "
            f"{completion.problem_id!r} by {completion.author!r}, its own, is not finite; "
            f"lower the learning rate"
        )
