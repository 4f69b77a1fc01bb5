"""Advantages, the filter, and others' successes: against plain loops, and by their laws."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.testing import assert_close

import paper
from potluck.objective.advantages import group_advantages
from potluck.objective.filters import divergence_from_author, filter_advantages
from potluck.objective.methods import ObjectiveConfig
from potluck.objective.others import select_others
from potluck.objective.weights import likelihood

completion = st.tuples(
    st.lists(st.floats(-20, 0, width=32), min_size=1, max_size=6),
    st.floats(-3, 3, width=32),
    st.booleans(),
)
rewards = st.lists(st.integers(-8, 8).map(lambda n: n / 4), min_size=1, max_size=12)
every_scale = pytest.mark.parametrize("scale", ["std", "none"])
finite = st.floats(-1e3, 1e3, width=32)
token = st.tuples(st.floats(-6, 0, width=32), st.floats(-6, 0, width=32))
KINDS = [(k, reduce) for k in ("k1", "k2", "k3") for reduce in ("mean", "sum", "max")]


@given(
    st.lists(completion, min_size=1, max_size=6),
    st.sampled_from(["all", "none", "successes", "likely-successes"]),
    st.floats(0.25, 8),
)
def test_it_is_what_a_plain_loop_gives(rows, others, exponent):
    width = max(len(logp) for logp, *_ in rows)
    logp_BT = torch.full((len(rows), width), math.nan)  # padding that would be seen
    mask_BT = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, (logp, *_) in enumerate(rows):
        logp_BT[i, : len(logp)], mask_BT[i, : len(logp)] = torch.tensor(logp), True
    logp, advantage, own = zip(*rows, strict=True)
    kept_B = select_others(torch.tensor(advantage), own_B := torch.tensor(own), others)
    if others == "likely-successes":
        given = SimpleNamespace(logp_start_BT=logp_BT, mask_BT=mask_BT, own_B=own_B)
        kept_B = kept_B * likelihood(given, ObjectiveConfig(likelihood_exponent=exponent))
    expected = paper.from_others(
        advantage, logp, own, others=others, weight="likelihood", c=exponent
    )
    assert kept_B.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-6)


# Advantages.


def test_one_right_answer_of_four_worked_by_hand():
    """Mean 1/4; std = sqrt((9 + 1 + 1 + 1) / 16 / 4) = sqrt(3) / 4."""
    reward_G = torch.tensor([1.0, 0.0, 0.0, 0.0])
    above, below = 3 / 3**0.5, -1 / 3**0.5
    assert_close(group_advantages(reward_G), torch.tensor([above, below, below, below]))
    assert group_advantages(reward_G, scale="none").tolist() == [0.75, -0.25, -0.25, -0.25]


@every_scale
@given(reward=rewards)
def test_advantages_equal_the_paper(scale, reward):
    ours = group_advantages(torch.tensor(reward), scale=scale)
    assert_close(ours, torch.tensor(paper.advantages(reward, scale=scale)), rtol=1e-5, atol=1e-5)


@every_scale
@given(reward=finite, size=st.integers(1, 64))
@example(reward=0.3, size=10)  # the mean has a rounding error
@example(reward=0.3, size=12)
def test_equal_rewards_teach_exactly_nothing(scale, reward, size):
    advantage_G = group_advantages(torch.full((size,), reward), scale=scale)
    assert advantage_G.tolist() == [0.0] * size
    assert paper.advantages([reward] * size, scale=scale) == [0.0] * size


# The filter.


@given(
    st.lists(st.tuples(finite, st.floats(0, 1e3, width=32)), min_size=1),
    st.floats(0, 100, width=32),
)
@example([(-1.0, 49.9), (-1.0, 50.0)], 50.0)
def test_filter_equals_the_paper(pairs, limit):
    advantage, divergence = zip(*pairs, strict=True)
    ours = filter_advantages(torch.tensor(advantage), torch.tensor(divergence), limit=limit)
    assert ours.tolist() == paper.filtered(advantage, divergence, g=limit)


@pytest.mark.parametrize("divergence", [math.inf, math.nan, -math.inf])
@pytest.mark.parametrize("limit", [50, math.inf])
def test_a_divergence_that_is_not_finite_is_beyond_any_limit(divergence, limit):
    kept_B = filter_advantages(torch.tensor([-1.0, 1.0]), torch.full((2,), divergence), limit=limit)
    assert kept_B.tolist() == [0.0, 1.0]


@given(
    kind=st.sampled_from(KINDS),
    tokens=st.lists(token, min_size=1, max_size=5),
    padding=st.integers(0, 3),
)
def test_divergence_equals_the_paper_whatever_the_padding(kind, tokens, padding):
    estimator, reduce = kind
    start, gen = zip(*tokens, strict=True)
    ours = divergence_from_author(
        torch.tensor([[*start, *[math.nan] * padding]]),
        torch.tensor([[*gen, *[-math.inf] * padding]]),
        torch.tensor([[True] * len(tokens) + [False] * padding]),
        estimator=estimator,
        reduce=reduce,
    )
    theirs = paper.divergence(start, gen, k=estimator, reduce=reduce)
    assert_close(ours.item(), theirs, rtol=1e-4, atol=1e-4)


def test_the_estimators_on_one_token_worked_by_hand():
    """pi_gen = 1/2, pi_start = 1/8: d = ln 4 = 1.3863, e^d = 4; and one that overflows."""
    start_BT, gen_BT = torch.tensor([[1 / 8]]).log(), torch.tensor([[1 / 2]]).log()
    mask_BT = torch.tensor([[True]])
    for estimator, expected in {"k1": 1.3863, "k2": 0.9609, "k3": 4 - 1 - 1.3863}.items():
        ours_B = divergence_from_author(start_BT, gen_BT, mask_BT, estimator=estimator)
        assert_close(ours_B.item(), expected, rtol=0, atol=1e-4)
    assert divergence_from_author(start_BT - 200, gen_BT, mask_BT).tolist() == [math.inf]
