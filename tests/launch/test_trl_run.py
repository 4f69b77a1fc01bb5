"""Options that users of TRL write first, in whole runs, one of which is resumed."""

import re
from pathlib import Path

import pytest
import torch

import tiny
from launch.runs import crash, left_by, lines
from potluck.builder.nodes import make_learner
from potluck.builder.plan import plan_cost
from potluck.config import EvaluationConfig, LogConfig, NodeConfig, SamplingConfig, StopConfig
from potluck.launch.in_process import run
from potluck.model.training import adapter_off
from potluck.node.storage.export import model_card
from potluck.objective.methods import ObjectiveConfig
from potluck.tasks.table import HubOptions


@pytest.fixture
def recipe(tiny_models):
    def make(*overrides):
        more = ("rounds=4", "checkpoint_every=2", "node.a.device=cpu")
        return tiny.recipe({"a": tiny_models["small"]}, *more, *overrides)

    return make


ALL = [
    *("node.a.lr_schedule=cosine", "node.a.warmup_updates=0.5", "node.a.adam_betas=[0.5, 0.9]"),
    *("objective.beta=0.5", "objective.updates_per_round=2"),
]


def test_a_resumed_run_of_all_options_has_the_bits_of_an_unbroken_one(recipe, tmp_path):
    config = recipe(*ALL)
    run(config, tmp_path / "whole")
    crash(config, tmp_path / "cut", 2)
    run(config, tmp_path / "cut", resume=True)
    assert left_by(tmp_path / "cut", "a", 4) == left_by(tmp_path / "whole", "a", 4)


def test_the_report_has_the_rate_that_the_update_had(recipe, tmp_path):
    run(recipe("node.a.lr_schedule=linear", "node.a.warmup_updates=1"), tmp_path / "run")
    rates = [line["learning_rate"] for line in lines(tmp_path / "run", "a")]
    assert rates == pytest.approx([0.0, 1e-3, 1e-3 * 2 / 3, 1e-3 / 3])
    assert {line["kl"] for line in lines(tmp_path / "run", "a")} == {None}


def test_the_kl_is_nothing_at_first_and_then_something(recipe, tmp_path):
    many = "task.train_problems=20000", "rounds=3", "node.a.learning_rate=1e-2"
    run(recipe("objective.beta=1e-9", *many), tmp_path / "run")
    first, *_, last = (line["kl"] for line in lines(tmp_path / "run", "a"))
    assert first == pytest.approx(0, abs=1e-9)
    assert last > 0


@pytest.mark.parametrize("lora", [(), ("node.a.lora={r=2}",)], ids=["full", "adapter"])
def test_the_reference_is_the_model_of_the_start_after_a_resume_too(recipe, tmp_path, lora):
    config = recipe("objective.beta=0.5", "node.a.learning_rate=1e-2", "rounds=2", *lora)
    run(config, tmp_path / "run")
    later = make_learner(config, "a", tmp_path / "run" / "a", 2)
    fresh = make_learner(recipe(), "a", tmp_path / "elsewhere", 0)
    asked = [[1, 4, 5]], [[6, 7, 2]]
    asked = [[torch.tensor(ids, dtype=torch.int32).numpy() for ids in part] for part in asked]
    with torch.no_grad():
        start = fresh.policy.logp(*asked, temperature=1.0)
        assert not torch.equal(later.policy.logp(*asked, temperature=1.0), start)
        before = later.policy.logp(*asked, temperature=1.0)
        with adapter_off(later.reference.network):
            assert torch.equal(later.reference.logp(*asked, temperature=1.0), start)
        assert torch.equal(later.policy.logp(*asked, temperature=1.0), before)
    assert (later.reference is later.policy) == bool(lora)
    assert bool(lora) == any(p.requires_grad for p in later.reference.network.parameters())


def test_the_loss_of_the_page_runs_as_it_stands(recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "trl.md").read_text()
    (text,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    Path("losses.py").write_text(text)
    config = recipe("objective.loss=losses.py:clipped_high", "objective.clip_epsilon_high=0.01",
                    "objective.updates_per_round=3", "node.a.learning_rate=1e-2")  # fmt: skip
    run(config, tmp_path / "run", trust_code=True)
    assert all(line["updates"] == 3 for line in lines(tmp_path / "run", "a"))


def test_every_key_of_the_page_is_one_of_a_recipe():
    page = (Path(__file__).parents[2] / "docs" / "trl.md").read_text()
    named = re.findall(r"\| `\[([\w.]+)\] (\w+)`", page)
    tables = {"node.NAME": NodeConfig, "objective": ObjectiveConfig, "log": LogConfig,
              "sampling": SamplingConfig, "task": HubOptions, "stop_when": StopConfig,
              "evaluation": EvaluationConfig}  # fmt: skip
    assert len(named) > 10
    for table, key in named:
        assert key in tables[table].__struct_fields__


# What is told before a run, and of a model.


def test_check_counts_the_frozen_copy_of_the_kl(recipe):
    memory = [
        plan_cost(recipe(f"objective.beta={beta}", *lora)).memory["a"]
        for beta in (0, 0.04)
        for lora in ((), ("node.a.lora={r=2}",))
    ]
    shape = plan_cost(recipe()).shapes["a"]
    assert memory[2].weights - memory[0].weights == 4 * shape.parameters
    assert memory[3] == memory[1]
    half = plan_cost(recipe("objective.beta=0.04", "node.a.dtype=bfloat16")).memory["a"]
    assert half.weights == memory[0].weights + 2 * shape.parameters


def test_a_card_tells_of_what_is_not_the_default(recipe):
    config = recipe(
        "objective.beta=0.04",
        "objective.loss_type=dapo",
        "node.a.lr_schedule=cosine",
        "node.a.lora={r=2, targets='all-linear'}",
    )
    card = model_card(config, "a", 4, {}, {})
    for part in ("KL to the start with beta = 0.04", "normalised as `dapo`", "(cosine, warmup 0)"):
        assert part in card
    assert "on `all-linear`" in card
    assert "KL" not in model_card(recipe(), "a", 4, {}, {})
