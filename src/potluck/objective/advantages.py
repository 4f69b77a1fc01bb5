"""Advantages: how much better a completion did than the rest of its group; and what authors that
are not trusted may add, so that none of them gains by what it writes. Their completions teach in
one way, whatever the method:

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

from potluck.objective.shapes import require_shapes


def group_advantages(reward_G: Tensor, *, scale: Literal["std", "none"] = "std") -> Tensor:
    """Return how far each reward of one group lies above the group's mean.

        A_i = (r_i - mean r) / std r      scale = "std"
        A_i =  r_i - mean r               scale = "none"

    The std is the population's. A reward counts in mean and std even if a filter takes
    its row out.

    A group whose rewards are all equal says nothing about what to do next, so its advantages are
    exactly zero (the paper leaves 0/0 open). Equal means max == min: the mean of twelve times 0.3
    is not 0.3 in floats, and dividing that rounding error by itself would make an advantage of 1
    out of nothing.

    Source: GRPO, arXiv:2402.03300, section 4.1.2; F-TIS, arXiv:2605.22537, section 2. "none" is Dr.
    GRPO's (arXiv:2503.20783), and what the authors' code runs: its division by the std is behind a
    shape test that is never true.

    >>> group_advantages(torch.tensor([1.0, 0.0, 0.0, 1.0]))
    tensor([ 1., -1., -1.,  1.])
    >>> group_advantages(torch.tensor([1.0, 0.0, 0.0, 1.0]), scale="none")
    tensor([ 0.5000, -0.5000, -0.5000,  0.5000])
    >>> group_advantages(torch.tensor([1.0, 1.0]))
    tensor([0., 0.])
    """
    require_shapes(reward_G=reward_G)
    if reward_G.max() == reward_G.min():
        return torch.zeros_like(reward_G)
    above_G = reward_G - reward_G.mean()
    return above_G / reward_G.std(correction=0) if scale == "std" else above_G


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

    So no such author moves the mean that anybody else is compared with: answers that are all right
    would make each failure of one's own look worse, and successes worth nothing. With all rows
    trusted it is ``group_advantages``.

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
