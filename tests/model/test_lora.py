"""Adapters on a network: what they change, what they leave, and that they come back."""

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPTNeoXConfig, PreTrainedModel

import tiny
from potluck.builder.memory import adapted_layers, adapter_numbers
from potluck.config import LoraConfig
from potluck.model import LanguageModel, ModelError
from potluck.model.loading import BUILDING
from potluck.model.shape import shape_of
from potluck.model.training import adapter_off, add_adapter, restore_adapter, targets_of, trained

DEFAULTS = {"rank": 2, "alpha": 4.0, "dropout": 0.0, "targets": ("q_proj", "v_proj"), "seed": 0}


def adapted(network=None, **changes):
    network = network or tiny.policy().network
    add_adapter(network, **DEFAULTS | changes)
    return network


def moved(network, size=0.1):
    """As after some updates: B is no longer zero."""
    generator = torch.Generator().manual_seed(1)
    for parameter in trained(network):
        parameter.data += size * torch.randn(parameter.shape, generator=generator)
    return network


def logits(network):
    with torch.no_grad():
        return network(torch.arange(3, 13).unsqueeze(0)).logits


def test_a_new_adapter_changes_nothing_yet_and_alone_is_trained():
    network, plain = adapted(dropout=0.5), tiny.policy().network
    assert torch.equal(logits(network), logits(plain))
    names = {n.partition("self_attn.")[2] for n, p in network.named_parameters() if p.requires_grad}
    ends = ("lora_A.default.weight", "lora_B.default.weight")
    assert names == {f"{layer}.{end}" for layer in ("q_proj", "v_proj") for end in ends}


def test_the_layer_is_w_x_plus_alpha_over_r_b_a_x():
    network = moved(adapted(rank=2, alpha=6.0))
    layer = network.model.layers[0].self_attn.q_proj
    x = torch.randn(5, 16, generator=torch.Generator().manual_seed(2))
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    expected = layer.base_layer(x) + 6.0 / 2 * (x @ a.T @ b.T)
    torch.testing.assert_close(layer(x), expected)


def test_one_seed_gives_one_adapter_and_torchs_own_dice_are_not_thrown():
    before = torch.get_rng_state()
    one, two, other = (list(map(torch.Tensor.clone, trained(adapted(seed=s)))) for s in (3, 3, 4))
    assert all(map(torch.equal, one, two))
    assert not all(map(torch.equal, one, other))
    torch.manual_seed(0)  # what building the tiny network leaves
    tiny.policy()
    left = torch.get_rng_state()
    adapted()
    assert torch.equal(torch.get_rng_state(), left)
    torch.set_rng_state(before)


def test_an_adapter_comes_back_from_its_files_to_the_bit(tmp_path):
    network = moved(adapted())
    network.save_pretrained(tmp_path)
    again = adapted(seed=9)
    assert not torch.equal(logits(again), logits(network))
    restore_adapter(again, tmp_path)
    assert torch.equal(logits(again), logits(network))


@pytest.mark.parametrize(
    "other, complaint",
    [
        ({"rank": 3}, "size mismatch"),
        ({"targets": ["q_proj", "v_proj", "o_proj"]}, "o_proj.lora_A.default.weight' does not"),
    ],
)
def test_another_recipes_adapter_is_refused(tmp_path, other, complaint):
    adapted().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=complaint) as error:
        restore_adapter(adapted(**other), tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_text("!")])
def test_an_adapter_that_is_not_there_or_damaged_is_named(tmp_path, damage):
    adapted().save_pretrained(tmp_path)
    damage(tmp_path / "adapter_model.safetensors")
    with pytest.raises(ModelError, match="cannot load the adapter in "):
        restore_adapter(adapted(), tmp_path)


@pytest.mark.parametrize("targets, complaint", [
    (["query"], r"targets = \['query'\].* Qwen2ForCausalLM has down_proj, gate"),
    (["q_proj", "v_porj"], r"has 'v_porj', which is no layer; .* up_proj, v_proj; or"),
])  # fmt: skip
def test_a_name_that_fits_nothing_is_refused_with_those_that_do(targets, complaint):
    with pytest.raises(ModelError, match=complaint):
        adapted(targets=targets)


@pytest.mark.parametrize("targets", [["embed_tokens"], ["q_proj", "lm_head"]])
@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")  # peft only warns
def test_one_use_of_a_weight_that_has_two_is_not_adapted(targets):
    with pytest.raises(ModelError, match="are one weight: an adapter of one"):
        adapted(tiny.policy(tie_word_embeddings=True).network, targets=targets)
    adapted(targets=targets)  # untied, it is as any other


SIZES = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
OTHERS = {
    "gpt2": (GPT2Config(**SIZES, n_positions=64), ["c_attn"]),
    "gpt_neox": (GPTNeoXConfig(**SIZES, intermediate_size=32), ["query_key_value"]),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_model_without_the_default_layers_gets_those_that_peft_has_for_it(kind):
    config, layers = OTHERS[kind]
    shape, lora = shape_of(config), LoraConfig(r=2, targets="all-linear")
    network = adapted(AutoModelForCausalLM.from_config(config), targets="all-linear")
    assert adapter_numbers(lora, shape) == sum(p.numel() for p in trained(network))
    network = adapted(AutoModelForCausalLM.from_config(config))
    names = [n.split(".lora_")[0].rpartition(".")[2] for n, p in network.named_parameters()
             if p.requires_grad]  # fmt: skip
    assert set(names) == set(layers)
    # What --check counts, without weights, is what is trained.
    lora = LoraConfig(r=2)
    assert list(dict.fromkeys(name for name, *_ in adapted_layers(lora, shape))) == layers
    assert adapter_numbers(lora, shape) == sum(p.numel() for p in trained(network))


def test_layers_that_were_named_are_not_replaced_nor_those_of_an_unknown_architecture():
    assert targets_of(["query"], ["c_attn"], "gpt2") == ["query"]
    assert targets_of(("q_proj", "v_proj"), ["q_proj", "c_attn"], "gpt2") == ("q_proj", "v_proj")
    assert targets_of(("q_proj", "v_proj"), ["qkv_proj"], "unheard-of") == ("q_proj", "v_proj")
    assert targets_of(("q_proj", "v_proj"), ["qkv_proj"], "gemma4") == ("q_proj", "v_proj")


def test_an_adapter_that_is_off_is_not_there_and_comes_back():
    network, plain = moved(adapted()), tiny.policy().network
    before = logits(network)
    with adapter_off(network):
        assert torch.equal(logits(network), logits(plain))
        assert trained(network)
    assert torch.equal(logits(network), before)
    assert not torch.equal(before, logits(plain))
    with adapter_off(plain):
        assert torch.equal(logits(plain), logits(tiny.policy().network))


def test_one_thread_at_a_time_makes_layers(tmp_path, monkeypatch):
    """Two runs in the background: what transformers replaces for so long is of the process."""
    held = []

    def watched(kind, name):
        made = getattr(kind, name)

        def make(*args, **options):
            held.append((name, BUILDING.locked()))
            return made(*args, **options)

        monkeypatch.setattr(kind, name, make)

    folder, shape = tiny.save(tmp_path / "model"), tiny.policy().network.config
    for name in ("from_pretrained", "from_config"):
        watched(AutoModelForCausalLM, name)
    watched(PreTrainedModel, "add_adapter")
    adapted(LanguageModel.load(folder, device="cpu").network)
    shape_of(shape)
    assert held == [("from_pretrained", True), ("add_adapter", True), ("from_config", True)]
    assert not BUILDING.locked()
