"""A run with a process for each node, of stand-ins that train nothing but speak as nodes do."""

import json
import os
import signal
import sys

import pytest

import stand_in_node
from launch.runs import Hears
from potluck import STARTING_RECIPE
from potluck.config import as_tree, from_tree, load
from potluck.launch import children, local_swarm
from potluck.launch.local_swarm import LOCAL_SWARM, run_local_swarm
from potluck.node.storage.folder import exclusive
from potluck.types import RunFolderError


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    """Calls ``run_local_swarm`` on nodes that each do a function of ``stand_in_node``: (how it
    ended, what it said).

    Stand-ins write into the run's folder who they are; a test cleans nothing up.
    """
    monkeypatch.setattr(children, "COMMAND", (sys.executable, "-S", stand_in_node.__file__))
    recipe = load(STARTING_RECIPE)

    def call(act=lambda text: None, *, resume=False, trust_code=False, **does):
        config = from_tree(
            as_tree(recipe)
            | {"node": {name: {"model": "builtin:digits-small"} for name in does}, "threads": 0}
        )
        for name, function in does.items():
            monkeypatch.setenv(f"NODE_{name}", function.__name__)
        heard = Hears(act)
        ended = run_local_swarm(
            config, tmp_path / "run", resume=resume, display=heard, trust_code=trust_code
        )
        return ended, heard

    call.folder = tmp_path / "run"
    return call


def is_alive(folder, name):
    try:
        os.kill(int((folder / f"pid-{name}").read_text()), 0)
    except ProcessLookupError:
        return False
    return True


def test_what_nodes_tell_is_shown_and_what_else_they_print_is_not(nodes):
    does = stand_in_node.tells_everything
    ended, heard = nodes(east=does, west=does)
    assert ended.codes == {"east": 0, "west": 0}
    assert (ended.interrupted, ended.complaints) == (False, {})
    assert sorted(heard.phases) == [("east", "write", 1, 2), ("west", "write", 1, 2)]
    assert sorted(heard.rounds) == [("east", 0), ("west", 0)]
    assert sorted(heard.evaluations) == [("east", 0.5), ("west", 0.5)]
    assert {"east: no newline", "west: no newline"} <= set(heard.said)
    assert not [text for text in heard.said if "greets" in text]


def test_a_node_is_told_where_it_is_and_how_the_others_are_reached(nodes):
    does = stand_in_node.begins
    _, heard = nodes(east=does, west=does, trust_code=True)
    called = next(text for text in heard.said if text.startswith("east called"))
    assert called == (
        f"east called with ['--as', 'east', '--out', '{nodes.folder}', '--all-here', "
        f"'--trust-code', '--display', 'lines']"
    )
    addresses = json.loads((nodes.folder / LOCAL_SWARM / "addresses.json").read_text())
    assert set(addresses) == {"east", "west"}
    assert len(set(addresses.values())) == 2
    assert all(address.startswith("tcp/127.0.0.1:") for address in addresses.values())
    assert load(nodes.folder / LOCAL_SWARM / "recipe.json").node.keys() == {"east", "west"}


def test_a_resumed_run_says_so_to_its_nodes(nodes):
    """To those that had begun: where one could not, the others may have."""
    nodes(east=stand_in_node.leaves_a_folder, west=stand_in_node.begins)
    _, heard = nodes(east=stand_in_node.ends_at_once, west=stand_in_node.ends_at_once, resume=True)
    (resumed,) = [text for text in heard.said if "'--resume'" in text]
    assert resumed.startswith("east called with")


