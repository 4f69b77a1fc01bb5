"""Any engine: what it writes, and that the log-probabilities it tells are the model's."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, OpenAIGPTConfig

import tiny
from potluck.model import LanguageModel, ModelError
from potluck.model.rounding import rounded
from potluck.rollout.base import EngineSettings, GreedySampler, RolloutError, RolloutRequest
from potluck.rollout.hf import HFEngine
from potluck.types import NonFiniteError
from rollout.writing import PROBLEMS, forward, problem_of, sampled, write


def engine_of(policy, *, max_new_tokens=12, max_total_tokens=60, **options):
    return HFEngine(policy, EngineSettings(max_new_tokens, max_total_tokens, **options))


def test_captured_log_probabilities_are_those_of_a_forward_pass_at_the_temperature():
    policy = tiny.policy(sharpness=5)
    for c in write(engine_of(policy, rows=5), sampled(temperature=0.7)):
        np.testing.assert_allclose(c.logp_T, forward(policy, c, 0.7), atol=2e-5)


@pytest.mark.parametrize("config", tiny.ARCHITECTURES, ids=lambda config: config.model_type)
def test_any_architecture_writes_and_is_scored_as_its_own_forward_pass_says(config):
    torch.manual_seed(0)
    policy = LanguageModel(AutoModelForCausalLM.from_config(config), tiny.tokenizer())
    written = write(engine_of(policy))
    prompts = [policy.prompt(problem_of(c)) for c in written]
    with torch.no_grad():
        logp_MT = policy.logp(prompts, [c.token_T for c in written], temperature=1.0)
    for row, c in zip(logp_MT.numpy(), written, strict=True):
        expected = forward(policy, c)
        np.testing.assert_allclose(c.logp_T, expected, atol=2e-5)
        np.testing.assert_allclose(row[: len(expected)], expected, atol=2e-5)


def test_a_completion_ends_with_its_first_stop_token_which_it_keeps_or_at_the_limit():
    made = tiny.policy(sharpness=0.1)
    policy = LanguageModel(made.network, made.tokenizer, stop=["#"])
    stop_ids = [tiny.STOP, made.tokenizer.get_vocab()["#"]]
    written = write(engine_of(policy), count=40)
    for c in written:
        stops = np.flatnonzero(np.isin(c.token_T, stop_ids))
        assert stops.tolist() == ([len(c.token_T) - 1] if c.end == "stop" else [])
        assert c.end == "stop" or len(c.token_T) == 12
    assert {c.end for c in written} == {"stop", "length"}
    assert {int(c.token_T[-1]) for c in written if c.end == "stop"} == {*stop_ids}


@pytest.mark.parametrize("rows", [2, 7, 512])
def test_a_stop_text_ends_a_completion_with_the_token_that_makes_it_whole(rows):
    plain, stop_texts = tiny.policy(sharpness=0.5), ("7a", "b", "++=")
    policy = LanguageModel(plain.network, plain.tokenizer, stop_texts=stop_texts)
    limits = {"rows": rows, "max_new_tokens": 40, "max_total_tokens": 64}
    seen = Counter()
    for seed in range(6):
        drawn = [sampled(seed) for _ in range(2)]
        free, stopped = (
            write(engine_of(each, **limits), sampler, count=7)
            for each, sampler in zip((plain, policy), drawn, strict=True)
        )
        assert [c.problem_id for c in free] == [c.problem_id for c in stopped]
        for c in stopped:
            ids = c.token_T.tolist()
            texts = [plain.tokenizer.decode(ids[:t]) for t in range(1, len(ids) + 1)]
            ended = [any(stop in text for stop in stop_texts) for text in texts]
            assert not any(ended[:-1])
            by_token = ids[-1] == tiny.STOP
            assert (c.end == "stop") == (ended[-1] or by_token)
            assert c.end == "stop" or len(ids) == 40
            seen[c.end, by_token, ended[-1]] += 1
            np.testing.assert_allclose(c.logp_T, forward(policy, c), atol=2e-5)
    assert seen.keys() >= {("stop", True, False), ("stop", False, True), ("length", False, False)}


def test_greedy_writing_with_a_stop_text_is_that_without_it_cut():
    plain = tiny.policy(seed=3)
    texts = [plain.tokenizer.decode(c.token_T) for c in write(engine_of(plain), GreedySampler(), 1)]
    stop = max((text[at : at + 2] for text in texts for at in range(len(text) - 1)), key=len)
    policy = LanguageModel(plain.network, plain.tokenizer, stop_texts=[stop])
    for text, c in zip(texts, write(engine_of(policy), GreedySampler(), 1), strict=True):
        before, found, _ = text.partition(stop)
        assert plain.tokenizer.decode(c.token_T) == before + found
        graded = before.replace("<pad>", "").replace("<bos>", "").replace("<eos>", "")
        assert policy.answer(problem_of(c), c.token_T) == graded


@pytest.mark.parametrize("given, longest", [(15, 15), (1000, 64)])
def test_prompt_and_completion_have_the_room_of_the_recipe_and_of_the_model(given, longest):
    policy = tiny.policy(sharpness=0.01)  # 64 positions
    engine = engine_of(policy, max_new_tokens=1000, max_total_tokens=given)
    sizes = [len(policy.prompt(problem_of(c))) + len(c.token_T) for c in write(engine, count=60)]
    assert max(sizes) == longest


def test_each_order_is_filled_in_its_order_with_indices_from_zero_and_counted():
    requests = [RolloutRequest(PROBLEMS[at], count) for at, count in ((3, 2), (0, 5), (2, 1))]
    for rows in (2, 512):
        seen = []
        told = {"requests": requests, "progress": lambda *pair, seen=seen: seen.append(pair)}
        written = write(engine_of(tiny.policy(), rows=rows), **told)
        assert seen[-1] == (8, 8)
        assert seen == sorted(seen)
        keys = [(c.problem_id, c.index, c.author) for c in written]
        assert keys == [(o.problem.id, i, "me") for o in requests for i in range(o.count)]


def test_the_same_seed_writes_the_same_and_another_seed_does_not():
    engine = engine_of(tiny.policy(sharpness=1))
    assert write(engine) == write(engine) != write(engine, sampled(2))


def test_tokens_come_as_often_as_the_model_says():
    """The first token of 4,000 completions against the softmax, four standard errors."""
    policy = tiny.policy(sharpness=3)
    requests = [RolloutRequest(PROBLEMS[0], 4000)]
    written = write(engine_of(policy, max_new_tokens=1, rows=4000), requests=requests)
    counted = Counter(int(c.token_T[0]) for c in written)
    ids = torch.tensor([policy.prompt(PROBLEMS[0]).tolist()])
    with torch.no_grad():
        logits = policy.network(input_ids=ids).logits[0, -1, : tiny.VOCABULARY]
    for id, p in enumerate(torch.softmax(logits, dim=0).tolist()):
        assert abs(counted[id] / 4000 - p) <= 4 * (p * (1 - p) / 4000) ** 0.5 + 1e-9


def test_ids_beyond_the_tokenizer_are_never_written_and_take_no_probability():
    policy = tiny.policy(sharpness=0)  # every logit 0, the meaningless ones included
    assert policy.network.lm_head.weight.shape[0] == tiny.VOCABULARY + tiny.EXTRA
    written = write(engine_of(policy), count=50)
    assert max(int(c.token_T.max()) for c in written) < tiny.VOCABULARY
    for c in written:
        np.testing.assert_allclose(c.logp_T, -np.log(tiny.VOCABULARY), rtol=1e-5)
    logp_MT = policy.logp([np.int32([1, 5])], [np.int32([7, 2])], temperature=1.0)
    assert_close(logp_MT, torch.full((1, 2), -np.log(tiny.VOCABULARY)), check_dtype=False)


def test_greedy_writes_the_likeliest_token_every_time():
    engine = engine_of(tiny.policy(sharpness=2))
    one, two = (write(engine, GreedySampler(), 1) for _ in range(2))
    assert one == two
    top_one = write(engine, sampled(5, top_k=1), 1)
    assert [c.token_T.tolist() for c in one] == [c.token_T.tolist() for c in top_one]


def test_top_k_and_top_p_narrow_the_choice_and_not_the_log_probability():
    policy = tiny.policy(sharpness=2)
    engine = engine_of(policy, max_new_tokens=2)

    def firsts(written):
        return {int(c.token_T[0]) for c in written if c.problem_id == "p0"}

    every = firsts(write(engine, count=50))
    for options in ({"top_k": 3}, {"top_p": 0.3}):
        written = write(engine, sampled(**options), 50)
        assert len(firsts(written)) < len(every)
        for c in written[:20]:
            np.testing.assert_allclose(c.logp_T, forward(policy, c), atol=2e-5)


def test_the_nucleus_is_the_fewest_tokens_that_reach_p():
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).repeat(500, 1)
    for p, expected in ((0.49, {0}), (0.51, {0, 1}), (0.79, {0, 1}), (0.81, {0, 1, 2})):
        token_N, logp_N = sampled(top_p=p)(logits)
        assert set(token_N.tolist()) == expected
        assert_close(logp_N, logits.gather(1, token_N[:, None])[:, 0])


def test_finished_rows_leave_the_batch():
    policy, seen = tiny.policy(sharpness=0.1), []
    policy.network.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["input_ids"].shape[0]), with_kwargs=True
    )
    write(engine_of(policy, max_new_tokens=45), count=40)
    assert seen[0] == len(PROBLEMS)  # a prompt is read once, not once for each completion
    assert seen[1:] == sorted(seen[1:], reverse=True)
    assert seen[-1] < 0.8 * seen[1]


def test_bfloat16_writes_with_a_rounded_copy_of_the_weights_as_they_are_now():
    policy = tiny.policy(sharpness=5)
    engine = engine_of(policy, dtype="bfloat16")
    first = write(engine)
    apart = max(np.abs(c.logp_T - forward(policy, c)).max() for c in first)
    assert 1e-5 < apart < 0.2
    assert policy.network.dtype == torch.float32
    with torch.no_grad():
        policy.network.lm_head.weight.mul_(-1)
    second = write(engine)
    assert first != second
    apart = max(np.abs(c.logp_T - forward(policy, c)).max() for c in second)
    assert apart < 0.2
    with torch.no_grad():
        copy = rounded(policy.network, torch.bfloat16)
    assert {p.dtype for p in copy.parameters()} == {torch.bfloat16}
    assert {b.dtype for b in copy.buffers()} == {torch.float32}  # rotary positions would drift


def test_the_head_reads_whole_rows_so_that_bfloat16_copies_no_frozen_weights_for_each():
    policy = tiny.policy()
    policy.network.requires_grad_(False)
    read = []
    head = policy.network.get_output_embeddings()
    head.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    write(engine_of(policy))
    assert len(read) > 1
    assert all(hidden_NSD.is_contiguous() and hidden_NSD.shape[1] == 1 for hidden_NSD in read)


def test_what_writing_frees_goes_back_to_the_system(monkeypatch):
    asked = []
    monkeypatch.setattr("potluck.model.policy.GIVE_BACK", asked.append)
    write(engine_of(tiny.policy()))
    assert asked == [0]


class Products(TorchDispatchMode):
    """Collects the weights that a product takes once for each row: those spread over a batch."""

    def __init__(self):
        super().__init__()
        self.count, self.spread = 0, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        ops = torch.ops.aten
        if func is ops.linear.default and not args[0].is_contiguous():  # of inference mode
            self.spread.append(tuple(args[1].shape))
        if func is ops.bmm.default:
            self.spread += [tuple(t.shape) for t in args if len(t) > 1 and not t.stride(0)]
        self.count += func in (ops.linear.default, ops.mm.default, ops.addmm.default)
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("config", tiny.ARCHITECTURES, ids=lambda config: config.model_type)
def test_no_frozen_weight_is_spread_over_rows_while_writing_scoring_and_learning(config):
    # torch.nn.functional.linear folds rows that lie side by side; others meet a copy each.
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(config).to(torch.bfloat16).requires_grad_(False)
    policy = LanguageModel(network, tiny.tokenizer(), dtype=torch.bfloat16)
    # What comes out of the embedding has a gradient, as under an adapter.
    embedding = network.get_input_embeddings()
    with Products() as products:
        written = write(engine_of(policy, dtype="bfloat16"))
        prompts, tokens = (
            [policy.prompt(problem_of(c)) for c in written],
            [c.token_T for c in written],
        )
        with torch.no_grad():
            policy.logp(prompts, tokens, temperature=1.0)
        embedding.register_forward_hook(lambda _, given, out: out.requires_grad_())
        policy.logp(prompts, tokens, temperature=1.0).sum().backward()
    assert products.count > 10
    assert products.spread == []


def test_a_model_without_a_cache_of_keys_and_values_is_refused():
    config = OpenAIGPTConfig(n_embd=16, n_layer=1, n_head=2, vocab_size=tiny.SMALL["vocab_size"])
    network = AutoModelForCausalLM.from_config(config)
    network.config.eos_token_id = tiny.STOP
    with pytest.raises(ModelError, match="OpenAIGPTLMHeadModel keeps no cache"):
        engine_of(LanguageModel(network, tiny.tokenizer()))


def test_a_prompt_without_tokens_or_room_is_refused_by_name():
    policy = tiny.policy()
    with pytest.raises(RolloutError, match=r"'p3' has 12 tokens, which leaves no room below"):
        write(engine_of(policy, max_total_tokens=12))
    policy.prompt = lambda problem: np.zeros(0, np.int32)
    with pytest.raises(RolloutError, match=r"the prompt of 'p0' has no tokens"):
        write(engine_of(policy))


def test_a_model_whose_logits_are_not_finite_stops_with_a_reason():
    policy = tiny.policy()
    with torch.no_grad():
        policy.network.lm_head.weight[3] = torch.nan
    with pytest.raises(NonFiniteError, match="a logit that is not finite while it wrote"):
        write(engine_of(policy))
