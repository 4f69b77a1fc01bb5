"""Plans: which problems a round has, and how their completions are shared out.

A plan is a pure function of what every node already knows, so the nodes agree
without a coordinator. Vertical and horizontal collaboration differ here and
nowhere else.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import count, islice
from math import lcm
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Share:
    """One order: ``node`` writes ``count`` completions of ``problem_id``."""

    problem_id: str
    node: str
    count: int


class Plan(Protocol):
    """(problem ids, weight of each node, group size) -> shares that fill every group exactly."""

    def __call__(
        self,
        problem_ids: Sequence[str],
        weights: Mapping[str, float],
        group_size: int,
        *,
        round: int = 0,
    ) -> list[Share]: ...


def vertical(
    problem_ids: Sequence[str], weights: Mapping[str, float], group_size: int, *, round: int = 0
) -> list[Share]:
    """Deals whole groups round: each problem has one author.

    Source: F-TIS, arXiv:2605.22537, section 4 (the paper's default). Unequal weights
    are ours: a node of weight 2 writes twice the groups of a node of weight 1.

    >>> [s.node for s in vertical(["p", "q", "r"], {"north": 1, "south": 1}, 12)]
    ['north', 'south', 'north']
    """
    turn = _turns(weights, done=round * len(problem_ids))
    return [Share(problem_id, next(turn), group_size) for problem_id in problem_ids]


def horizontal(
    problem_ids: Sequence[str], weights: Mapping[str, float], group_size: int, *, round: int = 0
) -> list[Share]:
    """Deals the completions of every group round: each problem has every node as an author.

    What does not divide evenly evens out over the problems and the rounds.

    >>> [(s.node, s.count) for s in horizontal(["p", "q"], {"north": 1, "south": 1}, 7)]
    [('north', 4), ('south', 3), ('north', 3), ('south', 4)]
    """
    turn = _turns(weights, done=round * len(problem_ids) * group_size)
    shares = []
    for problem_id in problem_ids:
        counts = Counter(islice(turn, group_size))
        shares += [Share(problem_id, node, counts[node]) for node in weights if counts[node]]
    return shares


PLANS: dict[str, Plan] = {"vertical": vertical, "horizontal": horizontal}


def problems_of_round(ids: Sequence[str], *, seed: int | str, round: int, count: int) -> list[str]:
    """The problems of one round: every node draws the same, without talking.

    Each pass over the task is a new order: by SHA-256 of (seed, pass, id), which any
    other implementation can compute. A round that reaches the end of a pass takes
    the rest from the next one, and nothing twice.

    Raises:
        ValueError: the task has fewer than ``count`` problems.
    """
    if count > len(ids):
        raise ValueError(f"a round takes {count} problems, but the task has {len(ids)}")
    whole = tuple(ids)
    chosen: dict[str, None] = {}
    first = round * count
    while len(chosen) < count:
        lap, at = divmod(first, len(whole))
        chosen.setdefault(_shuffled(whole, f"{seed}/{lap}")[at])
        first += 1
    return list(chosen)


@lru_cache(maxsize=256)
def _shuffled(ids: tuple[str, ...], salt: str) -> list[str]:
    return sorted(ids, key=lambda id: hashlib.sha256(f"{salt}/{id}".encode()).digest())


def _turns(weights: Mapping[str, float], *, done: int) -> Iterator[str]:
    """Whose turn it is, from turn ``done`` on: always the node furthest behind its part.

    After n turns a node of weight w has had about n w / sum(weights), so one of small
    weight has its turn in some round, if not in every. Ties go by name, not by the order
    in which a recipe happens to have its nodes.
    """
    if not weights or min(weights.values()) <= 0:
        raise ValueError(f"weights are {dict(weights)}; every node needs one > 0")
    parts = {
        name: max(Fraction(weights[name]).limit_denominator(1000), Fraction(1, 1000))
        for name in sorted(weights)
    }
    whole_numbers = lcm(*(part.denominator for part in parts.values()))
    part = {name: int(share * whole_numbers) for name, share in parts.items()}
    # After ``whole`` turns each node has had its part exactly, and it begins again.
    whole, had = sum(part.values()), Counter[str]()
    for turn in count():
        node = max(part, key=lambda name: part[name] * (had.total() + 1) - had[name] * whole)
        had[node] += 1
        if turn >= done % whole:
            yield node
