"""Adapters on a network: what they change, what they leave, and that they come back."""

import pytest
import torch

import tiny
from potluck.model import ModelError
from potluck.model.lora import add_adapter, restore_adapter, trained


def adapted(*, seed=0, rank=2, targets=("q_proj", "v_proj"), alpha=4.0, dropout=0.0):
    network = tiny.policy().network
    add_adapter(network, rank=rank, alpha=alpha, dropout=dropout, targets=targets, seed=seed)
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


def test_dropout_is_off_until_training_begins():
    network = moved(adapted(dropout=0.5))
    assert torch.equal(logits(network), logits(network))
    network.train()
    assert not torch.equal(logits(network), logits(network))


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
        ({"targets": ["q_proj"]}, "'model.layers.0.self_attn.v_proj.lora_A.weight' does not fit"),
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


def test_a_layer_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(
        ModelError, match=r"targets = \['query'\].* Qwen2ForCausalLM has down_proj, gate"
    ):
        adapted(targets=["query"])


def test_a_name_that_fits_nothing_is_refused_even_where_others_fit():
    with pytest.raises(ModelError, match=r"has 'v_porj', which is no layer; .* up_proj, v_proj$"):
        adapted(targets=["q_proj", "v_porj"])


@pytest.mark.parametrize("targets", [["lm_head"], ["embed_tokens"], ["q_proj", "lm_head"]])
@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")  # peft only warns
def test_one_use_of_a_weight_that_has_two_is_not_adapted(targets):
    tied = tiny.policy(tie_word_embeddings=True).network
    options = {"rank": 2, "alpha": 4.0, "dropout": 0.0, "seed": 0}
    with pytest.raises(ModelError, match="are one weight: an adapter of one"):
        add_adapter(tied, targets=targets, **options)
    add_adapter(tiny.policy().network, targets=targets, **options)  # untied, it is as any other
