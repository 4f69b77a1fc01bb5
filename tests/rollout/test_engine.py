"""Any engine: what it writes, and that the log-probabilities it tells are the model's."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from transformers import (
    AutoModelForCausalLM,
    OpenAIGPTConfig,
)

import tiny
from potluck.model import LanguageModel, ModelError
from potluck.rollout.base import GreedySampler, RandomSampler, RolloutError, RolloutRequest
from potluck.rollout.hf import HFEngine, _rounded
from potluck.rollout.settings import EngineSettings
from potluck.types import NonFiniteError, Problem, Sampling

PROBLEMS = [Problem(f"p{i}", "1+2=3+4=5+6="[: 2 + 3 * i], "?") for i in range(4)]
"""Prompts of four lengths."""


def engine_of(policy, *, max_new_tokens=12, max_total_tokens=60, **options):
    return HFEngine(policy, EngineSettings(max_new_tokens, max_total_tokens, **options))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def write(
    policy,
    problems=PROBLEMS,
    count=3,
    *,
    seed=0,
    temperature=1.0,
    top_k=0,
    top_p=1.0,
    sampler=None,
    progress=lambda done, total: None,
    **options,
):
    sampler = sampler or RandomSampler(generator(seed), Sampling(temperature, top_k, top_p))
    requests = [RolloutRequest(problem, count) for problem in problems]
    return engine_of(policy, **options).generate(requests, sampler, author="me", progress=progress)


def teacher_forced(policy, completion, temperature=1.0):
    """logp_T by a forward pass of this completion alone, straight from the network's logits."""
    problem = next(p for p in PROBLEMS if p.id == completion.problem_id)
    prompt = policy.prompt(problem)
    ids = torch.tensor([[*prompt, *completion.token_T]])
    with torch.no_grad():
        logits = policy.network(input_ids=ids).logits[0, :, : tiny.VOCABULARY].float()
    every = torch.log_softmax(logits / temperature, dim=1)[len(prompt) - 1 : -1]
    return every.gather(1, torch.tensor(completion.token_T).long()[:, None])[:, 0].numpy()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("rows", [512, 5])
def test_captured_log_probabilities_are_those_of_a_forward_pass(temperature, rows):
    policy = tiny.policy(sharpness=5)
    for c in write(policy, temperature=temperature, rows=rows):
        np.testing.assert_allclose(c.logp_T, teacher_forced(policy, c, temperature), atol=2e-5)


@pytest.mark.parametrize("config", tiny.ARCHITECTURES, ids=lambda config: config.model_type)
def test_any_architecture_writes_and_is_scored_as_its_own_forward_pass_says(config):
    torch.manual_seed(0)
    policy = LanguageModel(AutoModelForCausalLM.from_config(config), tiny.tokenizer())
    written = write(policy)
    prompts = [policy.prompt(p) for p in PROBLEMS for _ in range(3)]
    with torch.no_grad():
        logp_MT = policy.logp(prompts, [c.token_T for c in written], temperature=1.0)
    for row, c in zip(logp_MT.numpy(), written, strict=True):
        expected = teacher_forced(policy, c)
        np.testing.assert_allclose(c.logp_T, expected, atol=2e-5)
        np.testing.assert_allclose(row[: len(expected)], expected, atol=2e-5)


def test_a_completion_ends_with_its_first_stop_token_which_it_keeps_or_at_the_limit():
    written = write(tiny.policy(sharpness=0.1), count=40)
    for c in written:
        stops = np.flatnonzero(c.token_T == tiny.STOP)
        assert stops.tolist() == ([len(c.token_T) - 1] if c.end == "stop" else [])
        assert c.end == "stop" or len(c.token_T) == 12
    assert {c.end for c in written} == {"stop", "length"}


def test_further_stop_tokens_end_a_completion_too():
    made = tiny.policy(sharpness=0.1)
    policy = LanguageModel(made.network, made.tokenizer, stop=["#"])
    hash_id = made.tokenizer.get_vocab()["#"]
    ends = {int(c.token_T[-1]) for c in write(policy, count=60) if c.end == "stop"}
    assert ends == {tiny.STOP, hash_id}


