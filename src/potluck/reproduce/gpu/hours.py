"""What a cell costs on a GPU: hours, from the shapes of its models. An estimate, not measured.

    writing     decoding steps x what one takes: the launch of its kernels, or the weights and
                the cache through memory plus the arithmetic, whichever is longer
    learning    6 operations a weight and token, 8 where activations are computed again
                (``gradient_checkpointing``); adapters 4 and 6, as frozen weights have no gradient
    evaluating  writing, for the validation problems each time and the others at the end

A cell's nodes take turns on one card, so theirs add up. Counted high: every completion is
learned from, though one without an advantage needs no backward pass. Not counted: loading,
grading, the optimiser's step (a fraction of a second) and attention's own arithmetic (1 % at
these lengths). No run at this scale has been timed: we expect every figure to be right
within a factor of FACTOR either way.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from potluck.check.cards import GIB, Bench, card_gib
from potluck.check.look import TYPICAL_PROMPTS
from potluck.check.memory import BYTES, DRAWING, own_completions
from potluck.config import NodeConfig, RunConfig
from potluck.rollout.loading import load_config
from potluck.rollout.shape import Shape, published_shape, shape_of

FACTOR = 2


@dataclass(frozen=True, slots=True)
class Gpu:
    """A card's peaks, as its maker states them."""

    title: str
    card: str
    """Its name among ``potluck run --check --gpu``."""
    operations_per_s: float
    """Matrix products in bfloat16, dense, summed up in float32."""
    bytes_per_s: float
    """To and from its memory."""


GPUS = (
    # NVIDIA's data sheet of the H200 SXM; the sheet's 1,979 Tflop/s are with sparsity.
    Gpu("H200", "h200", 989e12, 4.8e12),
    # The consumer card of 24 GB; NVIDIA's whitepaper on Ada. An RTX 3090 has 71e12 and 936e9.
    Gpu("RTX 4090", "rtx4090", 165e12, 1.008e12),
)


@dataclass(frozen=True, slots=True)
class Assumed:
    """What cannot be known before a run. All of it is assumed, none measured."""

    completion: float = 300.0
    """Tokens, in the mean, while learning and while evaluated. GSM8K's are 150 to 300; a base
    model that has not learned to stop writes more."""
    prompt: float = TYPICAL_PROMPTS.mean
    """Tokens, in the mean."""
    learning_share: float = 0.35
    """Of the peak, what forward and backward passes reach; well-kept training code has .3 to .5."""
    writing_share: float = 0.3
    """Of the peak, what the arithmetic of a decoding step reaches."""
    memory_share: float = 0.6
    """Of the card's bytes a second, what a decoding step reaches."""
    launch_s: float = 0.6e-3
    """Seconds that Python and CUDA take to launch a layer's kernels, whatever their size:
    transformers' forward pass needs 20 to 30 a layer, and the engine uses no CUDA graphs."""


CACHE_PASSES = 3
"""Times that keys and values cross the memory in a step: attention reads them, and they are read
and written once more as they grow by a token."""
DRAWING_PASSES = 2
"""Times that what drawing keeps of each logit does: written, then read."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a cell, or of one of its nodes, on one card."""

    tokens: float = 0.0
    """Written in its rounds."""
    writing_s: float = 0.0
    learning_s: float = 0.0
    evaluating_s: float = 0.0

    @property
    def hours(self) -> float:
        return (self.writing_s + self.learning_s + self.evaluating_s) / 3600

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.tokens + other.tokens,
            self.writing_s + other.writing_s,
            self.learning_s + other.learning_s,
            self.evaluating_s + other.evaluating_s,
        )


def cost_of(
    config: RunConfig, shapes: Mapping[str, Shape], gpu: Gpu, assumed: Assumed | None = None
) -> Cost:
    """What all nodes of a run cost on one card, one after the other.

    Args:
        shapes: of each node's model.
    """
    assumed = assumed or Assumed()
    total = Cost()
    for name in config.node:
        total += _node_cost(config, name, shapes[name], gpu, assumed)
    return total


