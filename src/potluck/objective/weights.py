"""Weights: which part of a completion's advantage is learned from.

A weight is a function ``(rows, options) -> weight_B``: a factor on each advantage, decided by
pi_start once a round and kept through all updates. It says what it needs:

    @row_weight     the row itself. It is called in each micro-batch, so score and gradient of the
                    first update share one pass over the model.
    @batch_weight   the whole round, such as ranks or means over its rows. It is called once, when
                    all rows are scored: one forward pass more.

    @batch_weight
    def relative_likelihood(rows: ScoredRows, options: ObjectiveConfig) -> Tensor:
        own_B = rows.own_B & rows.read_B
        own = rows.likelihood_B[own_B].mean() if own_B.any() else 1.0
        ratio_B = rows.likelihood_B / own
        return torch.where(rows.own_B, 1.0, ratio_B**options.likelihood_exponent)

A learner has the weight of its method, or one of its own, for the rows of trusted authors. Rows of
authors that are not trusted have ``untrusted_likelihood``, always.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.objective.methods import ObjectiveConfig
from potluck.objective.others import sequence_likelihood, weigh_by_likelihood


@dataclass(frozen=True, slots=True, eq=False)
class ScoredRows:
    """Rows that a weight is asked for: of one micro-batch, or of the whole round."""

    advantage_B: Tensor
    """Advantages after the filter; 0 in rows that do not teach. Those of untrusted authors are
    weighed by P^c already."""
    read_B: Tensor
    """True where ln pi_start was read: only rows that may teach are."""
    own_B: Tensor
    """True where the learner is the author."""
    trusted_B: Tensor
    """True where the author is trusted, as the learner itself is."""
    logp_start_BT: Tensor
    """ln pi_start, nats; 0 on padding and in rows that were not read."""
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


def row_weight(of: Callable[[ScoredRows, ObjectiveConfig], Tensor]) -> Weight:
    """Mark a weight that is decided by each row alone."""
    return Weight(of, needs_batch=False)


def batch_weight(of: Callable[[ScoredRows, ObjectiveConfig], Tensor]) -> Weight:
    """Mark a weight that needs all rows of the round."""
    return Weight(of, needs_batch=True)


@row_weight
def likelihood(rows: ScoredRows, options: ObjectiveConfig) -> Tensor:
    """Weigh others' completions by P^c, with P their likelihood under this model: LWS."""
    length_B = rows.bytes_B if options.likelihood_unit == "byte" else None
    likelihood_B = sequence_likelihood(rows.logp_start_BT, rows.mask_BT, length_B=length_B)
    one_B = torch.ones_like(likelihood_B)
    return weigh_by_likelihood(
        one_B, rows.own_B, likelihood_B, exponent=options.likelihood_exponent
    )


@row_weight
def untrusted_likelihood(rows: ScoredRows, options: ObjectiveConfig) -> Tensor:
    """Weigh completions of authors that are not trusted by P^c: see ``trust.py``."""
    one_B = torch.ones_like(rows.advantage_B)
    return weigh_by_likelihood(
        one_B, rows.trusted_B, rows.likelihood_B, exponent=options.untrusted_exponent
    )


def weight_of(options: ObjectiveConfig) -> Weight | None:
    """Return the weight of a method for the rows of trusted authors; None: 1 for all."""
    return likelihood if options.others == "likely-successes" else None
