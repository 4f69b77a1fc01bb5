"""Estimates for all problems from rewards on a sample of them, with intervals of 95 %.

Problems are the unit: one counts once, with the mean over its samples, which are alike (a cluster,
as survey statistics call it). Closed forms only: nothing is random, nothing degenerates where all
or no problems are solved. Seeds, rounds, base pairs are few: differences have Student's interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import atan, comb, cos, pi, sin, sqrt, tan
from statistics import NormalDist, fmean, mean, stdev

Z = NormalDist().inv_cdf(0.975)
"""1.96: standard deviations to each side of a normal's mean that hold 95 % of it."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate, and the range of truths that a 95 % test would not reject."""

    value: float
    low: float
    high: float

    def within(self, least: float, most: float) -> "Interval":
        return Interval(self.value, max(least, self.low), min(most, self.high))


def pass_at_k(right: int, samples: int, k: int) -> float:
    """Return the chance that at least one of ``k`` answers to a problem is right. Unbiased.

        1 - C(n - c, k) / C(n, k)

    the share of all choices of k out of the n samples that hold at least one of the c right ones:
    the exact fraction, rounded once. Raise ValueError unless 0 <= c <= n and 1 <= k <= n.

    Source: Chen et al. 2021, arXiv:2107.03374, equation 1.

    >>> pass_at_k(1, 4, 1), pass_at_k(1, 4, 2), pass_at_k(3, 4, 2)
    (0.25, 0.5, 1.0)
    """
    if not (0 <= right <= samples and 1 <= k <= samples):
        found = f"pass@{k} of {right} right among {samples} samples"
        raise ValueError(f"{found}; expected 0 <= right <= samples and 1 <= k <= samples")
    return (comb(samples, k) - comb(samples - right, k)) / comb(samples, k)


def share_interval(share_N: Sequence[float]) -> Interval:
    """Return the mean of shares, 0..1, one a problem, with Wilson's interval.

        (p + z^2/2m  +-  z sqrt(p (1 - p) / m + z^2/4m^2)) / (1 + z^2/m)

    where p is the mean and m = N p (1 - p) / mean (x - p)^2 the effective number of problems: how
    many right-or-wrong answers, which have m = N, would be as sure as shares that vary less (pass@k
    of several samples). Always within 0..1. Raise ValueError if there is none, or one is no share.

    Source: Wilson 1927, J. Am. Stat. Assoc. 22:209-212; the effective sample size in it:
    Franco, Little, Louis & Slud 2019, J. Surv. Stat. Methodol. 7:334-364.
    **Deviations**: where all shares are equal, m = N (theirs would be infinite, or 0/0).
    Normal quantiles: with fewer than some 30 problems the interval is a little too narrow.
    """
    if not share_N or not all(0 <= share <= 1 for share in share_N):
        raise ValueError(f"expected at least one share, 0..1 each; got {list(share_N)[:5]} ...")
    p, count = fmean(share_N), len(share_N)
    variance = fmean([(share - p) ** 2 for share in share_N])
    # Shares that are equal but for rounding say nothing of how they vary.
    m = count * p * (1 - p) / variance if max(share_N) - min(share_N) > 1e-6 else count
    middle, half = p + Z**2 / (2 * m), Z * sqrt(p * (1 - p) / m + Z**2 / (4 * m**2))
    low, high = (middle - half) / (1 + Z**2 / m), (middle + half) / (1 + Z**2 / m)
    # Where p is 0 or 1 a bound is p itself, but for rounding.
    return Interval(p, max(0.0, min(low, p)), min(1.0, max(high, p)))


def mean_interval(reward_N: Sequence[float]) -> Interval:
    """Return the mean of rewards on any scale, and mean +- z s / sqrt(N).

    Raise ValueError for fewer than two, which say nothing of how they vary.

    Source: the central limit theorem, as Miller 2024, arXiv:2411.00640, section 2.1, has it.
    """
    if len(reward_N) < 2:
        raise ValueError(f"expected at least two rewards; got {list(reward_N)}")
    middle, half = fmean(reward_N), Z * stdev(reward_N) / sqrt(len(reward_N))
    return Interval(middle, middle - half, middle + half)


