"""What the completions of each author looked like to this node.

Everything is measured on log-probabilities that the first update's forward pass computes
anyway, so it covers the completions that had an advantage (``with_advantage`` says how
many), before the filter. It costs next to nothing (``benchmarks/overhead.py``).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.objective import divergence_from_author

COLUMNS = ("tokens", "ratio_sum", "ratio_max", "k1", "k3", "capped", "weight", "weight_square")


@dataclass(frozen=True, slots=True)
class SourceReport:
    """One author's completions of one round, as this node saw them. None: nothing to measure.

    The log-ratio is ln pi_start - ln pi_gen of a token, nats: how much likelier it is here
    than it was to its author. Its exponential is the uncapped importance weight w.
    """

    completions: int
    tokens: int
    reward_mean: float
    with_advantage: int
    """Completions that differ in reward from their group; what follows is about these."""
    rows_trained: int
    """Of them, those that no filter silenced and no fault dropped."""
    log_ratio_mean: float | None
    """Over tokens, nats."""
    log_ratio_max: float | None
    """Of any token, nats."""
    k1: float | None
    """mean over completions of mean over tokens of d = -log-ratio, nats."""
    k3: float | None
    """The same of e^d - d - 1, nats: what the default filter looks at."""
    capped_share: float | None
    """Tokens with w > C, 0..1. Told for every method; only TIS caps them."""
    filtered_share_positive: float | None
    """Silenced among those of positive advantage, 0..1. By construction 0."""
    filtered_share_negative: float | None
    """Silenced among those of negative advantage, 0..1."""
    effective_sample_size: float | None
    """(sum w)^2 / (n sum w^2) over its n tokens, 0..1; 1 on-policy."""


def row_statistics(
    logp_start_MT: Tensor, logp_gen_MT: Tensor, mask_MT: Tensor, *, weight_cap: float
) -> Tensor:
    """[M, len(COLUMNS)] float64: what ``source_reports`` adds up, for each row."""
    ratio_MT = torch.where(mask_MT, logp_start_MT - logp_gen_MT, 0.0)
    weight_MT = torch.where(mask_MT, ratio_MT.double().exp(), 0.0)
    columns = (
        mask_MT.sum(dim=1),
        ratio_MT.double().sum(dim=1),
        torch.where(mask_MT, ratio_MT, -math.inf).amax(dim=1),
        divergence_from_author(logp_start_MT, logp_gen_MT, mask_MT, estimator="k1"),
        divergence_from_author(logp_start_MT, logp_gen_MT, mask_MT, estimator="k3"),
        ((ratio_MT > math.log(weight_cap)) & mask_MT).sum(dim=1),
        weight_MT.sum(dim=1),
        weight_MT.square().sum(dim=1),
    )
    return torch.stack([column.double() for column in columns], dim=1)


def source_reports(
    authors: Sequence[str],
    reward_B: Tensor,
    length_B: Tensor,
    advantage_B: Tensor,
    heard_B: Tensor,
    statistics_B8: Tensor,
    dropped: Mapping[int, str],
) -> dict[str, SourceReport]:
    """Per author, sorted by name.

    Args:
        heard_B: ``advantage_B`` after the filter; 0 where it silenced.
        statistics_B8: of ``row_statistics``; rows that were not measured are NaN.
        dropped: rows that were left out because of a non-finite number.
    """
    whole_B = torch.ones(len(authors), dtype=torch.bool)
    whole_B[list(dropped)] = False
    reports = {}
    for author in sorted(set(authors)):
        of_B = torch.tensor([name == author for name in authors])
        with_B = of_B & (advantage_B != 0)
        measured = statistics_B8[with_B & whole_B & statistics_B8[:, 0].isfinite()]
        tokens, ratio_sum, _, _, _, capped, weight, weight_square = measured.sum(dim=0).tolist()
        reports[author] = SourceReport(
            completions=int(of_B.sum()),
            tokens=int(length_B[of_B].sum()),
            reward_mean=float(reward_B[of_B].mean()),
            with_advantage=int(with_B.sum()),
            rows_trained=int((of_B & (heard_B != 0)).sum()),
            log_ratio_mean=_ratio(ratio_sum, tokens),
            log_ratio_max=_finite(measured[:, 2].max().item()) if len(measured) else None,
            k1=_ratio(measured[:, 3].sum().item(), len(measured)),
            k3=_ratio(measured[:, 4].sum().item(), len(measured)),
            capped_share=_ratio(capped, tokens),
            filtered_share_positive=_filtered(with_B & whole_B & (advantage_B > 0), heard_B),
            filtered_share_negative=_filtered(with_B & whole_B & (advantage_B < 0), heard_B),
            # `**` raises where it overflows; `*` gives inf, which _finite knows.
            effective_sample_size=_ratio(weight * weight, tokens * weight_square),
        )
    return reports


def _filtered(of_B: Tensor, heard_B: Tensor) -> float | None:
    return _ratio(float((of_B & (heard_B == 0)).sum()), float(of_B.sum()))


def _ratio(above: float, below: float) -> float | None:
    return _finite(above / below) if below else None


def _finite(value: float) -> float | None:
    """JSON has no infinity; a statistic that overflows is not measured."""
    return value if math.isfinite(value) else None
