"""The policy: a causal language model, loaded, scored, adapted and sharded."""

from potluck.model.loading import ModelError
from potluck.model.policy import LanguageModel
from potluck.model.reader import Reader, Texts
from potluck.model.training import LearningRate, make_optimizer

__all__ = ["LanguageModel", "LearningRate", "ModelError", "Reader", "Texts", "make_optimizer"]
