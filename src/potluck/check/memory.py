"""What a node needs of its device's memory, from the shape of its model: arithmetic alone.

A node holds its *state* all the time and, one after the other, what it needs to *write*, to
*learn* and to be *evaluated*; between them memory is given back. So its peak is

    state + max(writing, learning, evaluating)

and nodes that share a device need the sum of their peaks; in one process, where they take turns,
the sum of their states and the largest of their phases. The formulas count the tensors that
torch and transformers keep for a decoder of the Llama and Qwen kind; ``docs/memory.md`` derives
them and holds them against measured peaks. An upper bound in one way: every completion is
taken to be as long as it may be. Not counted: memory that the allocator cannot use between
tensors, and attention on a GPU that has no fast kernel for the format (float32 with grouped
heads).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from potluck.config import LoraConfig, NodeConfig, RunConfig
from potluck.rollout.scoring import logits_at_once
from potluck.rollout.shape import Shape
from potluck.swarm import PLANS

BYTES = {"float32": 4, "bfloat16": 2}
MOMENTS = {"adam": 8, "adamw": 8, "adamw-8bit": 2}
"""Bytes of the optimiser's two moments for each trained number."""
DRAWING = 24
"""Bytes for each logit of a row that is drawn from: float32 logits, their logarithms and
shares, and the shares' running sum in float64."""
HEAD_COPIES = 3
"""float32 copies of a chunk's logits at once: themselves, their logarithms, a gradient."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """How long the prompts of a run are, in tokens."""

    mean: float
    longest: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one node on its device, in bytes."""

    weights: int
    """As they are held; an adapter's included."""
    moments: int
    """The optimiser's."""
    writing: int
    evaluating: int
    learning: int

    @property
    def state(self) -> int:
        """What it holds also while other nodes have their turn."""
        return self.weights + self.moments

    @property
    def phase(self) -> int:
        return max(self.writing, self.evaluating, self.learning)

    @property
    def peak(self) -> int:
        return self.state + self.phase


def at_once(nodes: Iterable[Memory]) -> int:
    """Bytes that nodes need on one device, each in a process of its own."""
    return sum(node.peak for node in nodes)


def together(nodes: Iterable[Memory]) -> int:
    """Bytes that nodes need on one device, where they take turns."""
    nodes = list(nodes)
    return sum(node.state for node in nodes) + max(node.phase for node in nodes)


