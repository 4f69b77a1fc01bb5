"""A run as data: one frozen tree, read from TOML, checked before anything heavy loads.

Every field says its unit, and its letter in the paper where it has one. Only
``node``, ``launch``, ``demo`` and ``cli`` import this file: the other rooms take
plain arguments, so each can be used without a run. It imports no torch.
"""

import difflib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from potluck.types import NODE_NAME, PotluckError

Count = Annotated[int, Meta(ge=1)]
Amount = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
SERVER_URL = re.compile(r"https?://[^\s/@?#]+(/[^\s?#]*)?")
Method = Literal["nois", "vis", "tis", "f-nois", "f-vis", "f-tis"]

METHODS: dict[Method, dict[str, Any]] = {
    "nois": {"importance": "none", "filter": False},
    "vis": {"importance": "vanilla", "filter": False},
    "tis": {"importance": "truncated", "filter": False},
    "f-nois": {"importance": "none", "filter": True},
    "f-vis": {"importance": "vanilla", "filter": True},
    "f-tis": {"importance": "truncated", "filter": True},
}
"""The paper's names. In TOML, ``method = "f-tis"`` stands for the two fields it names."""


class ObjectiveConfig(Struct, frozen=True, kw_only=True):
    importance: Literal["none", "vanilla", "truncated"] = "truncated"
    """How a token written by another model is reweighted: NoIS, VIS or TIS."""
    filter: bool = True
    """Whether a bad completion that is far off-policy is silenced: the "F-"."""
    weight_cap: Positive = 2.0
    """C: no token weighs more than this. Dimensionless; read by ``truncated`` only."""
    divergence_limit: Positive = 50.0
    """g: a bad completion at or beyond this is silenced. In the estimator's unit."""
    divergence_estimator: Literal["k1", "k2", "k3"] = "k3"
    """What a token adds to D; k1 and k3 in nats, k2 in nats squared."""
    divergence_reduce: Literal["mean", "sum", "max"] = "mean"
    """How D comes from a completion's tokens."""
    clip_epsilon: Annotated[float, Meta(ge=0)] = 0.2
    """epsilon of the PPO clip. Dimensionless."""
    updates_per_round: Count = 1
    """Optimiser steps on the completions of one round."""
    advantage_scale: Literal["std", "none"] = "std"
    """Whether (reward - mean) is divided by the group's standard deviation."""


class DigitsConfig(Struct, frozen=True, kw_only=True, tag_field="name", tag="digits"):
    width: Annotated[int, Meta(ge=3, le=8)] = 3
    """Digits of each number, in training and validation."""
    other_width: Annotated[int, Meta(ge=2, le=8)] = 4
    """Digits of each number out of distribution."""
    reward: Literal["task", "hash"] = "task"
    """"hash" pays by a hash of the token ids: a check of the plumbing, no task at all."""


class Gsm8kConfig(Struct, frozen=True, kw_only=True, tag_field="name", tag="gsm8k"):
    path: str = ""
    """Folder that holds train.jsonl and test.jsonl; empty: from the Hub (extra ``data``)."""
    validation: Literal["train", "test"] = "train"
    """Where the validation problems come from; "test" is what the paper does."""
    system_prompt: str = ""
    """Replaces the built-in one that asks for <think> and <answer> tags."""
    reward: Literal["task", "hash"] = "task"
    """"hash" pays by a hash of the token ids: a check of the plumbing, no task at all."""


TASKS: dict[str, type[Struct]] = {"digits": DigitsConfig, "gsm8k": Gsm8kConfig}


class SamplingConfig(Struct, frozen=True, kw_only=True):
    temperature: Positive = 1.0
    """T: what logits are divided by, when writing and when learning."""
    top_k: Amount = 0
    """Draw from the k likeliest tokens only; 0: from all. See paper-notes, decision 6."""
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Draw from the likeliest tokens that together hold this probability; 1: from all."""
    max_new_tokens: Count = 512
    """Longest completion, in tokens, the stop token included."""
    max_total_tokens: Count = 2048
    """Longest prompt and completion together, in tokens."""
    stop: tuple[str, ...] = ()
    """Further tokens that end a completion, beside the model's own end-of-text tokens."""


