"""One round of two models at their real size: seconds, tokens/s, memory, share of the ceiling.

Qwen2.5-1.5B and -3B as their configurations say, with random weights: 24 problems, 12
completions each, 512 new tokens (an untrained model hardly ever stops), prompts of about
188 tokens, paid by a hash of their tokens. The nodes are made by the code that makes them
in ``potluck run`` and go through a round as they do there, one after the other, on one
device; only checkpoints and evaluations are left out.

The ceiling is the best of several large matrix products on the same device, in the number
format that the phase computes in; of writing also the best of several copies of a large tensor,
because a token at a time is bound by memory. What is counted: see arithmetic.py.

    python benchmarks/real_round.py --scale paper       # a GPU of 80 GB or more
    python benchmarks/real_round.py --scale sizes       # 0.5B and 1.5B: 24 GB, a minute
    python benchmarks/real_round.py                     # the same code, small, on any CPU

Results: real-round-SCALE-DEVICE.json and .md in results, or in the folder of --out.
"""

import argparse
import json
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import arithmetic
import harness
import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, Qwen2Config

from potluck.builder.exchange import agreements_of
from potluck.builder.nodes import make_learner, make_participants
from potluck.config import RunConfig, from_tree
from potluck.exchange import MemoryHub
from potluck.node.learning.batch import Batch
from potluck.node.learning.learner import Learner, UpdateReport
from potluck.node.loop import Node
from potluck.tasks.base import Split, TaskError, digest_of
from potluck.tasks.rewards import HashReward
from potluck.types import Problem

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Scale:
    """How large everything is."""

    models: Mapping[str, Qwen2Config]
    problems: int
    group_size: int
    new_tokens: int
    prompt: int
    """Mean length, in tokens; the longest and the shortest differ by 20 %."""
    micro_batch_tokens: int
    product: int
    """Rows and columns of the matrices whose product is the ceiling; copied are four as large."""


def qwen(hidden: int, layers: int, heads: int, keys: int, mlp: int, vocabulary: int) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=keys,
        intermediate_size=mlp,
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=vocabulary - 2,
        pad_token_id=vocabulary - 1,
    )


SCALES = {
    "paper": Scale(
        models={
            "small": qwen(1536, 28, 12, 2, 8960, 151_936),
            "large": qwen(2048, 36, 16, 2, 11_008, 151_936),
        },
        problems=24,
        group_size=12,
        new_tokens=512,
        prompt=188,
        micro_batch_tokens=16_384,
        product=8192,
    ),
    "sizes": Scale(
        models={
            "small": qwen(896, 24, 14, 2, 4864, 151_936),
            "large": qwen(1536, 28, 12, 2, 8960, 151_936),
        },
        problems=32,
        group_size=8,
        new_tokens=256,
        prompt=105,
        micro_batch_tokens=8192,
        product=8192,
    ),
    "tiny": Scale(
        models={
            "small": qwen(96, 4, 4, 2, 384, 4096),
            "large": qwen(128, 6, 4, 2, 512, 4096),
        },
        problems=6,
        group_size=4,
        new_tokens=48,
        prompt=18,
        micro_batch_tokens=1024,
        product=1024,
    ),
}
"""Qwen2.5-1.5B (1.54 billion weights) and -3B (3.09); -0.5B and -1.5B; something for a CPU."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What the device can do at best."""

    flops: Mapping[str, float]
    """Operations a second, by number format."""
    bytes_per_s: float
    """Bytes that its memory reads and writes."""


@dataclass(frozen=True, slots=True)
class Used:
    """What writing or learning took and gave."""

    rows: int
    tokens: int
    """Written, or of the completions learned from; prompts not counted."""
    tokens_per_s: float
    before_gib: float
    peak_gib: float
    """On a GPU what torch had allocated, on a CPU what was resident; both nodes' state in it."""
    operations: float
    share_of_ceiling: float
    """Operations that the mathematics needs, a second, of the ceiling."""
    executed_share: float
    """With those that are done again to spare memory."""
    memory_share: float | None
    """Of writing: bytes that it has to read, a second, of what memory gives."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What one node did in one part of a round."""

    round: int
    node: str
    name: str
    seconds: float
    used: Used | None = None
    """Of the phases in which a model works."""


@dataclass(frozen=True, slots=True)
class Cost:
    seconds: float
    before_bytes: float
    peak_bytes: float


@dataclass(frozen=True, slots=True)
class Work:
    rows: int
    tokens: int
    model: float
    """Operations, as in arithmetic.py; as ``executed``."""
    executed: float
    numbers_read: float
    """Of writing, as in arithmetic.py; a round is one batch, at every scale."""


