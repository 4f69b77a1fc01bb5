"""A node at its own pace, ``pace = "free"``: no round of it waits for anybody. Start reading at
``step_free``.

    take       what others have sent since the last round             (exchange)
    draw       problems: those of what was taken, then new ones       (schedule)
    generate   completions of these problems, and send them           (rollout, exchange)
    learn      from these and from what was taken                     (node/loop.py)

Nodes count rounds of their own, so staleness is in rounds of the author: its updates since. They
meet at the same problems without talking about it: a node writes what others wrote lately and it
did not in this pass over the task, so a slow node follows a fast one; and all go through the
task in one order. Where a fast node wrote a problem some rounds before a slow one, it compares
what then comes with the rewards of its own earlier completions, which it keeps.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from potluck.exchange import Delivery, Received, Round
from potluck.files import derived_seed
from potluck.node.loop import Node
from potluck.node.participant import Clock
from potluck.node.selection import Read, Selection, Selector, readable_rows
from potluck.node.storage.record import Record
from potluck.reports import RoundReport
from potluck.schedule import Share, part_of_round, unwritten_problems
from potluck.types import Completion, Group, Row

WINDOW = 64
"""Own rounds for which rewards are kept, to compare what others send later with."""


def step_free(node: Node, round: int) -> RoundReport:
    """Do one round of a node at its own pace."""
    assert isinstance(node.selector, FreeSelector)
    if (kept := node.record.kept_round(round)) is not None:
        return node.learn_again(round, kept)
    selector = node.selector
    with Clock() as taking:
        taken = selector.choose(round, node.exchange.receive(round).batches)
    shares = node.begun[round][0] if round in node.begun else selector.draw(round, taken)
    spent = node.generate_and_send(round, shares)
    with Clock() as storing:
        # Nothing comes before a first round. All nodes begin with the same problems, so what came
        # while this one wrote is compared with its own completions.
        taken = taken or selector.choose(round, node.exchange.receive(round).batches)
        arrived = node.exchange.finish(round, Received(tuple(taken)))
        size_bytes = node.record.keep_round(round, arrived)
        node.record.add_taken(arrived)
    if node.overlaps:  # a draw among many problems takes a moment
        node.begin(round + 1, selector.draw(round + 1, taken, written=shares))
    spent = replace(spent, exchange_s=spent.exchange_s + taking.seconds + storing.seconds)
    return node.use(round, arrived, spent, size_bytes)


class WrittenProblems:
    """The problems that a node has written, and the rewards of its completions of the last
    ``WINDOW`` rounds. It is in ``written.jsonl``, too."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.times = Counter[str]()
        """Rounds in which each problem was written."""
        self._kept: dict[str, tuple[int, tuple[float, ...]]] = {}
        self._window = deque[tuple[int, list[str]]]()
        for line in record.each("written"):
            self._add(line["round"], line["rewards"])

    def add(self, round: int, rewards: Mapping[str, Sequence[float]]) -> None:
        """Note the rewards of this node's completions of a round, by problem."""
        self._record.add("written", [{"round": round, "rewards": rewards}])
        self._add(round, rewards)

    def rewards(self, problem_id: str) -> tuple[float, ...]:
        """Return the rewards of this node's newest completions of the problem, or none."""
        return self._kept.get(problem_id, (0, ()))[1]

    def _add(self, round: int, rewards: Mapping[str, Sequence[float]]) -> None:
        self.times.update(rewards.keys())
        self._kept |= {id: (round, tuple(paid)) for id, paid in rewards.items()}
        self._window.append((round, [*rewards]))
        while self._window[0][0] <= round - WINDOW:
            old, ids = self._window.popleft()
            for id in ids:
                if id in self._kept and self._kept[id][0] == old:
                    del self._kept[id]


