"""The tables of a run. A field says its unit, and its letter in the paper where it has one."""

from collections.abc import Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import force_setattr

from potluck.fields import Amount, Count, Options, Positive
from potluck.objective.methods import ObjectiveConfig, reads_author_logp
from potluck.right import TASK, RightRule
from potluck.rollout.options import HFOptions, VllmOptions
from potluck.rollout.texts.options import FileOptions, OpenAIOptions, TinkerOptions
from potluck.tasks.arithmetic import DigitsOptions
from potluck.tasks.named import AnyTask
from potluck.tasks.rewards import RewardOptions
from potluck.types import ChatTemplate, Sampling

AnyEngine = HFOptions | VllmOptions | TinkerOptions | OpenAIOptions | FileOptions
"""The engines that a recipe can name: a new one is a file with its options, and a member here."""
Fraction = Annotated[float, Meta(ge=0, lt=1)]
StopText = Annotated[str, Meta(min_length=1, max_length=64)]
ControlKind = Literal["half", "half-problems", "alone", "own-part"]
TemplateValue = bool | int | float | str | tuple[str, ...]
MOST_TAKEN = 3
"""Completions of others for each own one, where a recipe does not say."""


class SamplingConfig(Options, frozen=True, kw_only=True):
    """Sampling of completions, and their greatest length. All nodes of a run share it."""

    temperature: Positive = 1.0
    """T: divides the logits, when writing and when learning."""
    top_k: Amount = 0
    """Number of likeliest tokens that are drawn from; 0: all (docs/paper-notes.md, decision 6)."""
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Total probability of the likeliest tokens, which alone are drawn from; 1: all are."""
    max_new_tokens: Count = 512
    """Longest completion, in tokens, the stop token included."""
    max_total_tokens: Count = 2048
    """Longest prompt and completion together, in tokens."""
    max_prompt_tokens: Amount = 0
    """Longest prompt, in tokens; problems with a longer one are left out and counted. 0: no
    limit, and a prompt that leaves no room to write in ends the run."""
    stop: tuple[str, ...] = ()
    """Further tokens that end a completion, beside the model's own end-of-text tokens."""
    stop_texts: tuple[StopText, ...] = ()
    """Texts that end a completion, such as a line's end, whatever tokens write them. The first
    one that is written ends it. It is learned from and shared, and not graded unless it is a
    closing tag such as ``</answer>``."""

    @property
    def drawing(self) -> Sampling:
        """The rule by which each token is drawn, without limits of length."""
        return Sampling(self.temperature, self.top_k, self.top_p)


class EvaluationConfig(Options, frozen=True, kw_only=True):
    """Greedy evaluations of every model, during the run and at its end."""

    every: Amount = 5
    """Rounds from one evaluation to the next; 0: one at the end only."""
    problems: Amount = 200
    """Problems of the validation split, always the first ones; 0: no evaluation."""
    out_of_distribution: Amount = 200
    """Problems of the out-of-distribution split, at the end of the run; 0: none."""
    max_new_tokens: Amount = 0
    """Longest completion, in tokens; 0: ``sampling.max_new_tokens``. A larger value shows what a
    model can do beyond the limit that it was trained with."""
    right: str = ""
    """Reward function that decides which answers are right, by its name: "correct" of
    ``function = "rewards.py:correct"``, or "task", the task's own grading. What it scores 1 or
    more is right. pass@k, colours and controls go by it: docs/tasks.md. Empty: the only function
    whose numbers are 0 and 1, if there is one."""


class StopConfig(Options, frozen=True, kw_only=True):
    """Conditions that end a run early, any of them. A process ends when each of its nodes has met
    one: all nodes together with ``--one-process``, else each for itself."""

    validation: float | None = None
    """Mean reward on the validation problems that is enough."""
    no_better: Amount = 0
    """Patience: evaluations in a row with no better validation result; 0: no limit."""
    rounds: Amount = 0
    """Rounds; 0: all. Unlike the run's ``rounds`` it leaves the learning rate's schedule alone."""

    @property
    def by_value(self) -> bool:
        """True: it goes by evaluations, so that each node may end after other rounds."""
        return bool(self.no_better) or self.validation is not None

    def is_met(self, evaluated: Sequence[float]) -> bool:
        """Tell whether a node with these evaluations, the oldest first, has met a condition."""
        if not evaluated:
            return False
        best, enough = max(evaluated), inf if self.validation is None else self.validation
        since = len(evaluated) - 1 - evaluated.index(best)
        return best >= enough or 0 < self.no_better <= since


