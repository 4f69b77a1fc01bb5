"""An author writes while somebody reads, and not by itself."""

import pytest

from potluck.exchange import ExchangeError, Received, Round
from potluck.exchange.base import Status, Traffic
from potluck.node import participant
from potluck.node.pace.together import Together
from potluck.node.participant import Author, OpenRound, Participant, Spent
from potluck.node.storage.record import Record
from potluck.reports.status import PeerLine
from potluck.rollout.texts.base import Cost, Written
from potluck.schedule import Agenda, vertical


class Room:
    """An exchange in which somebody is there from the so-manieth look on."""

    def __init__(self, comes_at):
        self.looks, self.comes_at, self.sent = 0, comes_at, []

    def status(self):
        self.looks += 1
        return Status({"north": PeerLine(live=self.looks >= self.comes_at)})

    def send(self, round, batch):
        self.sent.append((round, self.looks))


class Engine:
    rounds = 0

    def write(self, requests, *, author, seed, progress):
        self.rounds += 1
        return Written((), Cost(requests=1))


def author(tmp_path, room, deadline_s, waits):
    agenda = Agenda([], {}, vertical, 4, 6, seed=0)
    return Author(
        name="people", pace=Together(agenda, "people", 1, 0.0, 0.0), exchange=room,
        record=Record(tmp_path / "people", run="x", node="people"), deadline_s=deadline_s,
        progress=lambda *told: waits.append(told), task=None, engine=Engine(),
    )  # fmt: skip


def test_it_waits_for_a_reader_before_it_writes(tmp_path):
    room, waits = Room(comes_at=3), []
    made = author(tmp_path, room, 60.0, waits)
    spent = made.generate_and_send(5, [])
    assert room.sent == [(5, 3)]
    assert waits == [("people", "wait", 0, 1)] * 2
    assert spent.cost.requests == made.engine.rounds == 1


def test_it_ends_where_nobody_comes_and_has_written_nothing(tmp_path):
    made = author(tmp_path, Room(comes_at=99), 0.5, waits := [])
    with pytest.raises(ExchangeError, match=r"read what 'people' writes in round 6 for 0.5 s"):
        made.generate_and_send(5, [])
    assert (made.engine.rounds, made.exchange.sent) == (0, [])
    assert waits


def test_it_reports_what_the_network_cost_and_who_was_silent(tmp_path):
    traffic = Traffic(30, 0, 40, {"mallory": 2}, ("mallory",))
    arrived = Round((), missing=("north",), traffic=traffic)
    found = author(tmp_path, Room(comes_at=1), 1.0, []).use(0, None, arrived, Spent(), 7)
    assert (found.sent_bytes, found.received_bytes, found.size_bytes) == (30, 40, 7)
    assert (found.missing, found.refused) == (("north",), {"mallory": 2})
    assert (found.quarantined, found.sent_bytes_per_token) == (("mallory",), None)


#


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


class SlowRecord:
    """It stores a round in 8 s."""

    def __init__(self, clock):
        self.clock = clock

    def keep_round(self, round, arrived):
        self.clock.now_s += 8
        return 123


class Stand(Participant):
    def generate_and_send(self, round, shares):
        raise NotImplementedError

    def use(self, round, graded, arrived, spent, size_bytes):
        return spent.seconds(learn_s=16.0), size_bytes


@pytest.mark.parametrize("times, wait_s", [(0, 0.0), (5, 2.0)])
def test_waiting_for_others_is_apart_from_reading_and_storing(monkeypatch, times, wait_s):
    clock, told = Clock(), []
    monkeypatch.setattr(participant, "time", clock)
    node = Stand(
        name="a", task=None, pace=Together(None, "a", 1, 0.5, 0.5), deadline_s=9.0,
        exchange=Exchange(clock, times), record=SlowRecord(clock),
        progress=lambda *event: told.append(event),
    )  # fmt: skip
    spent = Spent(write_s=0.5, exchange_s=0.25, wait_s=3.0)
    arrived = node.receive(OpenRound(0, (), Received(), spent))
    seconds, size_bytes = node.use(0, None, *arrived)
    assert seconds == {"write": 0.5, "wait": 3.0 + wait_s, "exchange": 13.25, "learn": 16.0}
    assert size_bytes == 123
    assert told == [("a", "wait", at, times) for at in range(times)]
