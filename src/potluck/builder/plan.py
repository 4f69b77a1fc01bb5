"""A run's cost, told before it begins, without weights: ``potluck run --check``."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from msgspec.structs import replace
from rich.console import Group as Stacked
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from potluck.builder.consent import notes_on_reach
from potluck.builder.gpus import gpu_gib
from potluck.builder.memory import (
    CUDA_BYTES,
    GIB,
    DeviceLoad,
    Memory,
    adapted_names,
    by_device,
    memory_of,
    own_completions,
    verdict,
)
from potluck.builder.prepare import Host, Prepared, absences, pinned, planned_shape, prepare
from potluck.builder.task import code_of
from potluck.config import AnyRecipe, RunConfig, as_config
from potluck.config.control import controls_of
from potluck.model.shape import Shape
from potluck.objective.methods import method_of
from potluck.tasks import Split

WIRE_BYTES = {"exact": 5.0, "compact": 2.6, "raw": 8.1}
"""Bytes of a token, at most, as measured: benchmarks/wire.py."""
IDS_ONLY_BYTES = {"exact": 2.3, "compact": 2.3, "raw": 5.2}
"""The same without log-probabilities."""
VERTICAL_ADVICE = """\
plan = "vertical": a model learns nothing from a group that another one has solved throughout, also
where it fails itself; plan = "horizontal" compares the completions of all"""
SPLITS: tuple[Split, ...] = ("train", "validation", "out-of-distribution")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one node in one round, if every completion were as long as it may be."""

    completions: int
    """Completions that the node itself writes, of ``written`` tokens."""
    written: int
    read: int
    """Tokens that it learns from: prompts and completions of all nodes."""
    sent_bytes: int
    """Bytes of its own completions, to each other node."""


@dataclass(frozen=True, slots=True)
class CostPlan:
    """Estimated cost of a run, for each node."""

    inspection: Prepared
    shapes: Mapping[str, Shape]
    """Shape of the model of each node that learns."""
    memory: Mapping[str, Memory]
    tokens: Mapping[str, Tokens]
    on_gpu: bool


def plan_cost(config: AnyRecipe, *, trust_code: bool = False, gpu: str = "") -> CostPlan:
    """Estimate what a run costs, without its weights. Raise PotluckError for what would stop it.

    Args:
        trust_code: whether code that the recipe names is imported; else it is left out.
        gpu: a GPU, or its GiB, to plan for instead of this machine's devices.
    """
    plain = config = pinned(as_config(config))
    if code_of(config) and not trust_code:
        log, objective = replace(config.log, callback=""), replace(config.objective, loss="")
        plain = replace(config, reward=(), log=log, objective=objective)
    absent = absences(config)
    host = Host(tuple(config.node), Path("runs") / config.name, devices=not gpu, absent=absent)
    shapes = {n: planned_shape(node.model, absent) for n, node in config.learners.items()}
    inspection = prepare(plain, host, trust_code=trust_code)
    on_gpu = bool(gpu) or torch.cuda.is_available()
    prompts = inspection.prompts
    memory = {n: memory_of(config, n, shapes[n], prompts, gpu=on_gpu) for n in config.learners}
    tokens = {n: _tokens_of(config, n, shapes[n], prompts.mean) for n in config.learners}
    return CostPlan(inspection, shapes, memory, tokens, on_gpu)


def _tokens_of(config: RunConfig, name: str, shape: Shape, mean: float) -> Tokens:
    """Count tokens: a completion has at most what its limit and a mean prompt leave it."""
    sampling = config.sampling
    context = shape.context or sampling.max_total_tokens
    longest = min(sampling.max_new_tokens, min(sampling.max_total_tokens, context) - mean)
    own, every = own_completions(config, name), config.problems_per_round * config.group_size
    written = round(own * longest)
    bytes_each = (WIRE_BYTES if config.sends_logp else IDS_ONLY_BYTES)[config.swarm.codec]
    sent = round(bytes_each * written)
    return Tokens(own, written, round(every * (mean + longest)), sent)


def check(
    config: RunConfig, *, trust_code: bool = False, gpu: str = "", one_process: bool = False
) -> Stacked:
    """Describe a run and its cost, to be printed; with a ``gpu``, whether the nodes fit.

    ``one_process``: they would take turns in one. Raise PotluckError as ``plan_cost`` does, whose
    arguments these are.
    """
    gib = gpu_gib(gpu) if gpu else 0.0
    code = [] if trust_code else code_of(config)
    plan = plan_cost(config, trust_code=trust_code, gpu=gpu)
    unseen = [Padding(Text(part), (0, 0, 0, 2)) for part in plan.inspection.unseen]
    return Stacked(
        Text(_headline(config)),
        *_data(plan.inspection),
        *map(Text, _capped(config, plan)),
        *(Text(f"would run {_place_of(name)}; not without --trust-code") for name in code),
        *map(Text, notes_on_reach(config)),
        *map(Text, _learning_lines(config, plan)),
        Text(),
        _memory_table(plan),
        Text("peak = state (weights, optimiser) + the largest of the three that follow it"),
        *_device_lines(config, plan, gib=gib, apart=not one_process),
        Text(),
        _token_table(plan),
        *map(Text, _control_lines(config, plan)),
        *(Text("\nnot looked at:") for _ in unseen[:1]),
        *unseen,
        Text("\nnothing was started; --json prints the recipe with every default"),
    )