class LogConfig(Options, frozen=True, kw_only=True):
    """Trackers that show a run's curves: docs/logging.md."""

    to: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """Trackers that draw curves, each an extra of its name; metrics.jsonl is written anyway."""
    project: str = "potluck"
    """Project of the runs in W&B and trackio."""
    group: str = ""
    """Group of the nodes' runs there; empty: the name of the run."""
    completions: Amount = 0
    """Completions of a node and round in its trackers' table; 0: no text leaves this machine."""
    wandb_mode: Literal["online", "offline"] = "online"
    """"offline" keeps everything in the run's folder, for a later ``wandb sync``."""
    callback: str = ""
    """Function that is called with each event of a run, ``FILE.py:NAME`` or ``MODULE:NAME``. It is
    code, so it runs only with ``--trust-code``: docs/logging.md."""


class LoraConfig(Options, frozen=True, kw_only=True):
    """Low-rank adapters: W + alpha/r * B A, of which only A and B are trained (peft)."""

    r: Count = 16
    """Rank of A and B; the paper's experiments have 128."""
    alpha: Positive = 32.0
    """Scale of B A, times r. Dimensionless; the paper's experiments have 256."""
    dropout: Fraction = 0.0
    """Fraction of the adapter's inputs that an update leaves out; never while writing."""
    targets: tuple[str, ...] | Literal["all-linear"] = ("q_proj", "v_proj")
    """Names of the layers that get an adapter; query and value, as in the paper, or where a model
    has no such layers those that peft has for it. "all-linear": every linear layer but the head."""


class NodeConfig(Options, frozen=True, kw_only=True):
    """One node: its model, its optimiser, and how it computes."""

    model: str = ""
    """Folder, Hugging Face id, or ``builtin:NAME`` (digits-small, ...). Empty where the
    node's engine needs none (openai, file): such a node writes, and learns nothing."""
    weight: Positive = 1.0
    """Share of the completions that this node writes, relative to the other nodes' weights."""
    stranger: bool = False
    """True: the node is no member, so the plan gives it no problems; see ``swarm.open``."""
    device: str = "auto"
    """Device as torch names it; "auto": a CUDA GPU, else a Mac's ("mps"), else the CPU."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Dtype that learning computes in. In bfloat16 trained weights, their gradients and the
    optimiser's state stay float32; frozen ones, under an adapter, are stored in bfloat16. On a CPU
    without instructions for it bfloat16 is many times slower: docs/memory.md."""
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2"] = "auto"
    """Kernel of attention; "auto": what transformers takes for the model."""
    chat_template: ChatTemplate = "model"
    """"none": the prompt is plain text (the system text, an empty line, the question), as base
    models and few-shot prompts want it, although the model has a chat template."""
    chat_template_kwargs: Mapping[str, TemplateValue] = MappingProxyType({})
    """Variables of the model's chat template, such as ``{enable_thinking = false}``: truth values,
    numbers, texts, or lists of texts. One that the template never names is refused."""
    lora: LoraConfig | None = None
    """With this table the node trains adapters; the model's own weights stay as they are."""
    optimizer: Literal["adam", "adamw", "adamw-8bit"] = "adam"
    """Optimiser; "adamw-8bit" keeps the moments in 8 bits each (extra ``eightbit``)."""
    learning_rate: Positive = 1e-6
    """Learning rate; with a schedule the highest one."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Schedule of the learning rate over all ``rounds``, as in transformers. A run that is resumed
    with more rounds continues on the longer schedule."""
    warmup_updates: Annotated[float, Meta(ge=0)] = 0.0
    """Updates in which the learning rate rises from 0; below 1: a share of all updates."""
    adam_betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    """Decay of the optimiser's mean and mean square of gradients, per update."""
    weight_decay: Annotated[float, Meta(ge=0)] = 0.0
    """Decoupled weight decay; it needs ``optimizer = "adamw"`` or "adamw-8bit"."""
    gradient_clip_norm: Positive = 1.0
    """Largest L2 norm of an update's gradient; a longer one is scaled down to it."""
    micro_batch_tokens: Count = 4096
    """Tokens of a backward pass, padding included, a prompt that rows share counted once (and .15
    for each further row of it); fewer: less memory, same result."""
    gradient_checkpointing: bool = False
    """True: activations are computed twice and not stored: less memory, slower."""
    sampling_dtype: Literal["float32", "bfloat16"] = "float32"
    """Dtype that the model computes in while it writes; an importance weight, if the method has
    one, corrects for it. As ``dtype`` on a CPU."""
    sampling_rows: Count = 512
    """Completions that are written at once; more need more memory and are faster."""
    engine: AnyEngine = HFOptions()
    """Engine that writes this node's completions."""

    @property
    def adam(self) -> dict[str, float | tuple[float, float]]:
        """The optimiser's numbers, by torch's names of them."""
        rate, betas = self.learning_rate, self.adam_betas
        return {"lr": rate, "betas": betas, "weight_decay": self.weight_decay}

    @property
    def reads(self) -> str:
        """Folder or id of the tokenizer of the node's model."""
        return self.engine.reads(self.model)

    @property
    def title(self) -> str:
        """Name of what writes: a model, or the engine of an author without one."""
        return self.model or self.engine.title