class EvaluationConfig(Struct, frozen=True, kw_only=True):
    every: Amount = 5
    """Rounds from one greedy evaluation to the next; 0: at the end only."""
    problems: Amount = 200
    """Of the validation split, always the first ones; 0: no evaluation."""
    out_of_distribution: Amount = 200
    """Of that split, at the end of the run; 0: none."""
    max_new_tokens: Amount = 0
    """Longest completion; 0: as in training (a trained limit should not be a test's)."""


class LogConfig(Struct, frozen=True, kw_only=True):
    to: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """Where curves are drawn, each with an extra of its name; metrics.jsonl is written anyway."""
    project: str = "potluck"
    """What W&B and trackio file the runs under."""
    group: str = ""
    """What the runs of the nodes have in common there; empty: the name of the run."""
    wandb_mode: Literal["online", "offline"] = "online"
    """"offline" keeps everything in the run's folder, for a later ``wandb sync``."""


class LoraConfig(Struct, frozen=True, kw_only=True):
    """Low-rank adapters: W + alpha/r * B A, of which only A and B are trained (peft)."""

    r: Count = 16
    """Rank of A and B; the paper's experiments have 128."""
    alpha: Positive = 32.0
    """What B A is scaled by, times r. Dimensionless; the paper's experiments have 256."""
    dropout: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """Share of the adapter's inputs that an update leaves out; never while writing."""
    targets: tuple[str, ...] = ("q_proj", "v_proj")
    """Names of the layers that get an adapter; query and value, as in the paper."""


class ServerConfig(Struct, frozen=True, kw_only=True):
    """A server outside this process that writes for a node, as vLLM does: docs/vllm.md."""

    url: str
    """``http://HOST:PORT``."""
    model: str
    """The name under which it serves the model; of a LoRA node, one for its adapter."""
    folder: str = ""
    """Where the weights of each round are put for it to load, under the same path there; empty:
    the node's part of the run folder."""
    sleeps: bool = False
    """Whether it gives its GPU's memory back while the node learns (--enable-sleep-mode)."""
    concurrency: Count = 64
    """Problems that it is asked for at once."""
    timeout_s: Positive = 600.0
    """Longest wait for one answer, reloading the weights included. Seconds."""
    tolerance: Positive = 0.1
    """By how much its log-probabilities may differ from the node's own, nats a token in the mean;
    beyond it the run stops. bfloat16 costs about 0.003."""
    api_key_variable: str = ""
    """The environment variable that holds its key; empty: it asks for none."""


class NodeConfig(Struct, frozen=True, kw_only=True):
    model: str
    """A folder, a Hugging Face id, or ``builtin:NAME`` (digits-small, -large, -terse)."""
    weight: Positive = 1.0
    """This node's part of the writing, relative to the others'."""
    device: str = "auto"
    """As torch names it; "auto": the GPU where there is one, else the CPU."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """What learning computes in. In bfloat16 trained weights, their gradients and the optimiser's
    state stay float32 (master weights); frozen ones, under an adapter, are stored in bfloat16."""
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2"] = "auto"
    """How attention is computed; "auto": what transformers takes for the model."""
    lora: LoraConfig | None = None
    """A table [node.NAME.lora] trains adapters and leaves the model's own weights as they are."""
    optimizer: Literal["adam", "adamw", "adamw-8bit"] = "adam"
    """"adamw-8bit" keeps the moments in 8 bits each (extra ``eightbit``)."""
    learning_rate: Positive = 1e-6
    weight_decay: Annotated[float, Meta(ge=0)] = 0.0
    """Decoupled, so it needs ``optimizer = "adamw"`` (or its 8-bit form)."""
    gradient_clip_norm: Positive = 1.0
    """The update's gradient is scaled down to this L2 norm where it is longer."""
    micro_batch_tokens: Count = 4096
    """Rows x longest row, prompt included, in one backward pass: memory, not mathematics."""
    gradient_checkpointing: bool = False
    """Trades a second forward pass for the memory of the activations."""
    sampling_dtype: Literal["float32", "bfloat16"] = "float32"
    """What the model computes in while it writes; the importance weight corrects for it."""
    sampling_rows: Count = 512
    """Completions that are written at once: memory against speed."""
    server: ServerConfig | None = None
    """A table [node.NAME.server] has a server write, which is sent the weights of each round."""


