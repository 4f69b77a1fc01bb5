"""A prompt that several rows share is read once: the same numbers as of whole rows."""

import functools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

import configurations
import tiny
from allocations import asked_of_torch
from node.test_learner import learner_of
from node.test_observed import episodes, packed
from potluck.model import LanguageModel, inputs
from potluck.model.inputs import SharedPrompts, WholeRows, pays, read_tokens, tokens_held
from potluck.model.training import add_adapter
from potluck.node.learning.passes import micro_batches
from potluck.objective.methods import METHODS, ObjectiveConfig

SHARED, WHOLE = 1e9, -1.0
"""Values of WORTH_SHARING with which prompts are always read once, and never."""


def model_of(name):
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(configurations.configuration(name))
    return LanguageModel(network, tiny.tokenizer())


def rows(*, prompts=(12, 17, 3), counts=(4, 3, 2), lengths=(5, 1, 7, 3, 9, 2, 2, 1, 4)):
    """Prompts, tokens and what is observed of rows in no order; every second one has an episode."""
    dice = np.random.default_rng(0)

    def ids(count):
        return dice.integers(3, tiny.VOCABULARY, count).astype(np.int32)

    asked = [ids(length) for length in prompts]
    given = [prompt for prompt, count in zip(asked, counts, strict=True) for _ in range(count)]
    tokens = [ids(length) for length in lengths]
    observed = [((1, ids(3)),) if len(t) > 1 and i % 2 else () for i, t in enumerate(tokens)]
    mixed = dice.permutation(len(tokens))
    return tuple([column[i] for i in mixed] for column in (given, tokens, observed))


def without_dropout(network):
    """Switch off what would draw other numbers each time, in modules that are being trained."""
    for module in network.modules():
        for name, value in vars(module).items():
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0


def both_ways(policy, monkeypatch, given, temperature=0.7):
    """(logp_MT, entropy_MT, gradients) with prompts read once, and of whole rows."""
    prompts, tokens, observed = given
    found = []
    for worth, kind in ((SHARED, SharedPrompts), (WHOLE, WholeRows)):
        monkeypatch.setattr(inputs, "WORTH_SHARING", worth)
        assert type(policy._inputs(prompts, tokens, observed)) is kind
        policy.network.zero_grad()
        logp_MT, entropy_MT = policy.logp_and_entropy(
            prompts, tokens, temperature=temperature, observed=observed
        )
        (logp_MT * torch.linspace(-1, 1, logp_MT.numel()).view_as(logp_MT)).sum().backward()
        gradients = {n: p.grad for n, p in policy.network.named_parameters() if p.grad is not None}
        found.append((logp_MT.detach(), entropy_MT, gradients))
    return found


def assert_equal_ways(shared, whole):
    for one, other in zip(shared[:2], whole[:2], strict=True):
        assert_close(one, other, rtol=1e-5, atol=5e-6)
    assert shared[2].keys() == whole[2].keys()
    apart = sum((shared[2][n] - whole[2][n]).square().sum() for n in whole[2]).sqrt()
    norm = sum(gradient.square().sum() for gradient in whole[2].values()).sqrt()
    assert norm > 0
    assert apart <= 1e-5 * norm


@pytest.mark.parametrize("name", configurations.KINDS)
def test_log_probabilities_entropies_and_gradient_are_those_of_whole_rows(name, monkeypatch):
    policy = model_of(name)
    assert policy.shares_prompts
    assert_equal_ways(*both_ways(policy, monkeypatch, rows()))


@pytest.mark.parametrize("name", ["qwen2", "gemma3_text", "mpt", "gpt2"])
@pytest.mark.parametrize(
    "given",
    [
        rows(prompts=(9, 9, 9)),
        rows(prompts=(1, 2, 3)),
        rows(prompts=(20,), counts=(9,)),
        rows(prompts=(20,) * 9, counts=(1,) * 9),
        rows(lengths=(1,) * 9),
        rows(prompts=(30, 2), counts=(1, 8)),
    ],
    ids=["even", "short", "one prompt", "none shared", "one token", "unlike"],
)
def test_whatever_the_prompts_and_counts_are(name, given, monkeypatch):
    assert_equal_ways(*both_ways(model_of(name), monkeypatch, given))


@pytest.mark.parametrize("name", configurations.UNSHARED)
def test_a_model_whose_prompts_cannot_be_continued_reads_whole_rows(name):
    policy = model_of(name)
    assert not policy.shares_prompts
    assert isinstance(policy._inputs(*rows()), WholeRows)
    policy.logp(*rows()[:2], temperature=1.0)


