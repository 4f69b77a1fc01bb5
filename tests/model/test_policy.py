"""A language model: loading it, what it reads, and how likely it finds a text."""

import hashlib
import json
import re
import shutil
from copy import deepcopy

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import tiny
import unlike
from potluck.model import LanguageModel, ModelError
from potluck.model.loading import BUILT_IN, fingerprint, load_config, load_tokenizer
from potluck.model.prompt import prompt_ids
from potluck.types import Problem

PROMPTS = [np.int32([1, 5, 6]), np.int32([1]), np.int32([1, 9, 9, 9, 9])]
TOKENS = [np.int32([7, 2]), np.int32([4, 5, 6, 2]), np.int32([2])]


def test_without_a_chat_template_the_question_stands_behind_the_system_text():
    """With one: tests/test_template.py."""
    policy = tiny.policy()
    ids = policy.prompt(Problem("p", "1+2=", "3", system="add"))
    assert re.fullmatch(r".*add.*1\+2=", policy.tokenizer.decode(ids))
    assert ids.dtype == np.int32


def test_text_leaves_special_tokens_and_meaningless_ids_out():
    ids = tiny.tokenizer()("abc", add_special_tokens=False)["input_ids"]
    token_T = np.int32([*ids, tiny.VOCABULARY + 2, 2_000_000_000, tiny.STOP])
    assert tiny.policy().text(token_T) == "abc"


def test_a_saved_folder_loads_as_the_same_model(tmp_path):
    folder = tiny.save(tmp_path / "model")
    loaded, made = LanguageModel.load(folder, device="cpu"), tiny.policy()
    one, two = (m.logp(PROMPTS, TOKENS, temperature=1.0) for m in (loaded, made))
    assert torch.equal(one, two)
    assert loaded.stop_ids == {tiny.STOP}
    assert loaded.vocabulary == tiny.VOCABULARY


@pytest.mark.parametrize("name", sorted(folder.name for folder in BUILT_IN.iterdir()))
def test_the_built_in_models_load_and_share_a_tokenizer_with_those_of_their_task(name):
    policy = LanguageModel.load(f"builtin:{name}", device="cpu")
    task = name.partition("-")[0]
    first = f"{task}-small" if task != "chain" else "digits-small"
    assert fingerprint(policy.tokenizer) == fingerprint(load_tokenizer(f"builtin:{first}"))
    size = sum(p.numel() for p in policy.network.parameters())
    assert 30_000 <= size <= 1_500_000


def test_the_built_in_models_weigh_seven_megabytes_at_most():
    assert sum(f.stat().st_size for f in BUILT_IN.rglob("*") if f.is_file()) <= 7 * 10**6


@pytest.mark.parametrize(
    "model, complaint",
    [
        ("builtin:digit-small", "no built-in model is named 'digit-small'; there is calculator-"),
        ("./no/such/folder", r"cannot load model './no/such/folder': "),
    ],
)
def test_a_model_that_is_not_there_is_named(model, complaint, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match=complaint):
        LanguageModel.load(model)


def test_loaded_weights_lie_where_torch_would_put_them(tmp_path):
    """Not where they lay in the file: kernels sum in another order at another alignment."""
    policy = LanguageModel.load(tiny.save(tmp_path / "model"), device="cpu")
    tensors = [*policy.network.parameters(), *policy.network.buffers()]
    assert {t.data_ptr() % 64 for t in tensors} == {0}


