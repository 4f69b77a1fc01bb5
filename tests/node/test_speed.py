"""A node measures itself, tells it with its batch, and writes its part by what all have told."""

import json
from collections import Counter
from dataclasses import dataclass
from statistics import mean

import pytest

import tiny
from displays import Listener
from nouns import completion
from potluck.config import ConfigError
from potluck.exchange import Round
from potluck.exchange.base import PeerStatus, Status
from potluck.launch.in_process import run
from potluck.node.loop import step_together
from potluck.node.participant import Participant, Speedometer, Spent
from potluck.node.storage.record import Record
from potluck.reports import RoundReport
from potluck.schedule import Agenda, horizontal, problems_of_round, vertical
from potluck.types import Speed

SECONDS = {"north": (80.0, 4.0), "south": (40.0, 4.0), "west": (30.0, 1.0)}
"""To write a round alone, and to learn from one."""
IDS = [f"p{i}" for i in range(30)]


class Square:
    """Where speeds are told: seen by all once a round is over, as nodes write at the same time."""

    def __init__(self):
        self.told, self.fresh, self.batches = {}, {}, []

    def member(self, name):
        return Corner(self, name)


@dataclass
class Corner:
    square: Square
    name: str

    def send(self, round, batch, *, speed):
        self.square.fresh[self.name] = speed
        self.square.batches.append((round, self.name, batch))

    def collect(self, round, *, deadline_s, waiting):
        self.square.told |= self.square.fresh
        return Round(())

    def status(self):
        others = {n: PeerStatus(speed=s) for n, s in self.square.told.items() if n != self.name}
        return Status(others)


class Writer(Participant):
    """Writes in the seconds that SECONDS say."""

    def generate_and_send(self, round, shares):
        batch = [
            completion(problem=share.problem_id, author=self.name, index=index)
            for share in shares
            for index in range(share.count)
        ]
        self.send(round, batch)
        share = self.part_of_round(batch)
        return Spent(SECONDS[self.name][0] * share, share=share)

    def use(self, round, arrived, spent, size_bytes):
        seconds = {"write": spent.write_s, "exchange": 0.0, "learn": SECONDS[self.name][1]}
        return self.keep(RoundReport(round, share=spent.share, seconds=seconds))


@pytest.fixture
def swarm(tmp_path):
    def make(plan, square=None, names=SECONDS):
        agenda = Agenda(
            ids=IDS, weights=dict.fromkeys(SECONDS, 1.0), plan=plan, group_size=12,
            problems_per_round=20, seed=0, by_speed=True,
        )  # fmt: skip
        square, nodes = square or Square(), []
        for name in names:
            record = Record(tmp_path / name, run="x", node=name)
            nodes.append(
                Writer(
                    name=name, agenda=agenda, max_staleness=1, exchange=square.member(name),
                    record=record, deadline_s=1.0, progress=lambda *told: None,
                    speedometer=Speedometer(record.rows("metrics")),
                )
            )  # fmt: skip
        return square, nodes

    return make


def work_s(report):
    return report.seconds["write"] + report.seconds["learn"]


@pytest.mark.parametrize("plan", [vertical, horizontal])
def test_after_two_rounds_all_are_done_at_about_the_same_time(swarm, plan):
    _, nodes = swarm(plan)
    rounds = [[work_s(report) for report in step_together(nodes, round)] for round in range(12)]
    assert all(max(times) > 1.7 * min(times) for times in rounds[:2])
    later = [mean(times) for times in zip(*rounds[2:], strict=True)]
    assert max(later) == pytest.approx(min(later), rel=0.06)
    assert max(later) < 0.75 * max(rounds[0])


@pytest.mark.parametrize("plan", [vertical, horizontal])
def test_where_all_have_heard_all_each_completion_is_written_by_one(swarm, plan):
    square, nodes = swarm(plan)
    for round in range(6):
        square.batches.clear()
        step_together(nodes, round)
        written = Counter(c.problem_id for _, _, batch in square.batches for c in batch)
        drawn = problems_of_round(IDS, seed=0, round=round, count=20)
        assert written == dict.fromkeys(drawn, 12)


