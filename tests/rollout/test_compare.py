"""What writes is what learns; a difference is found, placed and told in the first round."""

import dataclasses

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, DogeConfig, Phi3Config

import tiny
from potluck.launch.in_process import run
from potluck.model import LanguageModel
from potluck.rollout.base import EngineSettings, GreedySampler, RandomSampler, RolloutError
from potluck.rollout.base import RolloutRequest as Request
from potluck.rollout.compare import least_mean
from potluck.rollout.hf import HFEngine
from potluck.rollout.options import HFOptions
from potluck.types import Problem, Sampling

PROBLEMS = [Problem("p", "1+2=", "3"), Problem("q", "add 12 and 30 and 7", "49")]
BORDER = 16


def model(config, sharpness=8.0):
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(sharpness if parameter.dim() > 1 else 1)  # with opinions
    return LanguageModel(network, tiny.tokenizer())


def longrope():
    factors = {"long_factor": [3.0] * 8, "short_factor": [1.0] * 8}
    return Phi3Config(
        **tiny.SMALL | {"hidden_size": 32, "intermediate_size": 64},
        original_max_position_embeddings=BORDER,
        rope_scaling={"type": "longrope", **factors},
    )


def compare(
    policy,
    tokens,
    *,
    problems=PROBLEMS,
    sampler=None,
    dtype="float32",
    change=lambda logp_T: logp_T,
):
    engine = HFOptions().build(policy, EngineSettings(tokens, 64, dtype=dtype))
    sampler = sampler or RandomSampler(torch.Generator().manual_seed(1))
    asked = [Request(problem, 4) for problem in problems]
    written = engine.generate(asked, sampler, author="me", progress=lambda done, total: None)
    told = [dataclasses.replace(c, logp_T=change(c.logp_T)) for c in written]
    engine.require_one_model(asked, sampler, told)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("config", tiny.ARCHITECTURES, ids=lambda config: config.model_type)
def test_models_whose_two_ways_agree_pass(config, dtype):
    compare(model(config, sharpness=2.0), 30, dtype=dtype)
    hot = RandomSampler(torch.Generator().manual_seed(1), Sampling(0.6, 5, 1.0))
    compare(model(config, sharpness=2.0), 30, dtype=dtype, sampler=hot)
    compare(model(config, sharpness=2.0), 30, dtype=dtype, sampler=GreedySampler())


def test_a_model_that_goes_on_otherwise_behind_a_length_is_found_and_placed():
    short = PROBLEMS[:1]  # a batch with a long prompt is beyond it from the start
    compare(model(longrope()), 6, problems=short)
    with pytest.raises(RolloutError) as raised:
        compare(model(longrope()), 40, problems=short)
    said = str(raised.value)
    assert "nats a token, where at most 0.01 was expected; it begins at position " in said
    assert f", which is beyond its original_max_position_embeddings of {BORDER}, in " in said


def test_a_model_whose_mask_depends_on_the_batch_is_found():
    doge = DogeConfig(**tiny.SMALL, keep_window_size=4)
    with pytest.raises(RolloutError, match="in two ways"):
        compare(model(doge), 40)


@pytest.mark.parametrize("dtype, little, much", [("float32", 2e-3, 0.02), ("bfloat16", 0.05, 0.2)])
def test_a_shift_of_every_token_is_found_above_what_the_format_costs(dtype, little, much):
    policy = model(tiny.ARCHITECTURES[0], sharpness=2.0)
    compare(policy, 40, dtype=dtype, change=lambda logp_T: logp_T - little)
    with pytest.raises(RolloutError, match="it is spread over all positions"):
        compare(policy, 40, dtype=dtype, change=lambda logp_T: logp_T - much)


def test_the_recipe_may_allow_more_or_less():
    policy = model(tiny.ARCHITECTURES[0], sharpness=2.0)
    for tolerance, shift, is_allowed in ((0.5, 0.2, True), (1e-4, 2e-3, False)):
        engine = HFOptions(tolerance=tolerance).build(policy, EngineSettings(40, 64))
        sampler = RandomSampler(torch.Generator().manual_seed(1))
        asked = [Request(problem, 4) for problem in PROBLEMS]
        written = engine.generate(asked, sampler, author="me", progress=lambda done, total: None)
        told = [dataclasses.replace(c, logp_T=c.logp_T - shift) for c in written]
        if is_allowed:
            engine.require_one_model(asked, sampler, told)
            continue
        with pytest.raises(RolloutError, match=r"raise tolerance in \[node.NAME.engine\]"):
            engine.require_one_model(asked, sampler, told)


def test_few_tokens_decide_nothing_and_many_do():
    lot = np.random.default_rng(0)
    for count, is_known in ((1, False), (5, False), (9, False), (400, True)):
        assert (least_mean(lot.exponential(0.15, count)) > 0.1) is is_known
    assert least_mean(np.full(40, 3.0)) > 0.1


def test_a_run_ends_in_its_first_round_and_compares_no_other(tmp_path, monkeypatch):
    asked = []
    compared = HFEngine.require_one_model

    def twisted(self, requests, sampler, written):
        asked.append(written)
        shifted = [dataclasses.replace(c, logp_T=c.logp_T - shift) for c in written]
        compared(self, requests, sampler, shifted)

    monkeypatch.setattr(HFEngine, "require_one_model", twisted)
    config = tiny.recipe({"a": tiny.save(tmp_path / "a"), "b": tiny.save(tmp_path / "b", seed=1)})
    shift = 0.0
    run(config, tmp_path / "right", display=None)
    assert len(asked) == len(config.node)  # of two rounds each
    shift = 0.5
    with pytest.raises(RolloutError, match=r"0\.5 nats a token, where at most 0\.01"):
        run(config, tmp_path / "wrong", display=None)
