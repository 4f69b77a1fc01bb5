"""Looking before the leap: what a run will do and cost.

``potluck run --check`` reads recipes, tokenizers, data and the models' shapes, but no
weights, and starts nothing. What is not at hand it does without, and says so.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from msgspec.structs import replace
from rich.console import Group as Stacked
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from potluck.assemble import code_of
from potluck.check.cards import GIB, OF_ITSELF, Bench, by_device, card_gib, verdict
from potluck.check.look import Look, look_at
from potluck.check.memory import Memory, at_once, memory_of, own_completions, together
from potluck.config import METHODS, RunConfig, as_tree
from potluck.tasks import Split
from potluck.trackers import require_trackers

WIRE_BYTES = {"exact": 5.0, "compact": 2.6, "raw": 8.1}
"""Of a token, at most, as measured: benchmarks/wire.py."""
SPLITS: tuple[Split, ...] = ("train", "validation", "out-of-distribution")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Of one node in one round, if every completion were as long as it may be."""

    written: int
    """By the node itself."""
    read: int
    """Prompts and completions of all nodes that it learns from."""
    sent_bytes: int
    """Its own completions, to each other node."""


def check(
    config: RunConfig, *, trust_code: bool = False, gpu: str = "", one_process: bool = False
) -> Stacked:
    """The resolved run and its cost, to be printed.

    Code that the recipe names is imported where it is trusted, and only told of otherwise.

    Args:
        gpu: the name of a card, or its GiB: whether the nodes fit is told, and the devices
            of this machine do not matter.
        one_process: whether the nodes would take turns in one.

    Raises:
        PotluckError: what would stop the run, as far as it can be told without weights.
    """
    gib = card_gib(gpu) if gpu else 0.0
    require_trackers(config.log.to, wandb_mode=config.log.wandb_mode)
    code = [] if trust_code else code_of(config)
    plain = replace(config, reward=()) if code else config
    look = look_at(plain, trust_code=trust_code, here=not gpu)
    on_gpu = bool(gpu) or torch.cuda.is_available()
    memory = {
        name: memory_of(config, name, shape, look.prompts, gpu=on_gpu)
        for name, shape in look.shapes.items()
    }
    return Stacked(
        Text(json.dumps(as_tree(config), indent=2)),
        Text(f"\n{plan_of(config)}"),
        *_data(look),
        *(Text(f"would run {what(name)}; not without --trust-code") for name in code),
        *(
            Text(f"{name!r} writes through {n.server.url} as {n.server.model!r}: not asked yet")
            for name, n in config.node.items()
            if n.server
        ),
        Text(),
        memory_table(config, look, memory),
        *device_lines(config, look, memory, gib=gib, on_gpu=on_gpu, apart=not one_process),
        Text(),
        token_table(config, look),
        *_unseen(look),
        Text("\nnothing was started"),
    )


def plan_of(config: RunConfig) -> str:
    """The run in two lines."""
    chosen = config.objective
    (method,) = (
        name
        for name, means in METHODS.items()
        if means == {"importance": chosen.importance, "filter": chosen.filter}
    )
    limit = f", g = {chosen.divergence_limit:g}" if chosen.filter else ""
    return (
        f"{config.name}: {config.rounds} rounds of {config.problems_per_round} problems x "
        f"{config.group_size} completions, {config.plan}\n"
        f"{method}{limit}; {chosen.updates_per_round} update a round; "
        f"evaluated every {config.evaluation.every or config.rounds} rounds"
    )


def _data(look: Look) -> list[RenderableType]:
    if look.task is None:
        return []
    task = look.task
    counts = ", ".join(f"{split} {len(task.ids(split)):,}" for split in SPLITS)
    return [
        Text(f"task: {counts} problems; digest {task.digest[:12]}"),
        *(Text(note) for note in look.notes or ["overlap: no question is in two of them"]),
    ]


def memory_table(config: RunConfig, look: Look, memory: dict[str, Memory]) -> Table:
    table = Table(title="memory in GiB, estimated", title_justify="left")
    columns = ("node", "weights", "state", "writing", "learning", "evaluation", "peak")
    for column in columns:
        table.add_column(column, justify="left" if column == "node" else "right")
    for name in config.node:
        node = memory[name]
        parts = (node.state, node.writing, node.learning, node.evaluating, node.peak)
        table.add_row(Text(name), _many(look.shapes[name].parameters), *map(_gib, parts))
    return table


def device_lines(
    config: RunConfig,
    look: Look,
    memory: dict[str, Memory],
    *,
    gib: float,
    on_gpu: bool,
    apart: bool,
) -> list[RenderableType]:
    """What stands under the table: peak = ..., then each device."""
    lines: list[RenderableType] = [
        Text("peak = state (weights, optimiser) + the largest of the three that follow it")
    ]
    for device, names in by_device(config, gpu=on_gpu).items():
        who = f"{device}: {' + '.join(names)}: "
        if gib:
            said = verdict(Bench(config, names, look.shapes, look.prompts, apart), gib)
        else:
            these, base = [memory[name] for name in names], OF_ITSELF if on_gpu else 0
            if apart:
                needs, how = at_once(these) + base * len(these), "the peaks added up"
            else:
                needs = together(these) + base
                how = "the states added up, as they take turns"
            said = f"{needs / GIB:,.1f} GiB{f', {how}' if len(names) > 1 else ''}"
        lines.append(Text(who + said))
    return lines


def token_table(config: RunConfig, look: Look) -> Table:
    table = Table(title="tokens of a round, at most", title_justify="left")
    for column in ("node", "completions", "writes", "learns from", "sends to each"):
        table.add_column(column, justify="left" if column == "node" else "right")
    for name in config.node:
        tokens = tokens_of(config, name, look)
        table.add_row(
            Text(name),
            f"{own_completions(config, name):,}",
            f"{tokens.written:,}",
            f"{tokens.read:,}",
            f"{tokens.sent_bytes / 1e6:,.2f} MB" if len(config.node) > 1 else "-",
        )
    return table


def tokens_of(config: RunConfig, name: str, look: Look) -> Tokens:
    """A completion has at most what its limit and its prompt, of mean length, leave it."""
    sampling, mean = config.sampling, look.prompts.mean
    context = look.shapes[name].context or sampling.max_total_tokens
    whole = min(sampling.max_total_tokens, context)
    longest = min(sampling.max_new_tokens, whole - mean)
    own = own_completions(config, name)
    written = round(own * longest)
    every = config.problems_per_round * config.group_size
    sent = round(WIRE_BYTES[config.swarm.codec] * written)
    return Tokens(written, round(every * (mean + longest)), sent)


def _unseen(look: Look) -> list[RenderableType]:
    if not look.unseen:
        return []
    return [Text("\nnot looked at:"), *(Padding(Text(line), (0, 0, 0, 2)) for line in look.unseen)]


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:,.2f}"


def _many(count: int) -> str:
    return f"{count / 1e9:,.2f}B" if count >= 1e9 else f"{count / 1e6:,.2f}M"


def what(function: str) -> str:
    """The code that ``function`` of a [[reward]] names, so that one can go and read it."""
    place, _, name = function.rpartition(":")
    file = Path(place).expanduser().absolute()
    if not place.endswith(".py"):
        return f"{name} of the module {place}"
    return f"{name} in {file}" if file.is_file() else f"{name} in {file}, which is not there"
