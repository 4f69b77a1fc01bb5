"""The optimizer of the trained parameters, and its learning rate at each update."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import torch

from potluck.model.loading import ModelError
from potluck.model.lora import trained
from potluck.model.policy import LanguageModel


@dataclass(frozen=True, slots=True)
class LearningRate:
    """A learning rate as a function of the update's number, so that a checkpoint need not keep it.

        warmup                u / w                         while u < w, so 0 at first
        then  "constant"      1
              "linear"        (n - u) / (n - w)
              "cosine"        (1 + cos(pi (u - w) / (n - w))) / 2

    times ``peak``; never below 0. Source: transformers' ``get_scheduler``, which TRL calls.
    Deviation: u counts the updates that rounds *may* have, round x updates_per_round and on, also
    of rounds that were skipped or had nothing to learn from; the last round has the last rates.
    """

    peak: float
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup: float = 0.0
    """w: a number of updates; below 1 a share of all, rounded up."""
    updates: int = 1
    """n: updates of the whole run."""

    def at(self, update: int) -> float:
        """Compute the rate of an update; the first is 0.

        >>> [LearningRate(4e-6, "linear", warmup=2, updates=6).at(u) for u in (0, 1, 2, 4, 6)]
        [0.0, 2e-06, 4e-06, 2e-06, 0.0]
        """
        share = self.warmup < 1
        first = math.ceil(self.updates * self.warmup) if share else int(self.warmup)
        if update < first:
            return self.peak * (update / first)
        left = max(0.0, (self.updates - update) / max(1, self.updates - first))
        match self.schedule:
            case "constant":
                return self.peak
            case "linear":
                return self.peak * left
            case "cosine":
                return self.peak * 0.5 * (1 + math.cos(math.pi * (1 - left)))


def make_optimizer(
    policy: LanguageModel,
    name: Literal["adam", "adamw", "adamw-8bit"],
    adam: Mapping[str, float | tuple[float, float]],
) -> torch.optim.Optimizer:
    """Make Adam or AdamW over the trained parameters, with numbers by torch's names of them.
    "adamw-8bit" has moments in 8-bit numbers, but for parameters of fewer than 4,096 (Dettmers et
    al. 2021, arXiv:2110.02861). Raise ModelError if its library is not here."""
    # Adam's weight decay would be part of the gradient; a recipe cannot ask for that.
    kind: Any = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    if name == "adamw-8bit":
        try:
            kind = import_module("bitsandbytes.optim.adamw").AdamW8bit
        except ImportError as error:
            raise ModelError(
                f"optimizer 'adamw-8bit' needs the library bitsandbytes ({error}); "
                f"pip install 'potluck[eightbit]', or set optimizer = 'adamw'"
            ) from error
    return kind(trained(policy.network), **adam)