def _headline(config: RunConfig) -> str:
    chosen = config.objective
    shares = ""
    if config.pace == "free":
        shares = f", at its own pace: {config.taken:g} of others for each own one at most"
    joint = config.plan == "horizontal" or len(config.node) == 1 or chosen.others == "all"
    advice = "" if joint else f"\n{VERTICAL_ADVICE}"
    method = ", ".join([method_of(chosen), *chosen.settings])
    return (
        f"{config.name}: {config.end} rounds of {config.problems_per_round} problems x "
        f"{config.group_size} completions, {config.plan}{shares}\n"
        f"{method}; {chosen.updates_per_round} update a round; "
        f"evaluated every {config.evaluation.every or config.rounds} rounds{advice}"
    )


def _learning_lines(config: RunConfig, plan: CostPlan) -> Iterator[str]:
    """Yield which layers get an adapter, and what the KL is measured to."""
    for name, node in config.learners.items():
        if node.lora:
            layers = adapted_names(node.lora, plan.shapes[name])
            yield f"{name!r} trains adapters of {', '.join(layers)}"
        if config.objective.beta:
            model = "its model without the adapter" if node.lora else "a frozen copy of its model"
            yield f"{name!r} holds its KL to {model}, beta = {config.objective.beta:g}"


def _data(prepared: Prepared) -> list[RenderableType]:
    if (task := prepared.task) is None:
        return []
    counts = ", ".join(f"{split} {len(task.ids(split)):,}" for split in SPLITS)
    return [
        Text(f"task: {counts} problems; digest {task.digest[:12]}"),
        *map(Text, prepared.notes or ["overlap: no question is in two of them"]),
    ]


def _capped(config: RunConfig, plan: CostPlan) -> Iterator[str]:
    """Yield a line on each number that is more than can be."""
    wanted, most = config.evaluation, config.sampling.max_new_tokens
    asked: dict[Split, int] = {
        "validation": wanted.problems,
        "out-of-distribution": wanted.out_of_distribution,
    }
    for split, count in asked.items():
        there = len(task.ids(split)) if (task := plan.inspection.task) else count
        if 0 < there < count:
            yield f"of {count} {split} problems there are {there}"
    for name, shape in plan.shapes.items():
        if shape.context and most > shape.context:
            limit = f"the model's {shape.context} positions"
            yield f"{name}: max_new_tokens = {most} is capped by {limit}"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column == "node" else "right")
    return table


def _memory_table(plan: CostPlan) -> Table:
    phases = ("state", "writing", "learning", "evaluation", "peak")
    table = _table("memory in GiB, estimated", "node", "weights", *phases)
    for name, node in plan.memory.items():
        parts = (node.state, node.writing, node.learning, node.evaluating, node.peak)
        many = _many(plan.shapes[name].parameters)
        table.add_row(Text(name), many, *(f"{part / GIB:,.2f}" for part in parts))
    return table


def _device_lines(
    config: RunConfig, plan: CostPlan, *, gib: float, apart: bool
) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for device, names in by_device(config, gpu=plan.on_gpu).items():
        memories, overhead = [plan.memory[name] for name in names], CUDA_BYTES * plan.on_gpu
        load = DeviceLoad(memories, apart, overhead)
        how = "the peaks added up" if apart else "the states added up, as they take turns"
        needs = f"{load.bytes_needed / GIB:,.1f} GiB{f', {how}' if len(names) > 1 else ''}"
        lines.append(Text(f"{device}: {' + '.join(names)}: {verdict(load, gib) if gib else needs}"))
    return lines


def _token_table(plan: CostPlan) -> Table:
    columns = ("node", "completions", "writes", "learns from", "sends to each")
    table = _table("tokens of a round, at most", *columns)
    for name, each in plan.tokens.items():
        counts = (f"{count:,}" for count in (each.completions, each.written, each.read))
        sent = f"{each.sent_bytes / 1e6:,.2f} MB" if len(plan.tokens) > 1 else "-"
        table.add_row(Text(name), *counts, sent)
    return table


def _control_lines(config: RunConfig, plan: CostPlan) -> Iterator[str]:
    """Yield the cost of each control, which comes on top of the run's."""
    of_run = sum(each.completions for each in plan.tokens.values())
    for kind in config.control:
        runs = [each.config for each in controls_of(config) if each.kind == kind]
        own = [(plan.tokens[n], own_completions(its, n)) for its in runs for n in its.node]
        count = sum(written for _, written in own)
        tokens = sum(written * each.written // max(1, each.completions) for each, written in own)
        yield (
            f"control {kind!r}, after the run: {len(runs)} more, of {config.end} rounds each; "
            f"{count * config.end:,} completions, the run {of_run * config.end:,}; "
            f"{tokens * config.end:,} tokens at most"
        )


def _many(count: int) -> str:
    return f"{count / 1e9:,.2f}B" if count >= 1e9 else f"{count / 1e6:,.2f}M"


def _place_of(function: str) -> str:
    """Say where the code of a [[reward]] ``function`` is, so that one can go and read it."""
    place, _, name = function.rpartition(":")
    file = Path(place).expanduser().absolute()
    if not place.endswith(".py"):
        return f"{name} of the module {place}"
    return f"{name} in {file}" if file.is_file() else f"{name} in {file}, which is not there"
