"""From seeds to intervals. Everything is paired by seed: as far as both settings write as many, it
draws the same problems in both, so their effect falls out of the difference."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cache
from statistics import mean, stdev
from typing import NamedTuple

import pandas as pd
from scipy import stats

from potluck_experiments.suite import ExperimentError

TO_TELL, POWER = 0.05, 0.8
"""The seeds should be able to tell a true difference of this accuracy, with this probability."""


class MeanInterval(NamedTuple):
    """A mean with its 95 % t-interval: mean +- t(.975, n - 1) s / sqrt(n)."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def holds_zero(self) -> bool:
        return self.low <= 0 <= self.high

    def widened(self, tests: int) -> "MeanInterval":
        """Return the interval at the level 1 - .05 / tests, as one of so many (Bonferroni)."""
        more = t_quantile(1 - 0.05 / tests / 2, self.n - 1) / t_quantile(0.975, self.n - 1)
        low, high = (self.mean + more * (end - self.mean) for end in (self.low, self.high))
        return MeanInterval(self.mean, low, high, self.n)


def interval_of(values: Iterable[float]) -> MeanInterval | None:
    """Return the mean of paired differences, one a seed, with its 95 % t-interval; None for fewer
    than two, as one seed tells nothing of its spread."""
    each = [float(value) for value in values]
    if len(each) < 2:
        return None
    # Exact sums: equal values have no spread, which rounding errors would give them.
    middle, n = mean(each), len(each)
    half_width = t_quantile(0.975, n - 1) * stdev(each) / math.sqrt(n)
    return MeanInterval(middle, middle - half_width, middle + half_width, n)


def ratio_of(pairs: Iterable[Sequence[float]]) -> MeanInterval | None:
    """Return the geometric mean of ``what / than``: exp(interval of ln(what / than)). The logarithm
    treats twice and half alike, and keeps the interval above 0."""
    logs = []
    for what, than in pairs:
        if not (what > 0 and than > 0):
            raise ExperimentError(
                f"there is no ratio of {what} to {than}; tokens and seconds of a finished "
                f"cell are positive, remove the cell's file to run it again"
            )
        logs.append(math.log(what / than))
    if (found := interval_of(logs)) is None:
        return None
    return MeanInterval(math.exp(found.mean), math.exp(found.low), math.exp(found.high), found.n)


def deviation(values: pd.Series) -> float | None:
    """Return the standard deviation of those that are there; None for fewer than two."""
    each = values.dropna().tolist()
    return stdev(each) if len(each) >= 2 else None


def seeds_to_tell(deviation: float) -> int:
    """Return the fewest seeds, two at least, that tell a true difference of TO_TELL.

        (t(.975, n - 1) + t(POWER, n - 1)) s / sqrt(n) <= TO_TELL

    Told: the 95 % interval leaves out 0, with a probability of POWER. ``deviation`` is the s of the
    differences; for two independent runs sqrt(2) times that of either. Source: Cochran and Cox,
    Experimental Designs, number of replications: two quantiles of the central t approximate it.
    """
    tried = range(2, 10_000)
    return tried[bisect_left(tried, True, key=lambda n: detectable(deviation, n) <= TO_TELL)]


def detectable(deviation: float, seeds: int) -> float:
    """Return the true difference that so many seeds tell with a probability of POWER."""
    quantiles = t_quantile(0.975, seeds - 1) + t_quantile(POWER, seeds - 1)
    return quantiles * deviation / math.sqrt(seeds)


@cache
def t_quantile(below: float, degrees: int) -> float:
    """Return the t that Student's distribution stays below with this probability."""
    return float(stats.t.ppf(below, degrees))
