"""Floating-point operations of writing and of learning, counted from a model's shape.

What is counted is what the mathematics needs: one multiplication and one addition for each
weight of a linear layer and token, twice that again backwards for a weight that is trained
(its own gradient, and that of its input), once for one that is not; and the products of
attention, over the positions that a causal mask leaves. Padding, softmax, norms and the
optimiser are not counted. What is computed twice to spare memory is counted only as
"executed".
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a model: the weights that every token meets."""

    body: int
    """Weights of the linear layers, the head aside."""
    body_trained: int
    head: int
    head_trained: int
    attention: int
    """Layers x heads x width of a head: what a pair of positions costs, over 4."""
    kept: int
    """Numbers that the cache keeps of a position: the keys and values of every layer."""


@dataclass(frozen=True, slots=True)
class Operations:
    model: float
    executed: float
    """With what is computed again: the head's chunks, and, with gradient checkpointing, the
    body."""


def shape_of(network: PreTrainedModel) -> Shape:
    head = network.get_output_embeddings().weight
    body = [
        m.weight
        for m in network.modules()
        if isinstance(m, torch.nn.Linear) and m.weight is not head
    ]
    text = network.config.get_text_config()
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return Shape(
        body=sum(w.numel() for w in body),
        body_trained=sum(w.numel() for w in body if w.requires_grad),
        head=head.numel(),
        head_trained=head.numel() if head.requires_grad else 0,
        attention=text.num_hidden_layers * text.num_attention_heads * width,
        kept=2 * text.num_hidden_layers * text.num_key_value_heads * width,
    )


def writing(shape: Shape, prompt: int, lengths: Sequence[int]) -> float:
    """Of one problem: its prompt read once, then every completion a token at a time.

    The head reads the prompt's last position only; a completion's last token is not read.

        2 body P + 2 head + a(P (P+1)/2)  +  sum_T (T-1) 2 (body + head) + a(sum_{t<T} (P+t))

    with a(pairs) = 4 attention pairs: scores and their weighted sum.
    """
    read = 2 * shape.body * prompt + 2 * shape.head
    pairs = _pairs(prompt)
    fed = 0
    for length in lengths:
        fed += length - 1
        pairs += _pairs(prompt + length - 1) - _pairs(prompt)
    return read + 2 * (shape.body + shape.head) * fed + 4 * shape.attention * pairs


def numbers_read(shape: Shape, prompts: Sequence[int], lengths: Sequence[Sequence[int]]) -> float:
    """Of one batch of completions of several problems: numbers that writing has to read.

    All weights once for the prompts and once for each further token of the longest completion;
    and, for each token, what the cache keeps of the positions before it. Writing a batch token by
    token can be no faster than memory gives these.

        (body + head) max T  +  kept sum_i sum_{t<T_i} (P_i + t)
    """
    steps = max(length for each in lengths for length in each)
    seen = sum(
        _pairs(prompt + length - 1) - _pairs(prompt)
        for prompt, each in zip(prompts, lengths, strict=True)
        for length in each
    )
    return (shape.body + shape.head) * steps + shape.kept * seen


def learning(shape: Shape, prompt: int, length: int, *, checkpointing: bool) -> Operations:
    """Of one row, forwards and backwards, S = P + T - 1 positions of which T meet the head.

    S (4 body + 2 body_trained)  +  T (4 head + 2 head_trained)  +  3 a(S (S+1)/2)
    """
    read = prompt + length - 1
    attention = 4 * shape.attention * _pairs(read)
    model = (
        read * (4 * shape.body + 2 * shape.body_trained)
        + length * (4 * shape.head + 2 * shape.head_trained)
        + 3 * attention
    )
    again = 2 * shape.head * length
    if checkpointing:
        again += 2 * shape.body * read + attention
    return Operations(model, model + again)


def _pairs(positions: int) -> int:
    """(position, itself or an earlier one)."""
    return positions * (positions + 1) // 2
