"""A node that trains an adapter and one that trains everything, of one base, in one run."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import tiny
from launch.runs import numbers
from potluck.builder import nodes
from potluck.builder.nodes import make_learner
from potluck.builder.plan import check
from potluck.config import from_tree
from potluck.evaluation.compare import evaluate_models
from potluck.evaluation.request import EvaluationRequest
from potluck.launch.in_process import run
from potluck.model import LanguageModel, ModelError
from potluck.model.digest import notes_on_base, stored_type
from potluck.model.loading import weights_digest
from potluck.model.rounding import share_kept
from potluck.model.training import DEFAULT_TARGETS, add_adapter
from potluck.node.storage import checkpoint
from potluck.node.storage.export import export
from potluck.replay.plan import make_plan
from potluck.replay.run import replay
from potluck.types import PotluckError, RunFolderError

BASE = "builtin:digits-small"


def recipe(*overrides, rounds=2, names=("adapter", "full"), **lora):
    tree = {
        "name": "lora",
        "rounds": rounds,
        "problems_per_round": 4,
        "group_size": 4,
        "plan": "vertical",
        "objective": {"method": "f-tis"},  # it reads the log-probabilities of all
        "checkpoint_every": 1,
        "threads": 1,
        "task": {"name": "digits", "reward": "hash"},
        "sampling": {"max_new_tokens": 8, "max_total_tokens": 64, "temperature": 3.0},
        "evaluation": {"every": 0, "problems": 2, "out_of_distribution": 0},
    }
    nodes = {
        "adapter": {"model": BASE, "learning_rate": 1e-2, "lora": {"r": 4} | lora},
        "full": {"model": BASE, "learning_rate": 1e-4},
    }
    tree["node"] = {name: nodes[name] for name in names}
    return from_tree(tree, overrides)


def checkpoint_of(folder, node, round):
    return checkpoint.checkpoint_folder(Path(folder) / node, round)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "lora"
    with pytest.MonkeyPatch.context() as patch:

        def caught(config, name, *rest, **more):
            TRAINED[name] = make_learner(config, name, *rest, **more)
            return TRAINED[name]

        patch.setattr(nodes, "make_learner", caught)
        run(recipe(dropout=0.1), folder)
    return folder


TRAINED = {}
"""The very learners of that run: a checkpoint does not hold what is frozen."""


def logits(network):
    with torch.no_grad():
        return network(torch.arange(3, 13).unsqueeze(0)).logits


def test_both_learn_from_both_and_the_adapter_says_other_things_than_its_base(done):
    for node in ("adapter", "full"):
        for line in numbers(done, node):
            assert line["rows_trained"] > 0
            assert line["updates"] == 1
            assert {a: s["completions"] for a, s in line["sources"].items()} == {
                "adapter": 8,
                "full": 8,
            }
    base = LanguageModel.load(BASE, device="cpu").network
    trained = LanguageModel.load(str(checkpoint_of(done, "adapter", 2)), device="cpu").network
    assert (logits(base) - logits(trained)).abs().max() > 1e-3


def test_at_the_start_of_a_round_log_probs_are_those_of_evaluation_whatever_the_dropout(done):
    """An adapter's B is 0 in the first round; after it, dropout would be seen."""
    for line in numbers(done, "adapter")[1:]:
        own = line["sources"]["adapter"]
        assert own["k3"] == pytest.approx(0, abs=1e-6)
        assert line["sources"]["full"]["k3"] > 1e-4


def test_frozen_weights_stay_as_they_are_to_the_bit_and_have_no_optimiser_state(done):
    base = dict(LanguageModel.load(BASE, device="cpu").network.named_parameters())
    learner = TRAINED["adapter"]
    weights = dict(learner.policy.network.named_parameters())
    frozen = {n.replace(".base_layer", ""): w for n, w in weights.items() if not w.requires_grad}
    assert frozen.keys() == base.keys()
    assert all(torch.equal(base[name], weight) for name, weight in frozen.items())
    moved = {p for group in learner.optimizer.param_groups for p in group["params"]}
    assert moved == {p for p in weights.values() if p.requires_grad}
    assert set(learner.optimizer.state) == moved
    assert sum(p.numel() for p in moved) < 0.1 * sum(w.numel() for w in frozen.values())
    full = dict(TRAINED["full"].policy.network.named_parameters())
    assert not any(torch.equal(base[name], full[name]) for name in base if "proj.weight" in name)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft asks
