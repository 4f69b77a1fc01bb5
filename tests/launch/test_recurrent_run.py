"""Runs of Qwen3.5, whose layers are mostly recurrent: full weights and an adapter, of a checkpoint
of texts alone and of one that has a part for images."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, Qwen3_5ForConditionalGeneration

import tiny
from launch.runs import numbers
from potluck.builder.plan import plan_cost
from potluck.evaluation.compare import evaluate_models
from potluck.evaluation.request import EvaluationRequest
from potluck.launch.in_process import run
from potluck.model import LanguageModel
from potluck.node.storage import checkpoint
from potluck.node.storage.export import export

LORA = 'node.adapter.lora={r=4, targets="all-linear"}'


@pytest.fixture(scope="module")
def with_images(tmp_path_factory):
    """A checkpoint as Qwen3.5's are: a part for images, and the text's within a configuration."""
    text = tiny.recurrent(tiny.RECURRENT[0])
    vision = {
        "depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32,
        "out_hidden_size": 16, "patch_size": 4, "num_position_embeddings": 16,
    }  # fmt: skip
    config = AutoConfig.for_model(
        "qwen3_5", text_config=text.network.config.to_dict(), vision_config=vision,
        tie_word_embeddings=False, image_token_id=44, video_token_id=45, vision_start_token_id=46,
        vision_end_token_id=47,
    )  # fmt: skip
    network = Qwen3_5ForConditionalGeneration(config)
    network.model.language_model.load_state_dict(text.network.model.state_dict())
    network.lm_head.load_state_dict(text.network.lm_head.state_dict())
    folder = tmp_path_factory.mktemp("model")
    network.save_pretrained(folder)
    text.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def done(with_images, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    run(recipe(with_images), folder, display=None)
    return folder


def recipe(model, *overrides):
    models = {"full": str(model), "adapter": str(model)}
    return tiny.recipe(models, LORA, "checkpoint_every=1", "rounds=3", *overrides)


def test_its_text_is_loaded_and_computes_as_the_whole_model_does(with_images):
    whole = Qwen3_5ForConditionalGeneration.from_pretrained(with_images, dtype=torch.float32)
    policy = LanguageModel.load(str(with_images), device="cpu")
    ids = torch.tensor([[1, 5, 9, 20, 33]])
    with torch.no_grad():
        ours, theirs = policy.network(input_ids=ids).logits, whole(input_ids=ids).logits
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    assert plan_cost(recipe(with_images)).shapes["full"].context == 64


def test_full_weights_and_an_adapter_learn_from_what_each_has_written(done):
    for node in ("full", "adapter"):
        rounds = numbers(done, node)
        assert all(line["updates"] == 1 for line in rounds)
        # What it wrote is as likely when it learns; None: nothing of it taught in that round.
        apart = [line["sources"][node]["k3"] for line in rounds]
        told = [each for each in apart if each is not None]
        assert told == pytest.approx([0] * len(told), abs=1e-5)
        assert told
    place = checkpoint.checkpoint_folder(done / "adapter", 3)
    adapted = load_file(place / "adapter_model.safetensors")
    assert any("linear_attn.in_proj_qkv" in name for name in adapted)


def test_a_run_that_was_stopped_goes_on_to_the_same_weights(done, with_images, tmp_path):
    run(recipe(with_images, "rounds=2"), tmp_path / "run", display=None)
    run(recipe(with_images), tmp_path / "run", resume=True, display=None)
    for node, name in (("full", "model"), ("adapter", "adapter_model")):
        files = (
            checkpoint.checkpoint_folder(folder / node, 3) / f"{name}.safetensors"
            for folder in (done, tmp_path / "run")
        )
        one, other = map(load_file, files)
        assert all(torch.equal(one[key], other[key]) for key in one)


def test_it_is_evaluated_and_exported_as_a_model_of_texts(done, tmp_path):
    export(str(done / "adapter"), tmp_path / "text")
    told = json.loads((tmp_path / "text" / "config.json").read_text())
    assert told["architectures"] == ["Qwen3_5ForCausalLM"]
    request = EvaluationRequest(
        str(tmp_path / "text"), task="digits", overrides=["evaluation.problems=2"]
    )
    found = evaluate_models(request, progress=lambda *step: None)
    assert found
