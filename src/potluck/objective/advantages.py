"""Advantages: how much better a completion did than the rest of its group."""

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
