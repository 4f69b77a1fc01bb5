"""From seeds to intervals. Everything is paired by seed: as far as both settings write as many, it
draws the same problems in both, so their effect falls out of the difference."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from potluck.intervals import t_below, t_interval, t_quantile
from potluck_experiments.suite import ExperimentError

POWER = 0.8


class MeanInterval(NamedTuple):
    """A mean with its 95 % t-interval: mean +- t(.975, n - 1) s / sqrt(n)."""

    mean: float
    low: float
    high: float
    n: int

    def at(self, level: float) -> "MeanInterval":
        """Return the interval at another level than .95."""
        more = t_quantile((1 + level) / 2, self.n - 1) / t_quantile(0.975, self.n - 1)
        low, high = (self.mean + more * (end - self.mean) for end in (self.low, self.high))
        return MeanInterval(self.mean, low, high, self.n)

    @property
    def mirrored(self) -> "MeanInterval":
        return MeanInterval(-self.mean, -self.high, -self.low, self.n)

    @property
    def to_tell(self) -> float:
        """Return the true difference whose interval leaves out 0 with a probability of POWER.

            (t(.975, n - 1) + t(POWER, n - 1)) s / sqrt(n)

        Source: Cochran and Cox, Experimental Designs, number of replications: two quantiles of the
        central t approximate it.
        """
        ratio = t_quantile(POWER, self.n - 1) / t_quantile(0.975, self.n - 1)
        return (1 + ratio) * (self.high - self.low) / 2


def interval_of(values: Iterable[float]) -> MeanInterval | None:
    """Return the mean of differences, one a seed or a base pair, with its 95 % t-interval; None for
    fewer than two, as one tells nothing of their spread."""
    each = [float(value) for value in values]
    if len(each) < 2:
        return None
    found = t_interval(each)
    return MeanInterval(found.value, found.low, found.high, len(each))


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


def p_above(difference: MeanInterval, at: float) -> float:
    """Return the p-value of "the true mean is above ``at``": Student's one-sided test."""
    error = (difference.high - difference.low) / 2 / t_quantile(0.975, difference.n - 1)
    return t_below((at - difference.mean) / error, difference.n - 1)