@pytest.mark.parametrize("targets", ["all-linear", ["down_proj"]])
@pytest.mark.parametrize("twice", [False, True])
def test_an_adapter_learns_the_same(targets, twice, monkeypatch):
    """Of one on "down_proj" the first layer's keys and values have no gradient."""
    policy = model_of("qwen2")
    add_adapter(policy.network, rank=2, alpha=4.0, dropout=0.0, targets=targets, seed=3)
    with torch.no_grad():
        for parameter in policy.network.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1)
    if twice:
        policy.checkpoint_activations()
        policy.network.train()
    trained = {name for name, p in policy.network.named_parameters() if p.requires_grad}
    shared, whole = both_ways(policy, monkeypatch, rows())
    assert shared[2].keys() == whole[2].keys() == trained
    assert_equal_ways(shared, whole)


def test_own_parts_teach_what_their_prompts_do_not(monkeypatch):
    """Only weights behind all keys and values are trained."""
    policy = model_of("qwen2")
    policy.network.requires_grad_(False)
    policy.network.get_decoder().layers[-1].mlp.requires_grad_()
    assert_equal_ways(*both_ways(policy, monkeypatch, rows()))


@pytest.mark.parametrize("name", configurations.KINDS)
def test_layers_that_compute_twice_learn_the_same(name, monkeypatch):
    policy = model_of(name)
    policy.checkpoint_activations()
    policy.network.train()
    without_dropout(policy.network)
    assert policy.computes_twice
    assert policy.shares_prompts
    assert_equal_ways(*both_ways(policy, monkeypatch, rows()))


def computed_in(layer, monkeypatch):
    """Batches and columns of each call of a layer's own forward pass."""
    seen, attention = [], layer.self_attn
    plain = attention.forward

    def forward(*given, hidden_states, **named):
        seen.append(tuple(hidden_states.shape[:2]))
        return plain(*given, hidden_states=hidden_states, **named)

    monkeypatch.setattr(attention, "forward", forward)
    return seen


def test_a_layer_that_computes_twice_does_so_in_the_backward_pass_with_its_cache(monkeypatch):
    policy = model_of("qwen2")
    policy.checkpoint_activations()
    policy.network.train()
    seen = computed_in(policy.network.get_decoder().layers[0], monkeypatch)
    prompts, tokens = [np.arange(3, 23, dtype=np.int32)] * 5, [np.int32([3, 4, 5])] * 5
    logp_MT = policy.logp(prompts, tokens, temperature=1.0)
    assert seen == [(1, 20), (5, 2)]
    seen.clear()
    logp_MT.sum().backward()
    assert seen == [(5, 2), (1, 20)]
    assert policy.computes_twice, "the switches of transformers are as they were"


def test_activations_are_not_kept(monkeypatch):
    monkeypatch.setattr(inputs, "WORTH_SHARING", SHARED)
    prompts, tokens, _ = rows(prompts=(30,), counts=(4,), lengths=(30,) * 4)
    held = []
    for twice in (False, True):
        policy = model_of("qwen2")
        if twice:
            policy.checkpoint_activations()
        policy.network.train()
        read = partial(policy.logp, prompts, tokens, temperature=1.0)
        held.append(asked_of_torch(read, at_end=True))
    plain, again = held
    assert again < 0.5 * plain


def test_no_weight_has_a_second_gradient_in_the_backward_pass(monkeypatch):
    """The gradient of own parts is in ``grad`` before that of the prompts begins."""
    policy = model_of("qwen2")
    weight = policy.network.get_decoder().layers[0].self_attn.o_proj.weight
    added = []
    weight.register_post_accumulate_grad_hook(lambda given: added.append(given.grad.clone()))
    lengths = (1, 2, 1, 2, 40, 41, 40, 42, 41)
    prompts, tokens, _ = rows(lengths=lengths)
    logp_MT = policy.logp(prompts, tokens, temperature=1.0)
    logp_MT.sum().backward()
    assert len(added) == 3, "short own parts, long ones, and the prompts"


def drops_its_cache(network, when):
    layer = network.get_decoder().layers[1]
    plain = layer.forward

    def forward(*given, past_key_values=None, **named):
        dropped = when()
        return plain(*given, past_key_values=None if dropped else past_key_values, **named)

    layer.forward = forward


def test_a_layer_that_has_no_cache_where_it_learns_is_noticed():
    policy = model_of("qwen2")
    drops_its_cache(policy.network, torch.is_grad_enabled)
    policy.checkpoint_activations()
    assert policy.shares_prompts, "what is only scored is computed once"
    policy.network.train()
    assert not policy.shares_prompts
    assert isinstance(policy._inputs(*rows()), WholeRows)


def test_a_layer_that_has_no_cache_the_second_time_is_noticed():
    policy = model_of("qwen2")
    is_second = []
    drops_its_cache(policy.network, lambda: bool(is_second))
    scorer = policy.scorer.forward

    def forward(*given):
        is_second.clear()
        found = scorer(*given)
        is_second.append(True)
        return found

    policy.scorer.forward = forward
    policy.checkpoint_activations()
    policy.network.train()
    assert not policy.shares_prompts


