"""A model whose weights lie spread over processes, and how to have them whole for a while.

By torch's FSDP2 (``fully_shard``). Each layer is gathered for its own forward and backward
pass; what lies outside of the layers (embedding, head) for a whole pass of the ``Scorer``,
which is all that learning does with a network. Gradients and the optimiser's state stay
spread. Writing makes thousands of passes a token wide, for which gathering would be all there
is, so a process writes with a whole copy, as other engines do.

Not by ``accelerate``: it wraps the network that it is given, so weights that the scorer uses
past the network's own ``forward`` (the head, a chunk at a time) would not be there.
"""

from copy import copy, deepcopy
from typing import Any

import torch
import torch.distributed
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from potluck.rollout.model import LanguageModel


class ShardedModel(LanguageModel):
    """A LanguageModel of which each process of a mesh holds a part of every weight.

    ``logp`` is called by all of them or by none, each with rows of its own. Behind it, a
    backward pass leaves in each the mean over the processes of its part of the gradient.
    """

    def __init__(self, language: LanguageModel, device: torch.device) -> None:
        """
        Args:
            language: equal on all processes; it is used up.
            device: where this process's part goes, a layer at a time.
        """
        # Here and not above: torch has it under this name since 2.6, one process needs less.
        from torch.distributed.fsdp import fully_shard

        self.__dict__.update(vars(language))
        mesh: DeviceMesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
        self._hollow = _hollow(language.network)
        kinds = set(language.network._no_split_modules or ())
        layers = [m for m in language.network.modules() if type(m).__name__ in kinds]
        for layer in reversed(layers):  # what lies within another one first
            fully_shard(layer, mesh=mesh)
        # The head is used in the last step forward and the first one backward.
        fully_shard(language.scorer, mesh=mesh, reshard_after_forward=False)

    def replica(self, dtype: torch.dtype) -> LanguageModel:
        """A whole copy in this process, to write with; its scorer is not its own.

        Its buffers are not rounded: see ``hf.py``.
        """
        made = copy(self)
        made.network = self.whole_network(dtype=dtype, device=self.device).eval()
        return made

    def whole_network(
        self, *, dtype: torch.dtype | None = None, device: torch.device
    ) -> PreTrainedModel:
        """A copy with every weight in one piece, as ``dtype``, or each as it is."""
        self.give_memory_back()
        filled: dict[int, object] = {}
        pairs = zip(self._hollow.parameters(), self.network.parameters(), strict=True)
        for hollow, parameter in pairs:
            full = whole(parameter.detach()).to(device, dtype or parameter.dtype)
            filled[id(hollow)] = torch.nn.Parameter(full, parameter.requires_grad)
        made = deepcopy(self._hollow, filled)
        for buffer in made.buffers():
            buffer.data = buffer.data.to(device)
        return made

    def give_memory_back(self) -> None:
        # A pass that no backward pass followed has left its weights whole.
        sharded: Any = self.scorer
        sharded.reshard()
        super().give_memory_back()


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor that lies spread over processes, which all call this, or none."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def spread_like(parameter: Tensor, tensor: Tensor) -> Tensor:
    """A copy of ``tensor`` where ``parameter`` is; spread over processes if that is."""
    if isinstance(parameter, DTensor):
        # None: each takes its part of what it has itself, and none waits for another.
        mesh, places = parameter.device_mesh, parameter.placements
        return distribute_tensor(tensor.to(parameter.device), mesh, places, src_data_rank=None)
    return tensor.to(parameter.device).clone()


def _hollow(network: PreTrainedModel) -> PreTrainedModel:
    """A copy without the numbers of its weights; it keeps which of them are tied."""
    empty: dict[int, object] = {
        id(p): torch.nn.Parameter(p.detach().to("meta"), requires_grad=False)
        for p in network.parameters()
    }
    return deepcopy(network, empty)
