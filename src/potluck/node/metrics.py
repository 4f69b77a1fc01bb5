"""Statistics of each author's completions, as this node sees them.

Everything is measured on log-probabilities that scoring computes anyway, so it covers the
completions that had an advantage (``with_advantage`` says how many) and were read, before the
filter. It costs next to nothing (``benchmarks/overhead.py``).
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from potluck.node.learning.batch import Scored
from potluck.objective.filters import divergence_from_author
from potluck.objective.others import sequence_likelihood
from potluck.reports import BLOCKING_WEIGHT, AuthorReport

METRICS = (
    "tokens", "ratio_sum", "ratio_max", "k1", "k3", "capped", "weight", "weight_square",
    "likelihood", "weight_min", "surprise",
)  # fmt: skip
"""Names of the K numbers that are kept of each completion."""
WRONG, MIXED, RIGHT = 0, 1, 2
"""Results of the learner's own completions of a problem: none a success, some, all."""


def row_metrics(
    logp_start_BT: Tensor, logp_gen_BT: Tensor, mask_BT: Tensor, *, weight_cap: float
) -> Tensor:
    """Return [B, K] float64: the numbers of ``METRICS`` for each completion; ``AuthorReport`` says
    what they mean. Where ``logp_gen_BT`` is NaN, as the author told none, so is all that needs it;
    only ``weight_min`` then takes ln pi_gen for 0."""
    claims_BT = ~logp_gen_BT.isnan()
    claimed_BT = torch.where(claims_BT, logp_gen_BT, 0.0)
    least_B = torch.where(mask_BT, logp_start_BT - claimed_BT, math.inf).amin(dim=1)
    ratio_BT = torch.where(mask_BT, logp_start_BT - logp_gen_BT, 0.0)
    capped_B = ((ratio_BT > math.log(weight_cap)) & mask_BT).sum(dim=1)
    weight_BT = torch.where(mask_BT, ratio_BT.double().exp(), 0.0)
    columns = {
        "tokens": mask_BT.sum(dim=1),
        "ratio_sum": ratio_BT.double().sum(dim=1),
        "ratio_max": torch.where(mask_BT, ratio_BT, -math.inf).amax(dim=1),
        "k1": divergence_from_author(logp_start_BT, logp_gen_BT, mask_BT, estimator="k1"),
        "k3": divergence_from_author(logp_start_BT, logp_gen_BT, mask_BT, estimator="k3"),
        "capped": torch.where((claims_BT | ~mask_BT).all(dim=1), capped_B.double(), math.nan),
        "weight": weight_BT.sum(dim=1),
        "weight_square": weight_BT.square().sum(dim=1),
        "likelihood": sequence_likelihood(logp_start_BT, mask_BT),
        "weight_min": least_B.double().exp(),
        "surprise": -torch.where(mask_BT, logp_start_BT, 0.0).double().sum(dim=1),
    }
    return torch.stack([columns[name].double() for name in METRICS], dim=1)


