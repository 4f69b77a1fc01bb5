"""What is looked at first of a round: lengths, cut answers, groups of one reward, entropy."""

import math
from dataclasses import replace

import pytest

import tiny
from node.test_sample import read_by
from node.test_trust import OTHER, OWN, groups_of, learner_of
from potluck.exchange import Round
from potluck.node.learning.batch import pack
from potluck.node.report import report_of
from potluck.node.selection import Selection
from potluck.reports import RewardReport
from potluck.types import Group

NOTHING = Selection((), 0, {}, 0, 0, 0, 0)


def report(groups, policy, reference=None, **changes):
    objective = tiny.f_tis(beta=1e-6 if reference else 0.0)
    learner = replace(learner_of(policy, objective), reference=reference)
    update = replace(learner.learn(pack(groups), lambda done, total: None), **changes)
    return report_of(0, OWN, groups, update, {}, NOTHING, Round(()))


def cut_off(group, at):
    """The group with its row ``at`` without a stop token."""
    rows = list(group.rows)
    rows[at] = replace(rows[at], completion=replace(rows[at].completion, end="length"))
    return Group(group.problem, tuple(rows), group.rewards)


def test_an_authors_share_of_the_gradient_is_in_its_report():
    policy = tiny.policy(sharpness=4)
    found = report(groups_of(policy), policy, shares={OTHER: 0.125})
    assert (found.share, found.sources[OTHER].gradient_share) == (None, 0.125)


def test_each_figure_is_what_a_plain_loop_finds():
    policy = tiny.policy(sharpness=4)
    groups = groups_of(policy)
    groups = [cut_off(groups[0], 0), *groups[1:-1], replace(groups[-1], rewards=(1.0,) * 12)]
    lengths, cut, alike, surprise = [], 0, 0, []
    for group in groups:
        alike += all(reward == group.rewards[0] for reward in group.rewards)
        for row in group.rows:
            if row.completion.author == OWN:
                lengths.append(len(row.token_T))
                cut += row.completion.end == "length"
                if not all(reward == group.rewards[0] for reward in group.rewards):
                    surprise += [-logp for logp in read_by(policy, row)]
    found = report(groups, policy)
    assert found.own_length_mean == pytest.approx(sum(lengths) / len(lengths))
    assert found.own_cut_share == pytest.approx(cut / len(lengths))
    assert found.own_cut_share > 0
    assert found.groups_alike == pytest.approx(alike / len(groups))
    assert 0 < found.groups_alike < 1
    assert found.entropy == pytest.approx(sum(surprise) / len(surprise), rel=1e-4)


def test_without_own_completions_nothing_is_made_up():
    policy = tiny.policy(sharpness=4)
    found = report(groups_of(policy, authors=(OTHER,)), policy)
    assert (found.own_length_mean, found.own_cut_share, found.entropy) == (None, None, None)
    assert found.groups_alike is not None


def test_each_reward_function_has_the_mean_and_deviation_of_ones_own():
    """As TRL's ``rewards/NAME/mean`` and ``/std`` (1.16: nanmean and nanstd over the batch)."""
    policy = tiny.policy(sharpness=4)
    groups, own = [], {"right": [], "brief": []}
    for at, group in enumerate(groups_of(policy)):
        parts = {"right": group.rewards, "brief": tuple(at - i / 7 for i in range(len(group.rows)))}
        groups.append(replace(group, parts=parts))
        for name, values in parts.items():
            for row, value in zip(group.rows, values, strict=True):
                if row.completion.author == OWN:
                    own[name].append(value)
    found = report(groups, policy).rewards
    assert list(found) == ["right", "brief"]
    for name, values in own.items():
        mean = sum(values) / len(values)
        variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
        assert found[name].mean == pytest.approx(mean)
        assert found[name].std == pytest.approx(variance**0.5)
    assert RewardReport(None, None) == report(
        [replace(g, parts={"x": g.rewards}) for g in groups_of(policy, authors=(OTHER,))], policy
    ).rewards.get("x")


def test_the_kl_is_the_mean_of_k3_over_ones_own_tokens():
    policy, other = tiny.policy(sharpness=4), tiny.policy(sharpness=3)
    groups = groups_of(policy)
    found = report(groups, policy, reference=other)
    parts = []
    for group in groups:
        for row in group.rows:
            if row.completion.author == OWN:
                start, reference = read_by(tiny.policy(sharpness=4), row), read_by(other, row)
                for s, r in zip(start, reference, strict=True):
                    parts.append(math.exp(r - s) - (r - s) - 1)
    assert found.kl == pytest.approx(sum(parts) / len(parts), rel=1e-4)
    assert found.kl > 1e-3
