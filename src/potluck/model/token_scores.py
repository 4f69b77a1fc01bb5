"""Log-probabilities of given tokens, and entropies, from a model's logits.

    logp_x      z_x[wanted] - ln sum_v exp z_xv                z = logits / temperature
    entropy_x   -sum_v p_xv ln p_xv                            p = softmax(z)
    gradient    d logp_x / d logits_xv = ([v = wanted] - p_xv) / temperature

torch's own functions for these each write a tensor as large as the logits, and keep one of them for
the backward pass. Here a block of rows goes through all steps before the next one is read, and the
backward pass computes the block again: beside the logits there is nothing of their size but their
gradient. The block fits a processor's cache, where the steps take a third of their time. (Kernels
that fuse the cross entropy, such as Liger's, do the same on a GPU, arXiv:2410.10989; this is plain
torch, for any device.)

Shape letters, beside those of ``types.py``: X places whose next token is scored, W columns of the
logits, of which the first V are of tokens, the others padding.
"""

from typing import Any

import torch
from torch import Tensor

from potluck.blocks import row_blocks

COPIES_OF_A_BLOCK = 2
"""float32 tensors of a block that exist at once."""
LEAST_LOGP = -1e4
"""Log-probability in nats that stands for lower ones in an entropy, where -inf times 0 is none."""


def token_scores(
    logits_XW: Tensor, wanted_X: Tensor, *, vocabulary: int, temperature: float
) -> tuple[Tensor, Tensor]:
    """Compute logp_X, with gradient, and entropy_X, without: nats, float32. ``logits_XW`` may be of
    any format; the first ``vocabulary`` of its columns count."""
    scored: tuple[Tensor, Tensor] = _TokenScores.apply(  # type: ignore[no-untyped-call]
        logits_XW, wanted_X, vocabulary, temperature
    )
    return scored


def _scaled(logits_BV: Tensor, temperature: float) -> Tensor:
    """Divide logits by the temperature, in float32."""
    scaled_BV = logits_BV.float()
    return scaled_BV if temperature == 1 else scaled_BV / temperature


class _TokenScores(torch.autograd.Function):
    """``token_scores``, with its gradient."""

    @staticmethod
    def forward(
        ctx: Any, logits_XW: Tensor, wanted_X: Tensor, vocabulary: int, temperature: float
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(logits_XW, wanted_X)
        ctx.vocabulary, ctx.temperature = vocabulary, temperature
        logp_X = torch.empty(len(wanted_X), device=logits_XW.device)
        entropy_X = torch.empty_like(logp_X)

        for block in row_blocks(len(wanted_X), columns=vocabulary, device=logits_XW.device.type):
            logp_BV = _scaled(logits_XW[block, :vocabulary], temperature).log_softmax(dim=1)
            logp_X[block] = logp_BV.gather(dim=1, index=wanted_X[block, None]).squeeze(1)
            p_BV = logp_BV.exp()
            entropy_X[block] = -p_BV.mul_(logp_BV.clamp_(min=LEAST_LOGP)).sum(dim=1)

        ctx.mark_non_differentiable(entropy_X)
        return logp_X.clamp_(max=0), entropy_X  # a rounding may lie above 0

    @staticmethod
    def backward(ctx: Any, gradient_X: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        logits_XW, wanted_X = ctx.saved_tensors
        vocabulary, temperature = ctx.vocabulary, ctx.temperature
        scaled_X1 = (gradient_X / temperature).unsqueeze(1)
        gradient_XW = torch.empty_like(logits_XW)
        gradient_XW[:, vocabulary:] = 0

        for block in row_blocks(len(wanted_X), columns=vocabulary, device=logits_XW.device.type):
            p_BV = _scaled(logits_XW[block, :vocabulary], temperature).softmax(dim=1)
            gradient_BV = p_BV.mul_(-scaled_X1[block])
            gradient_BV.scatter_add_(dim=1, index=wanted_X[block, None], src=scaled_X1[block])
            gradient_XW[block, :vocabulary] = gradient_BV

        return gradient_XW, None, None, None
