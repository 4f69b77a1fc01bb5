"""The paper's settings: Table 1, typed here from the paper (arXiv:2605.22537), and a run of one."""

import json
import re
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from transformers import AutoModelForCausalLM

import potluck
from potluck.builder.memory import own_completions
from potluck.config import LoraConfig
from potluck.launch.in_process import run
from potluck.node.storage import checkpoint
from potluck.objective.methods import method_of

FOLDER = Path(__file__).parents[2] / "recipes" / "paper"
BASE, CODER = "Qwen/Qwen2.5-", "Qwen/Qwen2.5-Coder-"
LORA = LoraConfig(r=128, alpha=256, dropout=0, targets=("q_proj", "v_proj"))
NODES = {
    "size": {"small": (f"{BASE}1.5B", None), "large": (f"{BASE}3B", None)},
    "size-coder": {"small": (f"{CODER}1.5B", None), "large": (f"{CODER}3B", None)},
    "expertise-1.5b": {"base": (f"{BASE}1.5B", None), "coder": (f"{CODER}1.5B", None)},
    "expertise-3b": {"base": (f"{BASE}3B", None), "coder": (f"{CODER}3B", None)},
    "lora-1.5b": {"full": (f"{BASE}1.5B", None), "adapter": (f"{BASE}1.5B", LORA)},
    "lora-3b": {"full": (f"{BASE}3B", None), "adapter": (f"{BASE}3B", LORA)},
    "alone": {"alone": (f"{BASE}1.5B", None)},
}
TABLE_1 = {
    "rounds": 50,
    "problems_per_round": 24,
    "group_size": 12,
    "plan": "vertical",
    "task.name": "gsm8k",
    "task.validation": "test",
    "task.reward": "task",
    "out_of_distribution.name": "math500",
    "sampling.temperature": 1,
    "sampling.top_p": 1,
    "sampling.top_k": 50,
    "sampling.max_total_tokens": 760,
    "objective.importance": "truncated",
    "objective.filter": True,
    "objective.clip_epsilon": 0.2,
    "objective.weight_cap": 2,
    "objective.divergence_limit": 50,
    "objective.divergence_estimator": "k3",
    "objective.updates_per_round": 1,
    "evaluation.every": 5,
    "evaluation.problems": 512,
    "evaluation.max_new_tokens": 768,
}
"""What all pairs have in common."""
OF_EACH_NODE = {"optimizer": "adam", "weight_decay": 0, "gradient_clip_norm": 1}


def load(name, *overrides):
    return potluck.load(FOLDER / f"{name}.toml", overrides)


def test_there_is_a_recipe_for_every_pair_of_the_paper_and_for_each_model_alone():
    assert {path.stem for path in FOLDER.glob("*.toml")} == set(NODES)


@pytest.mark.parametrize("name", NODES)
def test_a_recipe_has_the_values_of_table_1(name):
    config = load(name)
    tree = potluck.config.as_tree(config)
    for key, value in TABLE_1.items():
        found = tree
        for part in key.split("."):
            found = found[part]
        assert found == value, key
    assert {n: (node.model, node.lora) for n, node in config.node.items()} == NODES[name]
    for node in config.node.values():
        assert {key: getattr(node, key) for key in OF_EACH_NODE} == OF_EACH_NODE
        assert node.learning_rate == (1e-4 if node.lora else 1e-6)
    # No limit of a completion's own stands before that of prompt and completion.
    assert config.sampling.max_new_tokens >= 760
    assert config.sampling.stop == ("<|im_end|>",)


@pytest.mark.parametrize("name", [name for name in NODES if name != "alone"])
def test_a_pair_learns_by_our_method_with_the_sets_that_its_recipe_names(name):
    ours, theirs = load(name, *sets_named_in(name)), load(name)
    assert (method_of(ours.objective), ours.plan) == ("lws", "horizontal")
    assert replace(ours, objective=theirs.objective, plan=theirs.plan) == theirs


def sets_named_in(name):
    lines = (FOLDER / f"{name}.toml").read_text().splitlines()
    comments = [line for line in lines if line.startswith("#")]
    return re.findall(r"--set ([\w.]+=[^\s,;]*\w)", " ".join(comments))


def test_a_model_with_adapters_is_alone_by_the_sets_that_the_recipe_names():
    sets = [word for word in sets_named_in("alone") if word.startswith("node.alone.l")]
    node = load("alone", *sets).node["alone"]
    assert (node.lora, node.learning_rate) == (LORA, 1e-4)


def test_the_controls_of_our_method_are_the_sets_that_the_recipe_of_one_model_names():
    half, twice = (word for word in sets_named_in("alone") if not word.startswith("node."))
    own = own_completions(load("size", *sets_named_in("size")), "small")
    assert own_completions(load("alone", half), "alone") == own
    assert own_completions(load("alone"), "alone") == 2 * own
    assert load("alone", twice).objective.own_success_weight == 2


def test_the_size_recipe_runs_with_small_models_of_the_same_architecture(
    gsm8k_path, math500_path, gsm8k_models, tmp_path
):
    config = load(
        "size",
        *("rounds=1", "threads=1", "problems_per_round=4", "group_size=4"),
        *(f"task.path={gsm8k_path}", f"out_of_distribution.path={math500_path}"),
        "task.reward=hash",
        *("sampling.max_new_tokens=12", "evaluation.max_new_tokens=8"),
        *("evaluation.problems=4", "evaluation.out_of_distribution=2"),
        *(f"node.{name}.model={gsm8k_models}/qwen-{name}" for name in ("small", "large")),
        *(f"node.{name}.learning_rate=1e-4" for name in ("small", "large")),
    )
    run(config, tmp_path / "run")
    for name, other in (("small", "large"), ("large", "small")):
        folder = tmp_path / "run" / name
        line = json.loads((folder / "metrics.jsonl").read_text())
        assert line["rows_trained"] > 0
        assert line["sources"][other]["rows_trained"] > 0
        before = AutoModelForCausalLM.from_pretrained(gsm8k_models / f"qwen-{name}")
        after = AutoModelForCausalLM.from_pretrained(checkpoint.checkpoint_folder(folder, 1))
        assert not all(map(torch.equal, before.parameters(), after.parameters()))