class RunConfig(Struct, frozen=True, kw_only=True):
    name: str
    """Of the run; its folder is runs/<name> unless --out says otherwise."""
    seed: int = 0
    rounds: Count = 50
    problems_per_round: Count = 24
    group_size: Annotated[int, Meta(ge=2)] = 12
    """G: completions of one problem."""
    plan: Literal["vertical", "horizontal"] = "vertical"
    deadline_s: Positive = 600.0
    """Longest wait for the other nodes' completions, seconds. In one process none is needed."""
    checkpoint_every: Amount = 10
    """Rounds from one checkpoint to the next; 0: at the end (and on Ctrl-C) only."""
    threads: Amount = 0
    """CPU threads; 0: torch's default. Models under 10M weights are fastest with 1."""
    task: DigitsConfig | Gsm8kConfig = DigitsConfig()
    out_of_distribution: DigitsConfig | Gsm8kConfig | None = None
    """Another task whose out-of-distribution problems, graded by its rules, stand for the task's
    own in the last evaluation."""
    sampling: SamplingConfig = SamplingConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    log: LogConfig = LogConfig()
    node: Mapping[str, NodeConfig]
    """One table for each node, under its name: ``[node.small]``."""


class ConfigError(PotluckError, ValueError):
    """A configuration that cannot run; the message names the key and the way out."""


