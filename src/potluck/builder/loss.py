"""A loss of the recipe's own, [objective] loss: loaded, tried, and called with clear errors."""

import traceback
from pathlib import Path

import torch
from torch import Tensor

from potluck.builder.task import require_trust
from potluck.config import ConfigError, RunConfig
from potluck.objective.losses import Loss
from potluck.objective.methods import ObjectiveConfig
from potluck.tasks.rewards import load_function


def load_loss(config: RunConfig, *, trust_code: bool) -> Loss | None:
    """Import the recipe's loss and call it once on two rows; None: the recipe names none.

    Raises:
        ConfigError: it is not trusted, or what it makes of the two rows is no loss.
        TaskError: it cannot be imported.
    """
    if not (name := config.objective.loss):
        return None
    require_trust("[objective] loss", [name], trust_code=trust_code)
    function, _ = load_function("[objective] loss", name)

    def loss(*given: Tensor | ObjectiveConfig) -> Tensor:
        try:
            made = function(*given)
        except Exception as error:  # anybody's code may raise anything
            at = traceback.extract_tb(error.__traceback__)[-1]
            raise ConfigError(
                f"[objective] loss {name!r} raised {type(error).__name__}: {error} "
                f"({Path(at.filename).name}, line {at.lineno})"
            ) from error
        if not isinstance(made, Tensor) or made.shape or not made.requires_grad:
            shape = f" of shape {[*made.shape]}" if isinstance(made, Tensor) else ""
            raise ConfigError(
                f"[objective] loss {name!r} returned a {type(made).__name__}{shape}; expected a "
                f"tensor of one number through which gradient flows to its first argument"
            )
        return made

    logp_BT = torch.full((2, 3), -1.0, requires_grad=True)
    mask_BT = torch.tensor([[True, True, True], [True, False, False]])
    start_BT, advantage_B = logp_BT.detach(), torch.tensor([1.0, -1.0])
    tried = loss(logp_BT, start_BT, start_BT - 0.1, advantage_B, mask_BT, config.objective)
    if not tried.isfinite():
        raise ConfigError(f"[objective] loss {name!r} is {tried.item()} for two ordinary rows")
    return loss


def loss_digest(config: RunConfig, *, trust_code: bool) -> str:
    """Hash the loss's file with SHA-256, so that a resumed run can tell; "": there is none.
    Raise as ``load_loss`` does: before models are loaded, which takes long."""
    has_one = load_loss(config, trust_code=trust_code) is not None
    return load_function("[objective] loss", config.objective.loss)[1] if has_one else ""
