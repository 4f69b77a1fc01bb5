"""From curves to numbers, and from seeds to intervals. Pure functions, no torch.

Everything is paired by seed: the same seed draws the same problems in both settings, as
far as both write as many, so what the problems do to both falls out of their difference.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import mean, stdev
from typing import Literal

from potluck.reproduce.result import NodeResult
from potluck.reproduce.suite import ExperimentError

Measure = Literal["greedy", "sampled", "out-of-distribution"]
When = Literal["early", "end"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % t-interval: mean +- t(.975, n - 1) s / sqrt(n)."""

    mean: float
    low: float
    high: float
    n: int


def interval_of(differences: Sequence[float]) -> Interval | None:
    """The mean of paired differences and its 95 % t-interval.

        mean +- t(.975, n - 1) s / sqrt(n),   s with n - 1 in the denominator

    Args:
        differences: one per seed, in any unit; the interval has the same.

    Returns:
        None of fewer than two: one seed tells nothing of its spread. Equal differences give
        an interval of no width.

    Raises:
        ExperimentError: a difference is not finite.

    Source: Student, Biometrika 6 (1908).

    >>> interval_of([0.5, 0.5])
    Interval(mean=0.5, low=0.5, high=0.5, n=2)
    """
    for difference in differences:
        if not math.isfinite(difference):
            raise ExperimentError(
                f"a difference between two runs is {difference}; its cells hold a number that is "
                f"not finite, remove their files to run them again"
            )
    if len(differences) < 2:
        return None
    middle, n = mean(differences), len(differences)
    half_width = t_975(n - 1) * stdev(differences) / math.sqrt(n)
    return Interval(middle, middle - half_width, middle + half_width, n)


def ratio_of(pairs: Sequence[tuple[float, float]]) -> Interval | None:
    """Of pairs (what, than): the geometric mean of what / than, with its 95 % interval.

        exp(interval of ln(what / than))

    The logarithm treats twice and half alike, and keeps the interval above 0.

    Raises:
        ExperimentError: an amount is not a positive number.

    >>> ratio_of([(2.0, 1.0), (2.0, 4.0)]).mean
    1.0
    """
    for pair in pairs:
        if not all(0 < amount < math.inf for amount in pair):
            raise ExperimentError(
                f"there is no ratio of {pair[0]} to {pair[1]}; tokens and seconds of a finished "
                f"cell are positive, remove the cell's file to run it again"
            )
    found = interval_of([math.log(what / than) for what, than in pairs])
    if found is None:
        return None
    return Interval(math.exp(found.mean), math.exp(found.low), math.exp(found.high), found.n)


def widened(interval: Interval, tests: int) -> Interval:
    """The interval at the level 1 - .05 / tests, as one of so many (Bonferroni)."""
    more = t_quantile(1 - 0.05 / tests, interval.n - 1) / t_975(interval.n - 1)
    middle = interval.mean
    low, high = middle - more * (middle - interval.low), middle + more * (interval.high - middle)
    return Interval(middle, low, high, interval.n)


def t_975(degrees: int) -> float:
    """The t that Student's distribution stays within, up and down, 95 % of the time.

    >>> round(t_975(4), 3)
    2.776
    """
    return t_quantile(0.95, degrees)


@cache
def t_quantile(within: float, degrees: int) -> float:
    """The t that Student's distribution stays within, up and down, with this probability.

    Bisects the angle a = atan(t / sqrt(degrees)) in the closed form of P(|T| < t), which is
    exact for whole degrees of freedom:

        odd:   2/pi (a + sin a (cos a + 2/3 cos^3 a + (2 4)/(3 5) cos^5 a + ...))
        even:  sin a (1 + 1/2 cos^2 a + (1 3)/(2 4) cos^4 a + ...)

    both up to cos^(degrees - 2).

    Args:
        within: the probability, 0..1.
        degrees: of freedom, at least 1.

    Source: Abramowitz and Stegun, 26.7.3 and 26.7.4.

    >>> round(t_quantile(0.6, 4), 3)
    0.941
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):  # to the last bit of an angle
        angle = (low + high) / 2
        if _share_within(angle, degrees) < within:
            low = angle
        else:
            high = angle
    return math.sqrt(degrees) * math.tan(low)


def _share_within(angle: float, degrees: int) -> float:
    """P(|T| < t) at t = sqrt(degrees) tan(angle)."""
    odd, total, cosine = degrees % 2, 0.0, math.cos(angle)
    term = cosine if odd else 1.0
    for power in range(odd, degrees - 1, 2):
        total += term
        term *= cosine**2 * (power + 1) / (power + 2)
    within = math.sin(angle) * total
    return 2 / math.pi * (angle + within) if odd else within


def value_of(node: NodeResult, measure: Measure, when: When) -> float:
    """One number of a node's curves. Accuracy, 0..1.

    | measure | end | early |
    |---|---|---|
    | greedy | the last evaluation | mean of those after the start, up to half of the rounds |
    | sampled | mean of the last tenth of the rounds, of three at least | mean of the first half |
    | out-of-distribution | as it is | there is none: it is only evaluated at the end |

    Raises:
        ExperimentError: the node has no such number.
    """
    rounds = len(node.sampled)
    match measure, when:
        case "greedy", "end":
            chosen = node.greedy[-1:]
        case "greedy", "early":
            at = zip(node.eval_rounds, node.greedy, strict=True)
            chosen = tuple(accuracy for round, accuracy in at if 0 < round <= rounds / 2)
        case "sampled", "end":
            chosen = node.sampled[-max(3, math.ceil(rounds / 10)) :]
        case "sampled", "early":
            chosen = node.sampled[: max(1, rounds // 2)]
        case "out-of-distribution", "end":
            chosen = (node.out_of_distribution,)
        case _:
            chosen = ()
    if not chosen:
        raise ExperimentError(
            f"a run of {rounds} rounds, evaluated at {', '.join(map(str, node.eval_rounds))}, has "
            f"no {measure} accuracy {when!r}; evaluate it more often, or claim something else"
        )
    return mean(chosen)


def rounds_to(node: NodeResult, level: float) -> float | None:
    """The round at which greedy accuracy first reaches ``level``; None if it never does.

    On the straight line between two evaluations. A curve that falls again has reached it.
    """
    curve = list(zip(node.eval_rounds, node.greedy, strict=True))
    if curve and curve[0][1] >= level:
        return float(curve[0][0])
    for (before, lower), (after, upper) in pairwise(curve):
        if upper >= level:
            return before + (after - before) * (level - lower) / (upper - lower)
    return None
