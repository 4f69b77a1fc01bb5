"""A model whose weights are sharded over processes by torch's FSDP2 (``fully_shard``).

Each layer is gathered for its own forward and backward pass, embedding and head for a whole
pass of the ``Scorer``. Writing, thousands of passes a token wide, is done with a whole copy.

``accelerate`` wraps a network, so weights that the scorer uses past the network's own
``forward`` (the head, a chunk at a time) would not be there.
"""

from collections.abc import Sequence
from copy import copy, deepcopy
from typing import Any

import torch
import torch.distributed
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from potluck.model.inputs import Ids, Inputs, SharedPrompts, WholeRows, pays, read_tokens
from potluck.model.policy import LanguageModel
from potluck.types import Observed


class ShardedModel(LanguageModel):
    """A LanguageModel of which each process of a mesh holds a part of every weight. ``logp`` is a
    collective, with rows of each process's own; a backward pass after it leaves in each the mean
    over all processes of its part of the gradient."""

    def __init__(self, policy: LanguageModel, device: torch.device) -> None:
        """Use up ``policy``, equal on all processes; own parts go to ``device`` layer by layer."""
        # Here and not above: torch has this name since 2.6, and one process does not need it.
        from torch.distributed.fsdp import fully_shard

        self.__dict__.update(vars(policy))
        mesh: DeviceMesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
        empty: dict[int, object] = {
            id(p): torch.nn.Parameter(p.detach().to("meta"), requires_grad=False)
            for p in policy.network.parameters()
        }
        self._meta_network = deepcopy(policy.network, empty)  # tied weights stay tied
        kinds = set(policy.network._no_split_modules or ())
        layers = [m for m in policy.network.modules() if type(m).__name__ in kinds]
        for layer in reversed(layers):  # inner ones first
            fully_shard(layer, mesh=mesh)
        # The head is used in the last step forward and the first one backward.
        fully_shard(policy.scorer, mesh=mesh, reshard_after_forward=False)

    def _inputs(self, prompts: Ids, tokens: Ids, observed: Sequence[Observed]) -> Inputs:
        """Read prompts once on all processes or on none, as each layer is gathered by all."""
        if not self.shares_prompts:
            return WholeRows.of(prompts, tokens, observed, self.device)
        # Each pass is made by all.
        counts = torch.tensor(
            read_tokens(prompts, tokens, observed, in_one_pass=True), device=self.device
        )
        torch.distributed.all_reduce(counts)
        if not pays(*counts.tolist()):
            return WholeRows.of(prompts, tokens, observed, self.device)
        return SharedPrompts.of(
            prompts,
            tokens,
            observed,
            self.device,
            in_one_pass=True,
            computes_twice=self.computes_twice,
        )

    def replica(self, dtype: torch.dtype) -> LanguageModel:
        """Make a copy to write with; its buffers are not rounded, its scorer is not its own."""
        made = copy(self)
        made.network = self.full_network(dtype=dtype, device=self.device).eval()
        return made

    def full_network(
        self, *, dtype: torch.dtype | None = None, device: torch.device
    ) -> PreTrainedModel:
        """Make a copy with every weight in one piece, as ``dtype``, or each as it is."""
        self.empty_cache()
        filled: dict[int, object] = {}
        pairs = zip(self._meta_network.parameters(), self.network.parameters(), strict=True)
        for meta, parameter in pairs:
            full = full_tensor(parameter.detach()).to(device, dtype or parameter.dtype)
            filled[id(meta)] = torch.nn.Parameter(full, parameter.requires_grad)
        made = deepcopy(self._meta_network, filled)
        for buffer in made.buffers():
            buffer.data = buffer.data.to(device)
        return made

    def empty_cache(self) -> None:
        # A forward pass without a backward pass has left its weights whole.
        sharded: Any = self.scorer
        sharded.reshard()
        super().empty_cache()


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a tensor that is sharded over processes. A collective: every process must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def distribute_like(parameter: Tensor, tensor: Tensor) -> Tensor:
    """Copy ``tensor`` to the device of ``parameter``, sharded if that is."""
    if isinstance(parameter, DTensor):
        # None: each process takes its part of its own copy and waits for no other.
        mesh, places = parameter.device_mesh, parameter.placements
        return distribute_tensor(tensor.to(parameter.device), mesh, places, src_data_rank=None)
    return tensor.to(parameter.device).clone()
