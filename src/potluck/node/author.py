"""An author: a participant without weights of ours, which writes and never learns. It may have
fewer texts than its share, or none: the others then have smaller groups."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from potluck.exchange import ExchangeError, Round
from potluck.node.participant import Clock, Participant, Spent
from potluck.node.report import of_traffic
from potluck.reports import RoundReport
from potluck.rollout.base import TICK_S
from potluck.rollout.texts.base import TextEngine
from potluck.schedule import Share


@dataclass(frozen=True, eq=False, kw_only=True)
class Author(Participant):
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

    def use(self, round: int, arrived: Round, spent: Spent, size_bytes: int) -> RoundReport:
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
