"""A resume that is refused leaves every byte of the run's folder as it was."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from displays import Listener
from launch.runs import everything_in, recipes
from potluck.cli import app
from potluck.config import as_tree, from_tree
from potluck.files import JOINED, sealed
from potluck.launch.in_process import join, run
from potluck.launch.local_swarm import prepare_local_swarm, run_local_swarm
from potluck.node.storage.same_run import MAY_CHANGE, OF_A_MACHINE
from potluck.types import PotluckError, RunFolderError

recipe = recipes("rounds=2", "checkpoint_every=1")
REFUSED = r"was made with|no node"
OTHER = {bool: lambda old: not old, int: lambda old: old + 1, float: lambda old: old + 0.125}


@pytest.fixture(scope="module")
def done(recipe, tmp_path_factory):
    """A run of two rounds, with what its nodes leave where each has a process of its own."""
    folder = tmp_path_factory.mktemp("done") / "run"
    config = recipe()
    run(config, folder, display=None)
    prepare_local_swarm(config, folder)
    for name in config.node:
        (folder / name / JOINED).write_bytes(sealed(as_tree(config)))
    return folder


@pytest.fixture
def folder(done, tmp_path):
    return shutil.copytree(done, tmp_path / "run")


def leaves(tree, at=()):
    """Yield the path and value of each key of a recipe."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*at, key))
        else:
            yield (*at, key), value


def changed(config, path, value):
    """Return the recipe with another value of one key; None if there is no such recipe."""
    tree = json.loads(json.dumps(as_tree(config)))
    table = tree
    for key in path[:-1]:
        table = table[key]
    table[path[-1]] = OTHER[type(value)](value) if type(value) in OTHER else f"{value}x"
    try:
        return from_tree(tree)
    except PotluckError:
        return None


def refused_keys(config):
    """Yield each key that a resumed run may not change, and the recipe that changes it."""
    for path, value in leaves(as_tree(config)):
        of_a_machine = path[0] == "swarm" and path[1] in OF_A_MACHINE
        of_an_engine = path[0] == "node" and path[2] == "engine"
        if path[0] in MAY_CHANGE or of_a_machine or of_an_engine:
            continue
        only_reports = path[-1] in ("alignment_every", "right")
        if not only_reports and (other := changed(config, path, value)):
            yield ".".join(path), other


def test_a_resume_with_any_other_key_is_refused_and_changes_no_byte(recipe, folder):
    config, before = recipe(), everything_in(folder)
    keys = dict(refused_keys(config))
    assert len(keys) > 40
    for key, other in keys.items():
        with pytest.raises(RunFolderError, match=REFUSED):
            run_local_swarm(other, folder, resume=True, display=Listener())
        with pytest.raises(RunFolderError, match=REFUSED):
            run(other, folder, resume=True, display=None)
        name = key.split(".")[1] if key.startswith("node.") else "small"
        with pytest.raises(RunFolderError, match=REFUSED):
            join(other, name, folder, resume=True, display=None)
        assert everything_in(folder) == before, key


def test_a_resume_that_ends_before_its_rounds_is_refused_and_changes_no_byte(recipe, folder):
    before = everything_in(folder)
    with pytest.raises(RunFolderError, match="has 2 rounds, but the recipe ends after 1"):
        run_local_swarm(recipe("rounds=1"), folder, resume=True, display=Listener())
    assert everything_in(folder) == before


def test_a_command_that_is_refused_notes_no_consent(recipe, folder, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "secret")
    engine = '{name="vllm", url="http://127.0.0.1:9", model="m", api_key_variable="SOME_KEY"}'
    before = everything_in(folder)
    words = ["run", str(folder / "recipe.json"), "--out", str(folder), "--resume"]
    result = CliRunner().invoke(
        app, [*words, "--set", f"node.small.engine={engine}", "--allow-key", "SOME_KEY=127.0.0.1:9"]
    )
    assert isinstance(result.exception, RunFolderError)
    assert everything_in(folder) == before


def test_what_a_node_was_made_with_is_read_from_its_own_file(recipe, folder):
    """Another node of the folder, joined by hand, wrote what it believed of this one."""
    wrong = recipe("node.small.learning_rate=0.5")
    (folder / "recipe.json").write_bytes(sealed(as_tree(wrong)))
    with pytest.raises(RunFolderError, match=r"made with node.small.learning_rate = 0.001"):
        run_local_swarm(wrong, folder, resume=True, display=Listener())


def test_nodes_that_refuse_leave_the_folder_of_the_swarm_as_it_was(recipe, folder):
    """Data that has changed, for example, is told by the nodes themselves."""
    (folder / "task.json").write_bytes(sealed({"digest": "of other data"}))
    before = everything_in(folder)
    ended = run_local_swarm(recipe(), folder, resume=True, display=Listener())
    assert any("which now is" in said for said in ended.complaints.values())
    assert everything_in(folder) == before
