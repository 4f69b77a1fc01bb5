"""The keys and values of rows that are written side by side.

A row's tokens stand in columns, in order, and what it has not read is masked. Columns pass a row by
while it waits; it is moved together before it reads on, so memory does not grow with the waiting.

A recurrent layer has a state in place of keys and values, and forgets a part of it with each
column, masked or not. Padding is harmless before a prompt, where the state is 0, and nowhere else.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionLayer,
)

from potluck.model.loading import ModelError
from potluck.rollout.base import PromptedRequest

SPARE = 0.25  # share of columns beyond the longest row's, from which all are moved together
PLAIN = DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer
"""Kinds of layers of a cache whose rows can wait, and be repeated, chosen and moved together."""
STATEFUL = frozenset(
    {
        *("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_next"),
        *("lfm2", "lfm2_moe"),
    }
)
"""Types of models with recurrent layers that write and learn alike: padding before a prompt leaves
their states at 0, as no layer there adds a bias."""
Layer = Any
"""A layer of a cache; transformers has no one type for all of them."""


def require_repeatable(config: PreTrainedConfig, model: str) -> None:
    """Raise ModelError unless a prompt that such a model has read once can be continued by several
    completions: a recurrent layer (of Mamba, a gated delta rule, a short convolution) has a state,
    which padding before a prompt changes in many models. Those of STATEFUL were tried."""
    try:
        layers = DynamicCache(config=config).layers
        kind = AutoModelForCausalLM._model_mapping.get(type(config), None)
    except Exception:  # each model's configuration is code of its own; writing says what is wrong
        return
    has_recurrent_layer = any(not hasattr(each, "batch_repeat_interleave") for each in layers)
    has_recurrent_layer |= any(isinstance(each, LinearAttentionLayer) for each in layers)
    if not (has_recurrent_layer or getattr(kind, "_is_stateful", False)):
        return
    adds_bias = getattr(config.get_text_config(), "conv_bias", False)  # LFM2
    known = all(type(each) in PLAIN for each in layers) and config.model_type in STATEFUL
    if not known or adds_bias:
        raise ModelError(
            f"model {model!r} ({config.model_type}) has recurrent layers, whose state padding "
            f"before a prompt may change; take a model of attention layers only, or one of those "
            f"that docs/partners.md names"
        )


def require_one_rope(config: PreTrainedConfig, model: str, longest: int) -> None:
    """Raise ModelError if sequences of ``longest`` tokens cross a border behind which the model
    turns all positions otherwise (longrope of Phi-3): keys that were kept from before the border
    are another model's than those that learning computes."""
    text: PreTrainedConfig = config.get_text_config()
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    if (rope.get("rope_type") or rope.get("type")) != "longrope":
        return
    border = (
        rope.get("original_max_position_embeddings")
        or getattr(text, "original_max_position_embeddings", None)
        or longest
    )
    if longest > border:
        raise ModelError(
            f"model {model!r} turns positions otherwise beyond {border} tokens (longrope), and a "
            f"prompt with its completion may have {longest}; set sampling.max_total_tokens = "
            f"{border}, or write through vLLM"
        )