def author_reports(
    scored: Scored, rewards: Sequence[float], me: str, *, authors: Sequence[str] | None = None
) -> dict[str, AuthorReport]:
    """Sum the metrics up by author, sorted by name. ``rewards`` are of all rows of the batch, in
    its order; ``me`` is the learner; ``authors`` are names to group the rows by (None: their own).
    """
    batch, kept_B, advantage_B = scored.batch, scored.kept_advantage_B, scored.batch.advantage_B
    authors = authors or [c.author for c in batch.completions]
    reward_B, length_B = torch.tensor(rewards), batch.mask_BT.sum(dim=1)
    intact_B = torch.ones(len(authors), dtype=torch.bool)
    intact_B[list(scored.dropped)] = False
    read_B = intact_B & scored.metrics_BK[:, 0].isfinite()
    columns = dict(zip(METRICS, scored.metrics_BK.unbind(dim=1), strict=True))
    filtered_B, least_B = (kept_B == 0).double(), columns["weight_min"]
    blocked_B, own_group_B = (least_B < BLOCKING_WEIGHT).double(), _own_groups(scored, me)
    reports = {}
    for author in sorted(set(authors)):
        of_B = torch.tensor([name == author for name in authors])
        with_B = of_B & (advantage_B != 0)
        measured_B = with_B & read_B
        positive_B, negative_B = measured_B & (advantage_B > 0), measured_B & (advantage_B < 0)
        silenced_B = of_B & intact_B & batch.silenced_B & (advantage_B > 0)
        met_B = positive_B | silenced_B
        total = {name: float(column_B[measured_B].sum()) for name, column_B in columns.items()}
        reports[author] = AuthorReport(
            completions=int(of_B.sum()),
            tokens=int(length_B[of_B].sum()),
            reward_mean=float(reward_B[of_B].mean()),
            with_advantage=int(with_B.sum()),
            rows_trained=int((of_B & (kept_B != 0)).sum()),
            log_ratio_mean=_ratio(total["ratio_sum"], total["tokens"]),
            log_ratio_max=_extreme(torch.amax, columns["ratio_max"], measured_B),
            k1=_mean(columns["k1"], measured_B),
            k3=_mean(columns["k3"], measured_B),
            capped_share=_ratio(total["capped"], total["tokens"]),
            filtered_share_positive=_mean(filtered_B, of_B & intact_B & (advantage_B > 0)),
            filtered_share_negative=_mean(filtered_B, of_B & intact_B & (advantage_B < 0)),
            # `**` raises where it overflows; `*` gives inf, which _finite knows.
            effective_sample_size=_ratio(
                total["weight"] * total["weight"], total["tokens"] * total["weight_square"]
            ),
            k1_positive=_mean(columns["k1"], positive_B),
            k1_negative=_mean(columns["k1"], negative_B),
            k3_positive=_mean(columns["k3"], positive_B),
            k3_negative=_mean(columns["k3"], negative_B),
            likelihood_positive=_mean(columns["likelihood"], positive_B),
            likelihood_negative=_mean(columns["likelihood"], negative_B),
            bits_per_byte=_ratio(
                total["surprise"] / math.log(2), float(batch.bytes_B[measured_B].sum())
            ),
            success_weight=_ratio(float(kept_B[met_B].sum()), float(advantage_B[met_B].sum())),
            silenced_share=_mean(silenced_B.double(), met_B),
            token_weight_min=_extreme(torch.amin, least_B, positive_B),
            blocked_share=_mean(blocked_B, positive_B),
            blocked_share_own_wrong=_mean(blocked_B, positive_B & (own_group_B == WRONG)),
            blocked_share_own_mixed=_mean(blocked_B, positive_B & (own_group_B == MIXED)),
            blocked_share_own_right=_mean(blocked_B, positive_B & (own_group_B == RIGHT)),
        )
    return reports


def _own_groups(scored: Scored, me: str) -> Tensor:
    """Return for each row how the learner's own completions of its problem did: a code; NaN where
    there is none, or all of the group have one reward."""
    completions, own = scored.batch.completions, dict[str, list[float]]()
    for c, advantage in zip(completions, scored.batch.advantage_B.tolist(), strict=True):
        if c.author == me:
            own.setdefault(c.problem_id, []).append(advantage)
    codes = {
        id: WRONG if max(of) < 0 else RIGHT if min(of) > 0 else MIXED
        for id, of in own.items()
        if any(of)
    }
    return torch.tensor([codes.get(c.problem_id, math.nan) for c in completions])


def _mean(column_B: Tensor, of_B: Tensor) -> float | None:
    return _finite(column_B[of_B].mean().item()) if of_B.any() else None


def _extreme(find: Callable[..., Tensor], column_B: Tensor, of_B: Tensor) -> float | None:
    return _finite(find(column_B[of_B], 0).item()) if of_B.any() else None


def _ratio(above: float, below: float) -> float | None:
    return _finite(above / below) if below else None


def _finite(value: float) -> float | None:
    """Return None for an infinity: JSON has none, and a statistic that overflows says nothing."""
    return value if math.isfinite(value) else None
