"""The memory that nodes need on a device, from the shapes of their models, and GPUs that hold it.

A node holds its *state* all the time and, one after the other, what it needs to *write*, to *learn*
and to be *evaluated*. ``docs/memory.md`` has the formulas, and measured peaks beside them. Not
counted: on a GPU gaps between tensors, and attention without a fast kernel (float32 with grouped
heads); on a CPU loading and saving, which take less than learning.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from potluck.config import ConfigError, LoraConfig, NodeConfig, RunConfig
from potluck.model.inputs import pays, tokens_held
from potluck.model.policy import logits_at_once
from potluck.model.shape import Shape
from potluck.model.training import targets_of
from potluck.rollout.options import BYTES, Writing
from potluck.schedule import PLANS, part_of_round
from potluck.tasks.environments.task import PlayOptions

GIB = 2**30
CUDA_BYTES = GIB * 3 // 4
"""Bytes of CUDA itself in each process: its kernels and the work space of its libraries."""
CPU_BYTES = GIB * 15 // 32
"""Bytes of each process on a CPU: Python with torch, transformers and peft, as measured."""
TOKENIZER_BYTES = 1024
"""Bytes of each token of a vocabulary in each tokenizer that is loaded; measured: 380 to 1,100."""
TOKENIZERS = 3
"""Tokenizers of each node: of the look at the recipe, of the model and of the exchange."""
MAPPED_BYTES = 2**25
"""Size from which glibc takes no piece of its heap for a tensor, but pages that it gives back."""
TIGHT = 0.9
"""Share of a GPU beyond which an estimate is no promise."""
SAVERS = """\
memory is saved by a device for each node or --one-process, gradient_checkpointing = true,
fewer micro_batch_tokens or sampling_rows, dtype = "bfloat16", a table lora: docs/memory.md"""
GPUS = {
    "a10": 22, "a100-40gb": 39, "a100-80gb": 79, "b200": 178, "h100": 79, "h200": 139, "l4": 22,
    "l40s": 44, "rtx3090": 23, "rtx4090": 23, "rtx5090": 31, "rtxa6000": 47, "t4": 14,
    "v100-16gb": 15, "v100-32gb": 31,
}  # fmt: skip
"""GiB that CUDA reports of each, rounded down: less than the sheet's figure, which counts in
powers of ten or includes what error correction takes."""
MOMENTS = {"adam": 8, "adamw": 8, "adamw-8bit": 2}
"""Bytes of the optimiser's two moments for each trained number."""
HEAD_COPIES = 3
"""float32 copies of a chunk's logits at once: themselves, their logarithms, a gradient."""


@dataclass(frozen=True, slots=True)
class Allocator:
    """Habits of what gives memory to tensors."""

    scatter: float
    """Factor on what small tensors take, as freed ones leave gaps between those that stay."""
    keeps_freed: bool
    """True: what small tensors took stays with the process until the phase is over."""


NO_GAPS = Allocator(scatter=1.0, keeps_freed=False)
"""Allocator of a GPU, as it is counted here."""
HEAP = Allocator(scatter=1.5, keeps_freed=True)
"""glibc's, on a CPU. 1.5 is fitted to peaks of SmolLM2 and Gemma 3 with 528 and 1,050 tokens in a
micro-batch, where it was 1.4 to 2.1 (glibc 2.36)."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """Lengths of the prompts of a run, in tokens."""

    mean: float
    longest: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of one node on its device, in bytes."""

    weights: int
    """Weights as they are held; an adapter's and a reference model's included."""
    moments: int
    tokenizers: int
    """Tokenizers, which are in main memory: 0 on a GPU."""
    writing: int
    evaluating: int
    learning: int

    @property
    def state(self) -> int:
        """Bytes that it holds also while other nodes have their turn."""
        return self.weights + self.moments + self.tokenizers

    @property
    def phase(self) -> int:
        return max(self.writing, self.evaluating, self.learning)

    @property
    def peak(self) -> int:
        return self.state + self.phase


