"""A node at its own pace: no round of it waits for anybody. It looks at what others have sent since
the last one, and draws its problems by that.

Nodes count rounds of their own, so staleness is in rounds of the author: its updates since. They
meet at the same problems without talking about it: a node writes what others wrote lately and it
did not in this pass over the task, so a slow node follows a fast one; and all go through the
task in one order. Where a fast node wrote a problem some rounds before a slow one, it compares
what then comes with the rewards of its own earlier completions, which it keeps.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from math import ceil

from potluck.exchange import Delivery, Exchange, Received, Round
from potluck.files import derived_seed
from potluck.node.pace.base import Pace
from potluck.node.selection import Read, Selection, readable_rows
from potluck.node.storage.record import Record
from potluck.schedule import Share, part_of_round, unwritten_problems
from potluck.types import Completion, Group, Row

UNTRUSTED_SHARE = 0.25
"""Largest share of a round's problems that members which are not trusted choose together."""
WINDOW = 64
"""Own rounds for which rewards are kept, to compare what others send later with."""


class WrittenProblems:
    """The problems that a node has written, and the rewards of its completions of the last
    ``WINDOW`` rounds. It is in ``written.jsonl``, too."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.times = Counter[str]()
        """Rounds in which each problem was written."""
        self._newest = 0
        self._kept: dict[str, tuple[int, tuple[float, ...]]] = {}
        for line in record.each("written"):
            self._add(line["round"], line["rewards"])

    def add(self, round: int, rewards: Mapping[str, Sequence[float]]) -> None:
        """Note a round's rewards of own completions, by problem, and the rounds of others in it."""
        self._record.add("written", [{"round": round, "rewards": rewards}])
        self._record.add_taken()
        self._add(round, rewards)

    def rewards(self, problem_id: str) -> tuple[float, ...]:
        """Return the rewards of this node's newest completions of the problem, or none."""
        round, rewards = self._kept.get(problem_id, (0, ()))
        return rewards if round > self._newest - WINDOW else ()

    def _add(self, round: int, rewards: Mapping[str, Sequence[float]]) -> None:
        self.times.update(rewards.keys())
        self._kept |= {id: (round, tuple(paid)) for id, paid in rewards.items()}
        self._newest = round


@dataclass(frozen=True, slots=True)
class JointGroup:
    """Completions of one problem that are compared with each other."""

    own: tuple[Row, ...]
    others: tuple[Row, ...]
    past: tuple[float, ...]
    """Rewards of the node's completions of earlier rounds, where it has written none in this."""

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.own + self.others

    @property
    def can_teach(self) -> bool:
        """True: there are completions, and each has another reward to be compared with."""
        return bool(self.rows) and len(self.rows) + len(self.past) > 1


