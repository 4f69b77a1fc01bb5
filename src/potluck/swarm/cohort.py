"""Whose completions a node fetches where there are too many to fetch all."""

import hashlib
from collections.abc import Collection

ALL_UP_TO = 64
"""Nodes among which each fetches from every other: 64 batches of 350 KB are 22 MB a round."""


def cohort(
    names: Collection[str],
    *,
    members: Collection[str],
    me: str,
    run: str,
    round: int,
    size: int,
) -> frozenset[str]:
    """Those of ``names`` that ``me`` fetches from in ``round``: all, or ``size`` of more than 64.

    The first by SHA-256 of (run, round, me, name), members before strangers: nobody chooses by
    whom it is read, no crowd of strangers pushes a member out, each member is read by about
    ``size`` others, and when one goes the others stay. With other names in the next round, what
    a node knows is everywhere after log(n) / log(size) rounds.
    """
    others = [name for name in names if name != me]
    if len(others) < ALL_UP_TO:
        return frozenset(others)

    def place(name: str) -> tuple[bool, bytes]:
        digest = hashlib.sha256(f"{run}/{round}/{me}/{name}".encode()).digest()
        return name not in members, digest

    return frozenset(sorted(others, key=place)[:size])