class TlsConfig(Options, frozen=True, kw_only=True):
    """Mutual TLS: a node needs a certificate of the swarm's CA and speaks under its name only."""

    folder: str
    """Folder of this machine's certificate: ca.pem, NAME.pem, NAME.key (deploy/certificates.sh)."""


class SwarmConfig(Options, frozen=True, kw_only=True):
    """Addresses of a swarm, and limits on what its nodes take from each other: docs/swarm.md."""

    transport: str = "zenoh"
    """Transport of the batches: "zenoh", node to node; "folder", a folder or bucket for all."""
    listen: tuple[str, ...] = ()
    """Addresses where others reach this node: ``tcp/0.0.0.0:7447``, ``tls/...``. Empty: none, as
    behind a NAT; ``connect`` then names a relay (``potluck relay``)."""
    connect: tuple[str, ...] = ()
    """Addresses of other nodes or relays: ``tcp/HOST:PORT``, ``tls/...``. Of two nodes one names
    the other. With "folder" one place: ``file:///FOLDER``, ``s3://BUCKET/FOLDER``."""
    tls: TlsConfig | None = None
    key: str = ""
    """File of this node's secret key (``potluck keys``); empty: one is made in the run's folder."""
    roster: str = ""
    """File that binds names to public keys. The names in it are members, which share out each
    round's problems. Empty: the recipe's nodes are members, and a name's first key counts."""
    open: bool = False
    """True: strangers, names that are no members, may take part and write whole groups."""
    stranger_problems: Count = 2
    """Groups that a stranger may write in a round."""
    stranger_share: Fraction = 0.1
    """Largest share of a batch that one stranger may fill."""
    strangers_share: Fraction = 0.3
    """Largest share of a batch that all strangers together may fill."""
    text: Literal["auto", "always", "never"] = "auto"
    """Sending of completions as text beside their ids, for nodes with other tokenizers. "auto": if
    models of the recipe have unlike tokenizers; in ``potluck join``, which cannot see all of them,
    unless all nodes name one model and the swarm is not open."""
    codec: Literal["exact", "compact", "raw"] = "exact"
    """Encoding of this node's batches: docs/wire.md. "compact" rounds log-probabilities."""
    max_staleness: Amount = 1
    """Rounds for which a late group is still learned from; 0: never. At pace "free" they are
    counted in rounds that its author has sent since."""
    cohort: Count = 32
    """Number of nodes whose completions are fetched in a round, in a swarm of more than 64."""
    kept_rounds: Annotated[int, Meta(ge=1, le=64)] = 32
    """Rounds for which this node's batches stay available for nodes that were away."""
    gather_s: Annotated[float, Meta(ge=0)] = 60.0
    """Longest wait at the start until all members are there. Seconds."""
    alone: Literal["throttle", "stop", "continue"] = "throttle"
    """Course of a node in step whose partners are all gone: "throttle", rounds as long as those
    with others; "stop", saved and stopped after ten rounds; "continue", as fast as it can, as
    always where ``stop_when`` goes by evaluations: partners that are gone may have ended."""
    quarantine_s: Annotated[float, Meta(ge=0)] = 60.0
    """Seconds that a node is ignored if what it sends is refused; doubles, an hour at most."""


