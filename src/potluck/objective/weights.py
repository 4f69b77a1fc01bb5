"""Weights: which part of a completion's advantage is learned from.

A weight is a function ``(rows, options) -> weight_B``: a factor on each advantage, decided by
pi_start once a round and kept through all updates. It says what it needs:

    @row_weight     the row itself. It is called in each micro-batch, so score and gradient of the
                    first update share one pass over the model.
    @batch_weight   the whole round, such as ranks or means over its rows. It is called once, when
                    all rows are scored: one forward pass more.

It is for the rows of trusted authors; those of others have ``untrusted_likelihood``, always.
experiments/weights.py has examples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.objective.methods import ObjectiveConfig
from potluck.objective.others import sequence_likelihood


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
        """P, per token: see ``sequence_likelihood``."""
        return sequence_likelihood(self.logp_start_BT, self.mask_BT)


@dataclass(frozen=True, slots=True)
class Weight:
    """A function that weighs rows, and what it needs."""

    of: Callable[[ScoredRows, ObjectiveConfig], Tensor]
    needs_batch: bool

    def __call__(self, rows: ScoredRows, options: ObjectiveConfig) -> Tensor:
        return self.of(rows, options)


def row_weight(of: Callable[[ScoredRows, ObjectiveConfig], Tensor]) -> Weight:
    """Mark a weight that is decided by each row alone."""
    return Weight(of, needs_batch=False)


def batch_weight(of: Callable[[ScoredRows, ObjectiveConfig], Tensor]) -> Weight:
    """Mark a weight that needs all rows of the round."""
    return Weight(of, needs_batch=True)


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


@row_weight
def untrusted_likelihood(rows: ScoredRows, options: ObjectiveConfig) -> Tensor:
    """Weigh completions of authors that are not trusted by P^c: see ``trust.py``."""
    return torch.where(rows.trusted_B, 1.0, rows.likelihood_B**options.untrusted_exponent)


WEIGHTS: Mapping[str, Weight] = {"likelihood": likelihood, "typicality": typicality}


def weight_of(options: ObjectiveConfig) -> Weight | None:
    """Return the weight of a method for the rows of trusted authors; None: 1 for all."""
    return WEIGHTS[options.weight] if options.weighs_successes else None


def _mean_per_unit(rows: ScoredRows, value_BT: Tensor, options: ObjectiveConfig) -> Tensor:
    length_B = rows.bytes_B if options.likelihood_unit == "byte" else None
    return sequence_likelihood(value_BT, rows.mask_BT, length_B=length_B)
