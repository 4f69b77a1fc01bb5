"""Gradient alignment: what each author's completions are worth to this learner's gradient.

    g_j     part of the gradient of the loss that comes from own completions of problem j
    a_j     part that comes from the author's completions of problem j
    worth   C / S,  S = mean of <g_i, g_j>,  C = mean of <g_i, a_j>,  both over all i != j

The method's own weights and filter are in it. At 1, a problem of the author's moves this learner
along its own gradient as far as one of its own does; at 0 not at all; below 0 it moves it back.

Gradients of one problem are never multiplied: <g_j, g_j> is mostly noise, beside which no author
seems worth anything. After FLTrust (arXiv:2012.13995). It is reported and decides nothing.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.optim import Optimizer

from potluck.files import derived_seed
from potluck.model.lora import trained
from potluck.node.learning.batch import Batch
from potluck.node.learning.learner import Learner

BUCKETS = 65_521
"""K, length of a sketch: 256 KB. Prime, so that a matrix's columns spread over all of it."""
ELEMENTS_AT_ONCE = 64 * BUCKETS  # bounds memory
FEWEST_PROBLEMS = 4


class Worth(NamedTuple):
    """Worth of an author's completions to a learner: C / S, dimensionless."""

    value: float
    noise: float  # jackknife standard error over problems


def authors_worth(learner: Learner, batch: Batch, seed: int) -> dict[str, Worth]:
    """Estimate the worth of each other author; leave out those for which ``worth_of`` is None. In
    the demo it takes 1.6 updates. Neither weights nor moments move, nor torch's global generators:
    dropout is on, from ``seed``."""
    others = sorted({completion.author for completion in batch.completions} - {learner.name})
    if not others:
        return {}
    scored, device = learner.score(batch), learner.policy.device
    rows: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for row, completion in enumerate(batch.completions):
        rows[completion.author, completion.problem_id].append(row)
    own = [scored.kept_advantage_B[part] for (by, _), part in rows.items() if by == learner.name]
    if sum(bool(kept_M.any()) for kept_M in own) < FEWEST_PROBLEMS:
        return {}  # spares the passes
    sketches_XK = torch.zeros(len(rows), BUCKETS)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        for sketch_K, part in zip(sketches_XK, rows.values(), strict=True):
            kept_B = torch.zeros_like(scored.kept_advantage_B)
            kept_B[part] = scored.kept_advantage_B[part]
            if kept_B.any():
                # Unbounded: what an author is worth does not depend on its bound.
                gradient = learner.gradient_of(scored, kept_B)
                if math.isfinite(gradient.norm):
                    sketch_K.copy_(sketch(gradient.tensors, learner, seed))
                del gradient  # the next ones need its memory
    products_XX = sketches_XK.double() @ sketches_XK.double().T
    given = products_XX, list(rows), learner.name
    return {author: worth for author in others if (worth := worth_of(*given, author))}


def worth_of(
    products_XX: Tensor, parts: Sequence[tuple[str, str]], name: str, author: str
) -> Worth | None:
    """Return C / S of learner ``name`` from the products of (author, problem) ``parts``. None where
    it would be noise over noise: too few problems, or S not above its own standard error."""
    problems = [problem for _, problem in parts]
    problem_X = torch.tensor([problems.index(problem) for problem in problems])
    own_X, theirs_X = (torch.tensor([by == each for by, _ in parts]) for each in (name, author))
    moving_X = own_X & (products_XX.diagonal() > 0)
    if min(moving_X.sum(), theirs_X.sum()) < FEWEST_PROBLEMS:
        return None
    apart_XX = (problem_X.unsqueeze(1) != problem_X) & own_X.unsqueeze(1)

    def mean(column_X: Tensor, without: int = -1) -> Tensor:
        kept_X = problem_X != without
        return products_XX[apart_XX & kept_X.unsqueeze(1) & kept_X & column_X].mean()

    if not mean(own_X) > _jackknife([mean(own_X, p) for p in problem_X[own_X].tolist()]):
        return None
    involved = problem_X[own_X | theirs_X].unique().tolist()
    noise = _jackknife([mean(theirs_X, p) / mean(own_X, p) for p in involved])
    return Worth(float(mean(theirs_X) / mean(own_X)), float(noise))


def sketch(tensors: Sequence[Tensor | None], learner: Learner, seed: int) -> Tensor:
    """Fold a gradient, its numbers under random signs, to a length K that keeps inner products.

        <x, y> = sum x y / (sqrt(v) + eps)    with Adam; sum x y before its first step and in 8 bits

    Unbiased; the standard deviation is up to sqrt(2 / K) |x| |y| = .006 |x| |y| where no few
    numbers outweigh the rest, and 0 up to K numbers. v is Adam's unbiased second moment, and 1 -
    beta2 times its mean over the tensor, for the square of the gradient at hand that Adam adds:
    else a token that was never met would outweigh all others. What Adam has not moved is left out.
    """
    device, place = learner.policy.device, 0
    sketch_K, generator = torch.zeros(BUCKETS, device=device), torch.Generator(device)
    parameters = trained(learner.policy.network)
    for parameter, tensor in zip(parameters, tensors, strict=True):
        generator.manual_seed(derived_seed(f"{seed}/{place}"))  # the same signs each time
        for x_N in () if tensor is None else _scaled(tensor, parameter, learner.optimizer):
            random_N = torch.empty(-(-len(x_N) // 8), dtype=torch.int64, device=device)
            bit_N = random_N.random_(generator=generator).view(torch.int8)[: len(x_N)] & 1
            folded_K = pad(x_N * (1 - 2 * bit_N), (0, -len(x_N) % BUCKETS)).view(-1, BUCKETS).sum(0)
            sketch_K += folded_K.roll(place)
        place += parameter.numel()
    return sketch_K.cpu()


def _scaled(tensor: Tensor, parameter: Tensor, optimizer: Optimizer) -> Iterator[Tensor]:
    """Yield the gradient over the root of Adam's denominator, flat, a piece at a time."""
    pieces, state = tensor.flatten().split(ELEMENTS_AT_ONCE), optimizer.state
    if not any("exp_avg_sq" in each for each in state.values()):
        yield from (x_N.float() for x_N in pieces)
    elif parameter in state:
        v, beta2 = state[parameter]["exp_avg_sq"], optimizer.defaults["betas"][1]
        mean = v.mean()
        unbiased = 1 - beta2 ** float(state[parameter]["step"])
        for x_N, v_N in zip(pieces, v.flatten().split(ELEMENTS_AT_ONCE), strict=True):
            denominator_N = ((v_N + (1 - beta2) * mean) / unbiased).sqrt() + optimizer.defaults[
                "eps"
            ]
            yield x_N.float() / denominator_N.sqrt() * (mean > 0)


def _jackknife(without_each: Sequence[Tensor]) -> Tensor:
    values, count = torch.stack(list(without_each)), len(without_each)
    return ((count - 1) / count * (values - values.mean()).square().sum()).sqrt()
