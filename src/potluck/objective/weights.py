"""Weights: which part of a completion's advantage is learned from, whatever the loss is.

    select_others        all of it or nothing, by author and sign: what it sets to 0 needs no pass
    filter_advantages    the methods with an "F-": nothing of a failure that is far off-policy
    a weight             a factor on each: ``(rows, options) -> weight_B``

All is decided by pi_start once a round and kept through all updates. A weight says what it needs:

    @row_weight     the row itself. It is called in each micro-batch, so score and gradient of the
                    first update share one pass over the model.
    @batch_weight   the whole round, such as ranks or means over its rows. It is called once, when
                    all rows are scored: one forward pass more.

It is for the rows of trusted authors; those of others have ``untrusted_likelihood``, always. LWS,
likelihood-weighted successes, is ``select_others`` and a weight; it reads nothing that an author
claims. docs/method.md has the reasons and the limits, experiments/weights.py examples.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from potluck.objective.methods import ObjectiveConfig, Others
from potluck.objective.shapes import require_shapes


def select_others(advantage_B: Tensor, exempt_B: Tensor, others: Others) -> Tensor:
    """Set the advantage of others' completions that are not learned from to zero.

        A_i if i is exempt (one's own), or if
            others = "all"                              always
            others = "successes", "likely-successes"    A_i > 0
            others = "none"                             never
        else 0

    Nothing is learned from a failure of another: off-policy, E[grad log pi] is not 0, so pushing it
    down also pushes down the part of it that was right. Such a row still counts in its group's
    mean and standard deviation, and in B.

    >>> advantage_B, exempt_B = torch.tensor([1.0, -1.0, 1.0, -1.0]), torch.tensor([1, 1, 0, 0])
    >>> select_others(advantage_B, exempt_B == 1, "successes")
    tensor([ 1., -1.,  1.,  0.])
    """
    require_shapes(advantage_B=advantage_B, exempt_B=exempt_B)
    if others == "all":
        return advantage_B
    kept_B = exempt_B if others == "none" else exempt_B | (advantage_B > 0)
    return torch.where(kept_B, advantage_B, 0.0)


def divergence_from_author(
    logp_start_BT: Tensor,
    logp_gen_BT: Tensor,
    mask_BT: Tensor,
    *,
    estimator: Literal["k1", "k2", "k3"] = "k3",
    reduce: Literal["mean", "sum", "max"] = "mean",
) -> Tensor:
    """Measure how unlikely this node finds what another model wrote.

        D_i = 1/|a_i| sum_t k(d_t),    d_t = ln pi_gen - ln pi_start

        k1 = d          signed, so what is likelier here offsets what is not
        k2 = d^2 / 2
        k3 = e^d - 1 - d

    k3 is never negative (roundings aside), and 0 on-policy. It grows exponentially in d, so in
    practice it asks: "does this completion hold a token that I would never have written?" At 300
    tokens a single one with d = 9.6 is enough to pass 50. Where e^d overflows D is ``inf``, which
    is beyond any limit. ``reduce`` names what stands for the mean over the completion's own tokens.

    Source: the paper (arXiv:2605.22537, section 3.2) writes KL(pi_theta || pi_gen) and names no
    estimator; the default is the one of the authors' code. As the tokens come from pi_gen, its
    expectation is chi2(pi_gen || pi_theta) - KL(pi_gen || pi_theta), not the KL that it is named
    after.

    Deviations: pi_start stands for pi_theta, so that what is decided holds for the whole round. The
    mean of the authors' code is over the padded width, so it depends on a completion's neighbours.
    """
    require_shapes(logp_start_BT=logp_start_BT, logp_gen_BT=logp_gen_BT, mask_BT=mask_BT)
    d_BT = torch.where(mask_BT, logp_gen_BT - logp_start_BT, 0.0)
    match estimator:
        case "k1":
            k_BT = d_BT
        case "k2":
            k_BT = d_BT.square() / 2
        case "k3":
            k_BT = d_BT.expm1() - d_BT
    match reduce:  # k(0) = 0, so padding adds nothing to a sum
        case "mean":
            return k_BT.sum(dim=1) / mask_BT.sum(dim=1).clamp(min=1)
        case "sum":
            return k_BT.sum(dim=1)
        case "max":
            return torch.where(mask_BT, k_BT, -math.inf).amax(dim=1)


def filter_advantages(advantage_B: Tensor, divergence_B: Tensor, *, limit: float) -> Tensor:
    """Set the advantage of completions that are both bad and far off-policy to zero.

        A_i if A_i > 0 or D_i < limit, else 0

    A good completion shows where to go, no matter which model wrote it. A bad one only says
    "not there", which is noise about places this policy would never visit.

    A divergence that is not finite is beyond every limit, ``inf`` too.

    Source: F-TIS, arXiv:2605.22537, section 3.3 (the paper's g is limit = 50).

    >>> advantage_B, divergence_B = torch.tensor([[1.0, -1.0, -1.0], [99.0, 99.0, 1.0]])
    >>> filter_advantages(advantage_B, divergence_B, limit=50)
    tensor([ 1.,  0., -1.])
    """
    require_shapes(advantage_B=advantage_B, divergence_B=divergence_B)
    near_B = divergence_B.isfinite() & (divergence_B < limit)
    return torch.where((advantage_B > 0) | near_B, advantage_B, 0.0)


def sequence_likelihood(
    logp_BT: Tensor, mask_BT: Tensor, *, length_B: Tensor | None = None
) -> Tensor:
    """Return P_i = exp( 1/|a_i| sum_t logp_it ), the geometric mean of a completion's tokens.

    It is 1 / perplexity: .7 to .95 between small models that write alike, below .001 for a notation
    that the model does not write. ``length_B`` is |a_i| in another unit than tokens, such as bytes
    of text: then P does not depend on how a tokenizer cuts the text.

    >>> sequence_likelihood(torch.log(torch.tensor([[0.9, 0.4]])), torch.tensor([[True, True]]))
    tensor([0.6000])
    """
    require_shapes(logp_BT=logp_BT, mask_BT=mask_BT)
    sum_B = torch.where(mask_BT, logp_BT, 0.0).sum(dim=1)
    length_B = mask_BT.sum(dim=1) if length_B is None else length_B
    return (sum_B / length_B.clamp(min=1)).exp()


@dataclass(frozen=True, slots=True, eq=False)
class ScoredRows:
    """Rows that a weight is asked for: of one micro-batch, or of the whole round."""

    advantage_B: Tensor
    """Advantages after the filter; 0 in rows that do not teach. With ``@batch_weight`` those of
    untrusted authors are weighed by P^c already."""
    read_B: Tensor
    """True where ln pi_start was read: only rows that may teach are."""
    own_B: Tensor
    """True where the learner is the author."""
    trusted_B: Tensor
    """True where the author is trusted, as the learner itself is."""
    logp_start_BT: Tensor
    """ln pi_start, nats; 0 on padding and in rows that were not read."""
    entropy_BT: Tensor
    """H, entropy of pi_start in the place of each token, nats; 0 as there."""
    logp_gen_BT: Tensor
    """ln pi_gen as its author claims, nats; NaN where it claims none."""
    mask_BT: Tensor
    bytes_B: Tensor
    """Bytes of each text in UTF-8; 1 at least."""
    reward_B: Tensor
    group_B: Tensor
    """Number of the group that each row is compared in."""
    texts: Sequence[str]

    @property
    def likelihood_B(self) -> Tensor:
        return sequence_likelihood(self.logp_start_BT, self.mask_BT)


@dataclass(frozen=True, slots=True)
class Weight:
    """A function that weighs rows, and what it needs."""

    of: Callable[[ScoredRows, ObjectiveConfig], Tensor]
    needs_batch: bool

    def __call__(self, rows: ScoredRows, options: ObjectiveConfig) -> Tensor:
        """Weigh the rows of trusted authors; 1 in those of others."""
        return torch.where(rows.trusted_B, self.of(rows, options), 1.0)


row_weight, batch_weight = partial(Weight, needs_batch=False), partial(Weight, needs_batch=True)
"""Marks of a weight that is decided by each row alone, and of one that needs all of the round."""


@row_weight
def likelihood(rows: ScoredRows, options: ObjectiveConfig) -> Tensor:
    """Weigh others' completions by P^c, with P their likelihood under this model.

    One weight for the whole completion: a weight for each token is near 0 at the very token that
    would teach something new. The larger c, the less is learned from what this model would not
    write.
    """
    likelihood_B = _mean_per_unit(rows, rows.logp_start_BT, options)
    return torch.where(rows.own_B, 1.0, likelihood_B**options.likelihood_exponent)


@row_weight
def typicality(rows: ScoredRows, options: ObjectiveConfig) -> Tensor:
    """Weigh others' completions by min(1, T)^c, with T their typicality under this model.

        T_i = exp( 1/|a_i| sum_t (ln p_it + H_it) ),    H_it: entropy of the model in place t

    Where ten words could come next, P is far below 1 for any text, the model's own too, and T is
    near 1. So the level of the weight does not depend on the task. Meister et al. (2023,
    arXiv:2202.00666) sample by local typicality; here it weighs what others sampled.
    """
    typicality_B = _mean_per_unit(rows, rows.logp_start_BT + rows.entropy_BT, options).clamp(max=1)
    return torch.where(rows.own_B, 1.0, typicality_B**options.likelihood_exponent)


def untrusted_likelihood(rows: ScoredRows, options: ObjectiveConfig) -> Tensor:
    """Weigh completions of authors that are not trusted by P^c: see ``advantages.py``."""
    return torch.where(rows.trusted_B, 1.0, rows.likelihood_B**options.untrusted_exponent)


WEIGHTS: Mapping[str, Weight] = {"likelihood": likelihood, "typicality": typicality}


def _mean_per_unit(rows: ScoredRows, value_BT: Tensor, options: ObjectiveConfig) -> Tensor:
    length_B = rows.bytes_B if options.likelihood_unit == "byte" else None
    return sequence_likelihood(value_BT, rows.mask_BT, length_B=length_B)
