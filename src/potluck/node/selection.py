"""Selection of the groups that are learned from, and the counts of all that is left out."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from potluck.node.learning.read import UnreadReason
from potluck.types import Completion, Row

Read = Callable[[Completion], Row | UnreadReason]
"""Reader of a completion with the learner's tokenizer."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Groups to learn from, and counts as in ``RoundReport``; a completion is in one at most."""

    groups: tuple[tuple[Row, ...], ...]
    """Members' in the order of the round's problems, then those of each stranger, then late
    ones, oldest round first."""
    unasked: int
    unreadable: Mapping[tuple[str, UnreadReason], int]
    """Number of completions of an author that cannot be read, for each reason; late ones too."""
    too_few: int
    late: int = 0
    late_used: int = 0
    over_share: int = 0
    kept: tuple[tuple[float, ...], ...] = ()
    """Rewards of this node's earlier completions that each group is compared with as well."""
    over_intake: int = 0
    staleness: float | None = None
    joint_share: float | None = None


def readable_rows(
    came: Iterable[Completion], read: Read
) -> tuple[list[Row], Counter[tuple[str, UnreadReason]]]:
    """Return the rows of what can be read; count the rest by author and reason."""
    rows, unreadable = [], Counter[tuple[str, UnreadReason]]()
    for completion in came:
        row = read(completion)
        if isinstance(row, Row):
            rows.append(row)
        else:
            unreadable[completion.author, row] += 1
    return rows, unreadable


def within_caps(
    groups: Mapping[str, int],
    *,
    known: int,
    group_size: int,
    each: float,
    together: float,
    salt: str,
) -> dict[str, int]:
    """Return how many of its groups each stranger may have in the batch.

        s_i <= each / (1 - each) * K      sum s_i <= together / (1 - together) * K

    with s_i the completions of one and K = ``known`` those of members (and one's own). Then no
    stranger has more than ``each`` of the batch and all have at most ``together`` of it, whatever
    others send. Turns go one group at a time, in an order that none of them can choose: by SHA-256
    of the name and ``salt``, which differs from round to round.

    >>> within_caps({"mia": 9, "tom": 1}, known=90, group_size=10, each=0.25, together=0.3, salt="")
    {'mia': 2, 'tom': 1}
    """
    allowed = dict.fromkeys(groups, 0)
    most_each = int(each / (1 - each) * known / group_size + 1e-9)
    left = int(together / (1 - together) * known / group_size + 1e-9)
    order = sorted(groups, key=lambda name: sha256(f"{salt}/{name}".encode()).digest())
    for turn in range(most_each):
        for name in order:
            if left and groups[name] > turn:
                allowed[name] += 1
                left -= 1
    return allowed
