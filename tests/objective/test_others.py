"""Others' successes: against plain loops, and by their laws."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

import paper
from potluck.objective.advantages import group_advantages
from potluck.objective.methods import ObjectiveConfig
from potluck.objective.others import select_others
from potluck.objective.weights import likelihood

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
        given = SimpleNamespace(logp_start_BT=logp_BT, mask_BT=mask_BT, own_B=own_B)
        kept_B = kept_B * likelihood(given, ObjectiveConfig(likelihood_exponent=exponent))
    logp, advantage, own = zip(*rows, strict=True)
    expected = paper.from_others(
        advantage, logp, own, others=others, weight="likelihood", c=exponent
    )
    assert kept_B.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-6)


#


rewards = st.lists(st.integers(-8, 8).map(lambda n: n / 4), min_size=1, max_size=12)
every_scale = pytest.mark.parametrize("scale", ["std", "none"])


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
@given(reward=st.floats(-1e3, 1e3, width=32), size=st.integers(1, 64))
def test_equal_rewards_teach_exactly_nothing(scale, reward, size):
    advantage_G = group_advantages(torch.full((size,), reward), scale=scale)
    assert advantage_G.tolist() == [0.0] * size
    assert paper.advantages([reward] * size, scale=scale) == [0.0] * size


@every_scale
@pytest.mark.parametrize("size", [10, 12])
def test_a_rounding_error_in_the_mean_is_no_advantage(scale, size):
    reward_G = torch.tensor([0.3] * size)
    assert group_advantages(reward_G, scale=scale).tolist() == [0.0] * size
