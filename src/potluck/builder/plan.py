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

from potluck.builder.bfloat16 import advice_on_bfloat16, doubts_on_bfloat16
from potluck.builder.consent import notes_on_reach
from potluck.builder.memory import (
    CPU_BYTES,
    CUDA_BYTES,
    GIB,
    Memory,
    bytes_together,
    gpu_gib,
    memory_of,
    own_completions,
    verdict,
)
from potluck.builder.prepare import OWN_TASK, Prepared, absences, pinned, prepare
from potluck.builder.prompts import shown_prompts
from potluck.builder.task import code_of
from potluck.config import AnyRecipe, RunConfig, as_config
from potluck.config.control import controls_of
from potluck.model.loading import load_config
from potluck.model.shape import Shape, shape_of
from potluck.objective.methods import method_of
from potluck.rollout.texts.options import TinkerOptions
from potluck.tasks import Split

WIRE_BYTES = {"exact": 5.0, "compact": 2.6, "raw": 8.1}
"""Bytes of a token, at most, as measured: benchmarks/wire.py."""
IDS_ONLY_BYTES = {"exact": 2.3, "compact": 2.3, "raw": 5.2}
"""The same without log-probabilities."""
VERTICAL_ADVICE = """
plan = "vertical": a model learns nothing from a group that another one has solved throughout, also
where it fails itself; plan = "horizontal" compares the completions of all"""
PEAK = "peak = state (weights, optimiser) + the largest of the three that follow it"
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

    @property
    def overhead(self) -> int:
        """Bytes of each process, whatever its nodes."""
        return CUDA_BYTES if self.on_gpu else CPU_BYTES


def plan_cost(config: AnyRecipe, *, trust_code: bool = False, gpu: str = "") -> CostPlan:
    """Estimate what a run costs, without its weights. Raise PotluckError for what would stop it.

    Args:
        trust_code: whether code that the recipe names is imported; else it is left out.
        gpu: a GPU, or its GiB, to plan for instead of this machine's devices.
    """
    plain = config = pinned(as_config(config))
    if code_of(config) and not trust_code:
        own = {"weight": "typicality"} if config.objective.has_custom_weight else {}
        objective = replace(config.objective, loss="", **own)
        plain = replace(
            config,
            reward=(),
            evaluation=replace(config.evaluation, right=""),
            log=replace(config.log, callback=""),
            objective=objective,
        )
    absent = absences(config)
    if config.task.code and not trust_code:
        absent[OWN_TASK] = "the problems: what begins them is code, which runs with --trust-code"
    shapes = {
        name: shape_of(load_config(node.reads))
        for name, node in config.learners.items()
        if node.reads not in absent
    }
    place = tuple(config.node), Path("runs") / config.name
    inspection = prepare(
        plain,
        *place,
        trust_code=trust_code,
        devices=not gpu,
        absent=absent,
        without_functions=bool(config.reward),
    )
    on_gpu = bool(gpu) or torch.cuda.is_available()
    prompts = inspection.prompts
    memory = {n: memory_of(config, n, shapes[n], prompts, gpu=on_gpu) for n in config.trained_here}
    tokens = {n: _tokens_of(config, n, shapes.get(n), prompts.mean) for n in config.learners}
    return CostPlan(inspection, shapes, memory, tokens, on_gpu)


def _tokens_of(config: RunConfig, name: str, shape: Shape | None, mean: float) -> Tokens:
    """Count tokens: a completion has at most what its limit and a mean prompt leave it."""
    total = config.sampling.max_total_tokens
    most = min(total, (shape and shape.context) or total)
    longest = min(config.sampling.max_new_tokens, most - mean)
    own, every = own_completions(config, name), config.problems_per_round * config.group_size
    written = round(own * longest)
    bytes_each = (WIRE_BYTES if config.sends_logp else IDS_ONLY_BYTES)[config.swarm.codec]
    return Tokens(own, written, round(every * (mean + longest)), round(bytes_each * written))


