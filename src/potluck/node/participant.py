"""Participants of a run: what nodes that learn (``loop.py``) share with authors; and authors."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace

from potluck.exchange import Exchange, ExchangeError, Received, Round
from potluck.files import derived_seed
from potluck.node.pace.base import Pace
from potluck.node.report import of_traffic
from potluck.node.selection import Selection
from potluck.node.storage.record import Record
from potluck.reports import RoundReport, as_line
from potluck.rollout.base import TICK_S, Progress, RolloutRequest
from potluck.rollout.texts.base import NOTHING, Cost, TextEngine
from potluck.schedule import Share
from potluck.tasks import Task
from potluck.types import Group

NodeProgress = Callable[[str, str, int, int], None]
"""Called with (node, phase, done, total) during everything that takes long."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds and money that a participant has spent on a round so far; how well it was served."""

    write_s: float = 0.0
    exchange_s: float = 0.0
    """Time of sending, reading and storing."""
    cost: Cost = NOTHING
    wait_s: float = 0.0
    """Time in which others were awaited."""
    server_mismatch: float | None = None
    """See ``Engine``; None too if a round is learned again, and not written."""

    def seconds(self, learn_s: float) -> dict[str, float]:
        """Return the duration of each phase of the whole round."""
        phases = "write", "wait", "exchange"
        return {name: getattr(self, f"{name}_s") for name in phases} | {"learn": learn_s}


@dataclass(frozen=True, slots=True)
class OpenRound:
    round: int
    shares: Sequence[Share]
    looked: Received
    """Batches of others that it had before it waited for anybody: see ``Pace.look``."""
    spent: Spent


@dataclass(frozen=True, slots=True)
class GradedRound:
    """A round's completions as a node has read and graded them; nothing was learned yet."""

    selection: Selection
    groups: list[Group]
    seconds: float
    """Time that this took."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Participant(ABC):
    name: str
    task: Task
    pace: Pace
    exchange: Exchange
    record: Record
    deadline_s: float
    progress: NodeProgress

    @abstractmethod
    def generate_and_send(self, round: int, shares: Sequence[Share]) -> Spent:
        """Write this node's shares of the round and send them."""

    def grade(self, round: int, arrived: Round) -> GradedRound | None:
        """Read and grade a round's completions; None: this participant does not learn."""
        return None

    @abstractmethod
    def use(
        self,
        round: int,
        graded: GradedRound | None,
        arrived: Round,
        spent: Spent,
        size_bytes: int,
    ) -> RoundReport:
        """Learn from what it has ``graded`` of a round, if this participant learns, and report.
        ``size_bytes``: size of the file that the completions are stored in."""

    def draw(self, round: int, received: Received) -> Sequence[Share]:
        return self.pace.draw(round, received)

    def requests(self, shares: Sequence[Share]) -> list[RolloutRequest]:
        return [RolloutRequest(self.task.problem(s.problem_id), s.count) for s in shares]

    def open(self, round: int) -> OpenRound:
        """Begin a round: look at what others have sent, and draw what is to be written."""
        with Clock() as looking:
            looked = self.pace.look(self.exchange, round)
        return OpenRound(round, self.draw(round, looked), looked, Spent(exchange_s=looking.seconds))

    def send(self, opened: OpenRound) -> OpenRound:
        spent = self.generate_and_send(opened.round, opened.shares)
        spent = replace(spent, exchange_s=spent.exchange_s + opened.spent.exchange_s)
        # If nothing was here before writing, as before a first round, look once more: at their own
        # pace all nodes begin with the same problems, so what came is compared with its own.
        looked = opened.looked
        if not looked.batches:
            looked = self.pace.look(self.exchange, opened.round)
        return replace(opened, looked=looked, spent=spent)

    def begin(self, round: int, received: Received, written: Collection[str]) -> None:  # noqa: B027
        """Begin to write a later round, where the engine can while the weights change; ``written``
        are this node's problems of the round before."""

    def keep(self, report: RoundReport) -> RoundReport:
        self.record.add("metrics", [as_line(report)])
        return report

    def next_round(self, done: int, furthest: int) -> tuple[int, int]:
        """Return the round to do next, and the one in which the others say they are.

        It is number ``done``, unless the others are far ahead, in a round up to ``furthest``.
        Completions for a round that the others left more than ``max_staleness`` rounds ago are of
        no use. A node that was away continues at its peers' round; what it missed arrives as late
        groups. Rounds that this node began before a crash come first.
        """
        others = self.exchange.status().round
        if not self.pace.max_staleness < others - done <= furthest - done:
            return done, others
        kept = self.record.next_kept(done)
        return others if kept is None else min(kept, others), others

    def is_in_step(self, done: int, others: int) -> bool:
        """Return whether some other node is about where this one is, and most are not ahead."""
        latest = done + self.pace.max_staleness
        peers = self.exchange.status().peers.values()
        heard = [p.newest_round for p in peers if p.live and p.heard_s is not None]
        return others <= latest and any(at is not None and at <= latest for at in heard)

    def receive(self, sent: OpenRound) -> tuple[Round, Spent, int]:
        """Receive the round's completions and store them; return them with the time that it took
        added, and the size of their file in bytes."""
        asked_s: list[float] = []  # the first and the last time that the exchange was waiting

        def waiting(came: int, all: int) -> None:
            asked_s[1:] = [time.perf_counter()]
            self.progress(self.name, "wait", came, all)

        with Clock() as receiving:
            received = self.pace.receive(
                self.exchange, sent.round, sent.looked, wait_s=self.deadline_s, waiting=waiting
            )
            arrived = self.exchange.finish(sent.round, received)
            size_bytes = self.record.keep_round(sent.round, arrived)
        wait_s = asked_s[-1] - asked_s[0] if asked_s else 0.0
        spent = replace(
            sent.spent,
            wait_s=sent.spent.wait_s + wait_s,
            exchange_s=sent.spent.exchange_s + receiving.seconds - wait_s,
        )
        return arrived, spent, size_bytes

    def _progress(self, phase: str) -> Progress:
        return lambda done, total: self.progress(self.name, phase, done, total)

    def seed(self, round: int, what: str) -> int:
        """Return 63 bits that no other (run seed, round, node, purpose) has."""
        return derived_seed(f"{self.pace.agenda.seed}/{round}/{self.name}/{what}")


