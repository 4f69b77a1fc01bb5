import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

import paper
from potluck.objective.advantages import group_advantages

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


@given(rewards)
def test_the_standard_deviation_is_the_scale_unless_another_is_named(reward):
    reward_G = torch.tensor(reward)
    assert torch.equal(group_advantages(reward_G), group_advantages(reward_G, scale="std"))


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


@given(rewards, st.sampled_from([0.5, 2.0, 16.0]))
def test_only_without_a_scale_does_the_unit_of_the_rewards_matter(reward, unit):
    reward_G = torch.tensor(reward)
    assert_close(group_advantages(unit * reward_G), group_advantages(reward_G))
    plain_G = group_advantages(reward_G, scale="none")
    assert_close(group_advantages(unit * reward_G, scale="none"), unit * plain_G)


@pytest.mark.parametrize("reward", [[0.0, 1.0], [1.0, 1.0]])
def test_an_unknown_scale_is_refused_even_where_it_would_make_no_difference(reward):
    with pytest.raises(ValueError, match="scale is 'range'; choose one of std, none"):
        group_advantages(torch.tensor(reward), scale="range")