def load(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Reads a run from TOML, or from the recipe.json of a run folder.

    ``overrides`` are of the form ``"node.small.model=some/folder"``.

    Raises:
        ConfigError: no such file, not TOML (or JSON), or a key or value that no run has.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        tree = json.loads(text) if Path(path).suffix == ".json" else tomllib.loads(text)
    except FileNotFoundError:
        raise ConfigError(f"there is no recipe {path}; `potluck new {path}` writes one") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    return from_tree(tree, overrides)


def from_tree(tree: dict[str, Any], overrides: Sequence[str] = ()) -> RunConfig:
    """A run from nested dicts, as ``tomllib`` gives them; changes ``tree`` by ``overrides``.

    Raises:
        ConfigError: as ``load``.
    """
    if not isinstance(tree, dict):
        raise ConfigError(f"the recipe is {tree!r}; expected a table with a name and nodes")
    for override in overrides:
        _override(tree, override)
    run: RunConfig = _value(RunConfig, tree, "")
    _require_sense(run)
    return run


def as_tree(run: RunConfig) -> dict[str, Any]:
    """The run with every default spelled out, as plain data for JSON."""
    tree: dict[str, Any] = msgspec.to_builtins(run, enc_hook=dict)
    return tree


def _require_sense(run: RunConfig) -> None:
    if not RUN_NAME.fullmatch(run.name):
        raise ConfigError(
            f"name is {run.name!r}; a run's name is 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-', "
            f"and begins with a letter or a digit"
        )
    if not run.node:
        raise ConfigError("the run has no node; add a table [node.NAME] with a model")
    for name, node in run.node.items():
        if not NODE_NAME.fullmatch(name):
            raise ConfigError(
                f"[node.{name}]: a node's name is 1 to 32 of a-z, 0-9 and '-', such as 'node-1'"
            )
        if node.weight_decay and node.optimizer == "adam":
            raise ConfigError(
                f"[node.{name}] weight_decay is {node.weight_decay}, but optimizer 'adam' has "
                f"none; set optimizer = 'adamw' or drop it"
            )
        if node.lora and not node.lora.targets:
            raise ConfigError(f"[node.{name}.lora] targets names no layer, so nothing would learn")
        if node.server:
            _require_server_sense(name, node, run.sampling)
    if (rows := run.problems_per_round * run.group_size) > 2**16:
        raise ConfigError(
            f"problems_per_round x group_size is {rows}; a round has at most {2**16} completions"
        )
    if run.plan == "horizontal" and run.group_size < len(run.node):
        raise ConfigError(
            f"plan 'horizontal' shares each group of {run.group_size} among {len(run.node)} nodes; "
            f"raise group_size to at least {len(run.node)}"
        )


def _require_server_sense(name: str, node: NodeConfig, sampling: SamplingConfig) -> None:
    if node.server and not SERVER_URL.fullmatch(node.server.url):
        raise ConfigError(
            f"[node.{name}.server] url is {node.server.url!r}; expected http://HOST:PORT"
        )
    if node.sampling_dtype != "float32":
        raise ConfigError(
            f"[node.{name}] sampling_dtype is {node.sampling_dtype!r}, but its server writes in a "
            f"format of its own (vllm serve --dtype); drop one of the two"
        )
    if sampling.temperature != 1 and (sampling.top_k or sampling.top_p < 1):
        raise ConfigError(
            f"[node.{name}.server] can tell log-probabilities at temperature 1, or without top_k "
            f"and top_p, but [sampling] has temperature {sampling.temperature:g}, top_k "
            f"{sampling.top_k} and top_p {sampling.top_p:g}; change one of them"
        )


def _value(kind: Any, value: Any, at: str) -> Any:
    """``value``, as TOML has it, as a ``kind``; ``at`` is where it stands, for the error."""
    if at in ("task", "out_of_distribution") and value is not None:
        return _task(value, at)
    if get_origin(kind) is UnionType:  # a table that need not be there
        if value is None:  # as JSON has it
            return None
        (kind,) = (part for part in get_args(kind) if part is not NoneType)
    if _is_struct(kind):
        return _table(kind, value, at)
    if get_origin(kind) is tuple and _is_struct(get_args(kind)[0]):
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{at} is {value!r}; expected one table for each, [[{at}]]")
        return tuple(_table(get_args(kind)[0], v, f"{at}.{i}") for i, v in enumerate(value))
    if get_origin(kind) is tuple and get_origin(get_args(kind)[0]) is Literal:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{at} is {value!r}; expected a list, such as [{value!r}]")
        return tuple(_value(get_args(kind)[0], v, at) for v in value)
    if get_origin(kind) is Mapping:
        (_, item) = get_args(kind)
        if not isinstance(value, dict):
            raise ConfigError(f"{at} is {value!r}; expected one table for each name, [{at}.NAME]")
        return MappingProxyType({k: _value(item, v, f"{at}.{k}") for k, v in value.items()})
    if get_origin(kind) is Literal and value not in get_args(kind):
        raise ConfigError(f"{at} is {value!r}; choose one of {', '.join(get_args(kind))}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{at} is {value}; expected a finite number")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{at} is {value!r}: {error}") from None


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _task(table: Any, at: str) -> Any:
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise ConfigError(f"[{at}] needs a name; choose one of {', '.join(TASKS)}")
    name, rest = table["name"], {k: v for k, v in table.items() if k != "name"}
    if name not in TASKS:
        raise ConfigError(f"{at}.name is {name!r}; {_hint(name, TASKS)}")
    return _table(TASKS[name], rest, at)


def _table(kind: type[Struct], table: Any, at: str) -> Struct:
    where, prefix = (f"[{at}]", f"{at}.") if at else ("the run", "")
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    if not isinstance(table, dict):
        raise ConfigError(f"{at} is {table!r}; expected a table with {', '.join(fields)}")
    if kind is ObjectiveConfig:
        table = _spelled_out(table, at)
    for key in table:
        if key not in fields:
            names = [*fields, "method"] if kind is ObjectiveConfig else fields
            raise ConfigError(f"{where} has no key {key!r}; {_hint(key, names)}")
    for key, field in fields.items():
        if field.required and key not in table:
            raise ConfigError(f"{where} needs {key!r}, which has no default")
    return kind(**{k: _value(fields[k].type, v, prefix + k) for k, v in table.items()})


def _spelled_out(table: dict[str, Any], at: str) -> dict[str, Any]:
    """``method`` replaced by the fields that it names; what contradicts it is refused."""
    if "method" not in table:
        return table
    method = _value(Method, table["method"], f"{at}.method")
    named, rest = METHODS[method], {k: v for k, v in table.items() if k != "method"}
    for key, value in named.items():
        if rest.get(key, value) != value:
            raise ConfigError(
                f"[{at}] method {method!r} means {key} = {value!r}, but {key} is {rest[key]!r}; "
                f"drop one of the two"
            )
    return named | rest


def _override(tree: dict[str, Any], override: str) -> None:
    key, equals, raw = override.partition("=")
    if not equals:
        raise ConfigError(f"{override!r} is not of the form key=value")
    *tables, last = key.split(".")
    for depth, name in enumerate(tables):
        # A table may be new, a node may not: a slip in its name would add a third one.
        if tables[:depth] == ["node"] and name not in tree:
            raise ConfigError(f"{override!r}: no node is named {name!r}; {_hint(name, tree)}")
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"{override!r}: {name} is {tree!r}, which is no table")
    try:
        tree[last] = tomllib.loads(f"value = {raw}")["value"]
    except (ValueError, RecursionError):
        tree[last] = raw


def _hint(key: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, names := list(names), n=1)
    return f"did you mean {near[0]!r}?" if near else f"there is {', '.join(names) or 'none'}"
