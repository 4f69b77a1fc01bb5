"""Tables ``[task]`` and ``[[reward]]``: where problems come from, and what a completion earns."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from potluck.config.kinds import Amount, Count


class DigitsConfig(Struct, frozen=True, kw_only=True, tag_field="name", tag="digits"):
    width: Annotated[int, Meta(ge=3, le=8)] = 3
    """Digits of each number, in training and validation."""
    other_width: Annotated[int, Meta(ge=2, le=8)] = 4
    """Digits of each number out of distribution."""
    reward: Literal["task", "hash"] = "task"
    """"hash" pays by a hash of the token ids: a check of the plumbing, no task at all."""


class ChainConfig(Struct, frozen=True, kw_only=True, tag_field="name", tag="chain"):
    terms: Annotated[int, Meta(ge=4, le=16)] = 6
    """Numbers of each chain, in training and validation."""
    other_terms: Annotated[int, Meta(ge=4, le=16)] = 8
    """Numbers of each chain out of distribution."""
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


class Math500Config(Struct, frozen=True, kw_only=True, tag_field="name", tag="math500"):
    """Problems to be tried on and none to train on: for [out_of_distribution] (extra ``math``)."""

    path: str = ""
    """Folder that holds test.jsonl; empty: from the Hub (extra ``data``)."""
    system_prompt: str = ""
    """Replaces the built-in one that asks for <think> and <answer> tags."""
    reward: Literal["task", "hash"] = "task"
    """"hash" pays by a hash of the token ids: a check of the plumbing, no task at all."""


class TableConfig(Struct, frozen=True, kw_only=True):
    """Your own rows: what is the same wherever they come from."""

    question: str = "question"
    """The column that holds the problem: a text, or messages of a system and a user."""
    answer: str = "answer"
    """The column that holds what is right; empty: there is none, so [[reward]] has to grade."""
    answer_after: str = ""
    """Only what follows this mark in that column is the answer: GSM8K's "####"."""
    grading: Literal["number", "exact", "math"] = "number"
    """Right is the same decimal number, the same text, or what math-verify finds equal (extra
    ``math``). For anything else see [[reward]]."""
    tags: bool = True
    """Whether the answer stands in <think></think><answer></answer> with nothing outside; else
    the whole completion is the answer."""
    system_prompt: str = ""
    """Replaces a row's own, and the built-in one that asks for the tags."""
    held_out: Amount = 512
    """Problems of the training part that validate instead, if no validation part is named."""
    reward: Literal["task", "hash"] = "task"
    """"hash" pays by a hash of the token ids: a check of the plumbing, no task at all."""


class JsonlConfig(TableConfig, frozen=True, kw_only=True, tag_field="name", tag="jsonl"):
    path: str = ""
    """File to train on, one JSON object a line."""
    validation: str = ""
    """File of problems to validate on."""
    out_of_distribution: str = ""
    """File of problems of another kind, for the end of the run."""


class HubConfig(TableConfig, frozen=True, kw_only=True, tag_field="name", tag="hub"):
    dataset: str
    """``owner/name`` on the Hub, or a folder of JSON, CSV or parquet files (extra ``data``)."""
    subset: str = ""
    """What the library ``datasets`` calls the configuration; empty: the only one."""
    train: str = "train"
    """Its split to train on; empty: none."""
    validation: str = ""
    """Its split to validate on."""
    out_of_distribution: str = ""
    """Its split of problems of another kind, for the end of the run."""


class ReasoningGymConfig(Struct, frozen=True, kw_only=True, tag_field="name", tag="reasoning-gym"):
    dataset: str
    """A kind of problem of the library reasoning-gym, such as "chain_sum" (extra ``gym``)."""
    size: Count = 10_000
    """Problems to make up for training; those that come twice are left out."""
    held_out: Count = 512
    """Problems to make up for validation, and as many out of distribution."""
    seed: int = 0
    """Of the problems. Nodes of one run share it."""
    parameters: Mapping[str, Any] = MappingProxyType({})
    """Of the kind, as the library names them: {max_terms = 3}."""
    other_parameters: Mapping[str, Any] | None = None
    """Those that are out of distribution; without the table there is no such split."""
    tags: bool = True
    """Whether the answer stands in <think></think><answer></answer> with nothing outside; else
    the whole completion is the answer."""
    system_prompt: str = ""
    """Replaces the built-in one that asks for the tags."""
    reward: Literal["task", "hash"] = "task"
    """"hash" pays by a hash of the token ids: a check of the plumbing, no task at all."""


class RewardConfig(Struct, frozen=True, kw_only=True):
    """One of the functions that pay, [[reward]] in TOML: without any the task's own grading."""

    function: str
    """``FILE.py:NAME`` from the current directory, ``MODULE:NAME``, or ``task``: the task's own
    grading. It is code, so it runs only with --trust-code. See docs/tasks.md."""
    weight: float = 1.0
    """What it returns counts this much; a completion earns the sum."""
    format: Literal["text", "messages"] = "text"
    """Whether it is given prompts and completions as texts or as lists of messages."""


TASKS: dict[str, type[Struct]] = {
    "digits": DigitsConfig,
    "chain": ChainConfig,
    "gsm8k": Gsm8kConfig,
    "math500": Math500Config,
    "jsonl": JsonlConfig,
    "hub": HubConfig,
    "reasoning-gym": ReasoningGymConfig,
}
TaskConfig = (
    DigitsConfig
    | ChainConfig
    | Gsm8kConfig
    | Math500Config
    | JsonlConfig
    | HubConfig
    | ReasoningGymConfig
)