def test_a_checkpoint_of_an_adapter_is_one_for_peft_and_transformers_too(done):
    from peft import PeftModel  # here, as it takes over a second of every process that collects

    place = checkpoint_of(done, "adapter", 2)
    ours = logits(LanguageModel.load(str(place), device="cpu").network)
    assert not (place / "model.safetensors").exists()
    built_in = LanguageModel.load(BASE, device="cpu").network
    torch.testing.assert_close(logits(PeftModel.from_pretrained(built_in, place)), ours)
    alone = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32).eval()
    torch.testing.assert_close(logits(alone), ours, rtol=0, atol=1e-5)


def test_the_merged_export_is_a_model_of_its_own_with_the_adapters_logits(done, tmp_path):
    export(str(checkpoint_of(done, "full", 2)), tmp_path / "full", dtype="float32")
    cards = (checkpoint_of(done, "full", 2) / "README.md", tmp_path / "full" / "README.md")
    assert cards[0].read_bytes() == cards[1].read_bytes()
    adapted = make_learner(recipe(dropout=0.1), "adapter", done / "adapter", 2).policy.network
    export(str(checkpoint_of(done, "adapter", 2)), tmp_path / "merged", dtype="float32")
    assert (tmp_path / "merged" / "model.safetensors").exists()
    assert not list((tmp_path / "merged").glob("adapter*"))
    card = (tmp_path / "merged" / "README.md").read_text()
    assert 'AutoModelForCausalLM.from_pretrained("this/folder")' in card
    alone = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32).eval()
    torch.testing.assert_close(logits(alone), logits(adapted), rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """A run whose steps are too small for bfloat16."""
    folder = tmp_path_factory.mktemp("runs") / "slow"
    run(recipe("node.full.learning_rate=1e-7", names=["full"]), folder, display=None)
    return folder


@pytest.mark.parametrize(
    "whose, node, dtype",
    [("done", "full", "bfloat16"), ("done", "adapter", "bfloat16"), ("slow", "full", "float32")],
)
def test_an_export_has_the_type_that_training_began_with_if_it_keeps_what_was_trained(
    request, tmp_path, whose, node, dtype
):
    """The built-in models are stored in bfloat16; what is trained is kept in float32."""
    place = checkpoint_of(request.getfixturevalue(whose), node, 2)
    trained = LanguageModel.load(str(place), device="cpu").network
    exported = export(str(place), tmp_path / "usual")
    assert (exported.dtype, exported.wanted) == (dtype, "bfloat16")
    assert (exported.kept >= 0.9) == (dtype == "bfloat16")
    assert exported.size_bytes == (tmp_path / "usual" / "model.safetensors").stat().st_size
    told = json.loads((tmp_path / "usual" / "config.json").read_text())
    assert told["dtype"] == dtype
    for name, weight in load_file(tmp_path / "usual" / "model.safetensors").items():
        assert torch.equal(weight, trained.get_parameter(name).to(getattr(torch, dtype)))
        assert weight.dtype == getattr(torch, dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_type_that_was_chosen_is_taken_whatever_it_loses(done, tmp_path, dtype):
    exported = export(str(checkpoint_of(done, "full", 2)), tmp_path / "chosen", dtype=dtype)
    assert (exported.dtype, exported.wanted) == (dtype, dtype)
    assert (exported.kept == 1) == (dtype == "float32")
    tensors = load_file(tmp_path / "chosen" / "model.safetensors")
    assert {each.dtype for each in tensors.values()} == {getattr(torch, dtype)}


@pytest.mark.parametrize("unknown", [{"start": "/gone"}, {"start": None}, {"start": 7}])
def test_an_export_keeps_all_digits_where_what_training_began_with_is_gone(done, tmp_path, unknown):
    place = copied(checkpoint_of(done, "full", 2), tmp_path / "moved")
    state = json.loads((place / "state.json").read_text())
    (place / "state.json").write_text(json.dumps(state | unknown))
    (place / "SHA256SUMS").unlink()
    exported = export(str(place), tmp_path / "usual")
    assert (exported.dtype, exported.wanted, exported.kept) == ("float32", "bfloat16", None)


def test_the_share_of_a_change_that_is_kept_is_that_of_its_direction():
    """Between 1 and 2 numbers of bfloat16 are 2^-7 apart: half a step up goes all the way or back,
    less goes back, and two steps stay."""
    start, moved = tiny.policy().network, tiny.policy().network
    for network in (start, moved):
        for weight in network.parameters():
            weight.data.fill_(1.0)
    assert share_kept(moved, start, torch.bfloat16) == 1
    moved.model.norm.weight.data[:2] += torch.tensor([2 / 128, 0.4 / 128])
    # 2 x 2 of 2^2 + .4^2
    assert share_kept(moved, start, torch.bfloat16) == pytest.approx(4 / 4.16, rel=1e-5)
    moved.model.norm.weight.data[0] = 1
    assert share_kept(moved, start, torch.bfloat16) == 0
    assert share_kept(moved, start, torch.float32) == 1


def test_a_resumed_run_and_a_next_one_know_the_type_that_training_began_with(tmp_path):
    run(recipe(rounds=1, names=["full"]), tmp_path / "run", display=None)
    run(recipe(rounds=2, names=["full"]), tmp_path / "run", resume=True, display=None)
    place = checkpoint_of(tmp_path / "run", "full", 2)
    assert {w.dtype for w in load_file(place / "model.safetensors").values()} == {torch.float32}
    assert stored_type(str(place)) == torch.bfloat16

    further = recipe(f'node.full.model="{place}"', rounds=1, names=["full"])
    run(further, tmp_path / "next", display=None)
    assert stored_type(str(checkpoint_of(tmp_path / "next", "full", 1))) == torch.bfloat16

    # One that was written before this was noted has the type that it is stored in.
    state = json.loads((place / "state.json").read_text())
    del state["dtype"]
    (place / "state.json").write_text(json.dumps(state))
    assert stored_type(str(place)) == torch.float32


def test_a_resumed_run_of_an_adapter_is_the_one_that_never_stopped(done, tmp_path):
    run(recipe(rounds=1, dropout=0.1), tmp_path / "run")
    run(recipe(dropout=0.1), tmp_path / "run", resume=True)
    for node in ("adapter", "full"):
        assert numbers(tmp_path / "run", node) == numbers(done, node)
        names = [f.name for f in checkpoint_of(done, node, 2).glob("*.safetensors")]
        assert len(names) == 2
        for name in names:
            files = [checkpoint_of(f, node, 2) / name for f in (done, tmp_path / "run")]
            assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("change", ["r=2", "alpha=3", "dropout=0.5", 'targets=["o_proj"]'])
def test_every_option_of_an_adapter_changes_what_it_says_while_it_is_trained(tmp_path, change):
    def trained(*overrides):
        network = make_learner(recipe(*overrides), "adapter", tmp_path, 0).policy.network.train()
        for name, weight in network.named_parameters():
            if "lora_B" in name:
                weight.data.fill_(0.1)  # as after a step: it is 0 at first
        torch.manual_seed(0)
        return logits(network)

    plain, changed = trained(), trained(f"node.adapter.lora.{change}")
    assert torch.equal(plain, trained())
    assert not torch.equal(plain, changed)


def test_in_bfloat16_what_is_frozen_is_stored_so_and_what_is_trained_is_not(tmp_path):
    config = recipe("node.adapter.dtype=bfloat16", "node.full.dtype=bfloat16", rounds=1)
    adapter, full = (make_learner(config, name, tmp_path, 0) for name in ("adapter", "full"))
    kinds = {(p.requires_grad, p.dtype) for p in adapter.policy.network.parameters()}
    assert kinds == {(True, torch.float32), (False, torch.bfloat16)}
    assert {p.dtype for p in full.policy.network.parameters()} == {torch.float32}
    prompt, tokens = [np.int32([3, 4, 5])], [np.int32([6, 7, 8])]
    exact = LanguageModel.load(BASE, device="cpu").logp(prompt, tokens, temperature=1.0)
    for learner in (adapter, full):
        rounded = learner.policy.logp(prompt, tokens, temperature=1.0)
        assert rounded.dtype == torch.float32
        assert not torch.equal(rounded, exact)
        torch.testing.assert_close(rounded, exact, rtol=0, atol=0.2)
    run(recipe("node.adapter.dtype=bfloat16", rounds=1, names=["adapter"]), tmp_path / "run")
    assert numbers(tmp_path / "run", "adapter")[0]["updates"] == 1


def copied(place, folder):
    shutil.copytree(place, folder)
    return folder


def test_an_adapter_whose_base_is_gone_or_that_is_damaged_is_refused_with_its_name(done, tmp_path):
    place = copied(checkpoint_of(done, "adapter", 2), tmp_path / "adapter")
    (place / "SHA256SUMS").unlink()
    weights = load_file(place / "adapter_model.safetensors")
    some = {name: weight for name, weight in weights.items() if "layers.0" not in name}
    save_file(some, place / "adapter_model.safetensors")
    with pytest.raises(ModelError, match="missing adapter keys"):
        LanguageModel.load(str(place), device="cpu")
    config = json.loads((place / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = str(tmp_path / "gone")
    (place / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"it is an adapter, and its base '.*gone', which its ad"):
        LanguageModel.load(str(place), device="cpu")


def test_an_adapter_remembers_where_its_base_lies_also_from_another_folder(tmp_path, monkeypatch):
    export(BASE, tmp_path / "base", dtype="float32")
    monkeypatch.chdir(tmp_path)
    run(recipe('node.adapter.model="base"', rounds=1, names=["adapter"]), tmp_path / "run")
    monkeypatch.chdir("/")
    LanguageModel.load(str(checkpoint_of(tmp_path / "run", "adapter", 1)), device="cpu")


def test_a_models_config_beside_an_adapter_does_not_make_it_a_model(done, tmp_path):
    """Some trainers write one."""
    place = checkpoint_of(done, "adapter", 2)
    odd = copied(place, tmp_path / "adapter")
    shutil.copy(checkpoint_of(done, "full", 2) / "config.json", odd)
    ours, theirs = (LanguageModel.load(str(p), device="cpu").network for p in (odd, place))
    assert torch.equal(logits(ours), logits(theirs))


def test_an_adapter_on_an_adapter_is_refused_with_the_way_out(done, tmp_path):
    place = checkpoint_of(done, "adapter", 2)
    with pytest.raises(ModelError, match=r"is an adapter itself.*potluck export"):
        run(recipe(f'node.adapter.model="{place}"'), tmp_path / "run")


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    """A run of one round on a base of its own folder, which then is another one."""
    place = tmp_path_factory.mktemp("moved")
    export(BASE, place / "base", dtype="float32")
    run(of_base(place), place / "run", display=None)
    weights = load_file(place / "base" / "model.safetensors")
    weights["model.norm.weight"][0] += 1e-3
    save_file(weights, place / "base" / "model.safetensors", metadata={"format": "pt"})
    return place


def of_base(place, *overrides, rounds=1):
    return recipe(
        f'node.adapter.model="{place / "base"}"', *overrides, rounds=rounds, names=["adapter"]
    )


def resumed(place, adapter, tmp_path):
    run(of_base(place, rounds=2), place / "run", resume=True, display=None)


def exported(place, adapter, tmp_path):
    export(str(adapter), tmp_path / "exported")


def evaluated(place, adapter, tmp_path):
    request = EvaluationRequest(str(adapter), overrides=["evaluation.problems=2"])
    evaluate_models(request, progress=lambda *step: None)


def compared(place, adapter, tmp_path):
    request = EvaluationRequest(BASE, against=str(adapter), task="digits")
    evaluate_models(request, progress=lambda *step: pytest.fail("one model was evaluated"))


def replayed(place, adapter, tmp_path):
    plan = make_plan(place / "run", methods="nois", node="", rounds=None, out=tmp_path / "replay")
    list(replay(plan, say=lambda text: None))


def trained_on(place, adapter, tmp_path):
    config = recipe(f'node.full.model="{adapter}"', names=["full"])
    run(config, tmp_path / "run", display=None)


def checked(place, adapter, tmp_path):
    config = recipe(f'node.full.model="{adapter}"', names=["full"])
    check(config, trust_code=False, gpu="", one_process=True)


@pytest.mark.parametrize("read", [
    resumed, exported, evaluated, compared, replayed, trained_on, checked,
])  # fmt: skip
def test_whoever_reads_an_adapter_refuses_another_base(moved, tmp_path, read):
    adapter = checkpoint_of(moved / "run", "adapter", 1)
    with pytest.raises(PotluckError, match=r"is not the one that .* has other weights now"):
        read(moved, adapter, tmp_path)


def test_a_base_is_the_same_in_another_type_and_in_other_files(tmp_path):
    """Its digest is of the tensors as they are stored."""
    export(BASE, tmp_path / "base", dtype="float32")
    run(of_base(tmp_path), tmp_path / "run", display=None)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    (tmp_path / "base" / "model.safetensors").unlink()
    model.save_pretrained(tmp_path / "base", max_shard_size="100KB")
    assert len([*(tmp_path / "base").glob("model-*.safetensors")]) > 1
    adapter = checkpoint_of(tmp_path / "run", "adapter", 1)
    for stored in (torch.float32, torch.bfloat16):
        LanguageModel.load(str(adapter), device="cpu", stored=stored)
    bfloat16 = "node.adapter.dtype=bfloat16"
    run(of_base(tmp_path, bfloat16), tmp_path / "other", display=None)
    adapter = checkpoint_of(tmp_path / "other", "adapter", 1)
    LanguageModel.load(str(adapter), device="cpu")
    run(of_base(tmp_path, bfloat16, rounds=2), tmp_path / "other", resume=True, display=None)


def test_an_adapter_of_0_2_0_is_resumed_on_its_own_base_only(tmp_path):
    """Its digest is of the weights as they were loaded."""
    export(BASE, tmp_path / "base", dtype="float32")
    run(of_base(tmp_path), tmp_path / "run", display=None)
    network = LanguageModel.load(str(tmp_path / "base"), device="cpu").network
    add_adapter(network, rank=4, alpha=8, dropout=0.0, targets=DEFAULT_TARGETS, seed=0)

    place = checkpoint_of(tmp_path / "run", "adapter", 1)
    (place / "SHA256SUMS").unlink()
    state = json.loads((place / "state.json").read_text())
    for base in ("another", weights_digest(network, trained=False)):
        (place / "state.json").write_text(json.dumps(state | {"base": base}))
        with pytest.raises(RunFolderError) if base == "another" else nullcontext():
            run(of_base(tmp_path, rounds=2), tmp_path / "run", resume=True, display=None)


def test_an_adapter_that_does_not_know_its_base_is_told_of(done, tmp_path):
    adapter = copied(checkpoint_of(done, "adapter", 2), tmp_path / "adapter")
    assert notes_on_base(str(adapter)) == []
    (adapter / "state.json").unlink()
    (note,) = notes_on_base(str(adapter))
    assert "is an adapter that says nothing of its base's weights" in note
    assert notes_on_base(BASE) == []
    assert notes_on_base(str(checkpoint_of(done, "full", 2))) == []


def test_a_reference_of_the_kl_is_the_model_that_training_began_with(tmp_path):
    export(BASE, tmp_path / "base", dtype="float32")
    keys = f'node.full.model="{tmp_path / "base"}"', "objective.beta=0.1"
    run(recipe(*keys, rounds=1, names=["full"]), tmp_path / "run", display=None)
    weights = load_file(tmp_path / "base" / "model.safetensors")
    weights["model.norm.weight"][0] += 1e-3
    save_file(weights, tmp_path / "base" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RunFolderError, match="is not the one that its training began with"):
        run(recipe(*keys, names=["full"]), tmp_path / "run", resume=True, display=None)