class RunConfig(Options, frozen=True, kw_only=True):
    name: str
    """Name of the run; its folder is ``runs/NAME``, unless ``--out`` says otherwise."""
    seed: Amount = 0
    """Seed of everything that is drawn; nodes in one process repeat a run, on a CPU to the bit."""
    rounds: Count = 50
    """Rounds of the run."""
    problems_per_round: Count = 24
    """Problems of a round, which all nodes share."""
    group_size: Annotated[int, Meta(ge=2)] = 12
    """G: completions of one problem."""
    plan: Literal["vertical", "horizontal"] = "horizontal"
    """A node's part of a round: "vertical", whole problems; "horizontal", a part of every group."""
    shares: Literal["weight", "speed"] = "weight"
    """Measure of each node's share of a round: its ``weight``. "speed", of release 0.2.0, is
    refused: for nodes of unlike speed there is ``pace = "free"``."""
    pace: Literal["together", "free"] = "together"
    """"together": all nodes do a round at the same time, which lasts as long as its slowest node.
    "free": each has rounds of its own, waits for nobody, and learns from what came meanwhile."""
    intake: Annotated[float, Meta(ge=0, le=64)] = 0.0
    """Largest number of others' completions for each own one in a round at pace "free"; a node then
    writes 1 / (1 + intake) of a round. 0: as many as there are other members, 3 at most."""
    deadline_s: Positive = 600.0
    """Longest wait for others in a round, seconds. Unused in one process and at pace "free"."""
    checkpoint_every: Amount = 10
    """Rounds from one checkpoint to the next; 0: one at the end (and on Ctrl-C) only."""
    keep_checkpoints: Annotated[int, Meta(ge=2)] = 2
    """Checkpoints of a node that stay, the newest ones; two, as one may be damaged."""
    keep_best: bool = False
    """True: a checkpoint after each evaluation that was the best one on the validation problems;
    the best one stays, beside ``keep_checkpoints`` others. See ``potluck export --best``."""
    threads: Amount = 0
    """CPU threads of torch; 0: its default. Models under 10M weights are fastest with 1."""
    control: tuple[ControlKind, ...] = ()
    """Controls that ``potluck run`` makes when the run is done, with the same seed: each model by
    itself with what it writes here, in smaller groups ("half") or in fewer problems
    ("half-problems"); by itself with all of the writing ("alone"); or here, learning from its own
    completions only ("own-part"). They tell whether sharing helped."""
    task: AnyTask = DigitsOptions()
    """Problems that all nodes train on, and how answers are graded: docs/tasks.md."""
    out_of_distribution: AnyTask | None = None
    """Another task, whose out-of-distribution problems stand for the task's own ones at the end."""
    reward: tuple[RewardOptions, ...] = ()
    sampling: SamplingConfig = SamplingConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    stop_when: StopConfig = StopConfig()
    log: LogConfig = LogConfig()
    swarm: SwarmConfig = SwarmConfig()
    node: Mapping[str, NodeConfig]
    """One table for each node, under its name: ``[node.small]``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        force_setattr(self, "node", MappingProxyType(dict(self.node)))

    @property
    def members(self) -> Mapping[str, NodeConfig]:
        """The nodes between which the plan divides a round: all but strangers."""
        return {name: node for name, node in self.node.items() if not node.stranger}

    @property
    def learners(self) -> Mapping[str, NodeConfig]:
        """The nodes that have a model and learn."""
        return {name: node for name, node in self.node.items() if node.engine.has_weights}

    @property
    def trained_here(self) -> Mapping[str, NodeConfig]:
        """The nodes that learn with weights on this machine, not on a server."""
        return {name: node for name, node in self.learners.items() if not node.engine.trains}

    @property
    def end(self) -> int:
        """Rounds after which the run ends at the latest."""
        return min(self.rounds, self.stop_when.rounds or self.rounds)

    @property
    def taken(self) -> float:
        """Number of others' completions for each own one: ``intake``, or what its 0 stands for."""
        least = 1 if self.swarm.open else 0  # strangers may come
        return self.intake or max(least, min(len(self.members) - 1, MOST_TAKEN))

    @property
    def right_rule(self) -> RightRule:
        """Rule that tells which answers are right."""
        rewards = [(reward.function, reward.weight) for reward in self.reward]
        return RightRule.of(rewards, self.evaluation.right)

    @property
    def knows_constants(self) -> bool:
        """True: the task's own grading decides what is right, so it is known what one answer to all
        problems would earn."""
        decides = not self.reward or self.right_rule.named == TASK
        return decides and self.task.reward == "task"

    @property
    def sends_logp(self) -> bool:
        """True: completions go with log-probabilities, as this recipe's method reads others'."""
        return reads_author_logp(self.objective)
