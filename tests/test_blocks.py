"""Whatever the blocks are, what is drawn from logits is the same."""

import pytest
import torch

from potluck import blocks
from potluck.blocks import row_blocks
from potluck.rollout.base import GreedySampler, RandomSampler
from potluck.types import NonFiniteError, Sampling

ROWS, VOCABULARY = 9, 11


def samplers():
    return {
        "random": RandomSampler(torch.Generator().manual_seed(3), Sampling(0.7, 0, 1.0)),
        "truncated": RandomSampler(torch.Generator().manual_seed(3), Sampling(0.7, 5, 0.8)),
        "greedy": GreedySampler(),
    }


@pytest.mark.parametrize("name", samplers())
@pytest.mark.parametrize("numbers", [1, 2 * VOCABULARY, 4 * VOCABULARY])
def test_tokens_are_drawn_alike(name, numbers, monkeypatch):
    logits_NV = torch.randn(ROWS, VOCABULARY, generator=torch.Generator().manual_seed(0))
    token_N, logp_N = samplers()[name](logits_NV)
    monkeypatch.setattr(blocks, "NUMBERS_OF_A_BLOCK", numbers)
    assert len(list(row_blocks(ROWS, VOCABULARY, "cpu"))) > 1
    again_N, logp_again_N = samplers()[name](logits_NV)
    assert torch.equal(token_N, again_N)
    assert torch.equal(logp_N, logp_again_N)
    assert len(set(token_N.tolist())) > 1


@pytest.mark.parametrize("name", samplers())
def test_a_logit_that_is_not_finite_is_found_in_the_last_block(name, monkeypatch):
    monkeypatch.setattr(blocks, "NUMBERS_OF_A_BLOCK", 2 * VOCABULARY)
    logits_NV = torch.zeros(ROWS, VOCABULARY)
    logits_NV[-1, 4] = torch.nan
    with pytest.raises(NonFiniteError, match="not finite while it wrote"):
        samplers()[name](logits_NV)