class PromptReader:
    """The cache of a batch: each prompt is read once for its ``count`` of rows, then by token."""

    def __init__(self, network: PreTrainedModel, tasks: Sequence[PromptedRequest]) -> None:
        require_repeatable(network.config, str(network.name_or_path))
        self._network, self._cache = network, DynamicCache(config=network.config)
        self._count_Q = torch.tensor([task.count for task in tasks], device=network.device)
        self._token_QP, real_QP = _padded([task.prompt_P for task in tasks], network.device)
        # Prompts of one length need no mask, which is the fast path of every attention kernel.
        self._mask = None if real_QP.all() else real_QP

    def first(self) -> Tensor:
        """Compute logits_NV after the prompts, a row for each completion of each problem."""
        logits_QV = self._forward(self._token_QP)
        row_Q = torch.arange(len(self._count_Q), device=self._count_Q.device)
        self._take(row_Q.repeat_interleave(self._count_Q))
        if self._mask is not None:
            self._mask = self._mask.repeat_interleave(self._count_Q, dim=0)
        return logits_QV.repeat_interleave(self._count_Q, dim=0)

    def next(self, token_N: Tensor) -> Tensor:
        """Compute logits_NV after one more token of each row."""
        if self._mask is not None:
            self._mask = torch.cat([self._mask, torch.ones_like(self._mask[:, :1])], dim=1)
        return self._forward(token_N.unsqueeze(1))

    def keep(self, kept_N: Tensor) -> None:
        """Remove every row but ``kept_N`` from the cache."""
        self._take(kept_N)
        if self._mask is not None:
            self._mask = self._mask[kept_N]

    def _take(self, row_N: Tensor) -> None:
        """Have the cache hold these of its rows, each as often as it is named."""
        # Beam search does so, after which it is named; its annotation is of a type for integers.
        self._cache.reorder_cache(row_N)  # type: ignore[arg-type]

    def _forward(self, token_NS: Tensor) -> Tensor:
        columns = token_NS.shape[1]
        # An index copies the last column. A slice would not, and with frozen weights torch then
        # copies the whole head once for each row, in bfloat16 on a CPU.
        last_1 = torch.tensor([columns - 1], device=token_NS.device) if columns > 1 else 1
        given = {"past_key_values": self._cache, "use_cache": True, "logits_to_keep": last_1}
        if self._mask is not None:
            place_NS = self._mask.cumsum(dim=1)[:, -columns:] - 1
            given["position_ids"] = place_NS.clamp(min=0)
        out = self._network(input_ids=token_NS, attention_mask=self._mask, **given)
        return out.logits[:, -1]


