"""From what came to the groups that are learned from, and the count of all that is left out."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from potluck.exchange import Round
from potluck.swarm import Agenda, within_caps
from potluck.types import Completion

Written = tuple[Completion, ...]
"""Of one problem, in ``reading_order``."""


@dataclass(frozen=True, slots=True)
class Sifted:
    """The counts are of completions; each is in one of them at most."""

    groups: tuple[Written, ...]
    """Members' in the order of the round's problems, then those of each stranger, then late
    ones, oldest round first."""
    unasked: int
    """Not asked of their author."""
    unusable: int
    """Not what they say they are."""
    too_few: int
    """Alone of their problem: nothing to be compared with."""
    late_used: int
    """Of earlier rounds, learned from in this one."""
    over_share: int
    """Beyond what strangers may have of a batch."""


@dataclass(frozen=True)
class Sieve:
    """What one node lets through."""

    agenda: Agenda
    me: str
    max_staleness: int
    """Rounds for which a group that came late is still learned from."""
    stranger_share: float
    """Of a batch, the most that one stranger has."""
    strangers_share: float
    """Of a batch, the most that all strangers have."""

    def sift(self, round: int, arrived: Round, is_usable: Callable[[Completion], bool]) -> Sifted:
        """What ``round`` is learned from."""
        asked = self._asked_for(round, arrived.completions)
        usable = [c for c in asked if is_usable(c)]
        whole = self._groups(round, usable)
        present = [group for group in whole if len(group) > 1]
        late = [
            group
            for then, came in sorted(arrived.late.items())
            if round - then <= self.max_staleness
            for group in self._groups(then, filter(is_usable, self._asked_for(then, came)))
            if self._is_one_authors_whole(then, group)
        ]
        kept = self._within_caps(round, present + late)
        return Sifted(
            tuple(group for group, keeps in zip(present + late, kept, strict=True) if keeps),
            unasked=len(arrived.completions) - len(asked),
            unusable=len(asked) - len(usable),
            too_few=len(whole) - len(present),
            late_used=sum(
                len(group) * keeps for group, keeps in zip(late, kept[len(present) :], strict=True)
            ),
            over_share=sum(
                len(group) * (not keeps) for group, keeps in zip(present + late, kept, strict=True)
            ),
        )

    def _asked_for(self, round: int, came: Iterable[Completion]) -> list[Completion]:
        """What was asked of its author; a peer cannot write itself a larger share."""
        came = list(came)
        shares = self.agenda.shares(round, {c.author for c in came})
        count = {(share.problem_id, share.node): share.count for share in shares}
        return [c for c in came if c.index < count.get((c.problem_id, c.author), 0)]

    def _groups(self, round: int, came: Iterable[Completion]) -> list[Written]:
        """By problem; those of a stranger by themselves, so that it moves no one else's mean."""
        by_group = defaultdict(list)
        for c in (came := list(came)):
            by_group[self._group_of(c.author), c.problem_id].append(c)
        shares = self.agenda.shares(round, {c.author for c in came})
        order = dict.fromkeys((self._group_of(s.node), s.problem_id) for s in shares)
        return [tuple(by_group[key]) for key in order if key in by_group]

    def _group_of(self, author: str) -> str:
        return "" if author in self.agenda.weights else author

    def _is_one_authors_whole(self, round: int, group: Written) -> bool:
        """A part of a group that comes late has nothing left to be compared with (horizontal)."""
        author, problem = group[0].author, group[0].problem_id
        asked = self.agenda.shares(round, {author})
        return (
            len(group) == self.agenda.group_size
            and all(c.author == author for c in group)
            and any((s.node, s.problem_id, s.count) == (author, problem, len(group)) for s in asked)
        )

    def _within_caps(self, round: int, groups: list[Written]) -> list[bool]:
        """Of each group, whether it stays."""
        strangers = [
            author if (author := group[0].author) not in {*self.agenda.weights, self.me} else ""
            for group in groups
        ]
        allowed = within_caps(
            Counter(name for name in strangers if name),
            known=sum(len(g) for g, name in zip(groups, strangers, strict=True) if not name),
            group_size=self.agenda.group_size,
            each=self.stranger_share,
            together=self.strangers_share,
            salt=f"{self.agenda.seed}/{round}",
        )
        kept, had = [], Counter[str]()
        for name in strangers:
            had[name] += 1
            kept.append(not name or had[name] <= allowed[name])
        return kept
