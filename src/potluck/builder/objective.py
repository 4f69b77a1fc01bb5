"""Loss and weight of the recipe's own: loaded, tried on two rows, and called with clear errors."""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from potluck.builder.task import require_trusted
from potluck.config import ConfigError, RunConfig
from potluck.objective.losses import Loss
from potluck.objective.methods import ObjectiveConfig
from potluck.objective.weights import ScoredRows, Weight, batch_weight
from potluck.tasks.rewards import load_function

START_BT = torch.full((2, 3), -1.0)
MASK_BT = torch.tensor([[True, True, True], [True, False, False]])
"""Two ordinary rows on which code of one's own is tried."""


def load_loss(config: RunConfig, *, trust_code: bool) -> Loss | None:
    """Import the recipe's loss, if it names one, and call it once on two rows. Raise TaskError or
    ConfigError if it cannot be imported, is not trusted, or makes no loss of them."""
    if not config.objective.loss:
        return None
    what, function = _load(config, "loss", trust_code)

    def loss(*given: Tensor | ObjectiveConfig) -> Tensor:
        made = called(what, function, *given)
        if not isinstance(made, Tensor) or made.shape or not made.requires_grad:
            raise ConfigError(
                f"{what} returned a {_kind(made)}; expected a tensor of one number through which "
                f"gradient flows to its first argument"
            )
        return made

    logp_BT = START_BT.clone().requires_grad_()
    advantage_B = torch.tensor([1.0, -1.0])
    _require_finite(
        what, loss(logp_BT, START_BT, START_BT - 0.1, advantage_B, MASK_BT, config.objective)
    )
    return loss


def load_weight(config: RunConfig, *, trust_code: bool) -> Weight | None:
    """Import the recipe's weight, if it is none of ours, as ``load_loss`` does. Without a mark of
    ``weights.py`` it is called on the whole batch."""
    if not config.objective.has_custom_weight:
        return None
    what, function = _load(config, "weight", trust_code)
    marked = function if isinstance(function, Weight) else batch_weight(function)

    def weight(rows: ScoredRows, options: ObjectiveConfig) -> Tensor:
        made = called(what, marked.of, rows, options)
        if not isinstance(made, Tensor) or made.shape != rows.advantage_B.shape:
            raise ConfigError(
                f"{what} returned a {_kind(made)}; expected a tensor of one number for each of "
                f"{len(rows.advantage_B)} rows"
            )
        return made

    weight.__name__ = config.objective.weight
    _require_finite(what, weight(_two_rows(), config.objective))
    return Weight(weight, marked.needs_batch)


def digests_of(config: RunConfig, *, trust_code: bool) -> dict[str, str]:
    """Hash the files of loss and weight with SHA-256, so that a resumed run can tell; "": it has
    none. Raise as ``load_loss`` does: before models are loaded."""
    load_loss(config, trust_code=trust_code)
    load_weight(config, trust_code=trust_code)
    objective = config.objective
    named = {"loss": objective.loss, "weight": objective.weight * objective.has_custom_weight}
    return {key: name and load_function(key, name)[1] for key, name in named.items()}


def _load(config: RunConfig, key: str, trust_code: bool) -> tuple[str, Callable[..., Any]]:
    require_trusted(config, trust_code)
    what, name = f"[objective] {key}", getattr(config.objective, key)
    return f"{what} {name!r}", load_function(what, name)[0]


def _require_finite(what: str, tried: Tensor) -> None:
    if not tried.isfinite().all():
        raise ConfigError(f"{what} is {tried.tolist()} for two ordinary rows")


def called(what: str, function: Callable[..., Any], *given: object) -> object:
    """Call a function of the user's; raise ConfigError with what it is and where it raised."""
    try:
        return function(*given)
    except Exception as error:  # anybody's code may raise anything
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(at.filename).name}, line {at.lineno}"
        raise ConfigError(f"{what} raised {type(error).__name__}: {error} ({where})") from error


def _kind(made: object) -> str:
    shape = f" of shape {[*made.shape]}" if isinstance(made, Tensor) else ""
    return f"{type(made).__name__}{shape}"


def _two_rows() -> ScoredRows:
    yes_B = torch.tensor([True, True])
    return ScoredRows(
        advantage_B=torch.tensor([1.0, 1.0]),
        read_B=yes_B,
        own_B=torch.tensor([True, False]),
        trusted_B=yes_B,
        logp_start_BT=torch.where(MASK_BT, START_BT, 0.0),
        entropy_BT=torch.where(MASK_BT, 1.0, 0.0),
        logp_gen_BT=torch.where(MASK_BT, START_BT - 0.1, 0.0),
        mask_BT=MASK_BT,
        bytes_B=torch.tensor([3, 1]),
        reward_B=torch.tensor([1.0, 1.0]),
        group_B=torch.tensor([0, 0]),
        texts=("yes", "y"),
    )
