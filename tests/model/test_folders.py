"""A model's folder that cannot be loaded is told in one line, with what does not fit."""

import json
import warnings

import pytest
import torch
from peft import LoraConfig, get_peft_model

import tiny
from potluck.model import LanguageModel, ModelError, loading
from potluck.model.digest import stored_type


@pytest.fixture
def folder(tmp_path):
    tiny.save(tmp_path / "model")
    return tmp_path / "model"


def edited(file, **keys):
    file.write_text(json.dumps(json.loads(file.read_text()) | keys))


def adapter_of(base, folder, tokens=0):
    """Save an adapter of a base with so many more tokens than the base has."""
    made = LanguageModel.load(str(base), device="cpu")
    network = made.network
    if tokens:
        network.resize_token_embeddings(network.vocab_size + tokens, mean_resizing=False)
    saved = ["embed_tokens", "lm_head"] if tokens else None
    how = LoraConfig(target_modules=["q_proj"], modules_to_save=saved, task_type="CAUSAL_LM")
    with warnings.catch_warnings():
        # peft tells of names that are going, and of the tokens that are meant here.
        warnings.simplefilter("ignore")
        get_peft_model(network, how).save_pretrained(folder)
    made.tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_type_of_a_model_is_that_of_most_of_its_weights_whatever_its_config_says(
    folder, tmp_path, dtype
):
    network = tiny.policy().network.to(dtype)
    network.save_pretrained(folder)
    assert stored_type(str(folder)) == dtype
    edited(folder / "config.json", dtype="float64")
    assert stored_type(str(folder)) == dtype
    assert stored_type(str(adapter_of(folder, tmp_path / "adapter"))) == dtype

    network.model.norm.float()
    network.save_pretrained(tmp_path / "parts", max_shard_size="5KB")
    assert len([*(tmp_path / "parts").glob("model-*.safetensors")]) > 1
    assert stored_type(str(tmp_path / "parts")) == dtype

    (folder / "model.safetensors").unlink()
    assert stored_type(str(folder)) == torch.float32
    torch.save(network.state_dict(), folder / "pytorch_model.bin")
    assert stored_type(str(folder)) == dtype


@pytest.mark.parametrize("keys", [{"vocab_size": 99}, {"intermediate_size": 7}])
def test_a_config_of_other_sizes_than_the_weights_is_told_with_both(folder, keys):
    edited(folder / "config.json", **keys)
    (size,) = keys.values()
    with pytest.raises(ModelError, match=rf"has shape \(.*\) in its files, but .*\(.*{size}.*\);"):
        LanguageModel.load(str(folder), device="cpu")


def test_an_adapter_of_a_base_with_more_tokens_is_told_with_both_sizes(folder, tmp_path):
    adapter = adapter_of(folder, tmp_path / "adapter", tokens=3)
    with pytest.raises(ModelError, match=r"size mismatch for .*copying .* with tokens of its own"):
        LanguageModel.load(str(adapter), device="cpu")


@pytest.mark.parametrize("base", [None, ""])
def test_an_adapter_that_names_no_base_says_so(folder, tmp_path, base):
    adapter = adapter_of(folder, tmp_path / "adapter")
    edited(adapter / "adapter_config.json", base_model_name_or_path=base)
    for load in (loading.load_config, LanguageModel.load):
        with pytest.raises(ModelError, match=r"^'.*adapter' is an adapter that names no base"):
            load(str(adapter))


def test_a_sentencepiece_model_alone_names_the_extra(folder, monkeypatch):
    monkeypatch.setattr(loading, "_has_spiece", lambda: False)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02")
    edited(folder / "tokenizer_config.json", tokenizer_class="LlamaTokenizer")
    with pytest.raises(ModelError, match=r"tokenizer.model and no .*'potluck\[sentencepiece\]'"):
        loading.load_tokenizer(str(folder))
