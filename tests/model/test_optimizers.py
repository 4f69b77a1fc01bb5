"""The optimisers that a recipe may name: what state they keep, and that it comes back."""

import sys

import pytest
import torch

import tiny
from potluck.builder.nodes import make_learner
from potluck.launch.in_process import run
from potluck.model import ModelError
from potluck.node.storage import checkpoint


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Wide enough that a weight has the 4,096 numbers from which on moments are 8-bit."""
    folder = tmp_path_factory.mktemp("models") / "wide"
    return tiny.save(folder, hidden_size=64, sharpness=5)


def recipe(model, optimizer, rounds=2):
    node = {"one": {"model": model, "learning_rate": 1e-3, "optimizer": optimizer}}
    none = {"problems": 0, "out_of_distribution": 0}
    return tiny.recipe({}, node=node, rounds=rounds, checkpoint_every=1, evaluation=none)


def weights(folder, round):
    place = checkpoint.checkpoint_folder(folder / "one", round)
    return (place / "model.safetensors").read_bytes()


def kinds_of_moments(optimizer):
    states = optimizer.state.values()
    large = [v for s in states for v in s.values() if torch.is_tensor(v) and v.numel() >= 4096]
    return {value.dtype for value in large}


@pytest.mark.parametrize(
    "optimizer, kind",
    [("adamw", torch.float32), ("adamw-8bit", torch.uint8)],
)
def test_moments_are_of_a_kind_and_come_back_from_a_checkpoint(model, tmp_path, optimizer, kind):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(recipe(model, optimizer), whole)
    learner = make_learner(recipe(model, optimizer), "one", whole / "one", 2)
    assert kinds_of_moments(learner.optimizer) == {kind}
    run(recipe(model, optimizer, rounds=1), parts)
    run(recipe(model, optimizer), parts, resume=True)
    assert weights(parts, 2) == weights(whole, 2)
    assert weights(whole, 2) != weights(whole, 1)


def test_without_a_library_the_optimiser_is_refused_with_the_way_out(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim.adamw", None)
    with pytest.raises(ModelError, match=r"pip install 'potluck\[eightbit\]', or set optimizer"):
        make_learner(recipe(model, "adamw-8bit"), "one", tmp_path, 0)
