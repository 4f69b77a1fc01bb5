"""Log-probabilities a chunk at a time: the same numbers, the same gradient, less memory."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    Gemma2Config,
    GraniteConfig,
    OPTConfig,
    Qwen2Config,
)

import tiny
from potluck.model import LanguageModel, ModelError

PROMPTS = [np.int32([1, 5, 6]), np.int32([1]), np.int32([1, 9, 9, 9, 9])]
TOKENS = [np.int32([tiny.PAD, 2]), np.int32([4, 5, 6, 7, 8, 2]), np.int32([2])]
SMALL = tiny.SMALL
CONFIGS = {
    "untied": Qwen2Config(**SMALL, tie_word_embeddings=False),
    "tied": Qwen2Config(**SMALL, tie_word_embeddings=True),
    "capped": Gemma2Config(**SMALL, head_dim=8, final_logit_softcapping=0.5),
    "scaled": CohereConfig(**SMALL, logit_scale=3.0),
    "divided": GraniteConfig(**SMALL, logits_scaling=0.1),
    "a decoder in a body": OPTConfig(
        **SMALL, word_embed_proj_dim=16, ffn_dim=32, dropout=0.0, tie_word_embeddings=False
    ),
    "other names": tiny.ARCHITECTURES[-1],
}


def made(kind):
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(CONFIGS[kind])
    with torch.no_grad():  # opinions, so that a cap or a scale is seen
        network.get_output_embeddings().weight.mul_(20)
    return LanguageModel(network, tiny.tokenizer())


def in_one_piece(policy, temperature):
    """Each row by itself through the whole network, all logits at once: the definition."""
    rows = torch.zeros(len(TOKENS), max(map(len, TOKENS)))
    for row, (prompt, tokens) in enumerate(zip(PROMPTS, TOKENS, strict=True)):
        both = torch.from_numpy(np.concatenate([prompt, tokens])).long()
        logits = policy.network(both.unsqueeze(0)).logits[0, :, : tiny.VOCABULARY]
        logp = torch.log_softmax(logits / temperature, dim=-1)
        for place, token in enumerate(tokens.tolist()):
            rows[row, place] = logp[len(prompt) + place - 1, token]
    return rows


@pytest.mark.parametrize("chunk", [4, 100])
@pytest.mark.parametrize("kind", CONFIGS)
def test_whatever_the_chunk_values_and_gradients_are_those_of_one_piece(kind, chunk, monkeypatch):
    monkeypatch.setattr("potluck.model.policy.LOGITS_AT_ONCE", chunk * SMALL["vocab_size"])
    grains = torch.arange(1.0, 1 + 3 * 6).reshape(3, 6)  # no two tokens count alike
    seen = []
    for score in (
        lambda policy: policy.logp(PROMPTS, TOKENS, temperature=0.7),
        lambda policy: in_one_piece(policy, 0.7),
    ):
        policy = made(kind)
        logp_MT = score(policy)
        (logp_MT * grains).sum().backward()
        gradient = {n: p.grad for n, p in policy.network.named_parameters()}
        seen.append((logp_MT.detach(), gradient))
    (ours, our_gradient), (theirs, their_gradient) = seen
    assert_close(ours, theirs, rtol=0, atol=2e-5)
    for name, expected in their_gradient.items():
        scale = max(1.0, float(expected.abs().max()))
        assert_close(our_gradient[name] / scale, expected / scale, rtol=0, atol=1e-5)


def test_no_more_logits_exist_at_once_than_allowed(monkeypatch):
    monkeypatch.setattr("potluck.model.policy.LOGITS_AT_ONCE", 2 * SMALL["vocab_size"])
    policy, sizes = made("untied"), []
    policy.network.lm_head.register_forward_hook(lambda m, i, out: sizes.append(out.shape[1]))
    logp_MT = policy.logp(PROMPTS, TOKENS, temperature=1.0)
    assert sizes == [2, 2, 2, 2, 1]
    logp_MT.sum().backward()
    assert sorted(sizes) == sorted([2, 2, 2, 2, 1] * 2)  # once more each, for the gradient


@pytest.mark.parametrize("replaced", [False, True])
def test_the_network_is_left_as_it_was_even_where_its_head_breaks(replaced):
    policy = made("untied")
    body, calls = policy.network.base_model, []
    theirs = body.forward
    if replaced:  # by a user
        body.forward = lambda *args, **named: calls.append(1) or theirs(*args, **named)
    before = vars(body).get("forward")

    def breaks(*_):
        raise RuntimeError("no head")

    policy.network.lm_head.register_forward_pre_hook(breaks)
    with pytest.raises(RuntimeError, match="no head"):
        policy.logp(PROMPTS, TOKENS, temperature=1.0)
    assert vars(body).get("forward") is before
    assert len(calls) == replaced


def test_a_network_without_a_body_of_its_own_is_refused():
    kind = type(made("untied").network)

    class Whole(kind):
        def get_decoder(self):
            return self

    class Elsewhere(kind):
        """Its head is fed by something else than what it calls its decoder."""

        def get_decoder(self):
            return deepcopy(self.model)

    for network in (Whole(CONFIGS["untied"]), Elsewhere(CONFIGS["untied"])):
        with pytest.raises(ModelError, match=r"is not a body \(get_decoder\) with a head"):
            LanguageModel(network, tiny.tokenizer())
