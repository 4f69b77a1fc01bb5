"""The learner: what one batch does to a model, and what must not matter.

The oracle is ``paper.py`` on a float64 copy of the model, one completion at a time, without
padding: it shares neither the loss, nor the batching, nor the forward pass with the learner.
"""

import copy
import math
import weakref
from collections import namedtuple
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType

import msgspec
import numpy as np
import pytest
import torch
from torch.testing import assert_close

import paper
import tiny
from nouns import completion, group
from potluck.model import LearningRate
from potluck.model.sharding import full_tensor
from potluck.node.learning.batch import pack
from potluck.node.learning.learner import Learner, silent
from potluck.node.learning.passes import has_dropout
from potluck.objective.methods import METHODS, ObjectiveConfig
from potluck.objective.weights import WEIGHTS
from potluck.types import NonFiniteError, Problem


def presets(*methods):
    return [pytest.param(ObjectiveConfig(**METHODS[name].fields), id=name) for name in methods]


LONGEST = 11
"""Limit of a completion, of which dr_grpo makes its denominator; none is as long."""
Graded = namedtuple("Graded", "problem completions rewards")
"""A group before a model has read it."""


def ragged_groups(seed=0, *, authors=("south",), spread=1.0, groups=3, size=4):
    """Groups of unlike lengths, ``spread`` nats a token off-policy, one 0; authors take turns."""
    generator = np.random.default_rng(seed)
    made = []
    for g in range(groups):
        problem = Problem(f"p{g}", "1+2="[: generator.integers(1, 5)], "3")
        rows = []
        for i in range(size):
            length = int(generator.integers(1, 9))
            ids = generator.integers(3, tiny.VOCABULARY, length)
            ids[-1] = tiny.STOP
            logps = -spread * generator.exponential(2.0, length)
            author = authors[i // 2 % len(authors)]  # rewards alternate: each has both
            rows.append(completion(ids, logps, problem=problem.id, author=author, index=i))
        rewards = [1.0] * size if g == 1 else [float(i % 2 == 0) for i in range(size)]
        made.append(Graded(problem, tuple(rows), tuple(rewards)))
    return made


@dataclass(frozen=True, eq=False)
class Recording(Learner):
    """A learner that keeps the gradient of its last step, as it was clipped."""

    seen: list = field(default_factory=list)

    def step(self, gradient):
        super().step(gradient)
        self.seen[:] = [full_tensor(g).clone() for g in gradient.tensors]


def learner_of(
    policy, objective=None, *, lr=0.0, budget=10_000, clip=1e9, temperature=1.0, kind=Recording
):
    return kind(
        name="north",
        policy=policy,
        optimizer=torch.optim.SGD(policy.network.parameters(), lr=lr),
        objective=objective or tiny.f_tis(),
        longest=LONGEST,
        reference=tiny.policy(sharpness=3) if objective and objective.beta else None,
        temperature=temperature,
        gradient_clip_norm=clip,
        micro_batch_tokens=budget,
    )


def batch_of(policy, groups, scale="std"):
    return pack([group(*each, policy) for each in groups], scale=scale)


def learn(policy, groups, objective=None, **options):
    """(report, gradient of the last update)."""
    learner = learner_of(policy, objective, **options)
    report = learner.learn(batch_of(policy, groups, learner.objective.advantage_scale), silent)
    return report, learner.seen or None


def oracle(
    policy, groups, objective, *, lr=0.0, temperature=1.0, heard=lambda c: {},
    from_others=paper.from_others,
):  # fmt: skip
    """The gradient of the last of ``updates_per_round`` updates, by plain loops in float64;
    ``heard`` tells of a completion what is read before each of its tokens, ``from_others`` what
    others' completions are worth."""
    network = copy.deepcopy(policy.network).double()
    scale = objective.advantage_scale
    advantage = [a for g in groups for a in paper.advantages(g.rewards, scale=scale)]
    rows = [(policy.prompt(g.problem), c) for g in groups for c in g.completions]
    gen = [[float(x) for x in c.logp_T] for _, c in rows]
    start = None
    for _ in range(objective.updates_per_round):
        network.zero_grad()
        logits = [row_logits(network, *row, temperature, heard(row[1])) for row in rows]
        logp = [logp_of(each, c) for each, (_, c) in zip(logits, rows, strict=True)]
        if start is None:
            start = [[x.item() for x in row] for row in logp]
            if objective.filter:
                kind = {"k": objective.divergence_estimator, "reduce": objective.divergence_reduce}
                both = zip(start, gen, strict=True)
                apart = [paper.divergence(s, g, **kind) for s, g in both]
                advantage = paper.filtered(advantage, apart, g=objective.divergence_limit)
            own = [c.author == "north" for _, c in rows]
            emphasis = objective.own_success_weight
            pairs = zip(advantage, own, strict=True)
            advantage = [a * emphasis if mine and a > 0 else a for a, mine in pairs]
            in_bytes = [len(policy.text(c.token_T).encode()) for _, c in rows]
            advantage = from_others(
                advantage, start, own, others=objective.others, weight=objective.weight,
                c=objective.likelihood_exponent,
                lengths=in_bytes if objective.likelihood_unit == "byte" else None,
                entropy=[entropy_of(each) for each in logits],
            )  # fmt: skip
        low, high = objective.clip_epsilon, objective.clip_epsilon_high or objective.clip_epsilon
        counted = {"loss_type": objective.loss_type, "longest": LONGEST}
        scheme = {"importance": objective.importance, "C": objective.weight_cap}
        parts = paper.surrogates(logp, start, gen, advantage, low=low, high=high, **scheme)
        total = paper.normalised(parts, **counted)
        if objective.beta:
            other = tiny.policy(sharpness=3).network.double()
            both = zip(logp, rows, strict=True)
            mine, of = zip(*((x, row) for x, row in both if row[1].author == "north"), strict=True)
            ref = [[x.item() for x in row_logp(other, *r, temperature, heard(r[1]))] for r in of]
            kl = paper.distances(mine, ref)
            total = total - objective.beta * paper.normalised(kl, **counted)
        (-total).backward()
        with torch.no_grad():
            for p in network.parameters():
                p -= lr * p.grad
    return -total.item(), [p.grad for p in network.parameters()]


def row_logits(network, prompt, written, temperature, heard):
    """The logits in the place of each token, by a forward pass of this row alone."""
    ids, before = [int(id) for id in prompt], []
    for place, id in enumerate(written.token_T):
        ids += heard.get(place, [])
        before.append(len(ids) - 1)
        ids.append(int(id))
    logits_TV = network(input_ids=torch.tensor([ids])).logits[0, :, : tiny.VOCABULARY]
    return [logits_TV[place] / temperature for place in before]


def row_logp(network, prompt, written, temperature, heard=MappingProxyType({})):
    """One list of 0-dim tensors: ln p of each token."""
    return logp_of(row_logits(network, prompt, written, temperature, heard), written)


def logp_of(logits, written):
    pairs = zip(logits, written.token_T, strict=True)
    return [torch.log_softmax(each, dim=0)[int(id)] for each, id in pairs]


def entropy_of(logits):
    """The entropy before each token, by a sum over the vocabulary."""
    every = [torch.softmax(each, dim=0).tolist() for each in logits]
    return [-sum(p * math.log(p) for p in place if p) for place in every]


def assert_same_gradient(ours, theirs, atol=1e-5):
    for one, other in zip(ours, theirs, strict=True):
        assert_close(one.double(), other, rtol=0, atol=atol)


@pytest.mark.parametrize("objective", presets(*METHODS))
def test_any_micro_batches_give_the_gradient_of_the_papers_sum_over_the_whole(objective):
    policy, groups = tiny.policy(), ragged_groups(authors=("south", "north"))
    loss, gradient = oracle(policy, groups, objective)
    for budget in (1, 45, 10_000):
        report, ours = learn(policy, groups, objective, budget=budget)
        assert_same_gradient(ours, gradient)
        assert_close(report.loss, loss, rtol=0, atol=1e-5)
    assert max(float(g.abs().max()) for g in gradient) > 1e-2  # there was something to compare


def test_failures_of_others_need_no_pass_and_their_log_probabilities_are_never_read():
    objective = ObjectiveConfig(**METHODS["lws"].fields)
    policy, groups = tiny.policy(), ragged_groups(authors=("south", "north"))
    batch = batch_of(policy, groups)
    unclaimed = replace(batch, logp_gen_BT=torch.full_like(batch.logp_gen_BT, math.nan))
    learner = learner_of(policy, objective)
    scored = learner.score(unclaimed)
    read_B = scored.metrics_BK[:, 0].isfinite()
    own_B = batch.by("north")
    assert read_B.tolist() == ((batch.advantage_B > 0) | own_B & (batch.advantage_B < 0)).tolist()
    assert not scored.dropped
    assert_same_gradient(learner.gradient(scored).tensors, oracle(policy, groups, objective)[1])


@pytest.mark.parametrize("objective", presets("nois", "f-vis", "f-tis", "lws"))
def test_later_updates_keep_the_start_the_weights_and_the_filter_of_the_first(objective):
    """The second gradient: theta has moved by then, so R is no longer 1 and the clip works."""
    objective = msgspec.structs.replace(objective, updates_per_round=3, divergence_limit=3.0)
    policy, groups = tiny.policy(), ragged_groups(spread=0.5, authors=("south", "north"))
    _, gradient = oracle(policy, groups, objective, lr=0.05)
    report, ours = learn(policy, groups, objective, lr=0.05, budget=30)
    assert report.updates == 3
    assert_same_gradient(ours, gradient)


def test_the_temperature_divides_the_learners_logits():
    objective, groups = tiny.f_tis(filter=False), ragged_groups()
    _, gradient = oracle(tiny.policy(), groups, objective, temperature=0.7)
    assert_same_gradient(learn(tiny.policy(), groups, objective, temperature=0.7)[1], gradient)
    plain = learn(tiny.policy(), groups, objective)[1]
    assert not torch.allclose(plain[0].double(), gradient[0], atol=1e-4)


MIXED = ragged_groups(spread=0.7, authors=("south", "north"))


@cache
def gradient_before(objective):
    return learn(tiny.policy(sharpness=4), MIXED, objective, lr=0.3)[1]


@pytest.mark.parametrize(
    "option, other, base",
    [
        ("importance", "vanilla", {}),
        ("filter", False, {}),
        ("weight_cap", 1.01, {"filter": False}),
        ("divergence_limit", 1e9, {}),
        ("divergence_estimator", "k1", {}),
        ("divergence_reduce", "max", {}),
        ("clip_epsilon", 10.0, {"updates_per_round": 2}),
        ("clip_epsilon_high", 0.05, {"updates_per_round": 2}),
        ("loss_type", "dr_grpo", {}),
        ("loss_type", "bnpo", {}),
        ("loss_type", "dapo", {}),
        ("beta", 0.5, {"updates_per_round": 2}),
        ("beta", 0.5, {"loss_type": "dapo"}),
        ("updates_per_round", 2, {}),
        ("advantage_scale", "none", {}),
        ("others", "none", {}),
        ("others", "successes", {}),
        ("others", "likely-successes", {}),
        ("likelihood_exponent", 2.5, METHODS["lws"].fields),
        ("weight", "likelihood", METHODS["lws"].fields | {"updates_per_round": 2}),
        ("likelihood_unit", "byte", METHODS["lws"].fields),
        ("own_success_weight", 2.0, {}),
    ],
)
def test_an_option_of_the_objective_changes_the_gradient_as_the_paper_says(option, other, base):
    # k3 of the four bad rows is 19.7, 15.7, 14.9 and 24.5: half are beyond the limit, while by
    # k1 none is and by max all are.
    plain = tiny.f_tis(**{"divergence_limit": 18.0} | base)
    changed = msgspec.structs.replace(plain, **{option: other})
    policy = tiny.policy(sharpness=4)
    two = oracle(policy, MIXED, changed, lr=0.3)[1]
    pairs = zip(gradient_before(plain), two, strict=True)
    assert any(not torch.allclose(a.double(), b, atol=1e-4) for a, b in pairs)
    assert_same_gradient(learn(policy, MIXED, changed, lr=0.3, budget=30)[1], two)


def test_every_option_of_the_objective_is_tried_above():
    (mark,) = test_an_option_of_the_objective_changes_the_gradient_as_the_paper_says.pytestmark
    # What has no effect is told in test_config.py, trust in test_trust.py, an own loss in
    # test_trl_run.py, the habit test in test_habits.py.
    elsewhere = {"alignment_every", "trust", "untrusted_exponent", "loss", "habit_test"}
    options = {*ObjectiveConfig.__struct_fields__} - elsewhere
    assert {option for option, _, _ in mark.args[1]} == options
    assert {tiny.f_tis().weight, "likelihood"} == WEIGHTS.keys()


def test_the_gradient_is_clipped_to_the_norm_and_the_norm_before_is_reported():
    groups = ragged_groups()
    report, whole = learn(tiny.policy(), groups)
    norm = math.sqrt(sum(float(g.square().sum()) for g in whole))
    assert_close(report.gradient_norm, norm, rtol=1e-5, atol=0)
    _, clipped = learn(tiny.policy(), groups, clip=norm / 10)
    assert_close(math.sqrt(sum(float(g.square().sum()) for g in clipped)), norm / 10)


class Breaks(torch.nn.Module):
    """Wraps an embedding: the hidden state after POISON is NaN, or its gradient is infinite."""

    def __init__(self, embedding, what):
        super().__init__()
        self.embedding, self.what = embedding, what

    @property
    def weight(self):
        return self.embedding.weight

    def forward(self, token_MS):
        hidden_MSD, hit = self.embedding(token_MS), (token_MS == POISON).unsqueeze(2)
        if self.what == "log-probability":
            return torch.where(hit, torch.nan, hidden_MSD)
        if hidden_MSD.requires_grad:
            hidden_MSD.register_hook(lambda slope: torch.where(hit, torch.inf, slope))
        return hidden_MSD


POISON = 7
NO_FILTER = tiny.f_tis(filter=False)


def broken_language(what):
    policy = tiny.policy()
    inner = policy.network.model
    inner.embed_tokens = Breaks(inner.embed_tokens, what)
    return policy


def poisoned_groups(author):
    """ragged_groups with the poison in one row that has an advantage, and nowhere else."""
    groups = []
    for g in ragged_groups():
        rows = []
        for c in g.completions:
            ids = np.where(c.token_T == POISON, 8, c.token_T)
            who = "south"
            if (c.problem_id, c.index) == ("p0", 1):
                ids, who = np.array([5, POISON, 6, tiny.STOP]), author
            rows.append(completion(ids, problem=c.problem_id, author=who, index=c.index))
        groups.append(Graded(g.problem, tuple(rows), g.rewards))
    return groups


@pytest.mark.parametrize("what", ["log-probability", "gradient"])
def test_a_foreign_row_that_makes_a_number_non_finite_is_dropped_and_the_rest_is_learned(what):
    groups = poisoned_groups("south")
    report, ours = learn(broken_language(what), groups, NO_FILTER)
    assert list(report.scored.dropped.values()) == [what]
    assert all(bool(g.isfinite().all()) for g in ours)
    # What is left is the batch with that row's advantage at zero, its place kept.
    batch = batch_of(policy := tiny.policy(), groups)
    batch.advantage_B[[*report.scored.dropped]] = 0
    gradient = learner_of(policy, NO_FILTER).score_and_gradient(batch)[1]
    assert_same_gradient(ours, [g.double() for g in gradient.tensors], atol=1e-6)


def test_a_row_that_was_silenced_anyway_is_no_reason_to_stop():
    """Its gradient is not finite, but the filter had taken it out: the others are learned."""
    far = tiny.f_tis(divergence_limit=1e-6)
    report, ours = learn(broken_language("gradient"), poisoned_groups("north"), far)
    assert not report.scored.dropped
    assert all(bool(g.isfinite().all()) for g in ours)


def test_weights_that_are_not_finite_stop_the_run_even_if_only_foreign_rows_show_it():
    policy = tiny.policy()
    with torch.no_grad():
        policy.network.lm_head.weight[4] = torch.nan
    with pytest.raises(NonFiniteError, match=r"the weights 'lm_head.weight' are not finite"):
        learn(policy, ragged_groups())


# The three functions by themselves: score, gradient, step.


@pytest.mark.parametrize("objective", presets("nois", "f-tis", "lws"))
def test_one_pass_for_score_and_gradient_gives_what_two_passes_give(objective):
    policy = tiny.policy()
    learner = learner_of(policy, objective, budget=20)
    batch = batch_of(policy, ragged_groups())
    scored = learner.score(batch)
    two = learner.gradient(scored)
    in_one, one = learner.score_and_gradient(batch)
    assert torch.equal(in_one.kept_advantage_B, scored.kept_advantage_B)
    assert_close(in_one.logp_start_BT, scored.logp_start_BT, rtol=0, atol=1e-6)
    assert_close(in_one.metrics_BK, scored.metrics_BK, equal_nan=True)
    assert_close((one.loss, one.norm), (two.loss, two.norm), rtol=1e-5, atol=1e-6)
    assert_same_gradient(one.tensors, [g.double() for g in two.tensors], atol=1e-6)


def test_a_gradient_can_be_asked_for_as_often_as_one_likes_and_moves_nothing():
    policy = tiny.policy()
    adam = torch.optim.Adam(policy.network.parameters(), lr=0.1)
    learner = replace(learner_of(policy), optimizer=adam)
    before = copy.deepcopy(policy.network.state_dict())
    scored = learner.score(batch_of(policy, ragged_groups()))
    first, second = learner.gradient(scored), learner.gradient(scored)
    assert all(torch.equal(a, b) for a, b in zip(first.tensors, second.tensors, strict=True))
    after = policy.network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not adam.state
    assert all(p.grad is None for p in policy.network.parameters())


def test_own_completions_of_one_reward_are_read_for_their_kl_alone():
    objective, (alike,) = tiny.f_tis(beta=0.5), ragged_groups(authors=("north",))[1:2]
    report, ours = learn(tiny.policy(sharpness=4), [alike], objective)
    loss, gradient = oracle(tiny.policy(sharpness=4), [alike], objective)
    assert (report.updates, report.loss) == (1, pytest.approx(loss, rel=1e-4))
    assert_same_gradient(ours, gradient)
    report, ours = learn(tiny.policy(sharpness=4), [alike], tiny.f_tis())
    assert (report.updates, ours) == (0, None)


def test_a_pass_in_training_mode_tells_whether_there_is_dropout_and_leaves_no_trace():
    for dropout in (0.0, 0.4):
        policy = tiny.policy(attention_dropout=dropout)
        torch.manual_seed(3)
        before = torch.get_rng_state()
        assert has_dropout(policy) == (dropout > 0)
        assert torch.equal(before, torch.get_rng_state())
        assert not policy.network.training


def test_the_score_is_read_without_dropout_and_learning_has_it():
    groups = ragged_groups()
    policies = tiny.policy(), tiny.policy(attention_dropout=0.4)
    (plain, whole), (scored, dropped) = (
        learner_of(policy).score_and_gradient(batch_of(policy, groups)) for policy in policies
    )
    assert_close(scored.logp_start_BT, plain.logp_start_BT)
    assert not torch.allclose(dropped.tensors[0], whole.tensors[0], atol=1e-4)


def test_a_filtered_piece_does_not_keep_its_graph_while_the_next_one_is_read(monkeypatch):
    """Long completions, a row a piece: two graphs at once are twice the memory."""
    policy, alive = tiny.policy(), []
    learner = learner_of(policy, tiny.f_tis(divergence_limit=1e-9), budget=1)
    read = policy.logp_and_entropy

    def scored_now(*args, **named):
        assert not [ref for ref in alive if ref() is not None]
        logp_MT, entropy_MT = read(*args, **named)
        alive.append(weakref.ref(logp_MT))
        return logp_MT, entropy_MT

    groups = [g for g in ragged_groups(spread=0.1) if g.problem.id == "p0"]
    batch = batch_of(policy, groups)
    only_bad = replace(batch, advantage_B=batch.advantage_B.clamp(max=0))
    assert not learner._in_two_passes
    monkeypatch.setattr(policy, "logp_and_entropy", scored_now)
    scored, _ = learner.score_and_gradient(only_bad)
    assert len(alive) == 2
    assert not scored.kept_advantage_B.any()


@pytest.mark.parametrize("updates", [1, 2])
def test_memory_is_given_back_when_no_gradient_holds_it_any_more(monkeypatch, updates):
    policy, alive = tiny.policy(), []

    class Weak(Learner):
        def step(self, gradient):
            alive.extend(map(weakref.ref, gradient.tensors))
            super().step(gradient)

    learner = learner_of(policy, tiny.f_tis(updates_per_round=updates), kind=Weak)
    seen = []
    monkeypatch.setattr(policy, "empty_cache", lambda: seen.append([r() for r in alive]))
    learner.learn(batch_of(policy, ragged_groups()), silent)
    assert len(seen) == 1
    assert seen[0]
    assert set(seen[0]) == {None}


# The KL to a reference.


def test_an_untrusted_author_gets_no_part_of_the_kl_and_does_not_change_it():
    groups = ragged_groups(authors=("north",))
    policy, objective = tiny.policy(sharpness=4), tiny.f_tis(beta=0.5, untrusted_exponent=0.1)
    strangers = ragged_groups(seed=3, authors=("south",))
    batch = pack(
        [group(*each, policy) for each in [*groups, *strangers]],
        trusts=lambda author: author == "north",
    )
    trusted = learner_of(policy, objective)
    alone = trusted.gradient(trusted.score(batch_of(policy, groups)))
    mixed = trusted.score(batch)
    own_B = torch.where(batch.by("north"), mixed.kept_advantage_B, 0.0)
    of_own = trusted.gradient(replace(mixed, kept_advantage_B=own_B))
    assert_same_gradient(of_own.tensors, [g.double() for g in alone.tensors])


# The learning rate.


def test_each_update_has_the_rate_of_its_number():
    rates = LearningRate(0.1, "linear", warmup=2, updates=8)
    groups, found = ragged_groups(spread=0.1), []

    policy = tiny.policy()
    learner = replace(learner_of(policy, tiny.f_tis(updates_per_round=2)), learning_rate=rates)
    group = learner.optimizer.param_groups[0]
    learner.optimizer.register_step_pre_hook(lambda *_: found.append(group["lr"]))
    for round in (0, 1, 3):
        report = learner.learn(batch_of(policy, groups), silent, round=round)
    assert found == [rates.at(update) for update in (0, 1, 2, 3, 6, 7)]
    assert report.learning_rate == found[-1] == pytest.approx(0.1 / 6)