def check(
    config: RunConfig,
    *,
    trust_code: bool = False,
    gpu: str = "",
    one_process: bool = False,
    prompt: bool = False,
) -> Stacked:
    """Describe a run and its cost, to be printed; with a ``gpu``, whether the nodes fit, which take
    turns in ``one_process``; with ``prompt``, each node's first one. Further arguments and errors
    are those of ``plan_cost``."""
    gib = gpu_gib(gpu) if gpu else 0.0
    plan = plan_cost(config, trust_code=trust_code, gpu=gpu)
    code = [] if trust_code else code_of(config)
    unseen = [Padding(Text(part), (0, 0, 0, 2)) for part in plan.inspection.unseen]
    memory = (_memory_table(plan), Text(PEAK)) if plan.memory else ()
    return Stacked(
        Text(_headline(config)),
        *map(Text, _data(config, plan, trust_code=trust_code)),
        *(Text(f"would run {_place_of(name)}; not without --trust-code") for _, name in code),
        *map(Text, notes_on_reach(config)),
        Text(),
        *memory,
        *map(Text, _device_lines(config, plan, gib=gib, apart=not one_process)),
        *map(Text, _unshared_lines(config, plan)),
        *map(Text, _processor_lines(config, gpu=gpu)),
        Text(),
        _token_table(plan),
        *map(Text, _money_lines(config, plan)),
        *map(Text, control_lines(config)),
        *(_prompt_lines(config, plan) if prompt else ()),
        *(Text("\nnot looked at:") for _ in unseen[:1]),
        *unseen,
        Text("\nnothing was started; --json prints the recipe with every default"),
    )


def _headline(config: RunConfig) -> str:
    chosen, is_free = config.objective, config.pace == "free"
    pace = f", at its own pace: {config.taken:g} of others for each own one at most" * is_free
    joint = config.plan == "horizontal" or len(config.node) == 1 or chosen.others == "all"
    return (
        f"{config.name}: {config.end} rounds of {config.problems_per_round} problems x "
        f"{config.group_size} completions, {config.plan}{pace}\n"
        f"{', '.join([method_of(chosen), *chosen.settings])}; {chosen.updates_per_round} update a "
        f"round; evaluated every {config.evaluation.every or config.rounds} rounds"
        f"{'' if joint else VERTICAL_ADVICE}"
    )


def _data(config: RunConfig, plan: CostPlan, *, trust_code: bool) -> Iterator[str]:
    wanted, most = config.evaluation, config.sampling.max_new_tokens
    if task := plan.inspection.task:
        there = {split: len(task.ids(split)) for split in SPLITS}
        counts = ", ".join(f"{split} {count:,}" for split, count in there.items())
        digest = f"digest {task.digest[:12]}"
        if config.reward and not trust_code:
            digest = "its digest has the reward functions in it, so it needs --trust-code"
        yield f"task: {counts} problems; {digest}"
        yield from plan.inspection.notes or ["overlap: no question is in two of them"]
        asked = (wanted.problems, wanted.out_of_distribution)
        for split, count in zip(SPLITS[1:], asked, strict=True):
            if 0 < there[split] < count:
                yield f"of {count} {split} problems there are {there[split]}"
    for name, shape in plan.shapes.items():
        if 0 < (limit := shape.context or 0) < most:
            yield f"{name}: max_new_tokens = {most} is capped by the model's {limit} positions"


def _memory_table(plan: CostPlan) -> Table:
    phases = ("state", "writing", "learning", "evaluation", "peak")
    table = _table("memory in GiB, estimated", "node", "weights", *phases)
    for name, node in plan.memory.items():
        parts = (node.state, node.writing, node.learning, node.evaluating, node.peak)
        many = plan.shapes[name].parameters
        shown = f"{many / 1e9:,.2f}B" if many >= 1e9 else f"{many / 1e6:,.2f}M"
        table.add_row(Text(name), shown, *(f"{part / GIB:,.2f}" for part in parts))
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column == "node" else "right")
    return table


