"""How much of a batch strangers may have."""

import hashlib
from collections.abc import Mapping


def within_caps(
    groups: Mapping[str, int],
    *,
    known: int,
    group_size: int,
    each: float,
    together: float,
    salt: str,
) -> dict[str, int]:
    """How many of its groups each stranger may have in the batch.

        s_i <= each / (1 - each) * K      sum s_i <= together / (1 - together) * K

    with s_i the completions of one and K those of members (and one's own). Then no stranger has
    more than ``each`` of the batch and all have at most ``together`` of it, whoever else is there.
    Turns go one group at a time, in an order that none of them can choose (by SHA-256).

    Args:
        groups: of each stranger, by name.
        known: K, completions.
        salt: differs from round to round, so that the first one is another each time.

    >>> within_caps({"mia": 9, "tom": 1}, known=90, group_size=10, each=0.25, together=0.3, salt="")
    {'mia': 2, 'tom': 1}
    """
    allowed = dict.fromkeys(groups, 0)
    most_each = int(each / (1 - each) * known / group_size + 1e-9)
    left = int(together / (1 - together) * known / group_size + 1e-9)
    order = sorted(groups, key=lambda name: hashlib.sha256(f"{salt}/{name}".encode()).digest())
    for turn in range(most_each):
        for name in order:
            if left and groups[name] > turn:
                allowed[name] += 1
                left -= 1
    return allowed
