"""The policy: a causal language model, loaded, scored, adapted and sharded."""

from potluck.model.loading import ModelError
from potluck.model.optimizer import LearningRate, make_optimizer
from potluck.model.policy import LanguageModel

__all__ = ["LanguageModel", "LearningRate", "ModelError", "make_optimizer"]