def memory_of(
    config: RunConfig, name: str, shape: Shape, prompts: Prompts, *, gpu: bool = True
) -> Memory:
    """What node ``name`` of ``config``, whose model has ``shape``, needs.

    Args:
        gpu: on a GPU the optimiser steps all weights at once, which takes room of its own.
    """
    node = config.node[name]
    adapters = adapter_numbers(node, shape)
    trained = adapters if node.lora else shape.parameters
    frozen = shape.parameters if node.lora else 0
    held = BYTES[node.dtype] if node.lora else 4
    most, wanted = config.sampling.max_total_tokens, config.evaluation
    longest = _within(shape, min(most, prompts.longest + config.sampling.max_new_tokens))
    asked = _within(shape, prompts.longest + wanted.max_new_tokens)
    return Memory(
        weights=4 * trained + held * frozen,
        moments=MOMENTS[node.optimizer] * trained,
        writing=_writing(
            node,
            shape,
            rows=(own := own_completions(config, name)),
            problems=-(-own // config.group_size) if config.plan == "vertical" else own,
            prompt=prompts.longest,
            longest=longest,
            dtype=node.sampling_dtype,
        ),
        evaluating=_writing(
            node,
            shape,
            rows=(count := max(wanted.problems, wanted.out_of_distribution)),
            problems=count,
            prompt=prompts.longest,
            longest=asked if wanted.max_new_tokens else longest,
            dtype=node.sampling_dtype,
        ),
        learning=_learning(
            node,
            shape,
            trained=trained,
            rows=config.problems_per_round * config.group_size,
            new=config.sampling.max_new_tokens,
            longest=longest,
            gpu=gpu,
        ),
    )


def own_completions(config: RunConfig, name: str) -> int:
    """Completions that a node writes in a round."""
    weights = {each: node.weight for each, node in config.node.items()}
    ids = [str(i) for i in range(config.problems_per_round)]
    shares = PLANS[config.plan](ids, weights, config.group_size)
    return sum(share.count for share in shares if share.node == name)


def adapter_numbers(node: NodeConfig, shape: Shape) -> int:
    """r x (inputs + outputs) of every layer that gets an adapter."""
    if not node.lora:
        return 0
    return sum(
        node.lora.r * (inputs + outputs)
        for layer, inputs, outputs in shape.linears
        if _adapts(node.lora, layer)
    )


def _adapts(lora: LoraConfig, layer: str) -> bool:
    """Whether a layer of this last name gets an adapter; a target may be a longer path to it."""
    return any(target.rpartition(".")[2] == layer for target in lora.targets)


def _within(shape: Shape, tokens: int) -> int:
    return min(tokens, shape.context or tokens)


def _writing(
    node: NodeConfig,
    shape: Shape,
    *,
    rows: int,
    problems: int,
    prompt: int,
    longest: int,
    dtype: str,
) -> int:
    """The larger of reading the prompts and drawing the last token, with a copy of the weights.

    Reading keeps the prompts' keys and values, and one layer's activations at a time. Drawing
    keeps those of whole rows; the layer that is at work has its own twice, as they are made
    longer by one token, and eager attention spreads them out over its heads.
    """
    if not rows or node.server:
        return 0
    each = BYTES[dtype]
    rows, problems = min(rows, node.sampling_rows), min(problems, node.sampling_rows)
    rounded = shape.parameters if dtype != _held_in(node) else 0
    cache = 2 * shape.keys * each
    layer = 3 * (shape.intermediate + shape.hidden) * each
    spread = 2 * (shape.keys + shape.attention * (node.attention == "eager")) * each
    reading = problems * prompt * (cache * shape.layers + layer)
    drawing = rows * longest * cache * shape.layers
    drawing += max(rows * longest * spread, rows * shape.vocabulary * (each + DRAWING))
    return rounded * each + max(reading, drawing)


def _held_in(node: NodeConfig) -> str:
    return node.dtype if node.lora else "float32"


def _learning(
    node: NodeConfig, shape: Shape, *, trained: int, rows: int, new: int, longest: int, gpu: bool
) -> int:
    """Gradients, and the most that stands beside them at any moment of a micro-batch."""
    each = BYTES[node.dtype]
    count = min(max(1, node.micro_batch_tokens // longest), rows)
    tokens, asked = count * longest, count * min(new, longest)
    kept, passing, weight = _layer(node, shape, longest)
    # The hidden states between layers are as wide as the weights that they come from.
    between = (each if node.lora else 4) * shape.hidden * tokens
    room = logits_at_once("cuda" if gpu else "cpu")
    chunk = 4 * shape.vocabulary * min(asked, max(1, room // shape.vocabulary))
    # None of a frozen head. In float32 those of two chunks while they are added up; in bfloat16
    # half as large, and once more in float32. One that is the embedding's too waits for its other
    # half.
    head = 0 if node.lora else 4 * shape.vocabulary * shape.hidden
    several = asked * shape.vocabulary > room
    before = (head if each == 4 else head // 2) if several else 0
    summed = head + (before if each == 4 else head // 2)
    waiting = head if shape.tied else 0
    embedding = head + waiting + (waiting if each == 4 else 0)
    rounded = 2 * trained if each == 2 else 0  # by autocast, kept to the end of the forward pass
    if node.gradient_checkpointing:
        layers, layer, held = shape.layers * between, kept * tokens, 0
    else:
        layers, layer, held = shape.layers * kept * tokens, 0, rounded
    forward = layers + rounded + HEAD_COPIES * chunk
    head_backward = layers + held + max(HEAD_COPIES * chunk + before, 2 * chunk + summed)
    layer_backward = layers + held + layer + passing * tokens + weight + waiting
    step = 4 * trained if gpu else 2 * head
    most = max(forward, head_backward, layer_backward, embedding, step)
    return 4 * trained + 2 * between + most


def _layer(node: NodeConfig, shape: Shape, longest: int) -> tuple[int, int, int]:
    """(bytes a token that a layer keeps for its backward pass, bytes a token while that runs,
    bytes of its largest weight's gradient on the way)."""
    each = BYTES[node.dtype]
    hidden, wide = shape.hidden, shape.intermediate
    queries, keys = shape.attention, shape.keys
    kept = each * (2 * queries + 2 * keys) + 4 * shape.heads
    if node.lora:
        # Frozen layers need no inputs; the two norms keep theirs in float32.
        adapted = [(i, o) for layer, i, o in shape.linears if _adapts(node.lora, layer)]
        inputs = sum(i + node.lora.r for i, _ in adapted) // max(1, shape.layers)
        kept += 2 * 4 * hidden + each * (3 * wide + inputs)
    elif each == 2:
        # Each norm keeps its input and the scaled one in float32; q, k, v, gate and up their
        # inputs, rounded, each its own.
        kept += 4 * 4 * hidden + 5 * 2 * hidden + 2 * 4 * wide
    else:
        kept += 4 * (6 * hidden + 4 * wide)
    if node.attention == "eager":
        # The shares in float32, and rounded, of every head; keys and values spread out.
        kept += shape.heads * longest * (4 + (2 if each == 2 else 0)) + 2 * each * queries
    passing = 3 * each * wide
    if node.attention == "eager":
        passing = max(passing, 2 * 4 * shape.heads * longest)
    weight = 0 if node.lora else (4 + (2 if each == 2 else 0)) * hidden * wide
    return kept, passing, weight
