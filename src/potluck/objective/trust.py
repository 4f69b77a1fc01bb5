"""Learning from authors that are not trusted, so that none of them gains by what it writes.

The completions of such an author teach in one way, whatever the method:

    A_j <- P_j^c A_j  if A_j > 0, else 0              P_j: likelihood per token under this model
    g   =  g_T + sum_a min(1, (n_a / max(n_T, n_U)) |g_T| / |g_a|) g_a

with T the n_T trusted rows (one's own among them), a each other author with n_a rows, and n_U the
rows of all of them. Advantages of T, and the number of rows that the loss is the mean over, are
what they would be without those authors. So g_T is the gradient of a round in which they are
absent, and what they add to it is bounded: each in proportion to its rows, and all together at
most |g_T|. Log-probabilities that they claim are not read. docs/trust.md has the attacks that led
here, and what is left.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from potluck.objective.advantages import group_advantages
from potluck.objective.shapes import require_shapes


def advantages_by_trust(
    reward_G: Tensor,
    authors: Sequence[str],
    trusted_G: Tensor,
    *,
    scale: Literal["std", "none"] = "std",
) -> Tensor:
    """Return the advantages of a group of which some authors are not trusted.

        A_i = advantage of r_i among the rewards of all trusted rows                 i trusted
        A_j = advantage of r_j among those and the rewards of the author of j        else

    So no such author moves the mean that anybody else is compared with: answers that are all
    successes would make each failure of one's own look worse, and successes worth nothing. With all
    rows trusted it is ``group_advantages``.

    >>> advantages_by_trust(
    ...     torch.tensor([1.0, 0.0, 1.0, 1.0]), ["me", "me", "x", "x"],
    ...     torch.tensor([True, True, False, False]), scale="none",
    ... )
    tensor([ 0.5000, -0.5000,  0.2500,  0.2500])
    """
    require_shapes(reward_G=reward_G, trusted_G=trusted_G)
    advantage_G = torch.zeros_like(reward_G)
    if trusted_G.any():
        advantage_G[trusted_G] = group_advantages(reward_G[trusted_G], scale=scale)
    untrusted = {
        a for a, is_trusted in zip(authors, trusted_G.tolist(), strict=True) if not is_trusted
    }
    for author in sorted(untrusted):
        by_G = torch.tensor([each == author for each in authors])
        among_G = trusted_G | by_G
        among = group_advantages(reward_G[among_G], scale=scale)
        advantage_G[by_G] = among[by_G[among_G]]
    return advantage_G


def bounded_scale(
    norm: float, rows: int, *, trusted_norm: float, trusted_rows: int, untrusted_rows: int
) -> float:
    """Return the factor, 0..1, on the gradient of an author that is not trusted.

        min(1, (n_a / max(n_T, n_U)) |g_T| / |g_a|),    ``norm`` = |g_a|, ``rows`` = n_a

    >>> bounded_scale(4.0, 10, trusted_norm=1.0, trusted_rows=20, untrusted_rows=10)
    0.125
    """
    most = trusted_norm * rows / max(1, trusted_rows, untrusted_rows)
    return 1.0 if norm <= most else most / norm