class Prompts:
    """Problems of random words."""

    notes = ()

    def __init__(self, count: int, length: int, vocabulary: int) -> None:
        generator = np.random.default_rng(0)
        sizes = np.linspace(0.8 * length, 1.2 * length, count).round().astype(int)
        self._problems = {
            f"bench/{i}": Problem(
                f"bench/{i}",
                " ".join(f"w{w}" for w in generator.integers(0, vocabulary - 2, size)),
                "",
            )
            for i, size in enumerate(sizes)
        }
        self.digest = digest_of("bench", self._problems.values())

    def ids(self, split: Split) -> Sequence[str]:
        return list(self._problems) if split == "train" else []

    def problem(self, id: str) -> Problem:
        return self._problems[id]

    def rewards(self, *_: object) -> list[float]:
        raise TaskError("these problems have no answers; pay them by a hash")


class Watched:
    """A learner, and what its last update cost: the rest of a node's second half is grading."""

    def __init__(self, learner: Learner, device: torch.device) -> None:
        self._learner, self._device = learner, device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    def learn(
        self, batch: Batch, progress: Callable[[int, int], None], *, round: int
    ) -> UpdateReport:
        update, self.cost = observed(
            lambda: self._learner.learn(batch, progress, round=round), self._device
        )
        return update


def measure(scale: Scale, options: argparse.Namespace) -> tuple[list[Phase], Ceiling]:
    """Every phase of every node and round, and the ceilings."""
    device = torch.device(options.device)
    kinds = sorted({options.dtype, options.sampling_dtype})
    ceiling = Ceiling(
        {kind: matmul_ceiling(device, getattr(torch, kind), scale.product) for kind in kinds},
        copy_ceiling(device, scale.product),
    )
    phases: list[Phase] = []
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        for name, config in scale.models.items():
            harness.say(f"real round: making {name}")
            save_model(config, place / name, device)
        recipe = make_recipe(scale, options, {name: str(place / name) for name in scale.models})
        vocabulary = next(iter(scale.models.values())).vocab_size
        task = HashReward(Prompts(scale.problems, scale.prompt, vocabulary))
        learners = {name: make_learner(recipe, name, place / "run", 0) for name in recipe.node}
        hub = MemoryHub(agreements_of(recipe, task, {n: one.policy for n, one in learners.items()}))
        exchanges = {name: hub.member(name) for name in learners}
        made = recipe, place / "run", task, learners, exchanges, _say
        nodes, _ = make_participants(*made, sends_text=False)
        nodes = [replace(node, learner=Watched(node.learner, device)) for node in nodes]
        for round in range(options.rounds):
            phases += one_round(nodes, round, recipe, device, ceiling)
    harness.say("")
    return phases, ceiling


def one_round(
    nodes: list[Node],
    round: int,
    recipe: RunConfig,
    device: torch.device,
    ceiling: Ceiling,
) -> list[Phase]:
    """What ``step`` does, with a look at clock and memory between the halves."""
    problems = [nodes[0].task.problem(id) for id in nodes[0].task.ids("train")]
    halves = [observed(lambda node=node: node.send(node.open(round)), device) for node in nodes]
    phases = []
    for node, (sent, half) in zip(nodes, halves, strict=True):
        arrived = node.receive(sent)
        told = node.use(round, node.grade(round, arrived[0]), *arrived)
        if not told.updates:
            raise RuntimeError(f"{node.name} learned nothing: no group has two rewards")
        learn, its = node.learner.cost, recipe.node[node.name]
        write = replace(half, seconds=told.seconds["write"])
        read = work_of(node, "learn", round, problems, its.gradient_checkpointing)
        written = work_of(node, "write", round, problems, its.gradient_checkpointing)
        if read.rows != told.rows_trained:
            raise RuntimeError(f"{node.name} learned from {told.rows_trained}, not {read.rows}")
        grading_s = told.seconds["learn"] - learn.seconds
        phases += [
            _phase(round, node.name, "write", write, written, its.sampling_dtype, ceiling),
            Phase(round, node.name, "exchange", told.seconds["exchange"]),
            Phase(round, node.name, "grade", grading_s),
            _phase(round, node.name, "learn", learn, read, its.dtype, ceiling),
        ]
    return phases


