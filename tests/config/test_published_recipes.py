"""Recipes for numbers that others have published: typed here again from their sources."""

from pathlib import Path

import pytest
from msgspec.structs import replace

import potluck
from potluck.builder.memory import own_completions
from potluck.config import LoraConfig
from potluck.tasks.rewards import load_function

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "recipes" / "published"
LORA = LoraConfig(r=32, alpha=32, dropout=0, targets="all-linear")
VERL = {
    "rounds": 116,
    "problems_per_round": 64,
    "group_size": 5,
    "task.dataset": "openai/gsm8k",
    "task.validation": "test",
    "sampling.max_prompt_tokens": 512,
    "sampling.max_new_tokens": 1024,
    "sampling.temperature": 1,
    "sampling.top_k": 0,
    "objective.clip_epsilon": 0.2,
    "objective.beta": 0.001,
    "objective.loss_type": "dapo",
    "objective.advantage_scale": "std",
    "objective.updates_per_round": 1,
    "evaluation.problems": 1319,
    "node.alone.model": "Qwen/Qwen2.5-0.5B-Instruct",
    "node.alone.optimizer": "adamw",
    "node.alone.learning_rate": 3e-5,
    "node.alone.weight_decay": 0.01,
    "node.alone.gradient_clip_norm": 1,
}
"""As the log of verl's run prints its options."""
PRIME = {
    "rounds": 20,
    "problems_per_round": 8,
    "group_size": 16,
    "task.dataset": "PrimeIntellect/Reverse-Text-RL",
    "sampling.max_new_tokens": 128,
    "objective.loss_type": "dapo",
    "objective.advantage_scale": "none",
    "node.alone.model": "PrimeIntellect/Qwen3-0.6B-Reverse-Text-SFT",
    "node.alone.learning_rate": 3e-6,
}


def load(name, *overrides):
    return potluck.load(FOLDER / f"{name}.toml", overrides)


def value_of(config, key):
    found = potluck.as_tree(config)
    for part in key.split("."):
        found = found[part]
    return found


@pytest.mark.parametrize(
    ("name", "published"), [("gsm8k-grpo", VERL), ("reverse-text", PRIME)], ids=["verl", "prime-rl"]
)
def test_a_recipe_has_the_published_setting(name, published):
    config = load(name)
    assert {key: value_of(config, key) for key in published} == published
    (node,) = config.node.values()
    assert node.lora == (LORA if name == "gsm8k-grpo" else None)


@pytest.mark.parametrize("sets", [(), ("problems_per_round=16", "group_size=8")])
@pytest.mark.parametrize("node", ["small", "large"])
def test_a_half_writes_as_much_as_its_node_of_the_pair_and_is_else_alike(node, sets):
    pair = load("gsm8k-sizes")
    half = load("gsm8k-half", f"node.alone.model={pair.node[node].model}", *sets)
    assert own_completions(half, "alone") == own_completions(pair, node)
    assert half.node["alone"] == pair.node[node]
    changed = ("name", "problems_per_round", "group_size", "plan", "objective", "node")
    kept = {key: getattr(pair, key) for key in changed}
    assert replace(half, **kept) == pair


# Grades.


def paid(function, *texts, **columns):
    count = len(texts)
    (call, _) = load_function("reward", f"{FOLDER / 'rewards.py'}:{function}")
    return call(completions=list(texts), **{key: [its] * count for key, its in columns.items()})


ANSWER = "It takes 1,000 + 80 = <<1000+80=1080>>1080.\n#### 1,080"


def test_the_strict_grade_takes_the_first_marked_number_as_it_is_written():
    right = ("so #### 1080", "#### 1,080\nTherefore 7", "#### 1080%", "#### 1080 #### 9")
    wrong = ("1080", "####1080", "#### $1080", "#### 1080.", "#### 9 #### 1080", "#### 1080.0", "")
    assert paid("strict", *right, *wrong, answer=ANSWER) == [1.0] * len(right) + [0.0] * len(wrong)


def test_the_lenient_grade_takes_the_last_number_however_it_is_announced():
    right = ("1080", "$1,080.", "\\boxed{1080}", "#### 1080.00", "7 or 1080 eggs", "-1 is 1080!")
    wrong = ("", "none", "1080 or 7", "-1080", "\u22121080", "108", "10800")
    assert paid("lenient", *right, *wrong, answer=ANSWER) == [1.0] * len(right) + [0.0] * len(wrong)
    assert paid("lenient", "it is -3", answer="#### -3") == [1.0]


def test_a_text_written_backwards_earns_its_likeness():
    tagged = "<reversed_text>{}</reversed_text>".format
    texts = (
        tagged("dcba"),
        f"Sure. {tagged(' dcba ')}!",
        tagged("dc"),
        "dcba",
        "<reversed_text>dc",
    )
    # Of "dc" and "dcba" two letters match: 2 * 2 / (2 + 4).
    assert paid("reversed_text", *texts, prompts="abcd") == [1.0, 1.0, 2 / 3, 0.0, 0.0]