def test_the_cores_are_divided(nodes, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    shown = stand_in_node.says_its_threads
    _, heard = nodes(east=shown, west=shown, north=shown)
    assert {f"{name} 2" for name in ("east", "west", "north")} <= set(heard.said)


def test_ctrl_c_is_handed_on_once_and_nodes_may_take_their_time(nodes):
    def act(text):
        # Not before both are there: a process that has just begun has no handler yet.
        if " called with " in text:
            here.append(text)
            if len(here) == 2:
                os.kill(os.getpid(), signal.SIGINT)

    here = []
    does = stand_in_node.stops_slowly
    ended, heard = nodes(act, east=does, west=does)
    assert ended.interrupted
    assert ended.codes == {"east": 130, "west": 130}
    assert {"east wished 1x", "west wished 1x"} <= set(heard.said)
    assert not [text for text in heard.said if "ended with" in text]  # they were asked to


def test_a_second_ctrl_c_ends_all_at_once(nodes):
    def act(text):
        if " called with " in text or text.endswith("will not"):
            here.append(text)
            if len(here) in (2, 4):
                os.kill(os.getpid(), signal.SIGINT)

    here = []
    with pytest.raises(KeyboardInterrupt):
        nodes(act, east=stand_in_node.is_deaf, west=stand_in_node.is_deaf)
    assert not is_alive(nodes.folder, "east")
    assert not is_alive(nodes.folder, "west")


@pytest.mark.parametrize("does, code, said", [
    (stand_in_node.is_killed, -signal.SIGKILL, "east was killed by SIGKILL"),
    (stand_in_node.fails, 1, "east ended with code 1: potluck: the weights"),
])  # fmt: skip
def test_a_node_that_is_lost_is_told_of_with_the_command_that_brings_it_back(
    nodes, monkeypatch, does, code, said
):
    monkeypatch.setattr(local_swarm, "ONE_CAUSE_S", 0.0)
    ended, heard = nodes(
        east=does,
        west=stand_in_node.goes_on,
        act=lambda text: said in text and (nodes.folder / "goes-on").touch(),
    )
    assert ended.codes == {"east": code, "west": 0}
    assert ended.complaints.keys() == {"east"}
    assert {said, "west goes on"} <= {*heard.said}
    (back,) = [text for text in heard.said if "bring it back" in text]
    assert back.partition(": ")[2] == (
        f"potluck join {nodes.folder}/{LOCAL_SWARM}/recipe.json --as east --out {nodes.folder} "
        f"--resume"
    )
    assert not ended.interrupted


def test_where_all_nodes_fail_of_one_thing_it_is_left_to_the_end_to_say_so_once(nodes):
    ended, heard = nodes(east=stand_in_node.fails, west=stand_in_node.fails)
    assert ended.complaints == dict.fromkeys(("east", "west"), "potluck: the weights")
    assert [text for text in heard.said if "ended with" in text or "bring it back" in text] == []


def failed_start(folder):
    """What a run leaves that breaks down in its first round."""
    (folder / "east/sent").mkdir(parents=True)
    (folder / "east/sent/000000.ptlk").write_text("half")
    (folder / "recipe.json").write_text(json.dumps({"node": {"east": {}, "west": {}}}))
    (folder / "task.json").write_text("{}")


def test_a_run_that_finished_no_round_is_begun_anew_and_that_is_told(nodes):
    failed_start(nodes.folder)
    ended, heard = nodes(east=stand_in_node.begins, west=stand_in_node.begins)
    assert ended.codes == {"east": 0, "west": 0}
    assert f"{nodes.folder} held a run that finished no round; it is begun anew" in heard.said
    assert not (nodes.folder / "east/sent/000000.ptlk").exists()


@pytest.mark.parametrize(
    "kept", ["east/metrics.jsonl", "west/checkpoints/000001/state.json", "south/x"]
)
def test_a_run_with_a_round_or_with_something_else_in_it_is_not(nodes, kept):
    failed_start(nodes.folder)
    (nodes.folder / kept).parent.mkdir(parents=True, exist_ok=True)
    (nodes.folder / kept).write_text("mine")
    with pytest.raises(RunFolderError, match=r"and `rm -r .*run` forgets it"):
        nodes(east=stand_in_node.begins, west=stand_in_node.begins)
    assert (nodes.folder / kept).read_text() == "mine"
    assert (nodes.folder / "east/sent/000000.ptlk").exists()


def test_a_failed_start_at_which_a_node_is_still_going_is_left_alone(nodes):
    failed_start(nodes.folder)
    with exclusive(nodes.folder / "east", print), pytest.raises(RunFolderError, match="is in use"):
        nodes(east=stand_in_node.begins, west=stand_in_node.begins)
    assert (nodes.folder / "east/sent/000000.ptlk").exists()


def test_a_mistake_ends_all_before_anything_is_begun_and_leaves_no_folder(nodes):
    wrong = stand_in_node.has_a_mistake_when_all_are_here
    # The third one has looked at nothing yet. It is asked to stop, and only once.
    north = stand_in_node.is_stopped_before_it_looked
    ended, heard = nodes(east=wrong, west=wrong, north=north)
    # One of the two may be asked to stop when it has nothing left that would hear it.
    assert {ended.codes["east"], ended.codes["west"]} <= {2, -signal.SIGINT}
    assert 2 in ended.codes.values()
    assert ended.codes["north"] == 130
    assert ended.complaints["east"] == ended.complaints["west"] == "potluck: no such model"
    assert ended.complaints["north"] == "wished 1"
    assert not nodes.folder.exists()
    assert all(" called with " in text for text in heard.said)


def test_what_a_start_left_behind_that_was_itself_killed_is_in_nobodys_way(nodes):
    (nodes.folder / LOCAL_SWARM).mkdir(parents=True)
    ended, _ = nodes(east=stand_in_node.begins, west=stand_in_node.begins)
    assert set(ended.codes.values()) == {0}


def test_addresses_of_the_recipe_are_for_a_network_and_not_used_here(nodes, monkeypatch):
    recipe = load(STARTING_RECIPE, ["swarm.connect=['tcp/relay.example.org:7447']"])
    monkeypatch.setattr(f"{__name__}.load", lambda _: recipe)
    monkeypatch.setenv("NODE_small", "begins")
    monkeypatch.setenv("NODE_large", "begins")
    heard = Hears()
    run_local_swarm(recipe, nodes.folder, resume=False, display=heard)
    assert any("meet on loopback" in text for text in heard.said)
    monkeypatch.undo()
    assert load(nodes.folder / LOCAL_SWARM / "recipe.json").swarm.connect == ()


def test_what_several_nodes_say_of_one_event_is_shown_once(nodes):
    does = stand_in_node.says_that_south_left
    _, heard = nodes(east=does, west=does)
    assert heard.said.count("'south' left") == 1
    assert sum("begins without" in text for text in heard.said) == 2


def test_a_node_that_cannot_begin_ends_the_others_which_had(nodes):
    """Something is wrong that can be mended at once; nobody waits for a node that will not come."""
    mistaken = stand_in_node.has_a_mistake_when_all_are_here
    ended, heard = nodes(east=stand_in_node.stops, west=mistaken)
    assert ended.codes == {"east": 130, "west": 2}
    assert ended.complaints["west"] == "potluck: no such model"
    assert not any("bring it back" in text for text in heard.said)