def _phase(
    round: int, node: str, name: str, cost: Cost, work: Work, kind: str, ceiling: Ceiling
) -> Phase:
    flops, bytes_read = ceiling.flops[kind], work.numbers_read * getattr(torch, kind).itemsize
    used = Used(
        rows=work.rows,
        tokens=work.tokens,
        tokens_per_s=work.tokens / cost.seconds,
        before_gib=cost.before_bytes / GIB,
        peak_gib=cost.peak_bytes / GIB,
        operations=work.model,
        share_of_ceiling=work.model / cost.seconds / flops,
        executed_share=work.executed / cost.seconds / flops,
        memory_share=bytes_read / cost.seconds / ceiling.bytes_per_s if bytes_read else None,
    )
    return Phase(round, node, name, cost.seconds, used)


def work_of(
    node: Node, name: str, round: int, problems: Sequence[Problem], checkpointing: bool
) -> Work:
    """What a phase had to do, from what the round left on disk.

    Rows of a group without spread have no advantage and are not computed at all.
    """
    page = node.record.kept_round(round)
    kept = page.completions if page else ()
    policy = node.learner.policy
    shape = arithmetic.shape_of(policy.network)
    rows, tokens, model, executed = 0, 0, 0.0, 0.0
    batch: dict[int, list[int]] = {}  # prompts of one length are one, which changes no sum
    for problem in problems:
        group = [c for c in kept if c.problem_id == problem.id]
        prompt = len(policy.prompt(problem))
        if name == "write":
            lengths = [len(c.token_T) for c in group if c.author == node.name]
            work = arithmetic.writing(shape, prompt, lengths) if lengths else 0.0
            model, executed = model + work, executed + work
            batch.setdefault(prompt, []).extend(lengths)
        else:
            rewards = node.task.rewards([problem] * len(group), group, [""] * len(group))
            lengths = [len(c.token_T) for c in group] if len(set(rewards)) > 1 else []
            for length in lengths:
                row = arithmetic.learning(shape, prompt, length, checkpointing=checkpointing)
                model, executed = model + row.model, executed + row.executed
        rows, tokens = rows + len(lengths), tokens + sum(lengths)
    numbers = arithmetic.numbers_read(shape, [*batch], [*batch.values()]) if batch else 0.0
    return Work(rows, tokens, model, executed, numbers)


def make_recipe(scale: Scale, options: argparse.Namespace, models: Mapping[str, str]) -> RunConfig:
    longest = round(1.2 * scale.prompt) + scale.new_tokens
    node = {
        "device": options.device,
        "dtype": options.dtype,
        "sampling_dtype": options.sampling_dtype,
        "attention": options.attention,
        "gradient_checkpointing": options.gradient_checkpointing,
        "micro_batch_tokens": options.micro_batch_tokens or scale.micro_batch_tokens,
        **({"lora": {}} if options.lora else {}),
    }
    return from_tree(
        {
            "name": "real-round",
            "rounds": options.rounds,
            "plan": "vertical",
            "objective": {"method": "f-tis"},
            "problems_per_round": scale.problems,
            "group_size": scale.group_size,
            "sampling": {"max_new_tokens": scale.new_tokens, "max_total_tokens": longest},
            "node": {name: {"model": model, **node} for name, model in models.items()},
        }
    )


def save_model(config: Qwen2Config, folder: Path, device: torch.device) -> None:
    """Random weights, in bfloat16 as published ones are; made where that is fast."""
    torch.manual_seed(0)
    with device:
        network = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    network.save_pretrained(folder)
    harness.tokenizer(config.vocab_size).save_pretrained(folder)
    del network
    if device.type == "cuda":
        torch.cuda.empty_cache()


