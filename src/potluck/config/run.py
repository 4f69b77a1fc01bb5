"""The tables of a run: objective, sampling, evaluation, nodes, and the run itself.

Every field says its unit, and its letter in the paper where it has one.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from potluck.config.kinds import Amount, Count, Positive
from potluck.config.swarm import SwarmConfig
from potluck.config.tasks import DigitsConfig, RewardConfig, TaskConfig

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
    stranger: bool = False
    """Whether the plan does not count on it: it comes uninvited, see [swarm] open."""
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
    """Longest wait for the other nodes' completions in a round, seconds. In one process none is
    needed."""
    checkpoint_every: Amount = 10
    """Rounds from one checkpoint to the next; 0: at the end (and on Ctrl-C) only."""
    threads: Amount = 0
    """CPU threads; 0: torch's default. Models under 10M weights are fastest with 1."""
    task: TaskConfig = DigitsConfig()
    out_of_distribution: TaskConfig | None = None
    """Another task whose out-of-distribution problems, graded by its rules, stand for the task's
    own in the last evaluation."""
    reward: tuple[RewardConfig, ...] = ()
    """Functions that pay instead of the task's grading: tables [[reward]]."""
    sampling: SamplingConfig = SamplingConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    log: LogConfig = LogConfig()
    swarm: SwarmConfig = SwarmConfig()
    node: Mapping[str, NodeConfig]
    """One table for each node, under its name: ``[node.small]``."""
