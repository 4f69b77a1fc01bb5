"""Sizes of a model and its parts, without its weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig
from transformers.pytorch_utils import Conv1D

from potluck.model.inputs import can_share_prompts
from potluck.model.loading import BUILDING


@dataclass(frozen=True, slots=True)
class Shape:
    """Counts of numbers, as a transformer of attention and gated layers has them."""

    parameters: int  # shared ones once
    layers: int
    hidden: int
    heads: int
    attention: int  # of a token's queries: heads x their width
    keys: int  # of a token; as many are its values
    intermediate: int
    normalised: int  # of a token, in one layer: what its norms read, those of queries and keys too
    vocabulary: int  # rows of logits, those that the tokenizer does not have included
    tied: bool  # the head's weights are the embedding's
    context: int  # longest text that it has positions for, in tokens; 0: it does not say
    linears: tuple[tuple[str, int, int], ...]  # (last part of its name, inputs, outputs) of each
    head: str  # its name among them
    model_type: str  # as transformers names it
    shares_prompts: bool  # a prompt can be read once for its rows


def shape_of(config: PreTrainedConfig) -> Shape:
    """Find the shape of the network that ``config`` describes, which is built without memory."""
    with BUILDING, torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    named = [(name.rpartition(".")[2], module) for name, module in network.named_modules()]
    text = config.get_text_config()
    head = network.get_output_embeddings().weight
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    heads = text.num_attention_heads
    heads_kept = getattr(text, "num_key_value_heads", None) or heads
    return Shape(
        parameters=sum(p.numel() for p in network.parameters()),
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        heads=heads,
        attention=heads * width,
        keys=heads_kept * width,
        # GPT-2 and its like name none where it is the usual one.
        intermediate=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
        normalised=_normalised(network, {"q_norm": heads * width, "k_norm": heads_kept * width})
        // text.num_hidden_layers,
        vocabulary=head.shape[0],
        tied=head is network.get_input_embeddings().weight,
        context=getattr(text, "max_position_embeddings", None) or 0,
        linears=tuple(
            (name, *_sizes(module))
            for name, module in named
            if isinstance(module, torch.nn.Linear | Conv1D)
        ),
        head=next(name for name, module in named if module is network.get_output_embeddings()),
        model_type=config.model_type,
        shares_prompts=can_share_prompts(network),
    )


def _normalised(network: torch.nn.Module, of_heads: Mapping[str, int]) -> int:
    """Add up the numbers of a token that the norms of all layers read."""
    read = 0
    for name, module in network.named_modules():
        *path, last = name.split(".")
        weight: Any = getattr(module, "weight", None)
        is_norm = "norm" in type(module).__name__.lower() and weight is not None
        # Layers are numbered; what stands behind the last one has no number in its name.
        if is_norm and any(part.isdigit() for part in path):
            # One of queries or keys has the width of a single head.
            read += of_heads.get(last, weight.numel())
    return read


def _sizes(linear: torch.nn.Linear | Conv1D) -> tuple[int, int]:
    """Read (inputs, outputs); a Conv1D (GPT-2) has its weight the other way round."""
    first, second = linear.weight.shape
    return (first, second) if isinstance(linear, Conv1D) else (second, first)