@dataclass(frozen=True, kw_only=True)
class FreeSelector(Selector):
    """Rules by which a node at its own pace draws problems, and selects completions."""

    written: WrittenProblems
    intake: float
    """Most completions of others that are learned from, for each of this node's. A node's own part
    of a round is 1 / (1 + intake), so that a round with a full intake is as large as one in step.
    """
    meets: bool
    """True: a group is joint, of all that have written its problem (plan "horizontal")."""
    trusts: Callable[[str], bool]

    def choose(self, round: int, came: Sequence[Delivery]) -> list[Delivery]:
        """Return the batches to learn from: members' before strangers', trusted authors' first, of
        each author the newest first, in an order of authors that differs from round to round. If
        groups are joint, there is one more than ``intake`` has room for: ``select`` takes first
        what meets this node's own.
        """
        salt, nth = f"{self.agenda.seed}/{round}/{self.me}", Counter[str]()
        turns = []
        for each in sorted(came, key=lambda delivery: -delivery.round):
            order = derived_seed(f"{salt}/{each.author}")
            is_stranger = each.author not in self.agenda.weights
            first = is_stranger, not self.trusts(each.author)
            turns.append((first, nth[each.author], order, each))
            nth[each.author] += 1
        agenda = self.agenda
        own = agenda.problems_per_round * agenda.group_size / (1 + self.intake)
        room = (self.intake + self.meets) * own
        chosen = []
        for *_, each in sorted(turns, key=lambda turn: turn[:3]):
            if room > 0:
                chosen.append(each)
                room -= len(self._asked_of(each.author, each.round, each.completions))
        return chosen

    def draw(
        self, round: int, taken: Sequence[Delivery], *, written: Sequence[Share] = ()
    ) -> list[Share]:
        """Draw this node's shares of a round of its own. With joint groups its problems are those
        of ``taken`` that it has not written in this pass, then the next ones of the pass; without,
        those of a pass in an order of its own. ``written`` are shares of the round before, which
        is not learned from yet."""
        agenda = self.agenda
        if self.me not in agenda.weights:
            return agenda.strangers_shares(round, self.me)
        drawn = unwritten_problems(
            agenda.ids,
            self.written.times + Counter(share.problem_id for share in written),
            wanted=self._offered(taken) if self.meets else (),
            seed=agenda.seed if self.meets else f"{agenda.seed}/{self.me}",
            count=agenda.problems_per_round,
        )
        dealt = agenda.plan, drawn, self.me, self.intake, agenda.group_size
        return part_of_round(*dealt, round=round)

    def keep(self, round: int, groups: Iterable[Group]) -> None:
        """Keep the rewards of this node's completions for what comes later."""
        rewards: dict[str, list[float]] = {}
        for group in groups:
            for row, reward in zip(group.rows, group.rewards, strict=True):
                if row.completion.author == self.me:
                    rewards.setdefault(group.problem.id, []).append(reward)
        self.written.add(round, rewards)

    def select(self, round: int, arrived: Round, read: Read) -> Selection:
        """Select what ``round`` is learned from, and count the rest."""
        by_batch: dict[tuple[str, int], list[Completion]] = {}
        for then, came in [(round, arrived.completions), *sorted(arrived.late.items())]:
            for completion in came:
                by_batch.setdefault((completion.author, then), []).append(completion)
        asked = [c for key, came in by_batch.items() for c in self._asked_of(*key, came)]
        rows, unreadable = readable_rows(asked, read)
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in sorted(rows, key=lambda row: row.completion.author != self.me):
            author, problem = row.completion.author, row.completion.problem_id
            own_group = author in self.agenda.weights and self.meets
            groups.setdefault(("" if own_group else author, problem), []).append(row)
        kept = {
            key: () if key[0] or self._own(each) else self.written.rewards(key[1])
            for key, each in groups.items()
        }

        # Room goes first to what meets this node's own completions, or rewards that it has kept.
        def turn(key: tuple[str, str]) -> tuple[bool, bool, bool, bool, int]:
            its = groups[key]
            authors = {row.completion.author for row in its}
            last = authors.isdisjoint(self.agenda.weights), not any(map(self.trusts, authors))
            order = derived_seed(f"{self.agenda.seed}/{round}/{self.me}/{key[1]}")
            return not self._own(its), not kept[key], *last, order

        every = sorted(groups, key=turn)
        present = [key for key in every if len(groups[key]) + len(kept[key]) > 1]
        room = self.intake * sum(self._own(groups[key]) for key in present)
        within, over = [], 0
        for key in present:
            count = len(groups[key]) - self._own(groups[key])
            if count > room:
                over += count
                groups[key] = [r for r in groups[key] if r.completion.author == self.me]
                count = 0
            room -= count
            within += [key] * (len(groups[key]) > 1 or bool(groups[key] and kept[key]))
        is_kept = self._within_caps(round, [tuple(groups[key]) for key in within])
        used = [key for key, keeps in zip(within, is_kept, strict=True) if keeps]
        others = [r for key in used for r in groups[key] if r.completion.author != self.me]
        joint = sum(
            len(groups[key]) - self._own(groups[key])
            for key in used
            if kept[key] or self._own(groups[key])
        )
        left_out = (key for key, keeps in zip(within, is_kept, strict=True) if not keeps)
        return Selection(
            tuple(tuple(groups[key]) for key in used),
            kept=tuple(kept[key] for key in used),
            unasked=sum(map(len, by_batch.values())) - len(asked),
            unreadable=unreadable,
            too_few=len(every) - len(present),
            late=0,
            late_used=0,
            over_share=sum(len(groups[key]) for key in left_out),
            over_intake=over,
            staleness=self._staleness(by_batch, others, arrived.newest),
            joint_share=joint / len(others) if others else None,
        )

    def _staleness(
        self,
        by_batch: Mapping[tuple[str, int], Iterable[Completion]],
        others: Sequence[Row],
        newest: Mapping[str, int],
    ) -> float | None:
        since = {
            id(c): newest[author] - then
            for (author, then), came in by_batch.items()
            if author in newest
            for c in came
        }
        known = [since[id(row.completion)] for row in others if id(row.completion) in since]
        return sum(known) / len(known) if known else None

    def _offered(self, taken: Sequence[Delivery]) -> list[str]:
        """Return the problems that other members have written; strangers decide no order."""
        members = [each for each in taken if each.author in self.agenda.weights]
        asked = [self._asked_of(each.author, each.round, each.completions) for each in members]
        return [completion.problem_id for of_one in asked for completion in of_one]

    def _asked_of(
        self, author: str, round: int, came: Sequence[Completion]
    ) -> Sequence[Completion]:
        """Return what an author may write in one of its rounds: as many problems, and of each as
        many completions, as its share has. Which problems its draw has, others cannot know."""
        agenda = self.agenda
        if author == self.me:
            return came
        problems, each = float(agenda.problems_per_round), float(agenda.group_size)
        if author not in agenda.weights:
            problems = agenda.stranger_problems
        elif self.meets:
            each /= 1 + self.intake
        else:
            problems /= 1 + self.intake
        asked = {*[*dict.fromkeys(c.problem_id for c in came)][: _rounded_up(problems)]}
        return [c for c in came if c.problem_id in asked and c.index < _rounded_up(each)]

    def _own(self, rows: Iterable[Row]) -> int:
        return sum(row.completion.author == self.me for row in rows)


def _rounded_up(number: float) -> int:
    return ceil(number - 1e-9)
