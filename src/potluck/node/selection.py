"""Selection of the groups that are learned from, and the counts of all that is left out."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from potluck.exchange import Round
from potluck.node.learning.read import UnreadReason
from potluck.schedule import Agenda, within_caps
from potluck.types import Completion, Group, Row

Read = Callable[[Completion], Row | UnreadReason]
"""Reader of a completion with the learner's tokenizer."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Groups to learn from, and counts of completions; each is in one of the counts at most."""

    groups: tuple[tuple[Row, ...], ...]
    """Members' in the order of the round's problems, then those of each stranger, then late
    ones, oldest round first."""
    unasked: int
    """Completions that were not asked of their author."""
    unreadable: Mapping[tuple[str, UnreadReason], int]
    """Number of completions of an author that cannot be read, for each reason; late ones too."""
    too_few: int
    """Completions alone of their problem: nothing to be compared with."""
    late: int
    """Completions of earlier rounds that came."""
    late_used: int
    """Completions of earlier rounds, learned from in this one."""
    over_share: int
    """Completions beyond the strangers' share of a batch."""
    kept: tuple[tuple[float, ...], ...] = ()
    """Rewards of this node's earlier completions that each group is compared with as well."""
    over_intake: int = 0
    """Completions beyond what a node at its own pace takes of others."""
    staleness: float | None = None
    """Mean age of others' completions, in rounds of their authors; None: in step, or none came."""
    joint_share: float | None = None
    """Share of others' completions that are compared with this node's own, at its own pace."""


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


@dataclass(frozen=True, kw_only=True)
class Selector:
    """Rules by which one node selects completions."""

    agenda: Agenda
    me: str
    max_staleness: int
    """Rounds for which a group that came late is still learned from."""
    stranger_share: float
    """Largest share of a batch that one stranger may fill."""
    strangers_share: float
    """Largest share of a batch that all strangers together may fill."""

    def keep(self, round: int, groups: Iterable[Group]) -> None:
        """Keep what later rounds need of this one: nothing, in step with the others."""

    def select(self, round: int, arrived: Round, read: Read) -> Selection:
        """Select what ``round`` is learned from, and count the rest."""
        asked = self._asked_for(round, arrived.completions)
        readable, unreadable = readable_rows(asked, read)
        every = self._groups(round, readable)
        present = [group for group in every if len(group) > 1]
        late: list[tuple[Row, ...]] = []
        for then, came in sorted(arrived.late.items()):
            if round - then <= self.max_staleness:
                rows, reasons = readable_rows(self._asked_for(then, came), read)
                unreadable += reasons
                whole = (g for g in self._groups(then, rows) if self._is_one_authors_whole(then, g))
                late += whole
        kept = self._within_caps(round, present + late)
        used = tuple(group for group, keeps in zip(present + late, kept, strict=True) if keeps)
        return Selection(
            used,
            kept=((),) * len(used),
            unasked=len(arrived.completions) - len(asked),
            unreadable=unreadable,
            too_few=len(every) - len(present),
            late=sum(map(len, arrived.late.values())),
            late_used=sum(
                len(group) * keeps for group, keeps in zip(late, kept[len(present) :], strict=True)
            ),
            over_share=sum(
                len(group) * (not keeps) for group, keeps in zip(present + late, kept, strict=True)
            ),
        )

    def _asked_for(self, round: int, came: Iterable[Completion]) -> list[Completion]:
        """Return what was asked of its author; a peer cannot give itself a larger share."""
        came = list(came)
        most = self.agenda.most(round, {c.author for c in came})
        return [c for c in came if c.index < most.get((c.problem_id, c.author), 0)]

    def _groups(self, round: int, rows: Iterable[Row]) -> list[tuple[Row, ...]]:
        """Group by problem; a stranger's rows by themselves, so no one else's mean moves, and so
        all where groups are dealt whole: two members may have thought that one was theirs."""
        by_group, authors = defaultdict(list), set()
        for row in rows:
            c = row.completion
            by_group[self._group_of(c.author), c.problem_id].append(row)
            authors.add(c.author)
        most = self.agenda.most(round, authors)
        order = dict.fromkeys((self._group_of(author), id) for id, author in most)
        return [tuple(by_group[key]) for key in order if key in by_group]

    def _group_of(self, author: str) -> str:
        joint = author in self.agenda.weights and not self.agenda.deals_whole_groups
        return "" if joint else author

    def _is_one_authors_whole(self, round: int, group: tuple[Row, ...]) -> bool:
        """Return True if the group is one author's and whole.

        A part that comes late (horizontal plan) has nothing left to be compared with.
        """
        author, problem = group[0].completion.author, group[0].completion.problem_id
        most = self.agenda.most(round, {author}).get((problem, author))
        is_one_authors = all(row.completion.author == author for row in group)
        return is_one_authors and len(group) == self.agenda.group_size == most

    def _within_caps(self, round: int, groups: list[tuple[Row, ...]]) -> list[bool]:
        """Return for each group True if it is within the strangers' shares."""
        strangers = [
            author
            if (author := group[0].completion.author) not in {*self.agenda.weights, self.me}
            else ""
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
        kept, taken = [], Counter[str]()
        for name in strangers:
            taken[name] += 1
            kept.append(not name or taken[name] <= allowed[name])
        return kept
