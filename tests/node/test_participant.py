import pytest

from potluck.exchange import Received, Round
from potluck.node import participant
from potluck.node.pace.together import Together
from potluck.node.participant import OpenRound, Participant, Spent


class Clock:
    now_s = 100.0

    def perf_counter(self):
        return self.now_s


class Exchange:
    """It begins to wait after 1 s of work, asks ``times`` times in 2 s, and works 4 s more."""

    def __init__(self, clock, times):
        self.clock, self.times = clock, times

    def receive(self, round, *, wait_s, waiting):
        self.clock.now_s += 1
        for at in range(self.times):
            self.clock.now_s += 2 / (self.times - 1) if at else 0
            waiting(at, self.times)
        self.clock.now_s += 4
        return Received()

    def finish(self, round, received):
        return Round(())


class Record:
    """It stores a round in 8 s."""

    def __init__(self, clock):
        self.clock = clock

    def keep_round(self, round, arrived):
        self.clock.now_s += 8
        return 123


class Stand(Participant):
    def generate_and_send(self, round, shares):
        raise NotImplementedError

    def use(self, round, arrived, spent, size_bytes):
        return spent.seconds(learn_s=16.0), size_bytes


@pytest.mark.parametrize("times, wait_s", [(0, 0.0), (2, 2.0), (5, 2.0)])
def test_waiting_for_others_is_apart_from_reading_and_storing(monkeypatch, times, wait_s):
    clock, told = Clock(), []
    monkeypatch.setattr(participant, "time", clock)
    node = Stand(
        name="a",
        pace=Together(None, "a", 1, 0.5, 0.5),
        exchange=Exchange(clock, times),
        record=Record(clock),
        deadline_s=9.0,
        progress=lambda *event: told.append(event),
    )
    spent = Spent(write_s=0.5, exchange_s=0.25, wait_s=3.0)
    arrived = node.receive(OpenRound(0, (), Received(), spent))
    seconds, size_bytes = node.use(0, *arrived)
    assert seconds == {"write": 0.5, "wait": 3.0 + wait_s, "exchange": 13.25, "learn": 16.0}
    assert size_bytes == 123
    assert told == [("a", "wait", at, times) for at in range(times)]
