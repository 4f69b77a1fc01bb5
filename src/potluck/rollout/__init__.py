"""How a model writes, and how likely it finds what others wrote. The only room with an engine."""

from potluck.rollout.base import Engine, Order, Progress, RolloutError
from potluck.rollout.hf import HFEngine
from potluck.rollout.loading import ModelError
from potluck.rollout.model import LanguageModel
from potluck.rollout.sampling import Draw, Greedy, Sampled

__all__ = [
    "Draw",
    "Engine",
    "Greedy",
    "HFEngine",
    "LanguageModel",
    "ModelError",
    "Order",
    "Progress",
    "RolloutError",
    "Sampled",
]
