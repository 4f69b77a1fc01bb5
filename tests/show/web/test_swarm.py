"""The feed of a swarm: what its page shows of what an observer sees."""

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from potluck.reports.status import AuthorStatus, PeerLine, StatusLine
from potluck.show.web import feed, swarm
from potluck.show.web import rounds as rounds_module
from potluck.show.web.feed import NotHereError
from potluck.show.web.rounds import NodeRounds
from potluck.show.web.states import MOST_NODES
from potluck.show.web.swarm import SwarmFeed

NORTH = StatusLine(
    node="north", run="run", time_s=1.0, version="1.2", model="digits", parameters=7, round=3,
    rounds=9, phase="write", done=1, total=2, tokens_per_s=5.0, sent_bytes=100, received_bytes=50,
    reward=0.25, accuracy=0.5, authors={"south": AuthorStatus(12, 0.5, k1=0.25)},
)  # fmt: skip


def seen(line=NORTH, *, silent_s=0.5, live=True, newest_round=3, refused=None):
    """What an observer makes of a node, at the moment at which it is asked."""

    def at(now_s):
        heard_s = None if silent_s is None else now_s - silent_s
        more = {"newest_round": newest_round, "refused": refused or {}}
        return PeerLine(live=live, heard_s=heard_s, line=line, **more)

    return at


class Observed:
    """An observer that sees what a test says, at the time that it says."""

    roster = frozenset({"a", "b", "far", "north", "south", "zz"})

    def __init__(self):
        self.nodes, self.connected, self.now_s = {}, True, 1000.0
        self.run = SwarmFeed(self, "run")

    def seen(self):
        return {name: node(self.now_s) for name, node in self.nodes.items()}

    def is_connected(self):
        return self.connected

    def look(self, now_s=None, **nodes):
        self.now_s = self.now_s + 1 if now_s is None else now_s
        self.nodes = self.nodes | nodes
        return self.run.look()

    def node(self, name):
        return {node.name: node for node in self.run.view().nodes}[name]

    def events(self):
        return [(e.kind, e.text) for e in self.run.view().events]


@pytest.fixture
def observed(monkeypatch):
    made = Observed()
    clock = SimpleNamespace(time=lambda: made.now_s, monotonic=lambda: made.now_s)
    monkeypatch.setattr(feed, "time", clock)
    return made


def test_a_node_is_shown_with_what_it_tells(observed):
    observed.look(north=seen(), south=seen(line=None))
    node, view = observed.node("north"), observed.run.view()
    assert (node.state, node.known, node.model) == ("training", "signed", "digits")
    assert (node.phase, node.done, node.total, node.round) == ("write", 1, 2, 3)
    assert node.heard_s == 1000.5
    assert (view.name, view.rounds, view.is_over) == ("run", 9, False)
    columns = view.curves["north"].columns
    assert (columns["round"], columns["own_reward_mean"]) == ([2.0], [0.25])
    assert view.evaluations == {"north": {"round": [3.0], "validation": [0.5]}}
    cell = view.matrix["north"]["south"]
    assert (cell["reward_mean"], cell["k1"], cell["staleness"]) == (0.5, 0.25, 0)


def test_it_says_by_whose_key_a_node_is_known(observed):
    observed.look(north=seen(), south=seen(None, silent_s=None), eve=seen())
    known = {node.name: node.known for node in observed.run.view().nodes}
    assert known == {"north": "signed", "south": "unsigned", "eve": "unknown key"}


def test_authors_that_nobody_heard_are_left_out_as_a_signer_can_make_up_names(observed):
    observed.look(north=seen())
    assert observed.run.view().matrix == {"north": {}}


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "training"),
        ({"live": False}, "silent"),
        ({"silent_s": 5.1}, "silent"),
        ({"silent_s": None, "line": None, "newest_round": None}, "unknown"),
        ({"line": replace(NORTH, phase="ended"), "live": False}, "ended"),
        ({"line": replace(NORTH, round=9), "live": False}, "ended"),
        ({"line": None}, "training"),
    ],
)
def test_its_state_says_whether_it_is_there(observed, changes, state):
    observed.look(north=seen(**changes))
    assert observed.node("north").state == state
    assert bool(observed.node("north").phase) == (state == "training" and "line" not in changes)