def test_a_model_whose_file_lacks_weights_is_refused_and_not_made_up(tmp_path):
    folder = tiny.save(tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    weights = load_file(file)
    lost = [name for name in weights if "mlp" in name]
    kept = {name: weight for name, weight in weights.items() if name not in lost}
    save_file(kept, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=f"lacks {len(lost)} weights, 'model.layers.0.mlp.down_p"):
        LanguageModel.load(folder)


@pytest.mark.parametrize(
    "name, text",
    [
        ("model.safetensors", None),
        ("model.safetensors", "!"),
        ("tokenizer.json", "{}"),
        ("config.json", '{"model_type": "qwen2", "hidden_size": "wide"}'),
    ],
)
def test_a_damaged_file_of_a_model_is_one_line(tmp_path, name, text):
    folder = tiny.save(tmp_path / "model")
    (tmp_path / "model" / name).unlink()
    if text is not None:
        (tmp_path / "model" / name).write_text(text)
    with pytest.raises(ModelError) as error:
        LanguageModel.load(folder)
    assert "\n" not in str(error.value)


def test_a_template_that_knows_no_system_gets_one_message():
    chatty = deepcopy(tiny.tokenizer())
    chatty.chat_template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "{% for m in messages %}{{ m.content }}#{% endfor %}"
    )
    ids = prompt_ids(chatty, Problem("p", "1+2=", "3", system="add"))
    text = chatty.decode(ids)
    assert text.startswith("add")
    assert text.endswith("1+2=#")


def test_ids_with_gaps_are_all_of_the_vocabulary():
    gappy = deepcopy(tiny.tokenizer())
    made = tiny.policy()
    count = len(gappy)
    gappy.get_vocab = lambda: {**tiny.tokenizer().get_vocab(), "far": tiny.VOCABULARY + 3}
    assert LanguageModel(made.network, gappy).vocabulary == tiny.VOCABULARY + 4 > count


def test_a_stop_token_that_the_model_lacks_is_refused():
    made = tiny.policy()
    with pytest.raises(
        ModelError,
        match=r"stop names '<\|end\|>', which is no token .*; a text of several ends a completion",
    ):
        LanguageModel(made.network, made.tokenizer, stop=["<|end|>"])


def test_a_fingerprint_tells_what_makes_ids_mean_something_else_and_nothing_more(tmp_path):
    def swap(tree):
        vocabulary = tree["model"]["vocab"]
        vocabulary["0"], vocabulary["1"] = vocabulary["1"], vocabulary["0"]

    found = []
    for at, edit in enumerate((dict, swap, lambda tree: tree.update(normalizer={"type": "NFC"}))):
        folder = tmp_path / str(at)
        shutil.copytree(BUILT_IN / "digits-small", folder)
        tree = json.loads((folder / "tokenizer.json").read_text())
        edit(tree)
        (folder / "tokenizer.json").write_text(json.dumps(tree))
        found.append(fingerprint(load_tokenizer(str(folder))))
    assert len({*found}) == 3
    (tmp_path / "0" / "chat_template.jinja").write_text("{{ messages }}")
    assert fingerprint(load_tokenizer(str(tmp_path / "0"))) == found[0]


@pytest.mark.parametrize("name", unlike.NAMES)
def test_a_fingerprint_is_that_of_all_that_the_tokenizer_writes_of_itself(name):
    """Peers have computed it from the whole file, so it stays as it is."""
    made = unlike.tokenizers()[name]
    whole = json.loads(made.backend_tokenizer.to_str())
    parts = {"vocabulary": sorted(made.get_vocab().items()), "stop": made.eos_token_id}
    parts |= {key: whole[key] for key in ("normalizer", "pre_tokenizer", "decoder")}
    text = json.dumps(parts, sort_keys=True)
    assert fingerprint(made) == hashlib.sha256(text.encode()).hexdigest()


def test_the_code_of_a_model_folder_is_not_run_not_even_at_a_yes(tmp_path, monkeypatch):
    """transformers asks at the terminal where it is told nothing of trust."""
    where = tmp_path / "model"
    where.mkdir()
    kinds = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    (where / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": kinds}))
    tokenizer = {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", None]}}
    (where / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (where / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    for load in (load_config, load_tokenizer, LanguageModel.load):
        with pytest.raises(ModelError):
            load(str(where))
    assert not (tmp_path / "ran").exists()


def test_a_prompt_is_encoded_once_for_all_completions_of_its_problem():
    policy, problem = tiny.policy(), Problem("p", "1+2=", "3")
    first = policy.prompt(problem)
    assert first.tolist() == prompt_ids(policy.tokenizer, problem).tolist()
    assert policy.prompt(Problem("p", "1+2=", "3")) is first
    assert policy.prompt(Problem("q", "2+2=", "4")) is not first
