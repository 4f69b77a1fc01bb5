"""Log-probabilities and entropies in blocks, against a loop over single numbers."""

import math

import pytest
import torch
from torch.testing import assert_close

from potluck import blocks
from potluck.model.token_scores import token_scores

ROWS, COLUMNS, VOCABULARY = 7, 12, 10


def plain(logits, wanted, temperature):
    """(ln p, entropy, row of d ln p / d logits) of one place, from lists of numbers."""
    scaled = [logit / temperature for logit in logits[:VOCABULARY]]
    total = math.log(sum(math.exp(each) for each in scaled))
    p = [math.exp(each - total) for each in scaled]
    entropy = -sum(each * math.log(each) for each in p if each > 0)
    gradient = [((v == wanted) - p[v]) / temperature for v in range(VOCABULARY)]
    return scaled[wanted] - total, entropy, gradient + [0.0] * (len(logits) - VOCABULARY)


def drawn(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    logits_XW = 3 * torch.randn(ROWS, COLUMNS, generator=generator)
    wanted_X = torch.randint(VOCABULARY, (ROWS,), generator=generator)
    weight_X = torch.randn(ROWS, generator=generator)
    return logits_XW.to(dtype).requires_grad_(), wanted_X, weight_X


@pytest.mark.parametrize("numbers", [1, 2 * VOCABULARY, 10**6])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_they_are_those_of_a_loop_whatever_the_block_is(numbers, temperature, monkeypatch):
    monkeypatch.setattr(blocks, "NUMBERS_OF_A_BLOCK", numbers)
    logits_XW, wanted_X, weight_X = drawn()
    logp_X, entropy_X = token_scores(
        logits_XW, wanted_X, vocabulary=VOCABULARY, temperature=temperature
    )
    (logp_X * weight_X).sum().backward()
    assert not entropy_X.requires_grad
    for row, wanted in enumerate(wanted_X.tolist()):
        logp, entropy, gradient = plain(logits_XW[row].tolist(), wanted, temperature)
        assert logp_X[row].item() == pytest.approx(logp, abs=1e-5)
        assert entropy_X[row].item() == pytest.approx(entropy, abs=1e-5)
        expected_W = float(weight_X[row]) * torch.tensor(gradient)
        assert_close(logits_XW.grad[row], expected_W, rtol=1e-5, atol=1e-6)


def test_bfloat16_logits_are_scored_in_float32_and_get_a_gradient_of_their_format():
    logits_XW, wanted_X, weight_X = drawn(torch.bfloat16)
    logp_X, entropy_X = token_scores(logits_XW, wanted_X, vocabulary=VOCABULARY, temperature=0.6)
    assert logp_X.dtype == entropy_X.dtype == torch.float32
    (logp_X * weight_X).sum().backward()
    assert logits_XW.grad.dtype == torch.bfloat16
    for row, wanted in enumerate(wanted_X.tolist()):
        logp, entropy, gradient = plain(logits_XW[row].tolist(), wanted, 0.6)
        assert logp_X[row].item() == pytest.approx(logp, abs=1e-5)
        assert entropy_X[row].item() == pytest.approx(entropy, abs=1e-5)
        expected_W = float(weight_X[row]) * torch.tensor(gradient)
        assert_close(logits_XW.grad[row].float(), expected_W, rtol=2**-8, atol=1e-6)


def test_a_token_that_cannot_be_drawn_adds_nothing_to_the_entropy():
    logits_XW = torch.tensor([[0.0, 0.0, -torch.inf]], requires_grad=True)
    logp_X, entropy_X = token_scores(logits_XW, torch.tensor([1]), vocabulary=3, temperature=1.0)
    logp_X.sum().backward()
    assert entropy_X.item() == pytest.approx(math.log(2))
    assert_close(logits_XW.grad, torch.tensor([[-0.5, 0.5, 0.0]]))


def test_what_is_not_finite_stays_so():
    logits_XW = torch.tensor([[0.0, torch.nan], [0.0, 1.0]], requires_grad=True)
    logp_X, entropy_X = token_scores(logits_XW, torch.tensor([0, 0]), vocabulary=2, temperature=1.0)
    assert torch.isnan(logp_X).tolist() == torch.isnan(entropy_X).tolist() == [True, False]
    logp_X.sum().backward()
    assert logits_XW.grad.isfinite().all(dim=1).tolist() == [False, True]
