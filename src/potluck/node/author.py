"""An author: a participant without weights of ours, which writes and never learns.

    write      texts for its share of the round's problems     (rollout/texts)
    send       them to all nodes                               (exchange)
    collect    what the others wrote, to keep in step          (exchange)

It may have fewer texts than its share, or none: the others then have smaller groups.
"""

from dataclasses import asdict, dataclass

from potluck.exchange import Round
from potluck.node.participant import Clock, Participant, Spent
from potluck.reports import RoundReport, as_line
from potluck.rollout.base import RolloutRequest
from potluck.rollout.texts.base import TextEngine
from potluck.tasks import Task


@dataclass(frozen=True, eq=False, kw_only=True)
class Author(Participant):
    """One author, its task, and its line to the others."""

    task: Task
    engine: TextEngine

    def generate_and_send(self, round: int) -> Spent:
        """Write this author's share of the round and send it."""
        shares = self.agenda.shares_of(round, self.name)
        requests = [RolloutRequest(self.task.problem(s.problem_id), s.count) for s in shares]
        with Clock() as writing:
            written = self.engine.write(
                requests,
                author=self.name,
                seed=self.seed(round, "write"),
                progress=lambda done, total: self.progress(self.name, "write", done, total),
            )
        self.record.add_cost(written.cost)
        with Clock() as sending:
            self.exchange.send(round, written.completions)
        return Spent(writing.seconds, sending.seconds, written.cost)

    def collect_and_learn(self, round: int, spent: Spent) -> RoundReport:
        """Wait for the others as a node does, and report; nothing is learned."""
        arrived, spent, size_bytes = self.collect(round, spent)
        return self._report(round, arrived, spent, size_bytes)

    def learn_again(self, round: int, kept: Round) -> RoundReport:
        """Report a round that was sent before a crash; its cost stands in cost.json."""
        return self._report(round, kept, Spent(), self.record.size(round))

    def _report(self, round: int, arrived: Round, spent: Spent, size_bytes: int) -> RoundReport:
        traffic = arrived.traffic
        report = RoundReport(
            round=round,
            texts=sum(c.author == self.name for c in arrived.completions),
            missing=arrived.missing,
            late=sum(map(len, arrived.late.values())),
            refused=dict(traffic.refused),
            quarantined=traffic.quarantined,
            sent_bytes=traffic.sent_bytes,
            received_bytes=traffic.received_bytes,
            size_bytes=size_bytes,
            cost={key: value for key, value in asdict(spent.cost).items() if value},
            seconds={"write": spent.write_s, "exchange": spent.exchange_s, "learn": 0.0},
        )
        self.record.add("metrics", [as_line(report)])
        return report
