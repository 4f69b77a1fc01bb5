"""The statistics as plain loops. Shares no code with ``potluck_experiments``."""

import math

T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 19: 2.093,
         29: 2.045, 30: 2.042, 60: 2.000, 120: 1.980}  # fmt: skip
"""As the tables in the back of a textbook print it."""
T_95 = {4: 2.132}


def share_within(t, degrees, steps=2_000):
    """The area under Student's density from -t to t, strip by strip (Simpson's rule)."""
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2))
    scale /= math.sqrt(degrees * math.pi)
    area, width = 0.0, t / steps
    for i in range(steps):
        for at, weight in ((i, 1), (i + 0.5, 4), (i + 1, 1)):
            density = scale * (1 + (at * width) ** 2 / degrees) ** (-(degrees + 1) / 2)
            area += weight * density * width / 6
    return 2 * area


def interval(differences):
    """(mean, low, high)"""
    n, total = len(differences), 0.0
    for d in differences:
        total += d
    squares = 0.0
    for d in differences:
        squares += (d - total / n) ** 2
    half = T_975[n - 1] * math.sqrt(squares / (n - 1) / n)
    return total / n, total / n - half, total / n + half


def geometric(pairs):
    """(mean, low, high) of ratios."""
    logs = []
    for what, than in pairs:
        logs.append(math.log(what) - math.log(than))
    return tuple(math.e**x for x in interval(logs))


def early_greedy(node):
    total, count = 0.0, 0
    for i in range(len(node.eval_rounds)):
        if node.eval_rounds[i] > 0 and 2 * node.eval_rounds[i] <= len(node.sampled):
            total, count = total + node.greedy[i], count + 1
    return total / count


def verdict(low, high, lies, margin):
    """Of whole numbers: looks at every half between low and high."""
    belongs = {
        "below": lambda x: x < -margin,
        "above": lambda x: x > margin,
        "within": lambda x: -margin <= x <= margin,
        "not below": lambda x: not x < -margin,
    }[lies]
    points = [belongs(x / 2) for x in range(2 * low, 2 * high + 1)]
    if all(points):
        return "shown"
    return "inconclusive" if any(points) else "refuted"
