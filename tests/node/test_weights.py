"""Weights that a learner is given: of a row, or of the whole batch."""

import math
from dataclasses import replace

import pytest
import torch

import tiny
from node.test_learner import assert_same_gradient, batch_of, learner_of, oracle, ragged_groups
from nouns import group
from potluck.node.learning.batch import pack
from potluck.node.learning.learner import silent
from potluck.objective.weights import batch_weight, likelihood, row_weight
from potluck.types import NonFiniteError

SUCCESSES = tiny.f_tis(importance="none", filter=False, others="successes", likelihood_exponent=0.5)


@batch_weight
def relative(rows, options):
    """(P / P_own)^c, with P_own the mean over own rows that were read."""
    own_B = rows.own_B & rows.read_B
    own = rows.likelihood_B[own_B].mean() if own_B.any() else 1.0
    return torch.where(rows.own_B, 1.0, (rows.likelihood_B / own) ** options.likelihood_exponent)


def relative_by_loops(advantage, start, own, *, c, **more):
    likely = [math.exp(sum(logp) / len(logp)) for logp in start]
    read = [p for p, mine, a in zip(likely, own, advantage, strict=True) if mine and a]
    mean, rows = sum(read) / len(read), zip(advantage, likely, own, strict=True)
    return [a if mine else (p / mean) ** c * max(a, 0) for a, p, mine in rows]


def weighed(weight, policy, *, budget=10_000, objective=SUCCESSES):
    return replace(learner_of(policy, objective, budget=budget), custom_weight=weight)


@pytest.mark.parametrize("budget", [30, 10_000])
def test_a_weight_of_the_whole_batch_is_what_plain_loops_give(budget):
    policy, groups = tiny.policy(sharpness=4), ragged_groups(authors=("south", "north"), spread=0.5)
    found = weighed(relative, policy, budget=budget).score_and_gradient(batch_of(policy, groups))[1]
    expected = oracle(policy, groups, SUCCESSES, from_others=relative_by_loops)[1]
    assert_same_gradient(found.tensors, expected)
    plain = weighed(None, policy).score_and_gradient(batch_of(policy, groups))[1]
    assert not torch.allclose(found.tensors[0], plain.tensors[0], atol=1e-4)


@pytest.mark.parametrize("needs_batch", [False, True])
def test_a_weight_is_called_as_often_as_it_says_and_sees_what_it_needs(needs_batch, monkeypatch):
    """Two micro-batches, two updates: a weight of a row costs no pass, that of a batch one."""
    policy, groups, seen = tiny.policy(), ragged_groups(authors=("south", "north")), []

    def of(rows, options):
        seen.append(rows)
        return likelihood.of(rows, options)

    mark = batch_weight if needs_batch else row_weight
    objective = tiny.f_tis(**{"importance": "none", "filter": False}, updates_per_round=2)
    learner = weighed(mark(of), policy, objective=objective, budget=60)
    assert learner._in_two_passes == needs_batch
    batch, passes, read = batch_of(policy, groups), [], policy.logp_and_entropy
    monkeypatch.setattr(
        policy, "logp_and_entropy", lambda *args, **named: passes.append(1) or read(*args, **named)
    )
    report = learner.learn(batch, silent)
    turns = len(passes) // (3 if needs_batch else 2)
    assert turns > 1
    assert len(seen) == (1 if needs_batch else turns)
    if needs_batch:
        (rows,) = seen
        completions = [each for g in groups for each in g.completions]
        assert rows.texts == tuple(policy.text(each.token_T) for each in completions)
        assert rows.reward_B.tolist() == [r for g in groups for r in g.rewards]
        assert rows.group_B.tolist() == [at for at, g in enumerate(groups) for _ in g.rewards]
        assert rows.read_B.tolist() == (batch.advantage_B != 0).tolist()
        assert rows.own_B.tolist() == [each.author == "north" for each in completions]
        kept_B = batch.advantage_B * likelihood.of(rows, objective)
        assert torch.equal(report.scored.kept_advantage_B, kept_B)


@pytest.mark.parametrize("mark", [row_weight, batch_weight])
def test_no_weight_of_ones_own_loosens_what_holds_for_those_that_are_not_trusted(mark):
    policy = tiny.policy()
    groups = [group(*each, policy) for each in ragged_groups(authors=("south", "north"))]
    batch = pack(groups, trusts="north".__eq__)
    tenfold = mark(lambda rows, options: torch.full_like(rows.advantage_B, 10.0))
    kept_B = [weighed(each, policy).score(batch).kept_advantage_B for each in (tenfold, None)]
    own_B = batch.by("north")
    assert torch.equal(kept_B[0][~own_B], kept_B[1][~own_B])
    assert torch.equal(kept_B[0][own_B], 10 * kept_B[1][own_B])
    assert kept_B[1][~own_B].any()


def test_a_weight_that_is_not_finite_is_an_error_that_names_it():
    @batch_weight
    def broken(rows, options):
        return torch.full_like(rows.advantage_B, torch.nan)

    policy, groups = tiny.policy(), ragged_groups(authors=("south", "north"))
    with pytest.raises(NonFiniteError, match="weight 'broken' is not finite"):
        weighed(broken, policy).score(batch_of(policy, groups))
