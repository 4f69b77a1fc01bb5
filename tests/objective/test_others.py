"""Others' successes: against plain loops, and by their laws."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import paper
from potluck.objective.others import select_others, sequence_likelihood, weigh_by_likelihood

completion = st.tuples(
    st.lists(st.floats(-20, 0, width=32), min_size=1, max_size=6),
    st.floats(-3, 3, width=32),
    st.booleans(),
)


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
    advantage_B = torch.tensor([advantage for _, advantage, _ in rows])
    own_B = torch.tensor([own for *_, own in rows])
    kept_B = select_others(advantage_B, own_B, others)
    if others == "likely-successes":
        likelihood_B = sequence_likelihood(logp_BT, mask_BT)
        kept_B = weigh_by_likelihood(kept_B, own_B, likelihood_B, exponent=exponent)
    logp, advantage, own = zip(*rows, strict=True)
    expected = paper.from_others(advantage, logp, own, others=others, c=exponent)
    assert kept_B.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-6)


@given(st.lists(st.floats(-20, 0, width=32), min_size=2, max_size=6), st.integers(0, 5))
def test_no_order_of_tokens_matters_and_length_by_itself_neither(logp, times):
    """A copy of the completion after itself has the likelihood of the one."""
    once, again = torch.tensor([logp]), torch.tensor([logp[::-1] * (times + 1)])
    likelihood = [
        sequence_likelihood(each, torch.ones_like(each, dtype=torch.bool)).item()
        for each in (once, again)
    ]
    assert likelihood[0] == pytest.approx(likelihood[1], rel=1e-4)


@pytest.mark.parametrize("wrong", [torch.ones(3), torch.ones(2, 1)])
def test_a_wrong_shape_is_refused(wrong):
    own_B = torch.tensor([True, False])
    with pytest.raises(ValueError, match=r"advantage_B|own_B"):
        select_others(wrong, own_B, "all")
    with pytest.raises(ValueError, match=r"likelihood_B|advantage_B"):
        weigh_by_likelihood(torch.ones(2), own_B, wrong, exponent=1.0)
