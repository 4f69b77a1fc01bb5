"""What a stranger's model folder could run, and what the libraries refuse today: beside
``auto_map`` (test_policy.py), code comes in by kernels of the Hub and by names of modules."""

import json
import sys
from contextlib import suppress

import pytest
import torch
from transformers import modeling_utils
from transformers.integrations import hub_kernels

import tiny
from potluck.model import LanguageModel, ModelError
from potluck.model.training import add_adapter


def edit(file, **changes):
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize(
    "key, name",
    [
        ("attn_implementation", "evil/kernel"),
        ("_attn_implementation", "evil/kernel:attention"),
        ("use_kernels", "flash_attention_2"),
    ],
)
def test_no_kernel_that_a_model_folder_names_is_trusted(tmp_path, monkeypatch, key, name):
    """With the library of kernels installed: it refuses by itself whoever is not vouched for."""
    asked = []

    def get_kernel(repository, **options):
        asked.append((repository, options.get("trust_remote_code")))
        raise ImportError("asked for")

    for module in (modeling_utils, hub_kernels):
        monkeypatch.setattr(module, "is_kernels_available", lambda: True)
    monkeypatch.setattr(hub_kernels, "get_kernel_hub", get_kernel, raising=False)
    folder = tmp_path / "model"
    tiny.save(folder)
    edit(folder / "config.json", **{key: name})
    with suppress(ModelError):
        LanguageModel.load(str(folder))
    assert not any(trusted for _, trusted in asked), asked
    if (key, name) == ("attn_implementation", "evil/kernel"):
        assert asked == [("evil/kernel", False)]  # so this test sees the place


def test_no_module_that_an_adapter_names_is_imported(tmp_path, monkeypatch):
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    tiny.save(base)
    made = LanguageModel.load(str(base))
    add_adapter(made.network, rank=2, alpha=4.0, dropout=0.0, targets=["q_proj"], seed=0)
    made.network.save_pretrained(adapter)
    made.tokenizer.save_pretrained(adapter)
    (tmp_path / "evil_core.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(str(tmp_path))
    changes = {"megatron_core": "evil_core", "megatron_config": {"a": 1}}
    edit(adapter / "adapter_config.json", base_model_name_or_path=str(base), **changes)
    with pytest.raises(ModelError, match="evil_core"):
        LanguageModel.load(str(adapter))
    assert "evil_core" not in sys.modules
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "adapter_model.bin"])
def test_no_pickle_of_a_model_folder_is_run(tmp_path, name):
    class Evil:
        def __reduce__(self):
            return open, (str(tmp_path / "ran"), "w")

    folder = tmp_path / "model"
    tiny.save(folder)
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Evil()}, folder / name)
    if name.startswith("adapter"):
        config = {"peft_type": "LORA", "base_model_name_or_path": tiny.save(tmp_path / "base")}
        (folder / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError):
        LanguageModel.load(str(folder))
    assert not (tmp_path / "ran").exists()
