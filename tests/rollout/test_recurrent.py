"""Models with recurrent layers (Qwen3.5, Qwen3-Next, LFM2): what they write, in batches with states
that are repeated, chosen and kept, has the log-probabilities of a plain pass over each text."""

import numpy as np
import pytest
import torch
from transformers import AutoConfig

import tiny
from episodes import Here
from potluck.model import LanguageModel, ModelError
from potluck.rollout import cache, hf
from potluck.rollout.base import EngineSettings, PromptedRequest, RolloutRequest
from potluck.rollout.cache import TurnReader, require_repeatable
from potluck.rollout.hf import HFEngine
from potluck.types import Problem
from rollout.test_episodes import STOPS, scored
from rollout.writing import forward, problem_of, sampled, write

EACH = pytest.mark.parametrize("config", tiny.RECURRENT, ids=lambda config: config.model_type)
LENGTHS = (1, 4, 30, 66, 130)
"""Characters of prompts: below and beyond the 64 tokens that a gated delta rule takes at once."""


def long(config):
    """The same model with more positions."""
    return type(config)(**config.to_dict() | {"max_position_embeddings": 512})


def problems(*lengths):
    return [Problem(f"p{length}", ("1+2=3+4=" * 20)[:length], "?") for length in lengths]


def stopping(model, stops):
    """The same model, which stops at these tokens, too."""
    return LanguageModel(model.network, model.tokenizer, stop=stops)


def alone(model, problem, completion):
    """logp_T of a pass over this text alone, without padding, a mask or a cache."""
    ids = [*model.prompt(problem), *completion.token_T]
    with torch.no_grad():
        logits = model.network(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    every = logits[:-1, : tiny.VOCABULARY].float().log_softmax(dim=1)
    each = every.gather(1, torch.tensor(ids)[1:, None])[:, 0]
    return each[-len(completion.token_T) :].numpy()


def assert_same(found_T, expected_T):
    """A gated delta rule rounds single tokens by up to 1e-4, with a state or in one pass over a
    text; computed in float64, the two are equal to the last bit of float32."""
    apart_T = np.abs(found_T - expected_T)
    assert apart_T.mean() < 1e-5
    assert apart_T.max() < 5e-4


@EACH
@pytest.mark.parametrize(
    "lengths, rows", [(LENGTHS, 512), ((30, 30), 7)], ids=["unlike", "alike, 7 at once"]
)
def test_groups_of_prompts_side_by_side_have_the_numbers_of_each_text_alone(config, lengths, rows):
    model, asked = stopping(tiny.recurrent(long(config)), STOPS[:2]), problems(*lengths)
    engine = HFEngine(model, EngineSettings(24, 300, rows=rows))
    written = write(engine, requests=[RolloutRequest(each, 6) for each in asked])
    assert len({len(c.token_T) for c in written}) > 3  # rows have ended, and left the batch
    of = {each.id: each for each in asked}
    prompts = [model.prompt(of[c.problem_id]) for c in written]
    with torch.no_grad():
        logp_MT = model.logp(prompts, [c.token_T for c in written], temperature=1.0).numpy()
    for c, row in zip(written, logp_MT, strict=True):
        expected = alone(model, of[c.problem_id], c)
        assert_same(c.logp_T, expected)
        assert_same(row[: len(expected)], expected)


@EACH
@pytest.mark.parametrize("spare, resume_at", [(-1.0, 0.0), (9.0, 0.6)])
def test_episodes_of_several_turns_have_them_however_long_rows_wait(
    monkeypatch, config, spare, resume_at
):
    monkeypatch.setattr(cache, "SPARE", spare)
    monkeypatch.setattr(hf, "RESUME_AT", resume_at)
    model = stopping(tiny.recurrent(config, sharpness=1.0), STOPS)
    engine = HFEngine(model, EngineSettings(24, 60, environment=Here(), rows=512))
    written = write(engine, count=6)
    assert len({len(c.turns) for c in written}) > 3
    for c in written:
        assert_same(c.logp_T, scored(model, c))


@EACH
@torch.inference_mode()
def test_what_most_rows_read_changes_nothing_for_those_that_wait(config):
    """Four rows; three read two more tokens, then each one."""
    model, (problem,) = tiny.recurrent(config), problems(4)
    prompt_P = model.prompt(problem)
    reader = TurnReader(model.network, [PromptedRequest(problem, prompt_P, 4, 40, 40)])
    reader.first()
    block, last_N = np.array([7, 9], np.int32), torch.tensor([4, 5, 6, 8])
    heard_WV = reader.read(torch.tensor([0, 1, 3]), [block] * 3)
    said_NV = reader.step(last_N, torch.ones(4, dtype=torch.bool))

    def after(ids):
        return model.network(input_ids=torch.tensor([[*prompt_P, *ids]])).logits[0, -1]

    for row_V in heard_WV:
        torch.testing.assert_close(row_V, after(block), rtol=0, atol=1e-4)
    for row, row_V in enumerate(said_NV):
        ids = [*block, last_N[row]] if row != 2 else [last_N[row]]
        torch.testing.assert_close(row_V, after(ids), rtol=0, atol=1e-4)


@EACH
def test_gradients_of_rows_side_by_side_are_those_of_each_alone(config):
    model, asked = tiny.recurrent(long(config)), problems(*LENGTHS)
    prompts = [model.prompt(each) for each in asked]
    tokens = [np.arange(3, 3 + length, dtype=np.int32) for length in (9, 2, 30, 5, 12)]

    def gradient(*groups):
        model.network.zero_grad()
        for group in groups:
            told = [prompts[i] for i in group], [tokens[i] for i in group]
            model.logp(*told, temperature=1.0).sum().backward()
        return [each.grad.clone() for each in model.network.parameters()]

    for one, other in zip(gradient(range(5)), gradient(*([i] for i in range(5))), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4 * float(other.abs().max()))


@EACH
def test_in_bfloat16_a_copy_writes_what_it_scores_up_to_rounding(config):
    model = tiny.recurrent(config, sharpness=2.0)
    for c in write(HFEngine(model, EngineSettings(12, 60, dtype="bfloat16")), sampled()):
        np.testing.assert_allclose(c.logp_T, forward(model, c), atol=0.5)
        assert model.prompt(problem_of(c)) is not None
    assert {each.dtype for each in model.network.parameters()} == {torch.float32}


@EACH
def test_they_are_taken_and_those_that_add_a_bias_to_padding_are_not(config):
    require_repeatable(config, "m")
    if config.model_type.startswith("lfm2"):
        biased = type(config)(**config.to_dict() | {"conv_bias": True})
        with pytest.raises(ModelError, match="recurrent layers, whose state padding"):
            require_repeatable(biased, "m")


def test_a_model_of_texts_and_images_is_judged_by_its_texts():
    for kind in ("qwen3_5", "qwen3_5_moe"):
        require_repeatable(AutoConfig.for_model(kind), "m")