def test_prompt_and_completion_together_stay_within_their_limit():
    policy = tiny.policy(sharpness=0.1)
    for c in write(policy, count=20, max_total_tokens=15):
        problem = next(p for p in PROBLEMS if p.id == c.problem_id)
        assert len(policy.prompt(problem)) + len(c.token_T) <= 15
    with pytest.raises(RolloutError, match=r"'p3' has 12 tokens, which leaves no room below"):
        write(policy, max_total_tokens=12)


def test_each_order_is_filled_in_its_order_with_indices_from_zero_and_counted():
    requests = [RolloutRequest(PROBLEMS[at], count) for at, count in ((3, 2), (0, 5), (2, 1))]
    for rows in (1, 2, 3, 512):
        seen = []
        written = engine_of(tiny.policy(), rows=rows).generate(
            requests,
            RandomSampler(generator()),
            author="me",
            progress=lambda *pair, seen=seen: seen.append(pair),
        )
        assert seen[-1] == (8, 8)
        assert seen == sorted(seen)
        keys = [(c.problem_id, c.index) for c in written]
        assert keys == [(o.problem.id, i) for o in requests for i in range(o.count)]
        assert {c.author for c in written} == {"me"}


def test_the_same_seed_writes_the_same_and_another_seed_does_not():
    policy = tiny.policy(sharpness=1)
    assert write(policy, seed=1) == write(policy, seed=1) != write(policy, seed=2)


def test_tokens_come_as_often_as_the_model_says():
    """The first token of 4,000 completions against the softmax, four standard errors."""
    policy = tiny.policy(sharpness=3)
    written = write(policy, PROBLEMS[:1], 4000, max_new_tokens=1, rows=4000)
    counted = Counter(int(c.token_T[0]) for c in written)
    ids = torch.tensor([policy.prompt(PROBLEMS[0]).tolist()])
    with torch.no_grad():
        logits = policy.network(input_ids=ids).logits[0, -1, : tiny.VOCABULARY]
    for id, p in enumerate(torch.softmax(logits, dim=0).tolist()):
        assert abs(counted[id] / 4000 - p) <= 4 * (p * (1 - p) / 4000) ** 0.5 + 1e-9


def test_ids_beyond_the_tokenizer_are_never_written_and_take_no_probability():
    policy = tiny.policy(sharpness=0)  # every logit 0, the meaningless ones included
    assert policy.network.lm_head.weight.shape[0] == tiny.VOCABULARY + tiny.EXTRA
    written = write(policy, count=50)
    assert max(int(c.token_T.max()) for c in written) < tiny.VOCABULARY
    for c in written:
        np.testing.assert_allclose(c.logp_T, -np.log(tiny.VOCABULARY), rtol=1e-5)
    logp_MT = policy.logp([np.int32([1, 5])], [np.int32([7, 2])], temperature=1.0)
    assert_close(logp_MT, torch.full((1, 2), -np.log(tiny.VOCABULARY)), check_dtype=False)


def test_greedy_writes_the_likeliest_token_every_time():
    policy = tiny.policy(sharpness=2)
    one, two = (write(policy, sampler=GreedySampler(), count=1) for _ in range(2))
    assert one == two
    top_one = write(policy, top_k=1, count=1, seed=5)
    assert [c.token_T.tolist() for c in one] == [c.token_T.tolist() for c in top_one]


def test_top_k_and_top_p_narrow_the_choice_and_not_the_log_probability():
    policy = tiny.policy(sharpness=2)
    for options in ({"top_k": 3}, {"top_p": 0.3}):
        written = write(policy, count=50, max_new_tokens=2, **options)
        firsts = {int(c.token_T[0]) for c in written if c.problem_id == "p0"}
        every = {
            int(c.token_T[0])
            for c in write(policy, count=50, max_new_tokens=2)
            if c.problem_id == "p0"
        }
        assert len(firsts) < len(every)
        for c in written[:20]:
            np.testing.assert_allclose(c.logp_T, teacher_forced(policy, c), atol=2e-5)