@dataclass(frozen=True)
class Free(Pace):
    """The pace of a node that has rounds of its own."""

    written: WrittenProblems
    intake: float
    """Most completions of others that are learned from, for each of this node's. A node's own part
    of a round is 1 / (1 + intake), so that with a full intake it is as large as one in step."""
    meets: bool
    """True: a group is joint, of all that have written its problem (plan "horizontal")."""
    trusts: Callable[[str], bool]

    def look(self, exchange: Exchange, round: int) -> Received:
        return Received(tuple(self.choose(round, exchange.receive(round).batches)))

    def choose(self, round: int, batches: Sequence[Delivery]) -> list[Delivery]:
        """Return the batches to learn from: members' before strangers', trusted authors' first, of
        each author the newest first, in an order of authors that differs from round to round. If
        groups are joint, one more own part's worth of completions is chosen than ``intake`` has
        room for: ``select`` takes first what meets this node's own."""
        turns, nth = [], Counter[str]()
        for each in sorted(batches, key=lambda batch: -batch.round):
            author = each.author
            last = author not in self.agenda.weights, not self.trusts(author)
            turns.append((last, nth[author], self._lot(round, author), each))
            nth[author] += 1
        whole = self.agenda.problems_per_round * self.agenda.group_size
        own = whole / (1 + self._intake(round, self.me))
        # Room for absent members too: what comes of one says that it is back.
        room, chosen = (self.intake + self.meets) * own, []  # completions of others
        for *_, each in sorted(turns, key=lambda turn: turn[:3]):
            if room > 0:
                chosen.append(each)
                room -= len(self._asked_of(round, each.author, each.completions))
        return chosen

    def draw(self, round: int, received: Received, *, written: Collection[str] = ()) -> list[Share]:
        """Draw this node's shares of a round of its own. With joint groups its problems are those
        that others wrote and it has not in this pass, then the next ones of the pass; without,
        those of a pass in an order of its own."""
        agenda = self.agenda
        if self.me not in agenda.weights:
            return agenda.strangers_shares(round, self.me)
        drawn = unwritten_problems(
            agenda.ids,
            self.written.times + Counter({*written}),
            wanted=self._followed(round, received.batches) if self.meets else (),
            seed=agenda.seed if self.meets else f"{agenda.seed}/{self.me}",
            count=agenda.problems_per_round,
        )
        dealt = agenda.plan, drawn, self.me, self._intake(round, self.me), agenda.group_size
        return part_of_round(*dealt, round=round)

    def select(self, round: int, arrived: Round, read: Read) -> Selection:
        batches = arrived.by_author(round)
        asked = [
            c for (author, _), came in batches.items() for c in self._asked_of(round, author, came)
        ]
        rows, unreadable = readable_rows(asked, read)
        every = sorted(self._comparisons(rows), key=lambda each: self._turn(round, each))
        within, over_intake = self._within_intake([each for each in every if each.can_teach])
        used = list(compress(within, self.within_caps(round, [each.rows for each in within])))
        others = [row.completion for each in used for row in each.others]
        of_use = {*map(id, others)}
        ages = [
            arrived.newest[author] - then
            for (author, then), completions in batches.items()
            if author in arrived.newest
            for completion in completions
            if id(completion) in of_use
        ]
        joint = sum(len(each.others) for each in used if each.own or each.past)
        return Selection(
            tuple(each.rows for each in used),
            past_rewards=tuple(each.past for each in used),
            unasked=sum(map(len, batches.values())) - len(asked),
            unreadable=unreadable,
            too_few=sum(not each.can_teach for each in every),
            over_share=sum(len(e.rows) for e in within) - sum(len(e.rows) for e in used),
            over_intake=over_intake,
            staleness=sum(ages) / len(ages) if ages else None,
            joint_share=joint / len(others) if others else None,
        )

    def remember(self, round: int, groups: Iterable[Group]) -> None:
        rewards: dict[str, list[float]] = {}
        for group in groups:
            for row, reward in zip(group.rows, group.rewards, strict=True):
                if row.completion.author == self.me:
                    rewards.setdefault(group.problem.id, []).append(reward)
        self.written.add(round, rewards)

    def _followed(self, round: int, batches: Iterable[Delivery]) -> list[str]:
        """Return the problems of others that this node follows: trusted members' first; then, by
        lot, other members' for ``UNTRUSTED_SHARE`` of a round. Strangers decide no order."""
        trusted, others = list[str](), list[str]()
        for each in batches:
            if each.author in self.agenda.weights:
                asked = self._asked_of(round, each.author, each.completions)
                (trusted if self.trusts(each.author) else others).extend(
                    completion.problem_id for completion in asked
                )
        drawn = sorted({*others} - {*trusted}, key=lambda id: self._lot(round, id))
        return trusted + drawn[: int(UNTRUSTED_SHARE * self.agenda.problems_per_round)]

    def _intake(self, round: int, name: str) -> float:
        """Return how many completions of others there are for each of ``name``: where members are
        absent, not more than the others bring that are here, so that it writes more itself."""
        members, absent = self.agenda.weights.keys(), self.attendance.absent(round) - {name}
        if not absent or name not in members:
            return self.intake
        return min(self.intake, len(members - absent - {name}))

    def _asked_of(
        self, round: int, author: str, completions: Sequence[Completion]
    ) -> Sequence[Completion]:
        """Return what an author may write in one of its rounds: as many problems, and of each as
        many completions, as its share has. Which problems its draw has, others cannot know."""
        agenda = self.agenda
        if author == self.me:
            return completions
        problems, each = float(agenda.problems_per_round), float(agenda.group_size)
        if author not in agenda.weights:
            problems = agenda.stranger_problems
        elif self.meets:
            each /= 1 + self._intake(round, author)
        else:
            problems /= 1 + self._intake(round, author)
        ids = [*dict.fromkeys(c.problem_id for c in completions)][: ceil(problems - 1e-9)]
        asked, most = {*ids}, ceil(each - 1e-9)
        return [c for c in completions if c.problem_id in asked and c.index < most]

    def _comparisons(self, rows: Iterable[Row]) -> list[JointGroup]:
        """Compare members' completions of a problem where groups are joint; else with its own."""
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            author, problem = row.completion.author, row.completion.problem_id
            is_joint = self.meets and author in self.agenda.weights
            groups.setdefault(("" if is_joint else author, problem), []).append(row)
        made = []
        for (author, problem), group in groups.items():
            own = tuple(row for row in group if row.completion.author == self.me)
            others = tuple(row for row in group if row.completion.author != self.me)
            past = () if author or own else self.written.rewards(problem)
            made.append(JointGroup(own, others, past))
        return made

    def _turn(self, round: int, each: JointGroup) -> tuple[bool, bool, bool, bool, int]:
        """Return the place of a comparison where there is not room for all: first what meets this
        node's completions, then its earlier rewards; then members', then trusted ones'."""
        authors = {row.completion.author for row in each.rows}
        is_strangers = authors.isdisjoint(self.agenda.weights)
        is_distrusted = not any(map(self.trusts, authors))
        lot = self._lot(round, each.rows[0].completion.problem_id)
        return not each.own, not each.past, is_strangers, is_distrusted, lot

    def _within_intake(self, every: Sequence[JointGroup]) -> tuple[list[JointGroup], int]:
        """Return what others' completions there is room for, ``intake`` for each own one, and the
        number of those left out. A comparison without room has the node's own completions alone."""
        room, left_out, within = self.intake * sum(len(each.own) for each in every), 0, []
        for each in every:
            if len(each.others) > room:
                left_out += len(each.others)
                each = replace(each, others=())
            room -= len(each.others)
            if each.can_teach:
                within.append(each)
        return within, left_out

    def _lot(self, round: int, what: str) -> int:
        """Return a random number that no author can choose."""
        return derived_seed(f"{self.agenda.seed}/{round}/{self.me}/{what}")
