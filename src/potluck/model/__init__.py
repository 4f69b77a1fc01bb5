"""The policy: a causal language model, loaded, scored, adapted and sharded."""

from potluck.model.loading import ModelError
from potluck.model.policy import LanguageModel, make_optimizer

__all__ = ["LanguageModel", "ModelError", "make_optimizer"]