def test_checkpointing_that_was_not_tried_reads_whole_rows():
    policy = model_of("qwen2")
    policy.network.activation_checkpointing_enable({"use_reentrant": False})
    policy.network.train()
    assert policy.computes_twice
    assert not policy.shares_prompts


CASES = {
    **{name: (METHODS[name].fields, {}) for name in METHODS},
    "kl": ({"beta": 0.05}, {}),
    "two passes": ({"weight": "typicality", "others": "successes"}, {}),
    "untrusted": ({}, {"trusts": lambda author: author == "south"}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("budget", [60, 10_000])
def test_a_learner_takes_the_same_step(case, budget, monkeypatch):
    """Episodes, whose turns are the row's own, behind prompts that are shared."""
    keys, options = CASES[case]
    gradients = []
    for worth in (SHARED, WHOLE):
        monkeypatch.setattr(inputs, "WORTH_SHARING", worth)
        policy = tiny.policy(sharpness=2)
        objective = ObjectiveConfig(**keys)
        learner = learner_of(policy, objective, budget=budget)
        batch = packed(policy, episodes(), scale=objective.advantage_scale, **options)
        scored, gradient = learner.score_and_gradient(batch)
        gradients.append((scored, gradient))
    (scored, ours), (other, theirs) = gradients
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-5, abs=1e-6)
    assert ours.norm == pytest.approx(theirs.norm, rel=1e-5)
    assert ours.norm > 0
    for one, two in zip(ours.tensors, theirs.tensors, strict=True):
        assert_close(one, two, rtol=1e-4, atol=1e-6)
    assert_close(scored.logp_start_BT, other.logp_start_BT, rtol=1e-5, atol=1e-5)
    assert_close(scored.entropy_BT, other.entropy_BT, rtol=1e-5, atol=1e-5)


def test_each_prompt_of_a_micro_batch_goes_through_the_model_once(monkeypatch):
    policy, read = tiny.policy(), []
    body = policy.network.get_decoder()
    plain = body.forward

    @functools.wraps(plain)
    def forward(*args, input_ids, **given):
        read.append(tuple(input_ids.shape))
        return plain(*args, input_ids=input_ids, **given)

    monkeypatch.setattr(body, "forward", forward)
    prompts = [np.arange(3, 23, dtype=np.int32)] * 5 + [np.arange(5, 25, dtype=np.int32)] * 3
    policy.logp(prompts, [np.int32([3, 4, 5])] * 8, temperature=1.0)
    assert read == [(2, 20), (8, 2)]
    read.clear()
    policy.logp(prompts[4:6], [np.int32([3, 4, 5])] * 2, temperature=1.0)
    assert read == [(2, 22)], "two prompts of a row each are whole rows"


def test_where_reading_once_pays():
    long, short = np.zeros(100, np.int32), np.zeros(8, np.int32)
    answer, essay = np.zeros(10, np.int32), np.zeros(300, np.int32)

    def paying(prompt, tokens, count, groups=1):
        prompts = [prompt + group for group in range(groups) for _ in range(count)]
        return pays(*read_tokens(prompts, [tokens] * len(prompts), [()] * len(prompts)))

    assert paying(long, answer, count=2)
    assert paying(long, answer, count=8, groups=3)
    assert not paying(long, answer, count=1, groups=8)
    assert not paying(short, essay, count=8)


def test_a_micro_batch_holds_no_more_than_whole_rows_would():
    for rows_, prompts, longest, own in (
        (1, 1, 9, 9),
        (4, 1, 100, 10),
        (8, 1, 100, 10),
        (8, 8, 100, 10),
    ):
        whole = rows_ * (longest + own)
        for twice in (False, True):
            assert tokens_held(rows_, prompts, longest, own, computes_twice=twice) <= whole
    assert tokens_held(8, 1, 100, 10) == 100 + 80 + 120
    assert tokens_held(8, 1, 100, 10, computes_twice=True) == 300 + 80 + 120
    assert tokens_held(8, 8, 100, 10) == 880


def test_more_rows_fit_into_a_micro_batch_where_they_share_a_prompt():
    policy = tiny.policy()
    one = packed(policy, episodes(groups=1, size=8))
    long = np.arange(3, 43, dtype=np.int32)
    batch = replace(one, prompts=(long,) * 8)
    budget = 2 * max(batch.read_tokens())
    cut = partial(micro_batches, batch, torch.arange(8), token_budget=budget)
    assert [len(piece) for piece in cut(shares_prompts=False)] == [2, 2, 2, 2]
    most = max(len(piece) for piece in cut(shares_prompts=True))
    assert most > 2
