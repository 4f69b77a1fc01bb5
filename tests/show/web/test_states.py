"""What each node of a run is doing, from its own status and from what others say of it."""

import json

import pytest
from msgspec.structs import replace

from potluck.reports.runs import read_recipe
from potluck.reports.status import PeerLine
from potluck.show.web.states import MOST_NODES, Facts, Here, facts_of, node_views
from show.terminal.run_folders import recipe
from show.web.run_files import status

NOW_S = 1_000_000.0
MODELS = {"north": "m-north", "south": "m-south"}


def facts(**changes):
    return Facts(**{"rounds": 10, "max_staleness": 1, "models": MODELS, "now_s": NOW_S, **changes})


def told(node, *, age_s=0.0, peers=None, **changes):
    made = status(node, peers=peers, **changes)
    return replace(made, own=replace(made.own, time_s=NOW_S - age_s))


def here(node, done=5, **changes):
    return Here(told(node, **changes), done)


def views(**nodes):
    return {view.name: view for view in node_views(nodes, facts())}


@pytest.mark.parametrize(
    "age_s, phase, done, state",
    [
        (0, "learn", 5, "training"),
        (5.1, "", 5, "silent"),
        (601, "", 5, "stopped"),
        (5.1, "", 10, "ended"),
        (9999, "ended", 5, "ended"),
        (0, "stopped", 5, "stopped"),
        (-3600, "", 5, "stopped"),  # of a clock that was set back since
    ],
)
def test_the_state_of_a_node_that_is_here(age_s, phase, done, state):
    north = views(north=here("north", done, age_s=age_s, phase=phase))["north"]
    assert north.state == state
    assert bool(north.why) == (state in ("silent",) or (state == "stopped" and not phase))
    assert north.round == done


def test_before_the_first_round_one_waits_and_the_other_is_awaited():
    waits = Here(told("north", phase="wait", done=0, total=1), 0, began_s=NOW_S - 19)
    found = {each.name: each for each in node_views({"north": waits}, facts(gather_s=60.0))}
    assert (found["north"].begins_s, found["south"].state) == (NOW_S + 41, "awaited")
    met = told("north", phase="wait", peers={"south": PeerLine(live=True)})
    its = {"north": Here(met, 0, began_s=NOW_S - 19)}
    assert node_views(its, facts(gather_s=60.0))[0].begins_s is None  # it has begun
    its = {"north": Here(told("north", phase="write"), 1)}
    assert node_views(its, facts())[1].state == "unknown"


def test_one_without_a_status_is_unknown_or_has_ended():
    found = views(north=Here(None, 9), south=Here(None, 10))
    assert (found["north"].state, found["south"].state) == ("unknown", "ended")


@pytest.mark.parametrize("behind, state", [(1, "training"), (2, "recovering")])
def test_one_that_is_further_behind_than_staleness_allows_recovers(behind, state):
    found = views(north=here("north", 8), south=here("south", 8 - behind))
    assert (found["north"].state, found["south"].state) == ("training", state)


def test_nobody_is_behind_a_node_that_is_gone():
    found = views(north=here("north", 9, age_s=60), south=here("south", 3))
    assert found["south"].state == "training"


@pytest.mark.parametrize("left_s, state", [(1, "quarantined"), (-1, "training")])
def test_quarantine_by_another_one_is_told_with_its_name_and_ends(left_s, state):
    line = PeerLine(live=True, quarantined_until_s=NOW_S + left_s)
    found = views(north=here("north", peers={"south": line}), south=here("south"))
    assert found["south"].state == state
    assert ("north" in found["south"].why) == (state == "quarantined")


def test_nodes_of_other_machines_are_known_by_their_peers():
    far = told("far", round=4, model="m-far", phase="write", done=1, total=2).own
    lines = {
        "far": PeerLine(live=True, heard_s=NOW_S - 1, newest_round=3, line=far),
        "gone": PeerLine(live=False, heard_s=NOW_S - 90, newest_round=1),
        "south": PeerLine(),
        "<script>": PeerLine(live=True),
    }
    found = views(north=here("north", peers=lines))
    assert set(found) == {"north", "south", "far", "gone"}
    assert (found["far"].state, found["far"].round) == ("training", 4)
    assert (found["far"].model, found["far"].phase) == ("m-far", "write")
    assert (found["gone"].state, found["south"].state) == ("silent", "unknown")
    assert found["south"].model == "m-south"


@pytest.mark.parametrize(
    "silent_s, left_s, age_s, state",
    [
        (9.9, 0, 0, "training"),
        (10.1, 0, 0, "silent"),
        (90, 9, 0, "quarantined"),  # nothing of it is read
        (60, 0, 60, "unknown"),  # what a dead reporter said does not count
    ],
)
def test_the_state_of_one_elsewhere_that_is_connected(silent_s, left_s, age_s, state):
    end_s = NOW_S + left_s
    line = PeerLine(live=True, heard_s=NOW_S - silent_s, newest_round=5, quarantined_until_s=end_s)
    assert views(north=here("north", peers={"far": line}, age_s=age_s))["far"].state == state


def test_nodes_are_bounded():
    lines = {f"n{at}": PeerLine(live=True) for at in range(2000)}
    assert len(views(north=here("north", peers=lines))) <= MOST_NODES + len(MODELS)


def test_a_crowd_that_one_node_names_hides_nothing_that_another_tells(monkeypatch):
    monkeypatch.setattr("potluck.show.web.states.MOST_NODES", 2)
    crowd = {"a": PeerLine(live=False), "b": PeerLine(live=False), "c": PeerLine()}
    found = views(
        north=here("north", peers=crowd),
        south=here("south", peers={"a": PeerLine(live=True, heard_s=NOW_S)}),
    )
    assert set(found) == {"north", "south", "a", "b"}
    assert found["a"].state in ("training", "recovering")  # it is live, as south tells


@pytest.mark.parametrize(
    "changes, facts",
    [
        ({"swarm": {"max_staleness": 3}}, (10, 3)),
        # The rounds are each node's own, so all of them are as far apart as a run allows.
        ({"swarm": {"max_staleness": 3}, "pace": "free"}, (10, 10)),
        ({"stop_when": {"rounds": 4}}, (4, 1)),
    ],
)
def test_rounds_and_staleness_are_those_of_the_recipe(tmp_path, changes, facts):
    (tmp_path / "recipe.json").write_text(json.dumps(recipe("north", rounds=10, **changes)))
    found = facts_of(read_recipe(tmp_path), NOW_S)
    assert (found.rounds, found.max_staleness) == facts
