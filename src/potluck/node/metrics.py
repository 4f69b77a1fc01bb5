"""Statistics of each author's completions, as this node sees them.

Everything is measured on log-probabilities that scoring computes anyway, so it covers the
completions that had an advantage (``with_advantage`` says how many), before the filter. It
costs next to nothing (``benchmarks/overhead.py``).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from potluck.node.batch import Scored
from potluck.objective.filters import divergence_from_author
from potluck.reports import AuthorReport

METRICS = ("tokens", "ratio_sum", "ratio_max", "k1", "k3", "capped", "weight", "weight_square")
"""Names of the K numbers that are kept of each completion."""


def row_metrics(
    logp_start_BT: Tensor, logp_gen_BT: Tensor, mask_BT: Tensor, *, weight_cap: float
) -> Tensor:
    """Return [B, K] float64: the numbers of ``METRICS`` for each completion.

    The log-ratio is ln pi_start - ln pi_gen of a token, nats: how much likelier it is here
    than it was to its author. Its exponential is the uncapped importance weight w.
    """
    ratio_BT = torch.where(mask_BT, logp_start_BT - logp_gen_BT, 0.0)
    weight_BT = torch.where(mask_BT, ratio_BT.double().exp(), 0.0)
    columns = {
        "tokens": mask_BT.sum(dim=1),
        "ratio_sum": ratio_BT.double().sum(dim=1),
        "ratio_max": torch.where(mask_BT, ratio_BT, -math.inf).amax(dim=1),
        "k1": divergence_from_author(logp_start_BT, logp_gen_BT, mask_BT, estimator="k1"),
        "k3": divergence_from_author(logp_start_BT, logp_gen_BT, mask_BT, estimator="k3"),
        "capped": ((ratio_BT > math.log(weight_cap)) & mask_BT).sum(dim=1),
        "weight": weight_BT.sum(dim=1),
        "weight_square": weight_BT.square().sum(dim=1),
    }
    return torch.stack([columns[name].double() for name in METRICS], dim=1)


def author_reports(
    scored: Scored, rewards: Sequence[float], *, authors: Sequence[str] | None = None
) -> dict[str, AuthorReport]:
    """Sum the metrics up by author, sorted by name.

    Args:
        rewards: of all rows of the batch, in its order.
        authors: names to group the rows by; None: their authors.
    """
    batch, kept_B = scored.batch, scored.kept_advantage_B
    authors = authors or [c.author for c in batch.completions]
    reward_B, length_B = torch.tensor(rewards), batch.mask_BT.sum(dim=1)
    intact_B = torch.ones(len(authors), dtype=torch.bool)
    intact_B[list(scored.dropped)] = False
    reports = {}
    for author in sorted(set(authors)):
        of_B = torch.tensor([name == author for name in authors])
        with_B = of_B & (batch.advantage_B != 0)
        measured_MK = scored.metrics_BK[with_B & intact_B & scored.metrics_BK[:, 0].isfinite()]
        count = len(measured_MK)
        total = dict(zip(METRICS, measured_MK.sum(dim=0).tolist(), strict=True))
        ratio_max_M = measured_MK[:, METRICS.index("ratio_max")]
        reports[author] = AuthorReport(
            completions=int(of_B.sum()),
            tokens=int(length_B[of_B].sum()),
            reward_mean=float(reward_B[of_B].mean()),
            with_advantage=int(with_B.sum()),
            rows_trained=int((of_B & (kept_B != 0)).sum()),
            log_ratio_mean=_ratio(total["ratio_sum"], total["tokens"]),
            log_ratio_max=_finite(ratio_max_M.max().item()) if count else None,
            k1=_ratio(total["k1"], count),
            k3=_ratio(total["k3"], count),
            capped_share=_ratio(total["capped"], total["tokens"]),
            filtered_share_positive=_filtered(with_B & intact_B & (batch.advantage_B > 0), kept_B),
            filtered_share_negative=_filtered(with_B & intact_B & (batch.advantage_B < 0), kept_B),
            # `**` raises where it overflows; `*` gives inf, which _finite knows.
            effective_sample_size=_ratio(
                total["weight"] * total["weight"], total["tokens"] * total["weight_square"]
            ),
        )
    return reports


def _filtered(of_B: Tensor, kept_B: Tensor) -> float | None:
    return _ratio(float((of_B & (kept_B == 0)).sum()), float(of_B.sum()))


def _ratio(above: float, below: float) -> float | None:
    return _finite(above / below) if below else None


def _finite(value: float) -> float | None:
    """Return None for an infinity: JSON has none, and a statistic that overflows says nothing."""
    return value if math.isfinite(value) else None
