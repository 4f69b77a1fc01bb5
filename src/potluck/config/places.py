"""Places of keys in a recipe, for one that stands in another table or has another tool's name."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields

from potluck.config.run import RunConfig

SAME = {
    "learning_rate": "lr",
    "lr_schedule": "lr_scheduler_type lr_scheduler scheduler",
    "warmup_updates": "warmup_steps warmup_ratio warmup",
    "gradient_clip_norm": "max_grad_norm grad_clip",
    "optimizer": "optim",
    "lora": "peft_config",
    "targets": "target_modules",
    "dtype": "bf16 torch_dtype precision",
    "rounds": "max_steps steps total_steps epochs num_epochs num_train_epochs",
    "group_size": "num_generations n_samples rollout_n",
    "name": "run_name output_dir",
    "problems_per_round": "batch_size train_batch_size per_device_train_batch_size "
    "gradient_accumulation_steps",
    "checkpoint_every": "save_steps",
    "every": "eval_steps eval_every",
    "max_new_tokens": "max_completion_length max_length max_tokens max_response_length",
    "max_prompt_tokens": "max_prompt_length",
    "beta": "kl_coef kl_beta kl_loss_coef",
    "clip_epsilon": "epsilon clip_range clip_ratio",
    "clip_epsilon_high": "epsilon_high",
    "updates_per_round": "num_iterations ppo_epochs",
    "advantage_scale": "scale_rewards",
    "to": "report_to logger",
    "completions": "log_completions",
    "callback": "callbacks",
    "function": "reward_funcs reward_fn",
    "weight": "reward_weights",
}
"""Keys of a recipe, and what TRL and other trainers call them (docs/trl.md)."""
KEYS = {other: key for key, others in SAME.items() for other in others.split()}


def place_hint(key: str, names: Sequence[str], at: str) -> str:
    """Return the way out of a ``key`` that the table ``at`` with ``names`` has not, but under
    another name or in another table; empty if a recipe has no such key."""
    key = KEYS.get(key.lower(), key.lower())
    if key in names:
        return f"did you mean {key!r}?"
    # Two tables are tasks: what one kind of task has not, the other table would not take either.
    here = {re.sub(r"^node\.[^.]+", "node.NAME", at), "out_of_distribution"}
    here |= {"task"} if at == "out_of_distribution" else set()
    tables = dict.fromkeys(t for t, name in _places(RunConfig, "") if name == key and t not in here)
    where = " or ".join(f"[{table}]" if table else "the run" for table in tables)
    return f"did you mean {key!r} in {where}?" if tables else ""


def _places(kind: Any, at: str) -> Iterator[tuple[str, str]]:
    """Yield each key below ``kind`` with its table; "node.NAME" is that of every node."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        for field in fields(kind):
            yield at, field.name
            yield from _places(field.type, f"{at}.{field.name}".lstrip("."))
    elif get_origin(kind) is Mapping:
        yield from _places(get_args(kind)[1], f"{at}.NAME")
    else:
        for part in get_args(kind):
            yield from _places(part, at)