def test_one_that_is_started_again_counts_by_weight_until_it_has_told_what_it_measured(swarm):
    square, nodes = swarm(vertical)
    for round in range(4):
        step_together(nodes, round)
    north = nodes[0].speedometer.told
    assert (north.write_s, north.learn_s) == pytest.approx(SECONDS["north"])
    square.told["north"] = square.fresh["north"] = None  # the session is another
    _, (again,) = swarm(vertical, square, ["north"])
    assert again.speedometer.told is None
    # It knows the others' and not its own: it counts as one in the middle of them.
    middle = Speed(35.0, 2.5)
    expected = again.agenda.shares_of(4, "north", square.told | {"north": middle})
    assert again.shares(4) == nodes[1].agenda.shares_of(
        4, "north", {n: s for n, s in square.told.items() if s}
    ) == expected  # fmt: skip
    again.generate_and_send(4, again.shares(4))
    assert square.fresh["north"] == north


def test_a_speed_is_of_the_median_round_and_not_of_one_that_was_only_learned():
    one = Speedometer()
    assert one.tell() is None
    for write_s in (10.0, 11.0, 900.0, 10.5, 10.4):
        one.add(0.5, {"write": write_s, "learn": 3.0})
    one.add(0.5, {"write": 0.0, "learn": 99.0})
    one.add(None, {"write": 5.0, "learn": 99.0})
    one.add(0.0, {"write": 5.0, "learn": 99.0})
    assert one.tell() == one.told == Speed(21.0, 3.0)
    for _ in range(5):
        one.add(0.5, {"write": 1.0, "learn": 2.0})
    assert one.told == Speed(21.0, 3.0)  # until it is told
    assert one.tell() == Speed(2.0, 2.0)


def test_no_measurement_is_beyond_what_others_take():
    one = Speedometer([{"share": 0.5, "seconds": {"write": 1e-9, "learn": 0.0}}])
    assert one.tell() == Speed(0.01, 0.0)
    slow = Speedometer([{"share": 1e-3, "seconds": {"write": 1e5, "learn": 1e9}}])
    assert slow.tell() == Speed(1e6, 1e6)


# From the recipe to the nodes.


def test_at_a_pace_of_its_own_a_node_has_no_share_to_follow(tiny_models):
    with pytest.raises(ConfigError, match=r"pace is 'free', but shares is 'speed': .*; remove one"):
        tiny.recipe(tiny_models, "pace=free", "shares=speed")


class Said(Listener):
    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


def lines(folder, node, name):
    return [json.loads(line) for line in (folder / node / name).read_text().splitlines()]


def test_a_node_that_writes_while_it_learns_cannot_be_measured(tiny_models):
    node = {
        "model": tiny_models["small"],
        "engine": {"name": "vllm", "url": "http://127.0.0.1:1", "model": "m", "overlap": True},
    }
    tiny.recipe(tiny_models, node={"small": node})
    with pytest.raises(ConfigError, match=r"shares is 'speed', but \[node.small.engine\] overlap"):
        tiny.recipe(tiny_models, "shares=speed", node={"small": node})


def test_in_one_process_it_changes_nothing_and_that_is_said(tiny_models, tmp_path):
    said = {}
    for shares in ("weight", "speed"):
        heard = said[shares] = Said()
        run(tiny.recipe(tiny_models, f"shares={shares}"), tmp_path / shares, display=heard)
    (line,) = set(said["speed"].said) - set(said["weight"].said)
    assert line == "shares = 'speed': these nodes take turns, so their shares follow the weights"
    for node in tiny_models:
        assert lines(tmp_path / "weight", node, "completions.jsonl") == lines(
            tmp_path / "speed", node, "completions.jsonl"
        )
        assert [row["share"] for row in lines(tmp_path / "weight", node, "metrics.jsonl")] == [
            None
        ] * 2
        assert [row["share"] for row in lines(tmp_path / "speed", node, "metrics.jsonl")] == [
            0.5
        ] * 2
