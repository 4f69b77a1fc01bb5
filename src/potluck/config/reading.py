"""A reader of TOML (or JSON) into one frozen tree; it refuses a wrong key or value with a hint."""

import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from potluck.config.run import NodeConfig, RunConfig
from potluck.config.validation import require_valid
from potluck.fields import ConfigError, fields, hint
from potluck.files import unsealed
from potluck.objective.methods import METHODS, ObjectiveConfig

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
    "max_turns": "max_tool_calling_iterations",
    "environment": "environment_factory",
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

AnyRecipe = RunConfig | Mapping[str, Any] | Path | str
"""A run, or what ``load`` and ``from_tree`` make one of: a file's path, or nested dicts."""


def as_config(recipe: AnyRecipe, reward: Sequence[Mapping[str, Any]] = ()) -> RunConfig:
    """Return the run that ``recipe`` is, graded by tables ``reward``; raise as ``load`` does."""
    changed = {"reward": [*reward]} if reward else {}
    if isinstance(recipe, RunConfig):
        require_valid(recipe := replace(recipe, **changed))
        return recipe
    tree = read_tree(recipe) if isinstance(recipe, Path | str) else recipe
    return from_tree({**tree, **changed} if isinstance(tree, Mapping) else tree)


def load(path: Path | str, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a run from TOML or a run folder's recipe.json; ``overrides`` are ``"rounds=3"`` etc.
    Raise ConfigError for no such file, not TOML (or JSON), or a key or value that no run has."""
    return from_tree(read_tree(path), overrides)


def read_tree(path: Path | str) -> Any:
    """Read a recipe unchecked; a recipe.json of an older version gets today's keys. Raise
    ConfigError for no such file, or not TOML (or JSON)."""
    try:
        data, is_json = Path(path).read_bytes(), Path(path).suffix == ".json"
        return _renewed(unsealed(data)) if is_json else tomllib.loads(data.decode("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"there is no recipe {path}; `potluck new {path}` writes one") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


def _renewed(tree: Any) -> Any:
    """Keep what a run of 0.2.0 meant: its rule of learning from others, [node.NAME.server]."""
    if not isinstance(tree, dict):
        return tree
    if isinstance(objective := tree.get("objective"), dict):
        tree["objective"] = {"weight": "likelihood", "habit_test": False} | objective
    nodes = tree.get("node")
    for node in nodes.values() if isinstance(nodes, dict) else ():
        if isinstance(node, dict) and "server" in node:
            server = node.pop("server")
            node |= {"engine": {"name": "vllm", **server}} if isinstance(server, dict) else {}
    return tree


def from_tree(tree: dict[str, Any], overrides: Sequence[str] = ()) -> RunConfig:
    """Make a run of the dicts of ``tomllib``, changed by ``overrides``; raise as ``load`` does."""
    if not isinstance(tree, dict):
        raise ConfigError(f"the recipe is {tree!r}; expected a table with a name and nodes")
    for override in overrides:
        _override(tree, override)
    _require_finite(tree, "")
    run: RunConfig = _read_table(RunConfig, _without_method(tree), "")
    require_valid(run)
    return run


def as_tree(run: RunConfig) -> dict[str, Any]:
    """Return the run with every default spelled out, as plain data for JSON."""
    tree: dict[str, Any] = msgspec.to_builtins(run, enc_hook=dict)
    return tree


def _require_finite(value: Any, at: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{at} is {value}; expected a finite number")
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            _require_finite(inner, f"{at}.{key}" if at else str(key))


def _without_method(tree: dict[str, Any]) -> dict[str, Any]:
    """Replace ``method`` by the fields that it names; refuse what contradicts it."""
    if not isinstance(objective := tree.get("objective"), dict):
        return tree
    rest = {k: v for k, v in objective.items() if k != "method"}
    if "method" not in objective:
        parts = METHODS["lws"].fields.keys()
        if 0 < len(named := [key for key in parts if key in rest]) < len(parts):
            raise ConfigError(
                f"[objective] names {' and '.join(named)}, but {', '.join(parts)} say together "
                f"what is learned from others; name all of them, or a method instead"
            )
        return tree
    if (method := str(named := objective["method"]).lower()) not in METHODS:
        raise ConfigError(f"objective.method is {named!r}; choose one of {', '.join(METHODS)}")
    for key, value in METHODS[method].fields.items():
        if rest.get(key, value) != value:
            raise ConfigError(
                f"[objective] method {method!r} means {key} = {value!r}, but {key} is "
                f"{rest[key]!r}; drop one of the two"
            )
    return tree | {"objective": METHODS[method].fields | rest}


def _read(kind: Any, value: Any, at: str) -> Any:
    """Make what ``kind`` says of ``value``, which stands at ``at``."""
    origin, inner, found = get_origin(kind), get_args(kind), f"{at} is {value!r}"
    kinds = [part for part in inner if part is not NoneType]
    # Since Python 3.14 all unions are of one type, so that it does not tell which are of tables.
    if origin in (Union, UnionType) and (len(kinds) == 1 or all(map(_is_table, kinds))):
        if value is None and NoneType in inner:
            return None
        return _read(_chosen(kinds, value, at) if len(kinds) > 1 else kinds[0], value, at)
    if _is_table(kind):
        return _read_table(kind, value, at)
    if origin is Mapping and _is_table(inner[1]):
        if not isinstance(value, dict):
            raise ConfigError(f"{found}; expected one table for each name, [{at}.NAME]")
        return {str(key): _read(inner[1], item, f"{at}.{key}") for key, item in value.items()}
    if origin is tuple:
        return _read_list(inner, value, at)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        why = f": {error}"
        if origin is Literal:
            why = f"; choose one of {', '.join(inner)}"
        elif origin is Mapping:
            why = "; expected a table"
        elif origin is Union:
            (words,) = (get_args(part) for part in inner if get_origin(part) is Literal)
            why = f"; expected a list, or {words[0]!r}"
        raise ConfigError(f"{found}{why}") from None


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _chosen(kinds: Sequence[Any], value: Any, at: str) -> Any:
    by_name = {kind.__struct_config__.tag: kind for kind in kinds}
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str):
        raise ConfigError(f"[{at}] needs a name; choose one of {', '.join(by_name)}")
    if name not in by_name:
        raise ConfigError(f"{at}.name is {name!r}; {hint(name, by_name)}")
    return by_name[name]


def _read_table(kind: Any, value: Any, at: str) -> Any:
    where, known = f"[{at}]" if at else "the run", {field.name: field for field in fields(kind)}
    if not isinstance(value, dict):
        raise ConfigError(f"{at} is {value!r}; expected a table with {', '.join(known)}")
    given = {key: value[key] for key in value if key != kind.__struct_config__.tag_field}
    names = [*known, *(["method"] if kind is ObjectiveConfig else [])]
    for key in map(str, given):
        if key not in known:
            way = place_hint(key, names, at) or hint(key, names)
            if kind is NodeConfig and key == "server":
                way = f"its table is [{at}.engine], name = 'vllm'"
            raise ConfigError(f"{where} has no key {key!r}; {way}")
    for field in known.values():
        if field.required and field.name not in given:
            raise ConfigError(f"{where} needs {field.name!r}, which has no default")
    read = {k: _read(known[k].type, v, f"{at}.{k}".lstrip(".")) for k, v in given.items()}
    return kind(**read)


def _read_list(kinds: tuple[Any, ...], value: Any, at: str) -> tuple[Any, ...]:
    """Read a list of one kind (``kinds`` ends in an ellipsis), or of a kind for each place."""
    of_tables, wanted = _is_table(kinds[0]), f"a list of {len(kinds)}"
    if kinds[1:] == (...,):
        wanted = f"one table for each, [[{at}]]" if of_tables else f"a list, such as [{value!r}]"
        kinds = kinds[:1] * len(value) if isinstance(value, list | tuple) else ()
    if not isinstance(value, list | tuple) or len(kinds) != len(value):
        raise ConfigError(f"{at} is {value!r}; expected {wanted}")
    places = (f"{at}.{number}" if of_tables else at for number in range(len(value)))
    return tuple(map(_read, kinds, value, places))


def _override(tree: dict[str, Any], override: str) -> None:
    key, equals, raw = override.partition("=")
    if not equals:
        raise ConfigError(f"{override!r} is not of the form key=value")
    *tables, last = key.split(".")
    for depth, name in enumerate(tables):
        # A table may be new, a node may not: a slip in its name would add a third one.
        if tables[:depth] == ["node"] and name not in tree:
            raise ConfigError(f"{override!r}: no node is named {name!r}; {hint(name, tree)}")
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"{override!r}: {name} is {tree!r}, which is no table")
    try:
        tree[last] = tomllib.loads(f"value = {raw}")["value"]
    except (ValueError, RecursionError):
        tree[last] = raw


def place_hint(key: str, names: Sequence[str], at: str) -> str:
    """Return the way out of a ``key`` that the table ``at`` with ``names`` has under another name,
    or another table has; empty if a recipe has no such key."""
    key = KEYS.get(key.lower(), key.lower())
    if key in names:
        return f"did you mean {key!r}?"
    # Two tables are tasks: what one kind of task has not, the other table would not take either.
    here = {re.sub(r"^node\.[^.]+", "node.NAME", at), "out_of_distribution"}
    here |= {"task"} if at == "out_of_distribution" else set()
    tables = dict.fromkeys(t for t, name in _places(RunConfig, "") if name == key and t not in here)
    where = " or ".join(f"[{table}]" if table else "the top level of the file" for table in tables)
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
