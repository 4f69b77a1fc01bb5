"""A network with its weights in another format."""

from copy import deepcopy

import torch
from transformers import PreTrainedModel


def rounded(
    network: PreTrainedModel, dtype: torch.dtype, device: torch.device | None = None
) -> PreTrainedModel:
    """Copy the network with rounded weights, if any are to be; on ``device``, if one is named. Its
    buffers stay: rotary frequencies in bfloat16 drift, by .17 nats a token at 1,000 tokens where
    the weights cost .035."""
    if all(p.dtype == dtype for p in network.parameters()):
        return network
    copies: dict[int, object] = {
        id(p): torch.nn.Parameter(p.detach().to(device or p.device, dtype), False)
        for p in network.parameters()
    }
    return deepcopy(network, copies)


def share_kept(network: PreTrainedModel, start: PreTrainedModel, dtype: torch.dtype) -> float:
    """Compute the share of what training has changed that is left in weights of ``dtype``:

        <round(w) - b, w - b> / |w - b|^2        w: weights of ``network``, b: those of ``start``

    A weight that moved by less than half of the step between two numbers of ``dtype`` goes back to
    where it began. 1 where nothing has moved.
    """
    left = moved = 0.0
    for name, weight in network.named_parameters():
        before = start.get_parameter(name).detach().double()
        change = weight.detach().double() - before
        left += float(((weight.detach().to(dtype).double() - before) * change).sum())
        moved += float(change.square().sum())
    return left / moved if moved else 1.0


def loses_digits(network: torch.nn.Module, dtype: torch.dtype) -> bool:
    """Tell whether some weight is another number as ``dtype``."""
    return any(not torch.equal(p, p.to(dtype).to(p.dtype)) for p in network.parameters())
