"""Which round a node does next, and what is told of it: others, time and disk are a test's."""

from types import SimpleNamespace

import pytest

import tiny
from launch.runs import Crash, CrashesAfter, Hears, lines
from potluck.config import as_config
from potluck.exchange import Status
from potluck.launch import rounds
from potluck.launch.in_process import join, run
from potluck.launch.rounds import ALONE, Course, LocalRounds
from potluck.node.loop import Node
from potluck.node.pace.together import Together
from potluck.node.storage.record import Record
from potluck.reports.status import PeerLine

ROUNDS, ROUND_S = 50, 2.0
PACE = Together(None, "north", 1, 0.0, 0.0)


class Others:
    """Stands for an exchange: other nodes, by name, each with the newest round that came of it."""

    def __init__(self, **newest):
        self.newest, self.live = newest, True

    def status(self):
        rounds = sorted(round or 0 for round in self.newest.values()) if self.live else []
        heard = {"live": self.live, "heard_s": 1.0}
        peers = {n: PeerLine(**heard, newest_round=at) for n, at in self.newest.items()}
        return Status(peers, rounds[(len(rounds) - 1) // 2] if rounds else 0)


def node_of(folder, others):
    rest = dict.fromkeys(Node.__dataclass_fields__)
    record = Record(folder, run="tiny", node="north")
    return Node(**{**rest, "name": "north", "exchange": others, "record": record, "pace": PACE})


class Life:
    """A node that does rounds of two seconds."""

    def __init__(self, folder, others, now_s=1000.0):
        self.others, self.now_s, self.display = others, now_s, Hears()
        self.node = node_of(folder, others)
        self.course, self.lived = Course(self.node, ROUNDS, self.display), []

    @property
    def said(self):
        return self.display.said

    def step(self, done, seconds=ROUND_S):
        """One round, after ``done``; returns the rounds that are done then."""
        round = self.course.next_round(done, self.now_s)
        self.lived.append(round)
        self.now_s += seconds
        spent = {"write": ROUND_S - 1, "exchange": seconds - ROUND_S, "learn": 1.0}
        self.node.record.add("metrics", [{"round": round, "seconds": spent}])
        self.course.add_round(round, spent)
        return round + 1


def in_step(folder, rounds, **names):
    """A node that did some rounds together with the others; and what it has done."""
    life = Life(folder, Others(**names))
    for round in range(rounds):
        life.others.newest = dict.fromkeys(names, round)
        assert life.step(round) == round + 1
    assert life.said == []
    return life


@pytest.mark.parametrize("claim", [2_000_000_000, ROUNDS - 1])
def test_a_far_round_of_the_only_other_is_not_believed_and_told_once(tmp_path, claim):
    life = in_step(tmp_path, 2, south=0)
    life.others.newest["south"] = claim
    done = life.step(2)
    assert life.said == [
        f"north: the others claim round {claim + 1}; in the 2 s since round 2 at most 5 rounds can "
        f"have passed: going on with 3"
    ]
    done = life.step(done)
    assert (done, len(life.said)) == (4, 1)
    life.others.newest["south"] = 4  # It comes to its senses, and claims another round later.
    done = life.step(done)
    life.others.newest["south"] = claim
    life.step(done)
    assert (life.lived, len(life.said)) == ([0, 1, 2, 3, 4, 5], 2)


def test_who_was_frozen_goes_on_in_the_round_of_the_others_and_it_is_told(tmp_path):
    life = in_step(tmp_path, 12, south=0, west=0)
    done = life.step(12, seconds=60.0)
    life.others.newest = {"south": 40, "west": 41}
    assert life.step(done) == 41
    assert life.said == ["north, round 14: the others are at 41, so 27 rounds are skipped"]
    life.others.newest = {"south": 41, "west": 41}
    assert life.step(41) == 42


def test_who_comes_late_goes_to_the_round_of_the_others_but_not_beyond_the_run(tmp_path):
    late = Life(tmp_path / "late", Others(south=40))
    assert late.step(0) == 41
    assert late.said == ["north, round 1: the others are at 41, so 40 rounds are skipped"]
    fooled = Life(tmp_path / "fooled", Others(south=ROUNDS))
    assert fooled.step(0) == 1
    assert fooled.said == [
        "north: the others claim round 51; the run ends with round 50: going on with 1"
    ]


def test_who_began_alone_goes_to_the_round_of_the_others_when_so_many_can_have_passed(tmp_path):
    life, done = Life(tmp_path, Others(south=None)), 0
    for _ in range(5):
        done = life.step(done)
    life.others.newest = {"south": 40, "west": None}  # Its median is 0 until west is heard too.
    done = life.step(done)
    life.others.newest = {"south": 40, "west": 40}
    while done < 40:
        done = life.step(done)
    assert life.lived == [*range(10), 40]  # After 20 s: 40 rounds of half a second.
    assert life.said == [
        "north: the others claim round 41; in the 12 s since round 1 at most 25 rounds can have "
        "passed: going on with 7",
        "north, round 11: the others are at 41, so 30 rounds are skipped",
    ]


@pytest.mark.parametrize("live", [True, False], ids=["mute", "away"])
def test_a_partner_that_is_mute_from_the_start_is_not_believed_later(tmp_path, live):
    """In step with nobody yet, and still no round of the run is as good as any other."""
    life = Life(tmp_path, Others(south=None))
    life.others.live = live
    done = life.step(0)
    life.others.live, life.others.newest["south"] = True, ROUNDS - 1
    assert life.step(done) == 2
    assert life.said == [
        "north: the others claim round 50; in the 2 s since round 1 at most 5 rounds can have "
        "passed: going on with 2"
    ]


def test_a_resumed_node_that_was_never_in_step_counts_from_its_first_round_now(tmp_path):
    resumed, done = Life(tmp_path, Others(south=None), now_s=9000.0), 10
    for _ in range(2):
        done = resumed.step(done)
    resumed.others.newest["south"] = ROUNDS - 1
    resumed.step(done)
    assert resumed.lived == [10, 11, 12]
    assert "in the 4 s since round 11 at most 9 rounds can have passed" in resumed.said[0]


def test_a_clock_that_was_set_back_while_a_node_was_away_locks_it_out_for_no_longer(tmp_path):
    before, day_s = in_step(tmp_path, 12, south=0), 86_400.0
    resumed, done = Life(tmp_path, Others(south=40), now_s=before.now_s - day_s), 12
    done = resumed.step(done)
    assert resumed.said == [
        "north: the others claim round 41; in the 0 s since round 12 at most 1 rounds can have "
        "passed: going on with 13"
    ]
    resumed = Life(tmp_path, Others(south=40), now_s=before.now_s - day_s + 60.0)
    assert resumed.step(done) == 41  # The time of the first resume was kept.


def test_who_was_never_alone_does_not_begin_to_count_anew_when_the_others_leave(tmp_path):
    life = in_step(tmp_path, 5, south=0)
    life.others.live = False
    for done in range(5, 10):
        life.step(done)
    life.others.live, life.others.newest["south"] = True, 4 + 1 + 4 * 6
    assert life.step(10) == 30
    assert "19 rounds are skipped" in life.said[0]


def test_waiting_does_not_make_the_others_slower(tmp_path):
    life = Life(tmp_path, Others(south=0))
    for done in range(5):
        life.others.newest["south"] = done
        life.step(done, seconds=60.0)
    life.others.newest["south"] = 40
    assert life.step(5, seconds=60.0) == 41


def test_a_resumed_node_knows_since_when_it_was_away(tmp_path):
    before = in_step(tmp_path, 12, south=0)
    resumed = Life(tmp_path, Others(south=40), now_s=before.now_s + 4.0)
    assert resumed.step(12) == 13
    assert resumed.said == [
        "north: the others claim round 41; in the 6 s since round 12 at most 13 rounds can have "
        "passed: going on with 13"
    ]
    (tmp_path / "metrics.jsonl").write_text("")  # Its pace is known from there.
    assert Life(tmp_path, Others(south=40), now_s=before.now_s + 4.0).step(12) == 41
    again = Life(tmp_path, Others(south=40), now_s=before.now_s + 60.0)
    assert again.step(12) == 41


def test_rounds_begun_before_a_crash_come_first_and_do_not_bound_the_way_to_the_others(
    tmp_path, monkeypatch
):
    before = in_step(tmp_path, 12, south=0)
    monkeypatch.setattr(Record, "next_kept", lambda self, done: done if done < 12 else None)
    life, done = Life(tmp_path, Others(south=40), now_s=before.now_s + 60.0), 10
    while done < 41:
        done = life.step(done, seconds=0.1)
    assert life.lived == [10, 11, 40]


SWARM = ("swarm.gather_s=0", "deadline_s=0.05", "swarm.listen=['tcp/127.0.0.1:0']")


@pytest.fixture
def soon(monkeypatch):
    """An alert after two rounds alone."""
    monkeypatch.setattr(rounds, "ALONE_ROUNDS", 2)


@pytest.mark.parametrize("names", [["small"], ["large", "small"]])
def test_nodes_of_a_process_and_one_by_itself_are_never_alone(soon, tmp_path, tiny_models, names):
    shown, nodes = Hears(), {name: tiny_models[name] for name in names}
    run(tiny.recipe(nodes, "rounds=2", "problems_per_round=2"), tmp_path / "run", display=shown)
    assert ALONE not in shown.said


@pytest.mark.parametrize("plan", [("plan=vertical",), ("plan=horizontal", "pace=free")])
def test_the_part_of_a_member_that_never_came_is_written_and_after_a_crash_too(
    tmp_path, tiny_models, plan
):
    config = tiny.recipe(tiny_models, "rounds=4", "checkpoint_every=2", *plan, *SWARM)
    join(config, "small", tmp_path / "run", display=Hears())
    seen = [(line["absent"], line["completions"]) for line in lines(tmp_path / "run", "small")]
    until = 2 if "pace=free" in plan else 1
    assert seen == [([], 8)] * until + [(["large"], 16)] * (4 - until)
    with pytest.raises(Crash):
        join(config, "small", tmp_path / "cut", display=CrashesAfter(2))
    join(config, "small", tmp_path / "cut", display=Hears(), resume=True)
    assert completions(tmp_path / "cut") == completions(tmp_path / "run")


def completions(folder):
    return (folder / "small" / "completions.jsonl").read_text()


def test_a_resumed_node_that_is_alone_knows_how_long_rounds_with_others_were(tmp_path):
    node = node_of(tmp_path, Others(south=0))
    for at, (others, seconds) in enumerate([(["south"], 4.0), (["south"], 6.0), ([], 1.0)]):
        sources = {name: {} for name in ["north", *others]}
        line = {"round": at, "seconds": {"write": seconds}, "sources": sources}
        node.record.add("metrics", [line])
    course = Course(node, ROUNDS, Hears())
    assert course.add_round(3, {"write": 1.5}, alone=True) == 3.5
    assert (course.alone, course.add_round(4, {"write": 1.5})) == (1, 0.0)


def test_a_lonely_round_rests_as_long_as_the_last_ten_rounds_with_others_took(tmp_path):
    course = Course(node_of(tmp_path, Others(south=0)), ROUNDS, Hears())
    for round in range(21):
        slow_s = 9.0 if round < 11 else 3.0
        course.add_round(round, {"write": slow_s})
    assert course.add_round(21, {"write": 1.0}, alone=True) == 2.0


class Readers:
    """Stands for an exchange: who is there at each look, in turn, the last ones for good."""

    def __init__(self, *there):
        self.there, self.looks = [*there], 0

    def status(self):
        self.looks += 1
        now = self.there[0] if len(self.there) == 1 else self.there.pop(0)
        return Status({name: PeerLine(live=True, heard_s=1.0) for name in now}, 0)


@pytest.mark.parametrize(
    ("there", "looks"),
    [
        ([()], 1),
        ([("north", "south")] * 3 + [("south",)] * 2 + [()], 6),
        ([("teacher",)], 1),  # it waits for this one, too
        ([("stranger",)] * 2 + [()], 3),
        ([("north",)], 10),
    ],
)
def test_an_author_stays_until_those_who_learn_have_gone(monkeypatch, there, looks):
    now_s = [0.0]
    monkeypatch.setattr(rounds, "STAY_S", 10 * rounds.PAUSE_S - 0.01)
    monkeypatch.setattr(rounds.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(rounds.time, "sleep", lambda s: now_s.append(now_s.pop() + s))
    writes = {"engine": {"name": "file", "path": "texts.jsonl"}}
    models = {"north": {"model": "digits-small"}, "south": {"model": "digits-small"}}
    config = as_config({"name": "r", "node": models | {"author": writes, "teacher": writes}})
    exchange = Readers(*there)
    author = SimpleNamespace(name="author", exchange=exchange)
    ignore = lambda *step: None  # noqa: E731
    LocalRounds(config, None, [], [author], None, ignore)._stay()
    assert exchange.looks == looks


def test_ctrl_c_while_an_author_stays_does_not_break_its_run_off(tmp_path):
    def stop(*step):
        raise rounds.Stopped

    writes = {"engine": {"name": "file", "path": "texts.jsonl"}}
    nodes = {"author": writes, "north": {"model": "digits-small"}}
    config = as_config({"name": "r", "node": nodes})
    record = Record(tmp_path, run="r", node="author")
    author = SimpleNamespace(name="author", exchange=Readers(("north",)), record=record)
    local = LocalRounds(config, tmp_path, [], [author], None, stop)
    result = local.run(config.end, is_over=False)
    assert (author.exchange.looks, result.rounds, result.interrupted) == (1, config.end, False)