def test_a_node_that_falls_silent_and_comes_back_is_told(observed):
    observed.look(north=seen())
    observed.look(north=seen(live=False))
    observed.look(north=seen())
    observed.connected = False
    observed.look(north=seen(refused={"forged": 3}))
    assert observed.events() == [
        ("message", "connected"), ("joined", "north joined"), ("left", "north is silent"),
        ("joined", "north joined"), ("message", "no node or relay can be reached; trying on"),
    ]  # fmt: skip
    assert observed.node("north").refused == {"forged": 3}


def test_one_that_claims_to_be_far_ahead_changes_nothing_for_others(observed):
    far = replace(NORTH, node="far", round=2**50, rounds=2**51)
    observed.look(north=seen(), south=seen(), far=seen(far, newest_round=2**31 - 1))
    assert observed.node("north").state == "training"
    assert observed.run.view().rounds == 9


def test_a_change_is_sent_once_and_alone(observed):
    first = observed.look(north=seen())
    whole = observed.run.view()
    assert None not in (whole.nodes, whole.curves, whole.matrix, whole.evaluations)
    observed.nodes = {"north": seen(silent_s=1.5)}  # A second later it is as it was.
    assert observed.look() == first
    second = observed.look(north=seen(replace(NORTH, round=4, reward=0.75), silent_s=0.5))
    change = observed.run.view(first)
    assert second > first
    assert change.curves["north"].first == 1
    assert change.curves["north"].columns["own_reward_mean"] == [0.75]
    assert change.evaluations is None
    assert observed.run.view(second).curves is None


def test_an_older_round_goes_before_a_newer_one_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(rounds_module, "MOST_ROWS", 200)
    rounds = NodeRounds()
    for at in range(201):
        rounds.add(at, at, {}, {})
    columns = rounds.since(199).columns
    assert len(columns["round"]) < 200
    assert columns["round"][-100:] == list(range(101, 201))


def test_what_all_nodes_together_told_is_bounded(observed, monkeypatch):
    monkeypatch.setattr(swarm, "MOST_CELLS", 100)
    for round in range(1, 60):
        observed.look(**{n: seen(replace(NORTH, node=n, round=round)) for n in "abc"})
        assert sum(own.cells for own in observed.run._rounds.values()) <= 100
    assert observed.run.view().curves["a"].columns["round"][-1] == 58


def test_a_swarm_without_end_is_shown_in_part_those_of_the_roster_first(observed):
    crowd = {f"x{at}": seen(None) for at in range(MOST_NODES + 50)}
    observed.look(**crowd, zz=seen(replace(NORTH, node="zz")))
    assert len(observed.run.view().nodes) == MOST_NODES
    assert observed.run.view().nodes[0].name == "zz"


def test_means_are_over_an_authors_last_rounds_and_tell_how_old_they_are():
    rounds = NodeRounds()
    for at in range(29):
        came = {"south": AuthorStatus(1, float(at))} if at < 27 else {}
        rounds.add(1, at, {}, came)
    cell = rounds.matrix()["south"]
    assert cell["reward_mean"] == sum(range(17, 27)) / 10
    assert cell["staleness"] == 2


def test_a_pair_has_what_the_learner_told_of_the_author(observed):
    for round in (3, 4):
        observed.look(north=seen(replace(NORTH, round=round)))
    pair = observed.run.pair("north", "south")
    assert (pair.columns["round"], pair.columns["k1"]) == ([2.0, 3.0], [0.25, 0.25])
    for learner, author in (("north", "<b>"), ("<b>", "south")):
        with pytest.raises(NotHereError, match="told nothing"):
            observed.run.pair(learner, author)
    assert observed.run.texts("north").texts == []


def test_the_start_has_this_run_alone(observed):
    observed.nodes, found = {"north": seen()}, observed.run
    (entry,) = found.start().runs
    assert (entry.run, entry.name) == ("", "run")
    with pytest.raises(NotHereError):
        found.run("other")
    with pytest.raises(NotHereError):
        found.experiment("x")
