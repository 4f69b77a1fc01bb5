"""Plans: which problems a round has, and how their completions are shared out.

A plan is a pure function of what every node already knows, so the nodes agree
without a coordinator. Vertical and horizontal collaboration differ here and
nowhere else.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice


@dataclass(frozen=True, slots=True)
class Share:
    """One order: ``node`` writes ``count`` completions of ``problem_id``."""

    problem_id: str
    node: str
    count: int


Plan = Callable[[Sequence[str], Mapping[str, float], int], list[Share]]
"""(problem ids, weight of each node, group size) -> shares that fill every group exactly."""


def vertical(
    problem_ids: Sequence[str], weights: Mapping[str, float], group_size: int
) -> list[Share]:
    """Deals whole groups round: each problem has one author.

    Source: F-TIS, arXiv:2605.22537, section 4 (the paper's default). Unequal weights
    are ours: a node of weight 2 writes twice the groups of a node of weight 1.

    >>> [s.node for s in vertical(["p", "q", "r"], {"north": 1, "south": 1}, 12)]
    ['north', 'south', 'north']
    """
    turn = _turns(weights)
    return [Share(problem_id, next(turn), group_size) for problem_id in problem_ids]


def horizontal(
    problem_ids: Sequence[str], weights: Mapping[str, float], group_size: int
) -> list[Share]:
    """Deals the completions of every group round: each problem has every node as an author.

    What does not divide evenly evens out over the problems of the round.

    >>> [(s.node, s.count) for s in horizontal(["p", "q"], {"north": 1, "south": 1}, 7)]
    [('north', 4), ('south', 3), ('north', 3), ('south', 4)]
    """
    turn = _turns(weights)
    shares = []
    for problem_id in problem_ids:
        counts = Counter(islice(turn, group_size))
        shares += [Share(problem_id, node, counts[node]) for node in weights if counts[node]]
    return shares


PLANS: dict[str, Plan] = {"vertical": vertical, "horizontal": horizontal}


def problems_of_round(ids: Sequence[str], *, seed: int, round: int, count: int) -> list[str]:
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


@lru_cache(maxsize=4)
def _shuffled(ids: tuple[str, ...], salt: str) -> list[str]:
    return sorted(ids, key=lambda id: hashlib.sha256(f"{salt}/{id}".encode()).digest())


def _turns(weights: Mapping[str, float]) -> Iterator[str]:
    """Whose turn it is, for ever: always the node furthest behind its part.

    After n turns a node of weight w has had within one turn of n w / sum(weights)
    (two nodes; within two for more). Ties go to the first.
    """
    if not weights or min(weights.values()) <= 0:
        raise ValueError(f"weights are {dict(weights)}; every node needs one > 0")
    whole, had = sum(weights.values()), Counter[str]()
    while True:
        turns = had.total() + 1
        node = max(weights, key=lambda name: weights[name] * turns / whole - had[name])
        had[node] += 1
        yield node