def fits(config: RunConfig, shapes: Mapping[str, Shape], gpu: Gpu) -> bool:
    """Whether a card holds the nodes in one process, taking turns, as a cell's do."""
    return bench_of(config, shapes).needs() <= card_gib(gpu.card) * GIB


def bench_of(config: RunConfig, shapes: Mapping[str, Shape]) -> Bench:
    """The nodes on one device, in one process."""
    return Bench(config, list(config.node), shapes, TYPICAL_PROMPTS, apart=False)


def shapes_of(config: RunConfig) -> dict[str, Shape]:
    """Of each node's model: Potluck's own table, so that the Hub need not be asked, or the folder.

    Raises:
        ModelError: a model that is in neither, and cannot be fetched.
    """
    return {name: _shape(node.model) for name, node in config.node.items()}


@cache
def _shape(model: str) -> Shape:
    return published_shape(model) or shape_of(load_config(model))


def evaluations(config: RunConfig) -> int:
    """Times that a run is evaluated: at rounds 0, every, 2 x every ..., and at the end."""
    every = config.evaluation.every
    return (-(-config.rounds // every) if every else 0) + 1


def _node_cost(config: RunConfig, name: str, shape: Shape, gpu: Gpu, assumed: Assumed) -> Cost:
    node, wanted, sampling = config.node[name], config.evaluation, config.sampling
    own, every = own_completions(config, name), config.problems_per_round * config.group_size
    most = min(sampling.max_new_tokens, sampling.max_total_tokens - assumed.prompt)
    asked, length = wanted.max_new_tokens or most, min(assumed.completion, most)
    update_s = learning_s(node, shape, gpu, assumed, tokens=every * (assumed.prompt + length))

    def answering_s(rows: int, longest: float) -> float:
        return writing_s(node, shape, gpu, assumed, rows=rows, most=longest)

    return Cost(
        tokens=config.rounds * own * length,
        writing_s=config.rounds * answering_s(own, most),
        learning_s=config.rounds * config.objective.updates_per_round * update_s,
        evaluating_s=evaluations(config) * answering_s(wanted.problems, asked)
        + answering_s(wanted.out_of_distribution, asked),
    )


def writing_s(
    node: NodeConfig, shape: Shape, gpu: Gpu, assumed: Assumed, *, rows: int, most: float
) -> float:
    """Seconds to write ``rows`` completions of at most ``most`` tokens.

    They are written ``sampling_rows`` at a time, and each batch until its last one ends: one of
    many always runs to the limit. Prompts are read too, each by itself (an upper bound:
    a group's is read once).
    """
    each, length = BYTES[node.sampling_dtype], min(assumed.completion, most)
    steps = -(-rows // node.sampling_rows) * most
    # The cache of the prompt, and in the mean half the completion, at each of its tokens.
    cache = 2 * shape.keys * shape.layers * each * (assumed.prompt + length / 2)
    logits = shape.vocabulary * (each + DRAWING_PASSES * DRAWING)
    through_memory = steps * shape.parameters * each
    through_memory += rows * length * (CACHE_PASSES * cache + logits)
    operations = 2 * shape.parameters * rows * (assumed.prompt + length)
    return max(
        steps * shape.layers * assumed.launch_s,
        through_memory / (assumed.memory_share * gpu.bytes_per_s)
        + operations / (assumed.writing_share * gpu.operations_per_s),
    )


def learning_s(
    node: NodeConfig, shape: Shape, gpu: Gpu, assumed: Assumed, *, tokens: float
) -> float:
    """Seconds of one update over ``tokens``, those of the prompts included."""
    forward, backward = 2, 2 if node.lora else 4
    passes = forward * (1 + node.gradient_checkpointing) + backward
    operations = passes * shape.parameters * tokens
    return operations / (assumed.learning_share * gpu.operations_per_s)
