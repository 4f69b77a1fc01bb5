"""Authors that are not trusted: what they add to a gradient, against plain loops, and its laws."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from msgspec.structs import replace as changed
from torch.testing import assert_close

import paper
import tiny
from node.test_learner import row_logp
from nouns import completion, group
from potluck.node.learning.batch import pack
from potluck.node.learning.learner import Learner, silent
from potluck.objective.methods import METHODS, ObjectiveConfig
from potluck.types import Problem

OWN, OTHER, THIRD = "north", "south", "west"
PRESETS = {name: ObjectiveConfig(**METHODS[name].fields) for name in METHODS}


def groups_of(policy, *, authors=(OWN, OTHER), failing=(), claims="as they are", groups=4, size=6):
    """Groups that authors share; the ``failing`` never succeed. Own completions stay the same."""
    made = []
    for g in range(groups):
        problem, rows, rewards = Problem(f"p{g}", "1+2="[: 1 + g % 4], "3"), [], []
        for author in authors:
            dice = np.random.default_rng([0, g, ord(author[0])])
            for index in range(size):
                ids = dice.integers(3, tiny.VOCABULARY, int(dice.integers(1, 6)))
                ids[-1] = tiny.STOP
                logps = -dice.exponential(2.0, len(ids))
                row = completion(ids, logps, problem=problem.id, author=author, index=index)
                rows.append(row if author == OWN else claiming(row, claims))
                rewards.append(0.0 if author in failing else float(dice.random() < 0.4))
        made.append(group(problem, rows, rewards, policy))
    return made


def claiming(row, claims):
    if claims == "as they are":
        return row
    told = None if claims is None else np.full(len(row.token_T), claims, np.float32)
    return replace(row, logp_T=told)


def learner_of(policy, objective, *, lr=0.0, budget=10_000):
    optimizer = torch.optim.SGD(policy.network.parameters(), lr=lr)
    return Learner(OWN, policy, objective, optimizer, 1.0, 1e9, budget)


def gradient_of(objective, groups, trusts=lambda author: author == OWN, *, budget=10_000):
    learner = learner_of(tiny.policy(sharpness=4), objective, budget=budget)
    batch = pack(groups, scale=objective.advantage_scale, trusts=trusts)
    return learner.score_and_gradient(batch)[1]


def oracle(objective, groups):
    """The gradient and the share of each untrusted author, one completion at a time, in float64."""
    network = copy.deepcopy(tiny.policy(sharpness=4).network).double()
    policy = tiny.policy(sharpness=4)
    own = []
    for g in groups:
        pairs = [p for p in zip(g.rows, g.rewards, strict=True) if p[0].completion.author == OWN]
        rows, rewards = zip(*pairs, strict=True)
        own.append(replace(g, rows=rows, rewards=rewards))
    trusted = learner_of(policy, objective)
    trusted = trusted.score_and_gradient(pack(own, scale=objective.advantage_scale))[1]
    total = [0.0 if t is None else t.double().clone() for t in trusted.tensors]
    count, norm = sum(len(g.rows) for g in own), length(trusted.tensors)
    everybody = sum(len(g.rows) for g in groups)
    norms, names = {}, {r.completion.author for g in groups for r in g.rows} - {OWN}
    for author in sorted(names):
        network.zero_grad()
        loss, rows = 0.0, 0
        for g in groups:
            pairs = zip(g.rows, g.rewards, strict=True)
            among = [p for p in pairs if p[0].completion.author in (OWN, author)]
            advantages = paper.advantages([x for _, x in among], scale="std")
            for (row, _), advantage in zip(among, advantages, strict=True):
                rows += row.completion.author == author
                if row.completion.author != author or advantage <= 0:
                    continue
                heard = {place: ids.tolist() for place, ids in row.observed}
                logp = row_logp(network, row.prompt_P, row.completion, 1.0, heard)
                mean_logp = sum(logp) / len(logp)
                weight = math.exp(mean_logp.item()) ** objective.untrusted_exponent
                loss = loss - weight * advantage * mean_logp / count
        if not isinstance(loss, float):
            loss.backward()
        found = [p.grad.clone() if p.grad is not None else None for p in network.parameters()]
        most, made = norm * rows / max(count, everybody - count), length(found)
        scale = min(1.0, most / made) if made else 1.0
        norms[author] = scale * made
        total = [t if f is None else t + scale * f for t, f in zip(total, found, strict=True)]
    whole = norm + sum(norms.values())
    return total, {author: each / whole for author, each in norms.items()}


def length(tensors):
    return math.sqrt(sum(float(t.double().square().sum()) for t in tensors if t is not None))


def assert_same(ours, theirs, atol=1e-5):
    for a, b in zip(ours, theirs, strict=True):
        assert_close(
            torch.zeros_like(b) if a is None else a.double(), b.double(), rtol=0, atol=atol
        )


@pytest.mark.parametrize(
    "method, exponent, budget",
    [("lws", 0.01, 1), ("lws", 8.0, 10_000), ("nois", 0.25, 20), ("f-tis", 0.25, 20)],
)
def test_under_every_method_they_add_likely_successes_within_their_bound(method, exponent, budget):
    groups = groups_of(tiny.policy(), authors=(OWN, OTHER, THIRD), size=4)
    options = changed(PRESETS[method], untrusted_exponent=exponent)
    tensors, shares = oracle(options, groups)
    ours = gradient_of(options, groups, budget=budget)
    assert_same(ours.tensors, tensors)
    assert ours.shares == pytest.approx(shares, abs=1e-6)
    assert ours.norm == pytest.approx(length(tensors), rel=1e-4)


def test_the_bound_and_the_exponent_both_bind_in_these_groups():
    groups = groups_of(tiny.policy(), authors=(OWN, OTHER, THIRD), size=4)
    shares = [oracle(tiny.f_tis(untrusted_exponent=c), groups)[1][OTHER] for c in (0.01, 8.0)]
    assert shares[0] == pytest.approx(0.25)  # two others share half of the norm
    assert shares[0] > shares[1] > 0


@pytest.mark.parametrize(
    "objective, dropout", [(PRESETS["lws"], 0.0), (PRESETS["f-tis"], 0.0), (PRESETS["f-tis"], 0.3)]
)
def test_one_that_has_no_success_is_to_the_bit_as_one_that_is_absent(objective, dropout):
    found = []
    for groups in (
        groups_of(tiny.policy(), authors=(OWN,)),
        groups_of(tiny.policy(), failing=(OTHER,)),
    ):
        learner = learner_of(tiny.policy(sharpness=4, attention_dropout=dropout), objective)
        torch.manual_seed(7)
        batch = pack(groups, scale=objective.advantage_scale, trusts=OWN.__eq__)
        found.append(learner.score_and_gradient(batch)[1])
    alone, beside = found
    assert all(map(torch.equal, alone.tensors, beside.tensors))
    assert beside.loss == alone.loss
    assert beside.shares == {OTHER: 0.0}


def test_a_row_of_its_own_that_only_they_stand_beside_does_not_count():
    """Without them it would have been left out, as alone of its problem."""
    whole = groups_of(tiny.policy(), failing=(OTHER,))
    lone = replace(whole[0], rows=whole[0].rows[5:], rewards=whole[0].rewards[5:])
    beside = gradient_of(tiny.f_tis(), [lone, *whole[1:]])
    alone = gradient_of(tiny.f_tis(), groups_of(tiny.policy(), authors=(OWN,))[1:])
    assert all(map(torch.equal, alone.tensors, beside.tensors))


@pytest.mark.parametrize("method", ["f-tis", "lws"])
def test_nothing_that_it_claims_is_read_and_it_need_claim_nothing(method):
    options = changed(PRESETS[method], untrusted_exponent=0.25)
    honest = gradient_of(options, groups_of(tiny.policy()))
    assert honest.shares[OTHER] > 0.1  # there was something to forge
    for claims in (-30.0, -1e-3, None):
        lying = gradient_of(options, groups_of(tiny.policy(), claims=claims))
        assert_same(lying.tensors, honest.tensors, atol=1e-7)


def test_those_that_are_trusted_are_learned_from_by_the_method():
    """Two others: one is trusted, and the other, which never succeeds, might as well be away."""
    objective = PRESETS["f-tis"]
    trusts = {OWN, OTHER}.__contains__
    three = groups_of(tiny.policy(), authors=(OWN, OTHER, THIRD), failing=(THIRD,))
    two = groups_of(tiny.policy(), authors=(OWN, OTHER))
    everybody = gradient_of(objective, two, lambda author: True)
    assert_same(gradient_of(objective, three, trusts).tensors, everybody.tensors, atol=1e-7)
    assert not torch.allclose(
        everybody.tensors[0], gradient_of(objective, two).tensors[0], atol=1e-4
    )


def test_the_control_that_learns_from_no_other_learns_from_none():
    objective = changed(PRESETS["nois"], others="none")
    alone = gradient_of(objective, groups_of(tiny.policy(), authors=(OWN,)))
    assert_same(gradient_of(objective, groups_of(tiny.policy())).tensors, alone.tensors, atol=1e-7)


def test_later_updates_keep_the_weight_and_the_bound():
    """Two updates of the learner are one of ``oracle``'s, then one with the first one's P."""
    objective = tiny.f_tis(updates_per_round=2, untrusted_exponent=0.25)
    policy = tiny.policy(sharpness=4)
    batch = pack(groups_of(policy), trusts=OWN.__eq__)
    learner = learner_of(policy, objective, lr=0.05)
    scored, first = learner.score_and_gradient(batch)
    learner.step(first)
    second = learner.gradient(scored)
    together = learner_of(tiny.policy(sharpness=4), objective, lr=0.05)
    report = together.learn(batch, silent)
    assert report.updates == 2
    assert report.gradient_norm == pytest.approx(second.norm, rel=1e-5)
    assert report.shares == pytest.approx(second.shares)
    assert 0 < second.shares[OTHER] <= 0.5


def test_without_any_lesson_of_its_own_a_node_learns_nothing_not_even_by_momentum():
    policy = tiny.policy(sharpness=4)
    adam = torch.optim.AdamW(policy.network.parameters(), lr=0.1, weight_decay=0.1)
    learner = replace(learner_of(policy, tiny.f_tis()), optimizer=adam)
    learner.learn(pack(groups_of(policy), trusts=OWN.__eq__), silent)
    before = copy.deepcopy(policy.network.state_dict())
    batch = pack(groups_of(policy, failing=(OWN,)), trusts=OWN.__eq__)
    assert batch.advantage_B.any()  # the other one has successes
    report = learner.learn(batch, silent)
    assert (report.updates, report.gradient_norm) == (0, 0.0)
    assert all(torch.equal(before[k], v) for k, v in policy.network.state_dict().items())
