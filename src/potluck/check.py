"""Looking before the leap: what a run will do and cost.

``potluck run --check`` reads recipes, tokenizers, data and the models' shapes, but no
weights, and starts nothing.
"""

import json
from dataclasses import dataclass

import torch
from rich.console import Group as Stacked
from rich.table import Table
from rich.text import Text
from transformers import AutoModelForCausalLM

from potluck.assemble import make_task, require_partners, require_room
from potluck.config import NodeConfig, RunConfig, as_tree
from potluck.rollout.loading import load_config
from potluck.swarm import PLANS
from potluck.tasks import Split
from potluck.trackers import require_trackers

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Cost:
    """One node's, estimated from its model's shape. Bytes; tokens are upper bounds."""

    parameters: int
    state_bytes: int
    """Weights, gradients and the optimiser's two moments, float32; a bfloat16 copy to write."""
    cache_bytes: int
    """Keys and values of ``sampling_rows`` completions of full length."""
    learning_bytes: int
    """Activations and logits of one micro-batch; a rough figure."""
    written_tokens: int
    trained_tokens: int


def check(config: RunConfig) -> Stacked:
    """The resolved run and its cost, to be printed.

    Raises:
        PotluckError: what would stop the run, as far as it can be told without weights.
    """
    require_trackers(config.log.to, wandb_mode=config.log.wandb_mode)
    task = make_task(config)
    require_partners(config)
    require_room(config, task)
    table = Table(title="a round at most, estimated; memory in GiB", title_justify="left")
    for column in ("node", "weights", "memory", "state", "cache", "learning", "writes", "reads"):
        table.add_column(column, justify="left" if column == "node" else "right")
    for name, node in config.node.items():
        cost = cost_of(config, name, node)
        larger = max(cost.cache_bytes, cost.learning_bytes)
        table.add_row(
            Text(name),
            f"{cost.parameters / 1e6:,.2f}M",
            f"{(cost.state_bytes + larger) / GIB:,.2f}",
            f"{cost.state_bytes / GIB:,.2f}",
            f"{cost.cache_bytes / GIB:,.2f}",
            f"{cost.learning_bytes / GIB:,.2f}",
            f"{cost.written_tokens:,}",
            f"{cost.trained_tokens:,}",
        )
    splits: list[Split] = ["train", "validation", "out-of-distribution"]
    counts = ", ".join(f"{split} {len(task.ids(split)):,}" for split in splits)
    return Stacked(
        Text(json.dumps(as_tree(config), indent=2)),
        Text(f"\ntask: {counts} problems; digest {task.digest[:12]}"),
        table,
        Text(
            "memory = state (weights, gradients, optimiser) + the larger of cache and learning; "
            "writes, reads: tokens\nnothing was started"
        ),
    )


def cost_of(config: RunConfig, name: str, node: NodeConfig) -> Cost:
    """What ``node`` needs, from the shape of its model alone."""
    shape = load_config(node.model)
    with torch.device("meta"):
        parameters = sum(p.numel() for p in AutoModelForCausalLM.from_config(shape).parameters())
    text = shape.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    bytes_each = 2 if node.sampling_dtype == "bfloat16" else 4
    cache = 2 * text.num_hidden_layers * heads * width * bytes_each
    kept_layers = 1 if node.gradient_checkpointing else text.num_hidden_layers
    # About 16 hidden-sized numbers a layer and token are kept for the backward pass.
    activations = 16 * kept_layers * text.hidden_size + 3 * text.vocab_size
    weights = {each: n.weight for each, n in config.node.items()}
    ids = [str(i) for i in range(config.problems_per_round)]
    own = sum(
        s.count for s in PLANS[config.plan](ids, weights, config.group_size) if s.node == name
    )
    longest = config.sampling.max_new_tokens
    return Cost(
        parameters=parameters,
        state_bytes=parameters * (16 + (2 if bytes_each == 2 else 0)),
        cache_bytes=cache * min(node.sampling_rows, own) * config.sampling.max_total_tokens,
        learning_bytes=4 * activations * node.micro_batch_tokens,
        written_tokens=own * longest,
        trained_tokens=config.problems_per_round * config.group_size * longest,
    )