def test_the_nucleus_is_the_fewest_tokens_that_reach_p():
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).repeat(500, 1)
    for p, expected in ((0.49, {0}), (0.51, {0, 1}), (0.79, {0, 1}), (0.81, {0, 1, 2})):
        token_N, logp_N = RandomSampler(generator(), Sampling(top_p=p))(logits)
        assert set(token_N.tolist()) == expected
        assert_close(logp_N, logits.gather(1, token_N[:, None])[:, 0])


def test_finished_rows_leave_the_batch():
    policy, seen = tiny.policy(sharpness=0.1), []
    policy.network.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["input_ids"].shape[0]), with_kwargs=True
    )
    write(policy, count=40, max_new_tokens=45)
    assert seen[0] == len(PROBLEMS)  # a prompt is read once, not once for each completion
    assert seen[1:] == sorted(seen[1:], reverse=True)
    assert seen[-1] < 0.8 * seen[1]


def test_bfloat16_writes_with_a_rounded_copy_of_the_weights_as_they_are_now():
    policy = tiny.policy(sharpness=5)
    engine = engine_of(policy, dtype="bfloat16")

    def written():
        return engine.generate(
            [RolloutRequest(p, 3) for p in PROBLEMS],
            RandomSampler(generator()),
            author="me",
            progress=lambda *_: None,
        )

    first = written()
    apart = max(np.abs(c.logp_T - teacher_forced(policy, c)).max() for c in first)
    assert 1e-5 < apart < 0.2
    assert policy.network.dtype == torch.float32
    with torch.no_grad():
        policy.network.lm_head.weight.mul_(-1)
    second = written()
    assert first != second
    apart = max(np.abs(c.logp_T - teacher_forced(policy, c)).max() for c in second)
    assert apart < 0.2


def test_the_bfloat16_copy_keeps_its_buffers_so_that_rotary_positions_do_not_drift():
    policy = tiny.policy()
    with torch.no_grad():
        copy = _rounded(policy.network, torch.bfloat16)
    assert {p.dtype for p in copy.parameters()} == {torch.bfloat16}
    assert {b.dtype for b in copy.buffers()} == {torch.float32}
    assert {p.dtype for p in policy.network.parameters()} == {torch.float32}


def test_nothing_is_written_beyond_the_positions_that_the_model_has():
    policy = tiny.policy(sharpness=0.01)  # 64 positions
    written = write(policy, count=60, max_new_tokens=1000, max_total_tokens=1000)
    assert max(len(c.token_T) + len(policy.prompt(PROBLEMS[0])) for c in written) <= 76
    for c in written:
        problem = next(p for p in PROBLEMS if p.id == c.problem_id)
        assert len(policy.prompt(problem)) + len(c.token_T) <= 64


def test_a_model_without_a_cache_of_keys_and_values_is_refused():
    config = OpenAIGPTConfig(n_embd=16, n_layer=1, n_head=2, vocab_size=tiny.SMALL["vocab_size"])
    network = AutoModelForCausalLM.from_config(config)
    network.config.eos_token_id = tiny.STOP
    with pytest.raises(ModelError, match="OpenAIGPTLMHeadModel keeps no cache"):
        engine_of(LanguageModel(network, tiny.tokenizer()))


def test_a_prompt_without_tokens_is_refused_by_name():
    policy = tiny.policy()
    policy.prompt = lambda problem: np.zeros(0, np.int32)
    with pytest.raises(RolloutError, match=r"the prompt of 'p0' has no tokens"):
        write(policy)


def test_a_model_whose_logits_are_not_finite_stops_with_a_reason():
    policy = tiny.policy()
    with torch.no_grad():
        policy.network.lm_head.weight[3] = torch.nan
    with pytest.raises(NonFiniteError, match="a logit that is not finite while it wrote"):
        write(policy)
