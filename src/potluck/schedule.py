"""The schedule of a run: which problems a round has, and which node writes which completions.

Pure functions of what every node already knows, so that the nodes agree without a coordinator.
Vertical and horizontal collaboration differ in their plan and nowhere else.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import count as count_from
from itertools import islice
from math import lcm
from typing import Protocol

ALL_UP_TO = 64
"""Nodes among which each fetches from every other: 64 batches of 350 KB are 22 MB a round."""


@dataclass(frozen=True, slots=True)
class Share:
    """One order: ``node`` writes ``count`` completions of ``problem_id``."""

    problem_id: str
    node: str
    count: int


class Plan(Protocol):
    """(problem ids, weight of each node, group size) -> shares that fill every group exactly."""

    def __call__(
        self, ids: Sequence[str], weights: Mapping[str, float], group_size: int, *, round: int = 0
    ) -> list[Share]: ...


def vertical(
    ids: Sequence[str], weights: Mapping[str, float], group_size: int, *, round: int = 0
) -> list[Share]:
    """Deal whole groups round: each problem has one author.

    Source: F-TIS, arXiv:2605.22537, section 4 (the paper's default). Unequal weights
    are ours: a node of weight 2 writes twice the groups of a node of weight 1.

    >>> [s.node for s in vertical(["p", "q", "r"], {"north": 1, "south": 1}, 12)]
    ['north', 'south', 'north']
    """
    turn = _turns(weights, done=round * len(ids))
    return [Share(problem_id, next(turn), group_size) for problem_id in ids]


def horizontal(
    ids: Sequence[str], weights: Mapping[str, float], group_size: int, *, round: int = 0
) -> list[Share]:
    """Deal the completions of every group round: each problem has every node as an author.

    What does not divide evenly evens out over the problems and the rounds.

    >>> [(s.node, s.count) for s in horizontal(["p", "q"], {"north": 1, "south": 1}, 7)]
    [('north', 4), ('south', 3), ('north', 3), ('south', 4)]
    """
    turn = _turns(weights, done=round * len(ids) * group_size)
    shares = []
    for problem_id in ids:
        counts = Counter(islice(turn, group_size))
        shares += [Share(problem_id, node, counts[node]) for node in weights if counts[node]]
    return shares


PLANS: dict[str, Plan] = {"vertical": vertical, "horizontal": horizontal}


@dataclass(frozen=True)
class Agenda:
    """Orders of every round. Equal on every node of a run."""

    ids: Sequence[str]
    """Problems to train on."""
    weights: Mapping[str, float]
    """Part that each member writes, relative to the others."""
    plan: Plan
    group_size: int
    problems_per_round: int
    seed: int
    stranger_problems: int = 0
    """Groups that a node which is no member may write; 0: there are no strangers."""
    only_write: frozenset[str] = frozenset()
    """Members without weights. They write nothing for absent ones, as texts may cost money."""

    def members_shares(self, round: int, absent: Collection[str] = ()) -> list[Share]:
        """Return the shares of the problems that all members draw together; the shares of
        ``absent`` members are dealt round those that learn and are here, by their weights."""
        if not self.weights:
            return []
        count = self.problems_per_round
        drawn = problems_of_round(self.ids, seed=self.seed, round=round, count=count)
        shares = self.plan(drawn, self.weights, self.group_size, round=round)
        here = {n: w for n, w in self.weights.items() if n not in {*absent, *self.only_write}}
        if not (absent and here):
            return shares
        turn, dealt = _turns(here, done=round), Counter[tuple[str, str]]()
        for share in shares:
            each = share.count if self.deals_whole_groups else 1
            for _ in range(0, share.count, each):
                node = next(turn) if share.node in absent else share.node
                dealt[share.problem_id, node] += each
        return [Share(problem_id, node, count) for (problem_id, node), count in dealt.items()]

    @property
    def deals_whole_groups(self) -> bool:
        """True: a group has one author."""
        return self.plan is vertical

    def most(
        self, round: int, authors: Collection[str], absent: Collection[str] = ()
    ) -> dict[tuple[str, str], int]:
        """Return how many completions are taken at most, by (problem, author), in the order of
        ``shares``: an author's own part, and of what ``absent`` members would write all, as
        another node may miss more of them."""
        most = Counter[tuple[str, str]]()
        for share in self.shares(round, authors):
            most[share.problem_id, share.node] += share.count
            if share.node in absent:
                for author in sorted(self.weights.keys() & {*authors} - {share.node}):
                    most[share.problem_id, author] += share.count
        return most

    def strangers_shares(self, round: int, name: str) -> list[Share]:
        """Return whole groups of problems that depend on ``name`` alone, which cannot choose them.
        The seed is a text that no number is, so these are not the members' problems."""
        if name in self.weights or not self.stranger_problems:
            return []
        count = min(self.stranger_problems, len(self.ids))
        drawn = problems_of_round(self.ids, seed=f"{self.seed}/{name}", round=round, count=count)
        return [Share(id, name, self.group_size) for id in drawn]

    def shares_of(self, round: int, name: str, absent: Collection[str] = ()) -> list[Share]:
        """Return the shares of ``name``, a member or a stranger."""
        members = [s for s in self.members_shares(round, absent) if s.node == name]
        return members or self.strangers_shares(round, name)

    def shares(self, round: int, authors: Iterable[str]) -> list[Share]:
        """Return the shares of all members; then, by name, those of strangers among ``authors``."""
        strangers = sorted(set(authors) - set(self.weights))
        return self.members_shares(round) + [
            share for name in strangers for share in self.strangers_shares(round, name)
        ]


def problems_of_round(ids: Sequence[str], *, seed: int | str, round: int, count: int) -> list[str]:
    """Draw the problems of one round, the same on every node.

    Each pass over the task is a new order: by SHA-256 of (seed, pass, id), which any other
    implementation can compute. A round that reaches the end of a pass takes the rest from the
    next one, and nothing twice. Raise ValueError if the task has fewer than ``count`` problems.
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


def unwritten_problems(
    ids: Sequence[str],
    times: Mapping[str, int],
    *,
    wanted: Iterable[str],
    seed: int | str,
    count: int,
) -> list[str]:
    """Draw the problems of a round of one node: those ``wanted`` that it has not written in its
    present pass over the task, then the next ones in the order of ``problems_of_round``.

    ``times`` says how often the node has written each; a pass ends when it has written all of them
    equally often. So others decide the order, and no problem comes twice in a pass. Raise
    ValueError if the task has fewer than ``count`` problems.
    """
    if count > len(ids):
        raise ValueError(f"a round takes {count} problems, but the task has {len(ids)}")
    whole, lap = tuple(ids), min(times.get(id, 0) for id in ids)
    known = frozenset(whole)
    left = [id for id in dict.fromkeys(wanted) if id in known and times.get(id, 0) <= lap]
    chosen = dict.fromkeys(left[:count])
    for at in count_from(lap):
        order = (id for id in _shuffled(whole, f"{seed}/{at}") if times.get(id, 0) <= at)
        for id in order:
            if len(chosen) == count:
                return list(chosen)
            chosen.setdefault(id)
    raise AssertionError("the passes have no end")


def part_of_round(
    plan: Plan, ids: Sequence[str], me: str, intake: float, group_size: int, *, round: int = 0
) -> list[Share]:
    """Return the shares of a node at its own pace: 1 / (1 + intake) of a round of ``ids``.

    >>> [s.count for s in part_of_round(horizontal, ["p", "q"], "north", 2.0, 12)]
    [4, 4]
    """
    parts = {me: 1.0} | ({"": intake} if intake else {})  # all others: no node has that name
    return [share for share in plan(ids, parts, group_size, round=round) if share.node == me]


def cohort(
    names: Collection[str],
    *,
    members: frozenset[str],
    me: str,
    run: str,
    round: int,
    size: int,
    all_up_to: int = ALL_UP_TO,
) -> frozenset[str]:
    """Return the ``names`` that ``me`` fetches from in ``round``: all, or ``size`` of them from
    ``all_up_to`` on.

    They are the first by SHA-256 of (run, round, me, name), members before strangers: no node
    chooses its readers, no crowd of strangers pushes a member out, each member is read by about
    ``size`` others, and when one goes the others stay. With other names in the next round,
    knowledge is everywhere after log(n) / log(size) rounds.
    """
    others = frozenset(names) - {me}
    if len(others) < all_up_to:
        return others

    salt = f"{run}/{round}/{me}"
    chosen = islice((name for name in _by_digest(members, salt) if name in others), size)
    first = frozenset(chosen)
    if len(first) == size:
        return first
    return first | frozenset(_by_digest(others - members, salt)[: size - len(first)])


@lru_cache(maxsize=256)
def _shuffled(ids: tuple[str, ...], salt: str) -> list[str]:
    return sorted(ids, key=lambda id: _sha256(f"{salt}/{id}"))


@lru_cache(maxsize=64)
def _by_digest(names: frozenset[str], salt: str) -> tuple[str, ...]:
    """Sort once a round: sorting a thousand names takes a millisecond, and many ask."""
    return tuple(sorted(names, key=lambda name: _sha256(f"{salt}/{name}")))


def _sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _turns(weights: Mapping[str, float], *, done: int) -> Iterator[str]:
    """Yield the node of each turn from turn ``done`` on: always the one furthest behind its part.
    After n turns a node of weight w has had about n w / sum(weights), so one of small weight has
    its turn in some round, if not in every. Ties go by name, not by a recipe's order of nodes."""
    if not weights or min(weights.values()) <= 0:
        raise ValueError(f"weights are {dict(weights)}; every node needs one > 0")
    parts = {
        name: max(Fraction(weights[name]).limit_denominator(1000), Fraction(1, 1000))
        for name in sorted(weights)
    }
    whole_numbers = lcm(*(part.denominator for part in parts.values()))
    part = {name: int(share * whole_numbers) for name, share in parts.items()}
    # After ``whole`` turns each node has had its part exactly, and it begins again.
    whole, taken = sum(part.values()), Counter[str]()
    for turn in count_from():
        node = max(part, key=lambda name: part[name] * (taken.total() + 1) - taken[name] * whole)
        taken[node] += 1
        if turn >= done % whole:
            yield node
