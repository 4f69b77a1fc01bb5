"""The optimisers that a recipe may name."""

from typing import Any

import torch

from potluck.config import NodeConfig
from potluck.rollout import LanguageModel, ModelError
from potluck.rollout.lora import trained


def make_optimizer(language: LanguageModel, node: NodeConfig) -> torch.optim.Optimizer:
    """Adam or AdamW over what is trainable, at a constant learning rate (Table 1).

    Raises:
        ModelError: the library for 8-bit moments is not here.
    """
    parameters, rate = trained(language.network), node.learning_rate
    match node.optimizer:
        case "adam":
            return torch.optim.Adam(parameters, lr=rate)
        case "adamw":
            return torch.optim.AdamW(parameters, lr=rate, weight_decay=node.weight_decay)
        case "adamw-8bit":
            return _adamw_8bit(parameters, rate, node.weight_decay)


def _adamw_8bit(
    parameters: list[torch.nn.Parameter], rate: float, decay: float
) -> torch.optim.Optimizer:
    """Moments in blocks of 8-bit numbers, 2 bytes a weight for both instead of 8.

    Parameters of fewer than 4,096 numbers keep theirs in float32.

    Source: Dettmers et al. 2021, arXiv:2110.02861.
    """
    try:
        from bitsandbytes.optim.adamw import AdamW8bit
    except ImportError as error:
        raise ModelError(
            f"optimizer 'adamw-8bit' needs the library bitsandbytes ({error}); "
            f"pip install 'potluck[eightbit]', or set optimizer = 'adamw'"
        ) from error
    kind: Any = AdamW8bit  # it has no types
    optimizer: torch.optim.Optimizer = kind(parameters, lr=rate, weight_decay=decay)
    return optimizer
