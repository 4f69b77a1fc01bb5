"""Options that users of TRL write first, in whole runs: each changes something, and a run that is
resumed has the same bits."""

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import tiny
from displays import Listener
from launch.runs import lines
from potluck.builder.nodes import make_learner
from potluck.builder.objective import load_loss
from potluck.builder.plan import check, plan_cost
from potluck.config import (
    ConfigError,
    LogConfig,
    NodeConfig,
    SamplingConfig,
    StopConfig,
)
from potluck.launch.in_process import run
from potluck.model.lora import adapter_off
from potluck.node.storage.card import model_card
from potluck.objective.methods import ObjectiveConfig
from potluck.tasks import TaskError
from potluck.tasks.table import HubOptions
from potluck.types import RunFolderError

OWN_LOSS = """\
import torch
from potluck.objective.losses import mean_of, no_is_loss


def mine(logp_BT, logp_start_BT, logp_gen_BT, advantage_B, mask_BT, options):
    return no_is_loss(logp_BT, logp_start_BT, logp_gen_BT, advantage_B, mask_BT, options)


def successes(logp_BT, logp_start_BT, logp_gen_BT, advantage_B, mask_BT, options):
    parts_BT = torch.where(mask_BT, -logp_BT * advantage_B.clamp(min=0).unsqueeze(1), 0.0)
    return mean_of(parts_BT, mask_BT, options.loss_type)


def breaks(*given):
    return given[0].no_such_thing


def two_numbers(*given):
    return given[0].sum(dim=1)


def constant(*given):
    return given[1].sum()


def endless(*given):
    return given[0].sum() * float("inf")


zahl = 3
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    made = tmp_path_factory.mktemp("models")
    return {name: tiny.save(made / name, seed) for seed, name in enumerate("ab")}


@pytest.fixture
def recipe(models):
    def make(*overrides, **changes):
        more = ("rounds=4", "checkpoint_every=2", "node.a.device=cpu", "node.b.device=cpu")
        return tiny.recipe(models, *more, *overrides, **changes)

    return make


def weights(folder, node="a", round=4):
    place = Path(folder) / node / "checkpoints" / f"{round:06d}"
    return {
        f"{file.name}/{name}": tensor
        for file in sorted(place.glob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


@pytest.fixture(scope="module")
def plain(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain") / "run"
    cpu = ("node.a.device=cpu", "node.b.device=cpu")
    run(tiny.recipe(models, "rounds=2", *cpu), folder)
    return folder


class Stops(Listener):
    def round_done(self, node, report):
        if (node, report.round) == ("b", 2):
            raise RuntimeError


OPTIONS = [
    ("node.a.lr_schedule=cosine",),
    ("node.a.warmup_updates=0.5",),
    ("node.a.warmup_updates=3",),
    ("node.a.adam_betas=[0.5, 0.9]",),
    ("objective.beta=0.5", "objective.updates_per_round=2"),
    ("objective.loss_type=dr_grpo",),
    ("objective.loss_type=dapo",),
]


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_an_option_changes_a_run(recipe, plain, tmp_path, options):
    run(recipe("rounds=2", *options), tmp_path / "run")
    assert not same(weights(tmp_path / "run", round=2), weights(plain, round=2))


@pytest.mark.parametrize("lora", [(), ("node.a.lora={r=2}",)], ids=["full", "adapter"])
def test_a_resumed_run_of_all_options_has_the_bits_of_an_unbroken_one(recipe, tmp_path, lora):
    config = recipe(*OPTIONS[0], *OPTIONS[1], *OPTIONS[3], *OPTIONS[4], *lora)
    run(config, tmp_path / "whole")
    with pytest.raises(RuntimeError):
        run(config, tmp_path / "cut", display=Stops())
    run(config, tmp_path / "cut", resume=True)
    assert same(weights(tmp_path / "cut"), weights(tmp_path / "whole"))


def test_the_report_has_the_rate_that_the_update_had(recipe, plain, tmp_path):
    run(recipe("node.a.lr_schedule=linear", "node.a.warmup_updates=1"), tmp_path / "run")
    rates = [line["learning_rate"] for line in lines(tmp_path / "run", "a")]
    assert rates == pytest.approx([0.0, 1e-3, 1e-3 * 2 / 3, 1e-3 / 3])
    assert [line["learning_rate"] for line in lines(plain, "a")] == [1e-3] * 2
    assert [line["kl"] for line in lines(plain, "a")] == [None] * 2


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


def test_without_beta_no_reference_is_loaded(recipe, tmp_path):
    assert make_learner(recipe(), "a", tmp_path, 0).reference is None


# A loss of one's own.


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("losses.py").write_text(OWN_LOSS)
    return tmp_path


def test_a_copy_of_a_built_in_loss_has_its_bits_and_another_one_not(recipe, own):
    losses = "", "losses.py:mine", "losses.py:successes"
    found = []
    for at, loss in enumerate(losses):
        config = recipe("rounds=2", "objective.method=f-nois", f"objective.loss='{loss}'")
        run(config, own / f"{at}", trust_code=True)
        found.append(weights(own / f"{at}", round=2))
    built_in, mine, successes = found
    assert same(mine, built_in)
    assert not same(successes, built_in)


def test_a_loss_is_not_imported_unless_it_is_trusted(recipe, own):
    Path("losses.py").write_text("open('imported', 'w')\n")
    config = recipe("objective.loss=losses.py:mine")
    with pytest.raises(ConfigError, match=r"runs code, \[objective\] loss 'losses.py:mine'; read"):
        run(config, own / "run")
    assert not (own / "run").exists()
    check(config)
    assert not Path("imported").exists()


@pytest.mark.parametrize(
    "name, error, message",
    [
        ("breaks", ConfigError, r"raised AttributeError: .* \(losses.py, line 15\)$"),
        ("two_numbers", ConfigError, r"returned a Tensor of shape \[2\]; expected a tensor of one"),
        ("constant", ConfigError, "through which gradient flows"),
        ("endless", ConfigError, "is -inf for two ordinary rows"),
        ("zahl", TaskError, r"^\[objective\] loss 'losses.py:zahl': 'zahl' is no function"),
        ("absent", TaskError, "'absent' is not there"),
    ],
)
def test_a_loss_that_is_none_is_told_before_a_model_is_loaded(recipe, own, name, error, message):
    config = recipe(f"objective.loss=losses.py:{name}")
    for tried in (
        lambda: load_loss(config, trust_code=True),
        lambda: run(config, own / "run", trust_code=True),
        lambda: plan_cost(config, trust_code=True),
    ):
        with pytest.raises(error, match=message) as raised:
            tried()
        assert "losses.py" in str(raised.value)
    assert not (own / "run" / "a").exists()


def test_a_resumed_run_wants_the_loss_that_it_had(recipe, own):
    config = recipe("objective.loss=losses.py:mine", "rounds=2")
    run(config, own / "run", trust_code=True)
    more = recipe("objective.loss=losses.py:mine", "rounds=3")
    Path("losses.py").write_text(OWN_LOSS + "\n# changed\n")
    with pytest.raises(RunFolderError, match=r"loss of digest .*: its file has changed; put"):
        run(more, own / "run", resume=True, trust_code=True)
    Path("losses.py").write_text(OWN_LOSS)
    assert run(more, own / "run", resume=True, trust_code=True).rounds == 3


@pytest.mark.parametrize("name", ["mine", "task", "a b:c", ".py:f"])
def test_a_loss_without_a_place_is_refused(recipe, name):
    with pytest.raises(ConfigError, match=r"\[objective\] loss is .*; expected 'FILE.py:NAME'"):
        recipe(f"objective.loss='{name}'")


def test_authors_send_log_probabilities_to_a_loss_that_may_read_them(recipe):
    method = ("objective.method=lws",)
    assert not recipe(*method).sends_logp
    assert recipe(*method, "objective.loss=losses.py:mine").sends_logp


def test_the_loss_of_the_page_runs_as_it_stands(recipe, own):
    page = (Path(__file__).parents[2] / "docs" / "trl.md").read_text()
    (text,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    Path("losses.py").write_text(text)
    config = recipe("objective.loss=losses.py:clipped_high", "objective.clip_epsilon_high=0.01",
                    "objective.updates_per_round=3", "node.a.learning_rate=1e-2")  # fmt: skip
    run(config, own / "run", trust_code=True)
    assert all(line["updates"] == 3 for line in lines(own / "run", "a"))


def test_every_key_of_the_page_is_one_of_a_recipe():
    page = (Path(__file__).parents[2] / "docs" / "trl.md").read_text()
    named = re.findall(r"\| `\[([\w.]+)\] (\w+)`", page)
    tables = {"node.NAME": NodeConfig, "objective": ObjectiveConfig, "log": LogConfig,
              "sampling": SamplingConfig, "task": HubOptions, "stop_when": StopConfig}  # fmt: skip
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
