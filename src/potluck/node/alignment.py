"""Gradient alignment: what each author's completions are worth to this learner's gradient.

    g_j     part of the gradient of the loss that comes from own completions of problem j
    a_j     part that comes from the author's completions of problem j
    worth   C / S,  S = mean of <g_i, g_j>,  C = mean of <g_i, a_j>,  both over all i != j

The method's own weights and filter are in all of it. At 1, one problem's worth of the author's
completions moves this learner along its own gradient as far as one problem of its own does;
at 0 not at all; below 0 it moves it back.

Two gradients of one problem are never multiplied: <g_j, g_j> is mostly the noise of a few
completions, beside which no other author seems worth anything. It is reported and decides
nothing. After FLTrust (arXiv:2012.13995), which compares others' updates with one's own.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from potluck.files import derived_seed
from potluck.model.lora import trained
from potluck.model.sharding import local_part
from potluck.node.batch import Batch
from potluck.node.learner import Learner
from potluck.node.processes.group import Align

BUCKETS = 65_521
"""K, length of a sketch: 256 KB for each author of each problem. Prime, so that the columns of a
weight matrix spread over all buckets."""
ELEMENTS_AT_ONCE = 64 * BUCKETS  # bounds memory
FEWEST_PROBLEMS = 4


class Worth(NamedTuple):
    """Worth of an author's completions to a learner: C / S, dimensionless."""

    value: float
    noise: float
    """Its jackknife standard error over problems."""


def authors_worth(learner: Learner, batch: Batch, seed: int) -> dict[str, Worth]:
    """Estimate the worth of each other author; leave out those of whom ``worth_of`` knows none.

    Takes as long as 1.6 updates: it asks for the gradient of each author and problem alone.
    Neither weights nor moments move, nor torch's global generators: dropout is on, from ``seed``.
    """
    learner.processes.broadcast(Align(learner.name, batch, seed))
    seed = derived_seed(f"{seed}/{learner.processes.rank}")
    scored, device = learner.score(batch), learner.policy.device
    rows: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for row, completion in enumerate(batch.completions):
        rows[completion.author, completion.problem_id].append(row)
    sketches_XK = torch.zeros(len(rows), BUCKETS)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        for sketch_K, part in zip(sketches_XK, rows.values(), strict=True):
            kept_B = torch.zeros_like(scored.kept_advantage_B)
            kept_B[part] = scored.kept_advantage_B[part]
            if kept_B.any():
                tensors = learner.gradient(replace(scored, kept_advantage_B=kept_B)).tensors
                sketch_K.copy_(sketch(tensors, learner, seed))
                del tensors  # the next ones need their memory
    # A process has parts of the weights; the sketch of the whole is the sum of theirs.
    sketches_XK = torch.stack(learner.processes.all_gather(sketches_XK)).sum(dim=0).double()
    products_XX, parts = sketches_XK @ sketches_XK.T, list(rows)
    others = sorted({author for author, _ in parts} - {learner.name})
    found = {author: worth_of(products_XX, parts, learner.name, author) for author in others}
    return {author: worth for author, worth in found.items() if worth}


def worth_of(
    products_XX: Tensor, parts: Sequence[tuple[str, str]], name: str, author: str
) -> Worth | None:
    """Return C / S of learner ``name`` from the products of (author, problem) ``parts``.

    None where it would be noise over noise: the author has fewer than FEWEST_PROBLEMS problems,
    fewer of the learner's gave it a gradient, or S is not above its own standard error.
    """
    places = {problem: place for place, (_, problem) in enumerate(parts)}
    problem_X = torch.tensor([places[problem] for _, problem in parts])
    own_X, theirs_X = (torch.tensor([who == each for who, _ in parts]) for each in (name, author))
    moving_X = own_X & (products_XX.diagonal() > 0)
    if min(int(moving_X.sum()), int(theirs_X.sum())) < FEWEST_PROBLEMS:
        return None
    apart_XX = (problem_X.unsqueeze(1) != problem_X) & own_X.unsqueeze(1)

    def mean(column_X: Tensor, without: int = -1) -> Tensor:
        kept_X = problem_X != without
        return products_XX[apart_XX & kept_X.unsqueeze(1) & kept_X & column_X].mean()

    if not mean(own_X) > _jackknife([mean(own_X, p) for p in problem_X[own_X].tolist()]):
        return None
    problems = sorted(set(problem_X[own_X | theirs_X].tolist()))
    noise = _jackknife([mean(theirs_X, p) / mean(own_X, p) for p in problems])
    return Worth(float(mean(theirs_X) / mean(own_X)), float(noise))


def sketch(tensors: Sequence[Tensor | None], learner: Learner, seed: int) -> Tensor:
    """Fold a gradient, its numbers under random signs, to a length K that keeps inner products.

        <x, y> = sum x y / (sqrt(v) + eps)    with Adam; sum x y before its first step, and in 8 bits

    Unbiased; the standard deviation is up to sqrt(2 / K) |x| |y| = .006 |x| |y| where no few numbers
    outweigh the rest, and 0 up to K numbers. v is Adam's unbiased second moment, and 1 - beta2
    times its mean over the tensor, for the square of the gradient at hand that Adam adds: else a
    token that was never met would outweigh all others. What Adam has not moved is left out.
    """
    device, length = learner.policy.device, 0
    sketch_K, generator = torch.zeros(BUCKETS, device=device), torch.Generator(device)
    parameters = trained(learner.policy.network)
    for place, (parameter, tensor) in enumerate(zip(parameters, tensors, strict=True)):
        generator.manual_seed(derived_seed(f"{seed}/{place}"))  # the same signs each time
        for x_N in _scaled(parameter, tensor, learner.optimizer):
            random_N = torch.empty(-(-len(x_N) // 8), dtype=torch.int64, device=device)
            bit_N = random_N.random_(generator=generator).view(torch.int8)[: len(x_N)] & 1
            folded_K = pad(x_N * (1 - 2 * bit_N), (0, -len(x_N) % BUCKETS)).view(-1, BUCKETS).sum(0)
            sketch_K += folded_K.roll(length)
        length += parameter.numel()
    return sketch_K.cpu()


def _scaled(
    parameter: Tensor, tensor: Tensor | None, optimizer: torch.optim.Optimizer
) -> Iterator[Tensor]:
    """Yield the gradient over the root of Adam's denominator, flat, a piece at a time."""
    if tensor is None:
        return
    pieces, state = local_part(tensor).flatten().split(ELEMENTS_AT_ONCE), optimizer.state
    if not any("exp_avg_sq" in each for each in state.values()):
        yield from (x_N.float() for x_N in pieces)
    elif parameter in state and (v_D := local_part(state[parameter]["exp_avg_sq"]).flatten()).any():
        beta2, eps = optimizer.defaults["betas"][1], optimizer.defaults["eps"]
        ordinary, unbiased = (1 - beta2) * v_D.mean(), 1 - beta2 ** float(state[parameter]["step"])
        for x_N, v_N in zip(pieces, v_D.split(ELEMENTS_AT_ONCE), strict=True):
            yield x_N.float() / (((v_N + ordinary) / unbiased).sqrt() + eps).sqrt()


def _jackknife(without_each: Sequence[Tensor]) -> Tensor:
    values, count = torch.stack(list(without_each)), len(without_each)
    return ((count - 1) / count * (values - values.mean()).square().sum()).sqrt()