def difference_interval(difference_N: Sequence[float]) -> Interval:
    """Return the mean of differences between two models on the same problems.

        mean d  and, of d with the two steps +u and -u added:  mean +- z sd / sqrt(N + 2)

    A difference is A's mean reward, or pass@k, less B's on one problem. u is the root mean square
    of those that are not 0; right-or-wrong answers have u = 1, and this is the adjusted Wald
    interval of Bonett & Price. What both models solve, or both fail at, cancels: paired, problems
    tell more than two intervals side by side. Raise ValueError if there is none.

    Source: Bonett & Price 2012, J. Educ. Behav. Stat. 37:479-488; pairing by problem: Miller
    2024, arXiv:2411.00640, section 4.
    **Deviations**: u, so that it serves differences that are no whole steps; u = 1 where all
    are 0. ``value`` is the plain mean; the interval's own centre is nearer to 0. A bound may
    lie beyond what is possible: see ``Interval.within``.
    """
    if not difference_N:
        raise ValueError("expected at least one difference; got none")
    steps = [difference for difference in difference_N if difference]
    u = sqrt(fmean([step**2 for step in steps])) if steps else 1.0
    added = [*difference_N, u, -u]
    centre = fmean(added)
    half = Z * sqrt(fmean([(each - centre) ** 2 for each in added]) / len(added))
    return Interval(fmean(difference_N), centre - half, centre + half)


def unpaired_interval(a_N: Sequence[float], b_M: Sequence[float]) -> Interval:
    """Return the difference of two means on unlike problems, and its interval.

        mean a - mean b  +-  z sqrt(sd_a^2 / N + sd_b^2 / M)

    Raise ValueError for fewer than two of either, as ``mean_interval`` does.
    """
    a, b = mean_interval(a_N), mean_interval(b_M)
    half = sqrt((a.high - a.value) ** 2 + (b.high - b.value) ** 2)
    return Interval(a.value - b.value, a.value - b.value - half, a.value - b.value + half)


def t_interval(difference_N: Sequence[float]) -> Interval:
    """Return the mean of paired differences, one a seed, and mean +- t(.975, N - 1) s / sqrt(N).

    Raise ValueError for fewer than two, which say nothing of how they vary.

    Source: Student 1908, Biometrika 6:1-25.
    """
    if len(difference_N) < 2:
        raise ValueError(f"expected at least two differences; got {list(difference_N)}")
    # Exact sums: equal values have no spread, which rounding errors would give them.
    middle, count = mean(difference_N), len(difference_N)
    half = t_quantile(0.975, count - 1) * stdev(difference_N) / sqrt(count)
    return Interval(middle, middle - half, middle + half)


def t_below(t: float, degrees: int) -> float:
    """Return the probability that Student's t with whole ``degrees`` of freedom is below ``t``.

    Source: Abramowitz & Stegun 1964, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle, is_odd = atan(t / sqrt(degrees)), degrees % 2
    total, term = 0.0, cos(angle) if is_odd else 1.0
    for at in range(2 + is_odd, degrees + 1, 2):
        total += term
        term *= cos(angle) ** 2 * (at - 1) / at
    inside = sin(angle) * total
    return (1 + (2 / pi * (angle + inside) if is_odd else inside)) / 2


@cache
def t_quantile(below: float, degrees: int) -> float:
    """Return the t that Student's distribution stays below with this probability."""
    low, high = -pi / 2, pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        is_below = t_below(sqrt(degrees) * tan(middle), degrees) < below
        low, high = (middle, high) if is_below else (low, middle)
    return sqrt(degrees) * tan(high)
