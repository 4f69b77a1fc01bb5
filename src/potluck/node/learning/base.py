"""The interface of a model that learns, here or on a server, and its report of a round."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path

from potluck.model import Reader
from potluck.node.learning.batch import Batch, Scored
from potluck.objective.losses import Loss, share_of
from potluck.objective.methods import ObjectiveConfig
from potluck.objective.weights import Weight, weight_of
from potluck.rollout.base import Progress


def silent(done: int, total: int) -> None:
    """Ignore progress: the default ``Progress``."""


@dataclass(frozen=True, slots=True, eq=False)
class UpdateReport:
    """The updates of one round."""

    updates: int
    """Optimiser steps taken; 0 where nothing was left to learn."""
    loss: float
    """Loss of the last update, over the whole batch, KL included; dimensionless."""
    gradient_norm: float
    """L2 norm of the last update's gradient before it was clipped."""
    learning_rate: float
    """Rate of the last update; of the one that was due where none was made."""
    scored: Scored
    shares: Mapping[str, float]
    """``Gradient.shares`` of the last update."""


@dataclass(frozen=True, eq=False)
class Learning(ABC):
    """A model that learns; ``Learner`` has its weights here."""

    name: str
    """Name of this node: an own completion that makes a number non-finite is an error."""
    policy: Reader
    objective: ObjectiveConfig
    _: KW_ONLY
    longest: int = 1
    """Limit of a completion in tokens, which ``loss_type = "dr_grpo"`` divides by."""
    loss: Loss | None = None
    """Own loss of the recipe; None: that of its importance scheme."""
    custom_weight: Weight | None = None
    """Own weight of trusted authors' completions; None: that of the method."""

    @cached_property
    def weight(self) -> Weight | None:
        """Weight of trusted authors' completions."""
        return self.custom_weight or weight_of(self.objective)

    def share(self, part: tuple[int, int], whole: tuple[int, int]) -> float:
        """Return the factor on the mean over a part of a batch: see ``share_of``."""
        return share_of(part, whole, self.objective.loss_type, longest=self.longest)

    @property
    def parameters(self) -> int:
        """Number of the model's weights; 0: not known here."""
        return 0

    @abstractmethod
    def learn(self, batch: Batch, progress: Progress, *, round: int = 0) -> UpdateReport:
        """Take the steps of a round, and return what they did; ``round`` decides the rate."""

    @abstractmethod
    def save(self, folder: Path, round: int, *, card: str) -> None:
        """Write the checkpoint of ``round`` rounds into a node's folder, with its card."""