def memory_of(
    config: RunConfig, name: str, shape: Shape, prompts: Prompts, *, gpu: bool = True
) -> Memory:
    """Estimate what a node needs on a GPU, where the optimiser steps all weights at once; or on a
    CPU, whose memory also has the tokenizers, and gaps between tensors."""
    node = config.node[name]
    trained = adapter_numbers(node.lora, shape) if node.lora else shape.parameters
    frozen = shape.parameters if node.lora else 0
    held = BYTES[node.dtype] if node.lora else 4
    rows, new = config.problems_per_round * config.group_size, config.sampling.max_new_tokens
    wanted = config.evaluation
    longest = min(config.sampling.max_total_tokens, prompts.longest + new)
    if isinstance(config.task, PlayOptions) and config.task.play():
        longest = config.sampling.max_total_tokens  # what is observed in an episode, too
    at_end = prompts.longest + wanted.max_new_tokens if wanted.max_new_tokens else longest
    longest, at_end = (min(tokens, shape.context or tokens) for tokens in (longest, at_end))
    own = own_completions(config, name)
    most = -(-own // config.group_size) if config.plan == "vertical" else own
    problems = min(most, config.problems_per_round)
    evaluated = max(wanted.problems, wanted.out_of_distribution)
    # The gradient of an author that is not trusted is bounded before it is added to the others'.
    untrusted = config.objective.trust == "nobody" and len(config.node) > 1
    apart = 4 * trained if untrusted or config.swarm.open else 0
    # The start model, beside the one that moves away from it; under an adapter it is there anyway.
    reference = BYTES[node.dtype] * shape.parameters
    kept = reference if config.objective.beta and not node.lora else 0
    read = _micro_batch(node, shape, rows, config.group_size, min(new, longest), longest)
    return Memory(
        weights=4 * trained + held * frozen + kept,
        moments=MOMENTS[node.optimizer] * trained,
        tokenizers=0 if gpu else TOKENIZERS * TOKENIZER_BYTES * shape.vocabulary,
        writing=_writing(node, shape, own, problems, prompts.longest, longest, gpu=gpu),
        evaluating=_writing(node, shape, evaluated, evaluated, prompts.longest, at_end, gpu=gpu),
        learning=apart + _learning(node, shape, trained, read, gpu=gpu),
    )


def own_completions(config: RunConfig, name: str) -> int:
    weights = {each: node.weight for each, node in config.node.items()}
    ids = [str(i) for i in range(config.problems_per_round)]
    if config.pace == "free":
        dealt = PLANS[config.plan], ids, name, config.taken, config.group_size
        return sum(share.count for share in part_of_round(*dealt))
    shares = PLANS[config.plan](ids, weights, config.group_size)
    return sum(share.count for share in shares if share.node == name)


def adapter_numbers(lora: LoraConfig, shape: Shape) -> int:
    """Compute r x (inputs + outputs), summed over the layers that get an adapter."""
    return lora.r * sum(inputs + outputs for _, inputs, outputs in adapted_layers(lora, shape))


def adapted_layers(lora: LoraConfig, shape: Shape) -> list[tuple[str, int, int]]:
    """List (name, inputs, outputs) of each layer that gets an adapter."""
    linears = [linear for linear in shape.linears if linear[0] != shape.head]
    targets = targets_of(lora.targets, {name for name, _, _ in linears}, shape.model_type)
    if targets == "all-linear":
        return linears
    names = {target.rpartition(".")[2] for target in targets}
    return [linear for linear in shape.linears if linear[0] in names]


def _writing(
    node: NodeConfig,
    shape: Shape,
    rows: int,
    problems: int,
    prompt: int,
    longest: int,
    *,
    gpu: bool,
) -> int:
    if not rows:
        return 0
    return node.engine.bytes_needed(
        Writing(
            shape=shape,
            rows=min(rows, node.sampling_rows),
            problems=min(problems, node.sampling_rows),
            prompt=prompt,
            longest=longest,
            dtype=node.sampling_dtype,
            held_in=node.dtype if node.lora else "float32",
            attention=node.attention,
            scatter=(NO_GAPS if gpu else HEAP).scatter,
        )
    )


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The largest one of a round."""

    tokens: int
    """Number that the model reads, padding included."""
    asked: int
    """Number of tokens that it scores."""
    longest: int
    """Tokens of the longest row, with its prompt."""
    repeated: int
    """Tokens of prompts that are read once, times their rows, of which each has a copy of the keys
    and values; 0: each row is read with its prompt."""
    prompts: int
    """Number of the tokens of prompts that are read once, among ``tokens``."""


def _micro_batch(
    node: NodeConfig, shape: Shape, rows: int, group_size: int, new: int, longest: int
) -> MicroBatch:
    """Find the largest micro-batch of rows of like length, as ``passes.micro_batches`` cuts it."""
    prompt, own = longest - new, new
    whole = min(max(1, node.micro_batch_tokens // longest), rows)
    plain = MicroBatch(whole * longest, whole * new, longest, repeated=0, prompts=0)
    if not shape.shares_prompts or prompt < 1:
        return plain

    def prompts(count: int) -> int:
        return -(-count // group_size)

    if not pays(rows * longest, prompts(rows) * prompt + rows * own):
        return plain

    def held(count: int) -> int:
        sizes = count, prompts(count), prompt, own
        return tokens_held(*sizes, computes_twice=node.gradient_checkpointing)

    fitting = [count for count in range(1, rows + 1) if held(count) <= node.micro_batch_tokens]
    count = max(fitting, default=1)
    once = prompts(count) * prompt
    if not pays(count * longest, once + count * own):
        return plain
    return MicroBatch(
        tokens=once + count * own,
        asked=count * new,
        longest=longest,
        repeated=count * prompt,
        prompts=once,
    )


def _learning(node: NodeConfig, shape: Shape, trained: int, read: MicroBatch, *, gpu: bool) -> int:
    """Count the bytes of gradients and of the most that stands beside them at any moment."""
    each = BYTES[node.dtype]
    tokens, asked, longest = read.tokens, read.asked, read.longest
    kept, passing, weight = _layer(node, shape, longest)
    # The hidden states between layers are as wide as the weights that they come from.
    state = (each if node.lora else 4) * shape.hidden
    between = state * tokens
    own = tokens - read.prompts
    # Own parts that have a backward pass of their own keep what they end with.
    end = state * own if read.prompts else 0
    copies = 2 * each * shape.keys * read.repeated
    most_logits = logits_at_once("cuda" if gpu else "cpu")
    chunk = 4 * shape.vocabulary * min(asked, max(1, most_logits // shape.vocabulary))
    # None of a frozen head. In float32 those of two chunks while they are added up; in bfloat16
    # half as large, and once more in float32. A tied one waits for the embedding's half.
    head = 0 if node.lora else 4 * shape.vocabulary * shape.hidden
    several = asked * shape.vocabulary > most_logits
    before = (head if each == 4 else head // 2) if several else 0
    summed = head + (before if each == 4 else head // 2)
    waiting = head if shape.tied else 0
    embedding = head + waiting + (waiting if each == 4 else 0)
    rounded = 2 * trained if each == 2 else 0  # by autocast, kept to the end of the forward pass
    if node.gradient_checkpointing:
        # Prompts have keys and values from layer to layer. While those of the prompts wait for the
        # own parts' gradient of them, the own parts' states go.
        cached = 2 * each * shape.keys * read.prompts
        before_prompts = shape.layers * (state * read.prompts + 2 * cached)
        layers = max(shape.layers * (between + cached), before_prompts)
        # Passes over prompts and over own parts are computed again one after the other.
        layer, held = max(kept * read.prompts, kept * own + 2 * copies), 0
    else:
        before_prompts = shape.layers * kept * read.prompts
        layers, layer, held = shape.layers * (kept * tokens + copies), 0, rounded
    allocator = NO_GAPS if gpu else HEAP
    layers = _with_gaps(layers, node, shape, tokens, allocator)
    stays = layers if allocator.keeps_freed else 0
    forward = layers + rounded + HEAD_COPIES * chunk
    head_backward = layers + held + max(HEAD_COPIES * chunk + before, 2 * chunk + summed)
    layer_backward = layers + held + layer + passing * tokens + weight + waiting
    # The backward pass of the own parts ends with the embedding, before that of the prompts.
    before_prompts += held + embedding if read.prompts else 0
    step = 4 * trained if gpu else 2 * head
    last = max(before_prompts, stays + embedding, stays + step)
    most = max(forward, head_backward, layer_backward, last)
    return 4 * trained + 2 * between + end + most


def _with_gaps(kept: int, node: NodeConfig, shape: Shape, tokens: int, allocator: Allocator) -> int:
    """Count what the activations of all layers take: between small tensors are gaps, and none
    between those that are mapped, the widest ones first."""
    each, mapped = BYTES[node.dtype], 0
    size = each * shape.intermediate * tokens
    if size >= MAPPED_BYTES and not node.gradient_checkpointing:
        mapped = shape.layers * size * (3 if node.lora else 4)
    return mapped + round(allocator.scatter * (kept - mapped))


def _layer(node: NodeConfig, shape: Shape, longest: int) -> tuple[int, int, int]:
    """Count (bytes a token that a layer keeps for its backward pass, bytes a token while that
    runs, bytes of its largest weight's gradient on the way)."""
    each = BYTES[node.dtype]
    hidden, wide = shape.hidden, shape.intermediate
    queries, keys = shape.attention, shape.keys
    kept = each * (2 * queries + 2 * keys) + 4 * shape.heads
    if node.lora:
        # Frozen layers need no inputs; norms keep theirs in float32.
        inputs = sum(i + node.lora.r for _, i, _ in adapted_layers(node.lora, shape))
        inputs //= shape.layers
        kept += 4 * shape.normalised + each * (3 * wide + inputs)
    elif each == 2:
        # Norms keep their input, also scaled, in float32; q, k, v, gate and up a rounded one each.
        kept += 2 * 4 * shape.normalised + 5 * 2 * hidden + 2 * 4 * wide
    else:
        kept += 4 * (2 * shape.normalised + 2 * hidden + 4 * wide)
    if node.attention == "eager":
        # The shares in float32, and rounded, of every head; keys and values spread out.
        kept += shape.heads * longest * (4 + (2 if each == 2 else 0)) + 2 * each * queries
    scores = 2 * 4 * shape.heads * longest if node.attention == "eager" else 0
    passing = max(3 * each * wide, scores)
    weight = 0 if node.lora else (4 + (2 if each == 2 else 0)) * hidden * wide
    return kept, passing, weight


def bytes_together(nodes: Sequence[Memory], *, apart: bool, overhead: int = CUDA_BYTES) -> int:
    """Add up what nodes need on one device: ``apart``, each is a process that does not wait for
    another one's memory, else they take turns; with ``overhead`` bytes for each process."""
    if apart:
        return sum(bytes_of_process(node, nodes) + overhead for node in nodes)
    return sum(node.state for node in nodes) + max(node.phase for node in nodes) + overhead


def bytes_of_process(node: Memory, nodes: Sequence[Memory]) -> int:
    """Count what one of ``nodes`` needs in a process of its own, which looks at all their recipes:
    a tokenizer of each other one, too."""
    looked_at = sum(each.tokenizers for each in nodes) - node.tokenizers
    return node.peak + looked_at // TOKENIZERS


def verdict(bytes_needed: int, gib: float) -> str:
    """Say whether nodes fit, with the figures, and what to do where they do not."""
    needs = bytes_needed / GIB
    figures = f"{needs:,.0f} of {gib:g} GiB"
    if needs <= TIGHT * gib:
        return f"fits: {figures}"
    if needs <= gib:
        return f"just fits: {figures}; an estimate, so leave it room"
    return f"does not fit: {figures}\n{SAVERS}"


def gpu_gib(name: str) -> float:
    """Read the GiB of a GPU from its name or the number itself; raise ConfigError if none is so."""
    try:
        gib = GPUS.get(name.lower()) or float(name)
    except ValueError:
        gib = 0.0
    if not 0 < gib < 10_000:
        known = ", ".join(GPUS)
        raise ConfigError(f"--gpu is {name!r}; choose one of {known}, or its memory in GiB")
    return gib
