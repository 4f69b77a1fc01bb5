"""A transport of one's own, named in a recipe: its addresses, a run on it, the doctor's look."""

import subprocess
from types import SimpleNamespace

import pytest

import folder_transport
import tiny
from potluck.config import ConfigError
from potluck.doctor.examine import Target, examine
from potluck.exchange import TRANSPORTS
from potluck.launch import local_swarm
from potluck.launch.in_process import run
from potluck.reports.events import Silent

NAMES = ("east", "west")


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(TRANSPORTS, "folder", folder_transport.__name__)


def recipe(tmp_path, *overrides):
    nodes = {name: tiny.save(tmp_path / name, seed=i) for i, name in enumerate(NAMES)}
    short = ("rounds=2", "problems_per_round=4", "evaluation.problems=0")
    return tiny.recipe(nodes, *short, "swarm.transport=folder", *overrides)


def test_two_processes_that_meet_in_a_folder_learn_what_one_process_learns(tmp_path, monkeypatch):
    names = {"PIPE": subprocess.PIPE, "DEVNULL": subprocess.DEVNULL}
    popen = SimpleNamespace(Popen=folder_transport.Node, **names)
    monkeypatch.setattr(local_swarm, "subprocess", popen)
    config, each, one = recipe(tmp_path), tmp_path / "each", tmp_path / "one"
    ended = local_swarm.run_local_swarm(config, each, resume=False, display=Silent())
    assert ended.codes == dict.fromkeys(NAMES, 0), ended.complaints
    run(config, one)
    for name in NAMES:
        written = (each / name / "completions.jsonl").read_text()
        assert written == (one / name / "completions.jsonl").read_text()
        assert {author for author in NAMES if f'"{author}"' in written} == {*NAMES}


def test_an_address_is_of_the_transport_that_the_recipe_names(tmp_path):
    config = recipe(tmp_path, "swarm.listen=['folder:/srv/batches']")
    assert config.swarm.listen == ("folder:/srv/batches",)
    with pytest.raises(ConfigError, match=r"swarm.connect is 'tcp/h:1'; expected folder:PATH"):
        recipe(tmp_path, "swarm.connect=['tcp/h:1']")


def test_the_doctor_has_the_transport_try_its_addresses(tmp_path):
    config = recipe(tmp_path, f"swarm.listen=['folder:{tmp_path}']", "swarm.connect=['folder:/no']")
    found = {f.name: f for f in examine(Target(config, "east", tmp_path)) if "folder:" in f.text}
    assert (found["listen"].verdict, found["connect"].verdict) == ("ok", "warn")