def _device_lines(config: RunConfig, plan: CostPlan, *, gib: float, apart: bool) -> Iterator[str]:
    """Yield a line on each device, under the name that it really has."""
    real = {"auto": "cuda:0" if plan.on_gpu else "cpu", "cuda": "cuda:0"}
    devices: dict[str, list[str]] = {}
    for name, node in config.trained_here.items():
        devices.setdefault(real.get(node.device, node.device), []).append(name)
    for device, names in devices.items():
        memories, overhead = [plan.memory[name] for name in names], plan.overhead
        needed = bytes_together(memories, apart=apart, overhead=overhead)
        how = ", the peaks added up" if apart else ", the states added up, as they take turns"
        needs = f"{needed / GIB:,.1f} GiB{how * (len(names) > 1)}"
        yield f"{device}: {' + '.join(names)}: {verdict(needed, gib) if gib else needs}"


def _unshared_lines(config: RunConfig, plan: CostPlan) -> Iterator[str]:
    """Yield a line on each node that reads a prompt again for each completion that it learns
    from."""
    for name in config.trained_here:
        if name in plan.shapes and not plan.shapes[name].shares_prompts:
            why = f"a {plan.shapes[name].model_type} cannot go on from one reading of it"
            yield f"{name} reads a prompt again for each completion that it learns from: {why}"


def _processor_lines(config: RunConfig, *, gpu: str) -> Iterator[str]:
    """Yield lines on bfloat16 on this processor; none where the plan is for another machine's
    GPU."""
    if not gpu:
        yield from doubts_on_bfloat16(config)
        yield from advice_on_bfloat16(config)


def _token_table(plan: CostPlan) -> Table:
    columns = ("node", "completions", "writes", "learns from", "sends to each")
    table = _table("tokens of a round, at most", *columns)
    for name, each in plan.tokens.items():
        counts = (f"{count:,}" for count in (each.completions, each.written, each.read))
        sent = f"{each.sent_bytes / 1e6:,.2f} MB" if len(plan.tokens) > 1 else "-"
        table.add_row(Text(name), *counts, sent)
    return table


def _money_lines(config: RunConfig, plan: CostPlan) -> Iterator[str]:
    for name, each in plan.tokens.items():
        if isinstance(engine := config.node[name].engine, TinkerOptions):
            prompts = round(each.completions * plan.inspection.prompts.mean)
            read = engine.training_cost(2 * each.read)
            usd = (engine.cost(prompts, each.written) + read).usd
            yield (
                f"{name}: its server reads {prompts:,} tokens of prompts and writes "
                f"{each.written:,}, reads {each.read:,} and trains on as many: at most {usd:.4f} "
                f"USD a round, {usd * config.end:,.2f} in {config.end}, evaluations apart"
            )


def _prompt_lines(config: RunConfig, plan: CostPlan) -> Iterator[RenderableType]:
    task, readers = plan.inspection.task, plan.inspection.readers
    yield Text()
    if task and readers:
        yield from shown_prompts(config, task, readers)
    else:
        yield Text("no prompt can be shown: what it is made of is not looked at")


def control_lines(config: RunConfig) -> Iterator[str]:
    """Yield the cost of each control, which comes on top of the run's."""
    of_run = sum(own_completions(config, name) for name in config.learners)
    for kind in config.control:
        runs = [each.config for each in controls_of(config) if each.kind == kind]
        count = sum(own_completions(its, name) for its in runs for name in its.node)
        yield (
            f"control {kind!r}, after the run: {len(runs)} more, of {config.end} rounds each; "
            f"{count * config.end:,} completions, the run {of_run * config.end:,}"
        )


def _place_of(function: str) -> str:
    """Say where a function is, so that one can go and read it."""
    place, _, name = function.rpartition(":")
    is_file = place.endswith(".py")
    return f"{name} in {Path(place).expanduser().absolute() if is_file else place}"
