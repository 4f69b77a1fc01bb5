"""The README.md of a checkpoint: what it is and where it comes from, as the Hub shows it.

Nothing is claimed that the run does not know: no licence, no data set that is only a folder
here, and of local folders nothing but the last part of their path, since cards are published.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData

from potluck import __version__
from potluck.config import METHODS, Gsm8kConfig, HubConfig, LoraConfig, RunConfig
from potluck.tasks.gsm8k import HUB_NAME

HUB_ID = re.compile(r"(?!.*(?:--|\.\.))(?:\w[\w.-]*/)?\w(?:[\w.-]{0,94}\w)?", re.ASCII)
F_TIS = "[F-TIS](https://arxiv.org/abs/2605.22537)"


def card_of(config: RunConfig, node: str, folder: Path, round: int) -> str:
    """``model_card`` with the numbers that ``folder``, the node's, has of the first rounds.

    Args:
        round: how many rounds the checkpoint has learned from.
    """
    # A line of metrics is of what was learned in its round, one of evaluation of before it.
    metrics = _last(folder / "metrics.jsonl", before=round)
    evaluation = _last(folder / "evaluation.jsonl", before=round + 1)
    return model_card(config, node, round, metrics, evaluation)


def model_card(
    config: RunConfig,
    node: str,
    round: int,
    metrics: Mapping[str, Any],
    evaluation: Mapping[str, Any],
) -> str:
    """Markdown behind YAML, whatever characters the recipe's strings have.

    Args:
        round: how many rounds the checkpoint has learned from.
        metrics: the last line of metrics.jsonl, empty if there is none.
        evaluation: the last line of evaluation.jsonl, empty if there is none.
    """
    parts = (
        f"---\n{_front(config, node)}---",
        f"# {_code(config.name)}, node {_code(node)}, after {round} rounds",
        f"A causal language model from a run of Potluck {__version__}: nodes that differ train on "
        f"one task together, exchange the completions that they write, and each corrects for "
        f"what others wrote ({F_TIS}). Nothing but token ids and log-probabilities passed "
        f"between them.",
        "## Training\n\n" + _table(("", ""), _training(config, node, round)),
        "## Partners\n\n" + _table(("node", "base model", "writes"), _partners(config, node)),
        "## Numbers\n\n" + "\n".join(_numbers(config, metrics, evaluation)),
        "## Loading\n\n" + _loading(config, node),
        "No licence is stated here; mind those of the base model and of the data.",
    )
    return "\n\n".join(parts) + "\n"


def _front(config: RunConfig, node: str) -> str:
    model, lora = config.node[node].model, config.node[node].lora
    tags = ["potluck", "grpo", _method(config), "reinforcement-learning"]
    return (
        ModelCardData(
            base_model=model if _is_on_hub(model) else None,
            library_name="peft" if lora else "transformers",
            pipeline_tag="text-generation",
            datasets=list(_datasets(config)) or None,
            tags=[*tags, "lora"] if lora else tags,
        ).to_yaml()
        + "\n"
    )


def _datasets(config: RunConfig) -> Iterator[str]:
    """What was trained on, where it is a data set of the Hub."""
    match config.task:
        case Gsm8kConfig(path=""):
            yield HUB_NAME
        case HubConfig(dataset=dataset) if _is_on_hub(dataset):
            yield dataset


def _training(config: RunConfig, name: str, round: int) -> Iterator[tuple[str, str]]:
    node, objective = config.node[name], config.objective
    yield "base model", _model(node.model)
    yield "trained weights", _adapters(node.lora) if node.lora else "all"
    yield "task", _code(str(config.task.__struct_config__.tag))
    yield "paid by", ", ".join(_payers(config))
    yield (
        "method",
        f"{_code(_method(config))}, C = {objective.weight_cap:g}"
        + (f", g = {objective.divergence_limit:g}" if objective.filter else ""),
    )
    yield "rounds", f"{round} of {config.rounds}, updates in each: {objective.updates_per_round}"
    yield "a round", f"{config.problems_per_round} problems, {config.group_size} completions each"
    yield "plan", _code(config.plan)
    yield "optimiser", f"{_code(node.optimizer)}, learning rate {node.learning_rate:g}"
    yield "computed in", _code(node.dtype)
    yield "temperature", f"{config.sampling.temperature:g}"
    yield "longest completion", f"{config.sampling.max_new_tokens} tokens"
    yield "seed", str(config.seed)


def _payers(config: RunConfig) -> Iterator[str]:
    """Whose rewards it learned from; of a file with a function only the last part is told."""
    for reward in config.reward:
        yield f"{_code(_last_part(reward.function))} (weight {reward.weight:g})"
    if not config.reward and config.task.reward == "hash":
        yield "a hash of the token ids, a check of the plumbing: it learned nothing of use"
    elif not config.reward:
        yield "the task's own grading"


def _partners(config: RunConfig, own: str) -> Iterator[tuple[str, str, str]]:
    whole = sum(node.weight for node in config.node.values() if not node.stranger)
    for name, node in config.node.items():
        here = " (this one)" if name == own else ""
        part = "groups of its own" if node.stranger else f"{node.weight / whole:.0%}"
        yield _code(name) + here, _model(node.model), part


def _numbers(
    config: RunConfig, metrics: Mapping[str, Any], evaluation: Mapping[str, Any]
) -> Iterator[str]:
    other = (config.out_of_distribution or config.task).__struct_config__.tag
    yield "Mean rewards, as this node graded them."
    yield ""
    for key, count, what in (
        ("validation", "problems", "validation"),
        ("out_of_distribution", "out_of_distribution_problems", f"out of distribution ({other})"),
    ):
        if evaluation.get(key) is not None:
            after = f"greedy answers to {evaluation[count]} problems, after round "
            yield f"- {what}: {evaluation[key]:.4f} ({after}{evaluation['round']})"
    for key, what in (("reward_mean", "everybody's"), ("own_reward_mean", "its own")):
        if metrics.get(key) is not None:
            yield f"- training, {what} completions of the last round: {metrics[key]:.4f}"
    if not metrics and not evaluation:
        yield "- none yet"


def _loading(config: RunConfig, name: str) -> str:
    node, own = config.node[name], json.dumps("this/folder")
    if not node.lora:
        return _fenced(
            "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
            f"model = AutoModelForCausalLM.from_pretrained({own})\n"
            f"tokenizer = AutoTokenizer.from_pretrained({own})",
            "python",
        )
    on_hub = _is_on_hub(node.model)
    base = json.dumps(node.model if on_hub else f"folder/of/{_last_part(node.model)}")
    return (
        "An adapter; it needs its base model.\n\n"
        + _fenced(
            "from peft import PeftModel\n"
            "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
            f"base = AutoModelForCausalLM.from_pretrained({base}, dtype={json.dumps(node.dtype)})\n"
            f"model = PeftModel.from_pretrained(base, {own})\n"
            f"tokenizer = AutoTokenizer.from_pretrained({own})",
            "python",
        )
        + "\n\nMerged into it, as a model of its own:\n\n"
        + _fenced("potluck export this/folder merged/folder", "sh")
    )


def _method(config: RunConfig) -> str:
    objective = config.objective
    named = {"importance": objective.importance, "filter": objective.filter}
    return next(method for method, fields in METHODS.items() if fields == named)


def _adapters(lora: LoraConfig) -> str:
    layers = ", ".join(map(_code, lora.targets))
    shape = f"r = {lora.r}, alpha = {lora.alpha:g}, dropout = {lora.dropout:g}"
    return f"LoRA, {shape}, on {layers}"


def _model(model: str) -> str:
    if _is_on_hub(model) or model.startswith("builtin:"):
        return _code(model)
    return f"{_code(_last_part(model))}, a folder where it was trained"


def _is_on_hub(name: str) -> bool:
    """Whether it is an id of the Hub, and no folder here."""
    return bool(HUB_ID.fullmatch(name)) and not Path(name).exists()


def _last_part(path: str) -> str:
    return Path(path).name or "model"


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, tuple("---" for _ in head), *rows))


def _fenced(text: str, language: str) -> str:
    return f"```{language}\n{text}\n```"


def _code(text: str) -> str:
    """A code span that nothing in ``text`` can leave, in a table either.

    >>> _code("Qwen/Qwen2.5-1.5B"), _code("a`b|c\\n# d")
    ('`Qwen/Qwen2.5-1.5B`', '``a`b\\\\|c # d``')
    """
    line = "".join(c if c.isprintable() else " " for c in text).replace("|", "\\|")
    runs = [len(run) for run in "".join(c if c == "`" else " " for c in line).split()]
    fence = "`" * (max(runs, default=0) + 1)
    room = " " if line.startswith("`") or line.endswith("`") or not line.strip() else ""
    return f"{fence}{room}{line}{room}{fence}"


def _last(file: Path, *, before: int) -> dict[str, Any]:
    """The last whole line of an earlier round; empty if there is none."""
    found: dict[str, Any] = {}
    if file.exists():
        for text in file.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if line["round"] < before:
                found = line
    return found