class TurnReader(PromptReader):
    """The cache of a batch of episodes, whose rows read unlike numbers of tokens, or none."""

    _mask: Tensor

    def __init__(self, network: PreTrainedModel, tasks: Sequence[PromptedRequest]) -> None:
        super().__init__(network, tasks)
        # A layer with a window forgets columns by their number; the mask has the window as well.
        layers = self._cache.layers
        self._cache.layers = [each if _has_state(each) else DynamicLayer() for each in layers]
        self._mask = _padded([task.prompt_P for task in tasks], network.device)[1]
        self._most = 0

    @staticmethod
    def require_columns(network: PreTrainedModel, longest: int) -> None:
        """Raise ModelError unless a row of ``longest`` tokens may have as many gaps as tokens."""
        for layer in DynamicCache(config=network.config).layers:
            window = getattr(layer, "sliding_window", 2 * longest)
            if type(layer) not in PLAIN or window < 2 * longest:
                raise ModelError(
                    f"{type(network).__name__} has a {type(layer).__name__}, which cannot wait for "
                    f"an environment; use a model of attention layers, with no window shorter than "
                    f"2 x max_total_tokens = {2 * longest}"
                )

    def step(self, token_N: Tensor, reads_N: Tensor) -> Tensor:
        """Compute logits_NV after one more token of the rows that read; others' mean nothing."""
        if self._mask.shape[1] >= self._most:
            longest = int(self._mask.sum(dim=1).max())
            self._most = int((1 + SPARE) * longest) + 1
            if self._mask.shape[1] >= self._most:
                self._pack()
        self._mask = torch.cat([self._mask, reads_N[:, None]], dim=1)
        waits_W = (~reads_N).nonzero().squeeze(1)
        kept = [(states, at, states[at][waits_W]) for states, at in self._states()]
        logits_NV = self._forward(token_N.unsqueeze(1))
        for states, at, before in kept:
            states[at].index_copy_(0, waits_W, before)
        return logits_NV

    def read(self, at_W: Tensor, ids: Sequence[np.ndarray]) -> Tensor:
        """Compute logits_WV after some more tokens of each of these rows.

        They are read by themselves, so that the others cost nothing, in a copy of their cache; if
        these are the most of all, then with the others, as copies take memory. Where a layer has a
        state, those of one length are read together, without padding.
        """
        lengths = [len(each) for each in ids]
        if self._states() and len({*lengths}) > 1:
            found: dict[int, Tensor] = {}
            for length in {*lengths}:
                places = [place for place, each in enumerate(lengths) if each == length]
                logits_XV = self.read(at_W[places], [ids[place] for place in places])
                found |= dict(zip(places, logits_XV, strict=True))
            return torch.stack([found[place] for place in range(len(ids))])
        block_WS, real_WS = _padded(ids, at_W.device)
        if self._states() or 2 * len(at_W) <= len(self._mask):
            part = copy(self)
            part._cache = copy(self._cache)
            part._cache.layers = [_copied(layer) for layer in self._cache.layers]
            part._pack(at_W)
            logits_WV = part._read(block_WS, real_WS)
            self._put(at_W, part)
        else:
            shape = len(self._mask), block_WS.shape[1]
            block_NS = block_WS.new_zeros(shape).index_copy(0, at_W, block_WS)
            real_NS = real_WS.new_zeros(shape).index_copy(0, at_W, real_WS)
            self._pack()
            logits_WV = self._read(block_NS, real_NS)[at_W]
            self._pack()
        return logits_WV

    def _read(self, token_NS: Tensor, real_NS: Tensor) -> Tensor:
        self._mask = torch.cat([self._mask, real_NS], dim=1)
        return self._forward(token_NS)

    def _pack(self, kept_N: Tensor | None = None) -> None:
        """Move each row's tokens to the right; forget columns without one, and all other rows."""
        if kept_N is None:
            kept_N = torch.arange(len(self._mask), device=self._mask.device)
        else:
            for states, at in self._states():
                states[at] = states[at].index_select(0, kept_N)
        mask_NC = self._mask[kept_N]
        longest = int(mask_NC.sum(dim=1).max())
        order_NC = mask_NC.int().argsort(dim=1, stable=True)[:, -longest:]
        self._mask = mask_NC.gather(1, order_NC)
        for layer, name in self._tensors():
            tensor = getattr(layer, name)
            heads, columns, size = tensor.shape[1:]
            # Whole vectors are copied, not number by number: 17 times as fast as take_along_dim.
            first_NH = kept_N[:, None] * heads + torch.arange(heads, device=kept_N.device)
            at_NHC = first_NH[:, :, None] * columns + order_NC[:, None]
            moved = tensor.reshape(-1, size).index_select(0, at_NHC.flatten())
            setattr(layer, name, moved.view(*at_NHC.shape, size))

    def _put(self, at_W: Tensor, part: "TurnReader") -> None:
        before, after = self._mask.shape[1], part._mask.shape[1]
        left, part_left = max(after - before, 0), max(before - after, 0)
        whole_NC = pad(self._mask, (left, 0))
        self._mask = whole_NC.index_copy_(0, at_W, pad(part._mask, (part_left, 0)))
        for (layer, name), (new, _) in zip(self._tensors(), part._tensors(), strict=True):
            whole = getattr(layer, name)
            whole = pad(whole, (0, 0, left, 0)) if left else whole
            # What stays of these rows before it is masked.
            whole[:, :, part_left:].index_copy_(0, at_W, getattr(new, name))
            setattr(layer, name, whole)

        for (states, at), (others, _) in zip(self._states(), part._states(), strict=True):
            states[at].index_copy_(0, at_W, others[at])

    def _tensors(self) -> list[tuple[object, str]]:
        layers = (layer for layer in self._cache.layers if not _has_state(layer))
        return [(layer, name) for layer in layers for name in ("keys", "values")]

    def _states(self) -> list[tuple[dict[int, Any], int]]:
        """Find the states of recurrent layers, each as a dict and a key of it; none before a first
        pass. A pass writes them in place."""
        layers = (layer for layer in self._cache.layers if _has_state(layer))
        kinds = (states for each in layers for states in (each.conv_states, each.recurrent_states))
        return [
            (states, at) for states in kinds for at, state in states.items() if state is not None
        ]


def _has_state(layer: object) -> TypeGuard[LinearAttentionLayer]:
    return isinstance(layer, LinearAttentionLayer)


def _copied(layer: Layer) -> Layer:
    made = copy(layer)
    if _has_state(made):
        made.conv_states, made.recurrent_states = {**made.conv_states}, {**made.recurrent_states}
    return made


def _padded(rows: Sequence[np.ndarray], device: torch.device) -> tuple[Tensor, Tensor]:
    """Stack ids, short rows padded at the left; return them, and which are no padding."""
    each = [torch.from_numpy(ids).long() for ids in rows]
    token_NS = pad_sequence(each, batch_first=True, padding_side="left")
    length_N1, longest = torch.tensor([[len(ids)] for ids in rows]), token_NS.shape[1]
    real_NS = torch.arange(longest) >= longest - length_N1
    return token_NS.to(device), real_NS.to(device)
