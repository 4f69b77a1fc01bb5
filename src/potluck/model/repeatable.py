"""Passes through a network whose layers may be computed twice, with a cache.

Gradient checkpointing computes a layer's activations again in the backward pass. transformers takes
the cache from layers that do so, as a second ``update`` would grow it. Here an update changes
nothing that the next one sees, so a layer may have its cache both times. The graph of torch's
checkpoints without reentry is the ordinary one: keys and values that leave a layer through the
cache bring it their gradient.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicLayer
from transformers.modeling_layers import GradientCheckpointingLayer


class RepeatableCache(DynamicCache):
    """A cache for one pass, of which each layer may be computed twice."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__(config=config)
        self._prompt_M: Tensor | None = None
        self._read = dict[int, DynamicLayer]()

    def kept(self) -> list[Tensor]:
        """List keys and values of each layer, of what the pass with this cache has read."""
        every = [tensor for layer in self._read.values() for tensor in (layer.keys, layer.values)]
        return [tensor for tensor in every if tensor is not None]

    def behind(self, prompt_M: Tensor, kept: Sequence[Tensor]) -> "RepeatableCache":
        """Make the cache of a pass over M rows that go on from what the pass with this one has
        read: each from its row number ``prompt_M``, with ``kept`` in place of its own."""
        made = copy(self)
        made.layers = list(self.layers)
        pairs = zip(kept[::2], kept[1::2], strict=True)
        for (at, layer), (keys, values) in zip(self._read.items(), pairs, strict=True):
            made.layers[at] = given = copy(layer)
            given.keys, given.values = keys, values
        made._prompt_M = prompt_M
        made._read = {}
        return made

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *more: Any, **named: Any
    ) -> tuple[Tensor, Tensor]:
        """Return keys and values of all that the layer sees. Those of the prompts are repeated for
        their rows in here, so that a layer that is computed twice keeps no copy."""
        # Other kinds of layers are left out by ``can_share_prompts``.
        layer = cast("DynamicLayer", copy(self.layers[layer_idx]))
        if self._prompt_M is not None:
            layer.reorder_cache(cast("torch.LongTensor", self._prompt_M))
        found = layer.update(key_states, value_states, *more, **named)
        if self._prompt_M is None:
            self._read.setdefault(layer_idx, layer)
        return found


def apart(compute: Callable[[Sequence[Tensor]], Tensor], given: Sequence[Tensor]) -> Tensor:
    """Return ``compute(given)``, with a backward pass of its own, which is over before that of
    ``given`` begins.

    In one backward pass over several passes through a network, torch adds up a weight's gradients
    of all of them before it adds the sum to ``grad``: until then all weights would have a second
    gradient. Only for ``backward``; ``torch.autograd.grad`` does not see what is computed in here.
    """
    if not torch.is_grad_enabled():
        return compute(given)
    # An input with gradient: weights may want one where nothing that is given does.
    wanted = torch.zeros((), requires_grad=True)
    found: Tensor = _Apart.apply(compute, wanted, *given)
    return found


class _Apart(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, compute: Callable[[Sequence[Tensor]], Tensor], _: Tensor, *given: Tensor
    ) -> Tensor:
        ctx.given = [each.detach().requires_grad_(each.requires_grad) for each in given]
        with torch.enable_grad():
            ctx.found = compute(ctx.given)
        return ctx.found.detach()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        found, given = ctx.found, ctx.given
        del ctx.found, ctx.given
        if found.requires_grad:
            torch.autograd.backward(found, slope)
        return None, None, *(each.grad for each in given)


def computes_twice(network: torch.nn.Module) -> bool:
    """Tell whether gradient checkpointing is switched on."""
    return any(getattr(module, "gradient_checkpointing", False) for module in network.modules())


@contextmanager
def computed_twice(network: torch.nn.Module) -> Iterator[None]:
    """Have the layers with gradient checkpointing compute their activations again in the backward
    pass of what is computed meanwhile, with all that they are given, the cache included.

    The checkpoint is around ``forward``, as transformers has it: hooks of a layer, FSDP's among
    them, run outside.
    """
    with ExitStack() as changes:
        for layer in network.modules():
            if isinstance(layer, GradientCheckpointingLayer) and layer.gradient_checkpointing:
                again = partial(checkpoint, _plain(layer), use_reentrant=False)
                changes.enter_context(forward_replaced(layer, again))
        changes.enter_context(_switched_off(network))
        yield


def _plain(layer: torch.nn.Module) -> Callable[..., Any]:
    """Return the layer's forward pass without transformers' checkpointing."""
    forward = layer.forward

    def plain(*given: Any, **named: Any) -> Any:
        # In the backward pass, too, when the network's own switches are back.
        with _switched_off(layer):
            return forward(*given, **named)

    return plain


@contextmanager
def _switched_off(network: torch.nn.Module) -> Iterator[None]:
    """Switch transformers' gradient checkpointing off: bodies look at it as well as layers."""
    modules: list[Any] = [
        module for module in network.modules() if getattr(module, "gradient_checkpointing", False)
    ]
    for module in modules:
        module.gradient_checkpointing = False
    try:
        yield
    finally:
        for module in modules:
            module.gradient_checkpointing = True


@contextmanager
def forward_replaced(module: Any, forward: Callable[..., Any]) -> Iterator[None]:
    """Have calls of a module run ``forward``, within its hooks."""
    before = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before
