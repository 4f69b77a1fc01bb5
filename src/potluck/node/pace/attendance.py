"""The members that a node counts on to write their part of a round.

There is no coordinator, so each node decides by what came to it: a member is *absent* in a round
if nothing of use came of it in the last rounds that the node knows by then. What absent members
would have written is written by those that are here (``Agenda.members_shares``). Two nodes can
differ for some rounds when a member goes or comes back; then a part is written twice, and both
texts are learned from where both nodes miss the member.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from potluck.exchange import Round
from potluck.reports import AuthorReport
from potluck.reports.doubts import UNHEARD_WEIGHT
from potluck.schedule import ALL_UP_TO

PATIENCE = {"together": (1, 2), "free": (2, 8)}
"""Rounds of silence: below the first nobody is absent, from the second on each silent member is.
At its own pace a node often begins before the others, and others bring several rounds at once."""


class Attendance:
    """Tells which members are absent, from the last rounds of one node."""

    def __init__(
        self,
        members: Iterable[str] = (),
        *,
        patience: tuple[int, int] = PATIENCE["together"],
        trusts: Callable[[str], bool] = lambda author: True,
        lines: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        """Take the members but this node, and the ``lines`` of its metrics.jsonl, so that a round
        that is done again after a crash has the same ones. With more than ``ALL_UP_TO`` members
        none is ever absent, as a node does not fetch from all of them."""
        named = frozenset(members)
        self._members = named if len(named) < ALL_UP_TO else frozenset[str]()
        (self._fewest, self._most), self._trusts = patience, trusts
        self._absent = dict[int, frozenset[str]]()
        self._heard = {
            line["round"]: frozenset[str](heard)
            for line in lines
            if (heard := line.get("heard")) is not None
        }

    def note(
        self, round: int, arrived: Round, sources: Mapping[str, AuthorReport], *, me: str
    ) -> tuple[str, ...]:
        """Note of which members something of use came in ``round``; return them, sorted.

        Texts of a member that is not trusted are of use if they teach: a stranger that took a name
        and writes what teaches nothing costs no more than one that is silent. A node that solves
        nothing cannot tell, so it takes all as of use.
        """
        late = [c for completions in arrived.late.values() for c in completions]
        came = self._members & {c.author for c in (*arrived.completions, *late)}
        if _teaches(sources.get(me)):
            came -= {n for n in came if not (self._trusts(n) or _teaches(sources.get(n)))}
        self._heard[round] = came
        return tuple(sorted(came))

    def absent(self, round: int) -> frozenset[str]:
        """Return the members of which nothing of use came for too long before ``round``, as far as
        was known when it was first asked: a node may write a round while it learns from the one
        before. Too long is twice the longest gap that a member ever had."""
        if round not in self._absent:
            known = sorted(at for at in self._heard if at < round)
            self._absent[round] = frozenset(
                n for n in self._members if self._is_absent(n, known, since=round - self._most)
            )
        return self._absent[round]

    def _is_absent(self, member: str, known: Sequence[int], *, since: int) -> bool:
        lately = sum(at >= since for at in known)
        came = [place for place, at in enumerate(known) if member in self._heard[at]]
        silent = len(known) - 1 - came[-1] if came else lately
        if silent >= lately:  # nothing came in the last rounds, if enough of them are known
            return lately >= self._fewest
        gaps = [later - earlier for earlier, later in pairwise(came)]
        return bool(gaps) and silent >= max(self._fewest, 2 * max(gaps))


def _teaches(author: AuthorReport | None) -> bool:
    weight = author.success_weight if author else None
    return weight is not None and weight >= UNHEARD_WEIGHT