@dataclass(frozen=True, eq=False, kw_only=True)
class Author(Participant):
    """A participant without weights of ours, which writes and never learns. It may have fewer texts
    than its share, or none: the others then have smaller groups."""

    engine: TextEngine

    def generate_and_send(self, round: int, shares: Sequence[Share]) -> Spent:
        with Clock() as waiting:
            self._await_readers(round)
        with Clock() as writing:
            written = self.engine.write(
                self.requests(shares),
                author=self.name,
                seed=self.seed(round, "write"),
                progress=self._progress("write"),
            )
        with Clock() as sending:
            self.exchange.send(round, written.completions)
        return Spent(writing.seconds, sending.seconds, written.cost, waiting.seconds)

    def _await_readers(self, round: int) -> None:
        """Wait for a node that is connected, ``deadline_s`` at most: texts may cost money, and by
        itself an author would do all rounds in no time. Raise ExchangeError if none comes."""
        began_s = time.monotonic()
        while not any(peer.live for peer in self.exchange.status().peers.values()):
            if time.monotonic() - began_s >= self.deadline_s:
                raise ExchangeError(
                    f"nobody was there to read what {self.name!r} writes in round {round + 1} for "
                    f"{self.deadline_s:g} s; to go on when others are back, use --resume"
                )
            self.progress(self.name, "wait", 0, 1)
            time.sleep(TICK_S)

    def use(
        self,
        round: int,
        graded: GradedRound | None,
        arrived: Round,
        spent: Spent,
        size_bytes: int,
    ) -> RoundReport:
        """Report what came. The cost of a round sent before a crash is in cost.json alone."""
        report = RoundReport(
            round=round,
            texts=sum(c.author == self.name for c in arrived.completions),
            late=sum(map(len, arrived.late.values())),
            size_bytes=size_bytes,
            cost={key: value for key, value in asdict(spent.cost).items() if value},
            seconds=spent.seconds(learn_s=0.0),
            **of_traffic(arrived),
        )
        return self.keep(report)


class Clock:
    """Context that measures the seconds of its block."""

    seconds = 0.0

    def __enter__(self) -> "Clock":
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._start
