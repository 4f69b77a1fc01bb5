import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

import paper
from potluck.objective.filters import divergence_from_author, filter_advantages

finite = st.floats(-1e3, 1e3, width=32)
token = st.tuples(st.floats(-6, 0, width=32), st.floats(-6, 0, width=32))
KINDS = [(k, reduce) for k in ("k1", "k2", "k3") for reduce in ("mean", "sum", "max")]


@given(
    st.lists(st.tuples(finite, st.floats(0, 1e3, width=32)), min_size=1),
    st.floats(0, 100, width=32),
)
def test_filter_equals_the_paper(pairs, limit):
    advantage, divergence = zip(*pairs, strict=True)
    ours = filter_advantages(torch.tensor(advantage), torch.tensor(divergence), limit=limit)
    assert ours.tolist() == paper.filtered(advantage, divergence, g=limit)


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
    """pi_gen = 1/2, pi_start = 1/8: d = ln 4 = 1.3863, e^d = 4."""
    start_BT, gen_BT = torch.tensor([[1 / 8]]).log(), torch.tensor([[1 / 2]]).log()
    mask_BT = torch.tensor([[True]])
    for estimator, expected in {"k1": 1.3863, "k2": 0.9609, "k3": 4 - 1 - 1.3863}.items():
        ours_B = divergence_from_author(start_BT, gen_BT, mask_BT, estimator=estimator)
        assert_close(ours_B.item(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("divergence", [math.inf, math.nan, -math.inf])
@pytest.mark.parametrize("limit", [50, math.inf])
def test_a_divergence_that_is_not_finite_is_beyond_any_limit(divergence, limit):
    kept_B = filter_advantages(torch.tensor([-1.0, 1.0]), torch.full((2,), divergence), limit=limit)
    assert kept_B.tolist() == [0.0, 1.0]


def test_divergence_overflows_to_inf():
    far_B = divergence_from_author(
        torch.tensor([[-200.0]]), torch.tensor([[-0.5]]), torch.ones(1, 1, dtype=torch.bool)
    )
    assert far_B.tolist() == [math.inf]


def test_a_divergence_at_the_limit_is_beyond_it():
    near_B = filter_advantages(torch.tensor([-1.0, -1.0]), torch.tensor([49.9, 50.0]), limit=50)
    assert near_B.tolist() == [-1.0, 0.0]
