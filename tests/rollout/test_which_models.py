"""Models with which the package's own engine cannot write are told by their configuration."""

import json
import shutil

import pytest
from transformers import AutoConfig, AutoModelForCausalLM

import tiny
from potluck.builder.checks import require_models_that_write
from potluck.builder.prepare import prepare
from potluck.evaluation.compare import evaluate_models
from potluck.evaluation.request import EvaluationRequest
from potluck.model import LanguageModel, ModelError
from potluck.model.loading import require_plain_weights
from potluck.rollout.cache import require_one_rope, require_repeatable

RECURRENT = [
    "bamba", "falcon_h1", "falcon_mamba", "granitemoehybrid", "jamba", "mamba", "mamba2", "minimax",
    "nemotron_h", "olmo_hybrid", "recurrent_gemma", "rwkv", "zamba", "zamba2",
]  # fmt: skip
ATTENTION = [
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "phi",
    "phi3",
    "gpt2",
    "gpt_neox",
    "gpt_neo",
    "gptj",
    "codegen",
    "opt",
    "bloom",
    "falcon",
    "mpt",
    "stablelm",
    "cohere",
    "cohere2",
    "olmo",
    "olmo2",
    "olmo3",
    "olmoe",
    "granite",
    "granitemoe",
    "mixtral",
    "smollm3",
    "starcoder2",
    "nemotron",
    "glm",
    "glm4",
    "exaone4",
    "gpt_oss",
    "deepseek_v3",
    "xglm",
    "biogpt",
    "gpt_bigcode",
    "seed_oss",
    "arcee",
    "helium",
]
STATEFUL = [  # recurrent, and taken: tests/rollout/test_recurrent.py
    "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_next", "lfm2", "lfm2_moe",
]  # fmt: skip


@pytest.mark.parametrize("kind", RECURRENT)
def test_a_model_with_recurrent_layers_is_refused(kind):
    with pytest.raises(ModelError, match=rf"model 'm' \({kind}\w*\) has recurrent layers"):
        require_repeatable(AutoConfig.for_model(kind), "m")


@pytest.mark.parametrize("kind", [*ATTENTION, *STATEFUL])
def test_a_model_of_attention_layers_or_of_states_that_were_tried_is_not(kind):
    require_repeatable(AutoConfig.for_model(kind), "m")
    require_one_rope(AutoConfig.for_model(kind), "m", 4096)


@pytest.fixture
def hybrid(tmp_path):
    """A tiny Falcon-H1, with which writing broke in a traceback."""
    shape = {
        "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "intermediate_size": 32, "vocab_size": tiny.VOCABULARY,
        "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_n_groups": 1,
        "mamba_d_state": 8, "eos_token_id": 2,
    }  # fmt: skip
    made = AutoConfig.for_model("falcon_h1", **shape)
    AutoModelForCausalLM.from_config(made).save_pretrained(tmp_path / "model")
    tiny.policy(0).tokenizer.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def test_a_check_and_an_evaluation_refuse_it_before_anything_is_loaded(hybrid, tmp_path):
    config = tiny.recipe({"small": hybrid})
    with pytest.raises(ModelError, match=r"\(falcon_h1\) has recurrent layers"):
        prepare(config, ["small"], tmp_path, trust_code=False)
    request = EvaluationRequest(hybrid, task="digits")
    with pytest.raises(ModelError, match=r"\(falcon_h1\) has recurrent layers"):
        evaluate_models(request, progress=lambda *step: None)


def test_a_server_may_write_with_any_model(hybrid):
    engine = 'node.small.engine={name="vllm", url="http://127.0.0.1:9", model="m"}'
    require_models_that_write(tiny.recipe({"small": hybrid}, engine))


FACTORS = {"long_factor": [2.0] * 48, "short_factor": [1.0] * 48}


@pytest.mark.parametrize("longest, fits", [(4096, True), (4097, False)])
def test_positions_that_turn_otherwise_beyond_a_border_are_refused(longest, fits):
    rope = {"rope_type": "longrope", "rope_theta": 1e4, **FACTORS}
    phi = AutoConfig.for_model("phi3", rope_parameters=rope, max_position_embeddings=131072)
    if fits:
        require_one_rope(phi, "m", longest)
    else:
        with pytest.raises(ModelError, match=r"beyond 4096 tokens .*max_total_tokens = 4096"):
            require_one_rope(phi, "m", longest)


@pytest.mark.parametrize("how, said", [
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes"),
    ({"quant_method": "gptq", "bits": 4}, "gptq"),
    ({"quant_method": "awq", "bits": 4}, "awq"),
    ({"quant_method": "fp8"}, "fp8"),
    ({"quant_method": "compressed-tensors"}, "compressed-tensors"),
])  # fmt: skip
def test_quantised_weights_are_refused_with_the_way_out(tmp_path, how, said):
    folder = tmp_path / "model"
    shutil.copytree(tiny.save(tmp_path / "plain"), folder)
    config = json.loads((folder / "config.json").read_text())
    require_plain_weights(str(folder))
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": how}))
    with pytest.raises(ModelError, match=rf"quantised weights \({said}\).* take the model"):
        prepare(tiny.recipe({"small": str(folder)}), ["small"], tmp_path, trust_code=False)
    with pytest.raises(ModelError, match="quantised weights"):
        LanguageModel.load(str(folder), device="cpu")


def test_the_limit_of_a_model_of_texts_and_images_is_that_of_its_texts(tmp_path):
    text = {
        "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 8,
        "num_key_value_heads": 1, "intermediate_size": 32, "vocab_size": 48,
        "max_position_embeddings": 64, "eos_token_id": 2,
    }  # fmt: skip
    vision = {
        "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "image_size": 28, "patch_size": 14,
    }  # fmt: skip
    shape = AutoConfig.for_model(
        "gemma3", text_config=text, vision_config=vision, mm_tokens_per_image=4,
        image_token_index=5, boi_token_index=6, eoi_token_index=7, eos_token_id=2,
    )  # fmt: skip
    network = AutoModelForCausalLM.from_config(shape)
    assert LanguageModel(network, tiny.policy(0).tokenizer).context == 64