def matmul_ceiling(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """Operations a second of the best of ten products of two square matrices."""
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    best = float("inf")
    for _ in range(13):  # the first ones warm up, and are never the best
        best = min(best, observed(lambda: left @ right, device)[1].seconds)
    return 2 * size**3 / best


def copy_ceiling(device: torch.device, size: int) -> float:
    """Bytes a second that the best of ten copies of four square matrices read and write."""
    source = torch.randn(4, size, size, device=device)
    copy = torch.empty_like(source)
    best = min(observed(lambda: copy.copy_(source), device)[1].seconds for _ in range(13))
    return 2 * source.nbytes / best


def observed(work: Callable[[], Any], device: torch.device) -> tuple[Any, Cost]:
    """What ``work`` returned, and what it cost, everything that it left to the GPU included."""
    on_card = device.type == "cuda"
    if on_card:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = float(torch.cuda.memory_allocated(device))
    else:
        before = harness.forget_peak_mb() * 2**20
    start = time.perf_counter()
    result = work()
    if on_card:
        torch.cuda.synchronize(device)
    seconds = time.perf_counter() - start
    if on_card:
        return result, Cost(seconds, before, float(torch.cuda.max_memory_allocated(device)))
    # Linux counts pages in batches: a mark of the same moment may be a page below what is resident.
    return result, Cost(seconds, before, max(before, harness.status_mb("VmHWM") * 2**20))


def report(
    options: argparse.Namespace, phases: Sequence[Phase], ceiling: Ceiling
) -> dict[str, Any]:
    on_card = torch.device(options.device).type == "cuda"
    device = torch.cuda.get_device_name(options.device) if on_card else "CPU"
    sizes = SCALES[options.scale]
    return {
        "name": "real round",
        "scale": options.scale,
        "device": device,
        **harness.where_and_when(),
        "models": {
            name: f"Qwen2, {c.num_hidden_layers} layers, hidden {c.hidden_size}, MLP "
            f"{c.intermediate_size}, vocabulary {c.vocab_size}, tied: {_weights(c) / 1e6:,.1f}M, "
            f"random"
            for name, c in sizes.models.items()
        },
        "round": f"{sizes.problems} problems x {sizes.group_size} completions x "
        f"{sizes.new_tokens} new tokens, prompts of about {sizes.prompt}",
        "options": {k: v for k, v in vars(options).items() if k not in ("scale", "out")},
        "ceiling_flops": ceiling.flops,
        "ceiling_bytes_per_s": ceiling.bytes_per_s,
        "phases": [asdict(phase) for phase in phases],
    }


def _weights(config: Qwen2Config) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())


def as_markdown(result: Mapping[str, Any]) -> str:
    """The same for people."""
    small = (
        "**A small run on a CPU: it shows that everything runs, and says nothing about real "
        "models.**\n\n"
        if result["scale"] == "tiny"
        else ""
    )
    facts = [
        f"- {key}: {result[key]}"
        for key in ("device", "machine", "torch", "transformers", "commit", "date", "round")
    ]
    facts += [f"- node {name}: {what}" for name, what in result["models"].items()]
    facts += [f"- options: {', '.join(f'{k} {v}' for k, v in result['options'].items())}"]
    facts += [
        f"- ceiling, {kind}: {flops / 1e12:,.3g} TFLOP/s"
        for kind, flops in result["ceiling_flops"].items()
    ]
    facts += [f"- ceiling, memory: {result['ceiling_bytes_per_s'] / 1e9:,.3g} GB/s"]
    lines = [
        "| round | node | phase | seconds | rows | tokens | tokens/s | GiB before | at the peak "
        "| of the ceiling | executed | of memory's |",
        "|---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        *map(_line, result["phases"]),
    ]
    title = f"# One round, scale {result['scale']}, {result['device']}\n\n"
    return title + small + "\n".join([*facts, "", *lines]) + "\n"


def _line(phase: Mapping[str, Any]) -> str:
    used = phase["used"]
    cells = [str(phase["round"]), phase["node"], phase["name"], f"{phase['seconds']:.2f}"]
    if used is None:
        cells += [""] * 8
    else:
        memory = used["memory_share"]
        cells += [
            str(used["rows"]),
            f"{used['tokens']:,}",
            f"{used['tokens_per_s']:,.0f}",
            f"{used['before_gib']:.2f}",
            f"{used['peak_gib']:.2f}",
            f"{used['share_of_ceiling']:.1%}",
            f"{used['executed_share']:.1%}",
            "" if memory is None else f"{memory:.1%}",
        ]
    return f"| {' | '.join(cells)} |"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    has_card = torch.cuda.is_available()
    best = "bfloat16" if has_card else "float32"
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", choices=SCALES, default="tiny")
    parser.add_argument("--device", default="cuda" if has_card else "cpu")
    parser.add_argument("--rounds", type=int, default=1, help="the first one warms a GPU up")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default=best)
    parser.add_argument("--sampling-dtype", choices=("float32", "bfloat16"), default=best)
    parser.add_argument("--attention", default="auto")
    parser.add_argument("--out", type=Path, default=harness.RESULTS, help="folder of the result")
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--micro-batch-tokens", type=int)
    parser.add_argument(
        "--gradient-checkpointing", action=argparse.BooleanOptionalAction, default=True
    )
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    if options.device == "cpu":
        torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    result = report(options, *measure(SCALES[options.scale], options))
    text = as_markdown(result)
    device = re.sub(r"[^a-z0-9]+", "-", result["device"].lower()).strip("-")
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / f"real-round-{options.scale}-{device}"
    file.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    file.with_suffix(".md").write_text(text)
    print(text)


def _say(node: str, phase: str, done: int, total: int) -> None:
    harness.say(f"real round: {node} {phase} {done}/{total}")


if __name__ == "__main__":
    main()
