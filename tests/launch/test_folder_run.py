"""Nodes in processes of their own that meet through files alone: in a folder, and in a bucket."""

import signal

import pytest

import tiny
from faults.swarm import Swarm
from forked import FORKING, Forked
from potluck.builder.consent import notes_on_reach
from potluck.config import ConfigError
from potluck.doctor.examine import Target, examine
from potluck.launch import local_swarm
from potluck.launch.in_process import run
from potluck.reports.events import Silent

NAMES = ("east", "west")


def recipe(tmp_path, *overrides):
    nodes = {name: tiny.save(tmp_path / name, seed=i) for i, name in enumerate(NAMES)}
    short = ("rounds=2", "problems_per_round=4", "evaluation.problems=0", "swarm.gather_s=600")
    return tiny.recipe(nodes, *short, "swarm.transport=folder", *overrides)


def test_two_processes_that_meet_in_a_folder_learn_what_one_process_learns(tmp_path, monkeypatch):
    monkeypatch.setattr(local_swarm, "subprocess", FORKING)
    config, each, one = recipe(tmp_path), tmp_path / "each", tmp_path / "one"
    ended = local_swarm.run_local_swarm(config, each, resume=False, display=Silent())
    assert ended.codes == dict.fromkeys(NAMES, 0), ended.complaints
    run(config, one)
    for name in NAMES:
        written = (each / name / "completions.jsonl").read_text()
        assert written == (one / name / "completions.jsonl").read_text()
        assert {author for author in NAMES if f'"{author}"' in written} == {*NAMES}


@pytest.mark.parametrize("pace", ["together", "free"])
def test_one_that_is_killed_comes_back_through_the_folder_and_no_round_is_lost(tmp_path, pace):
    config = recipe(tmp_path, "rounds=12", "checkpoint_every=3", f"pace={pace}")
    with Swarm(config, tmp_path / "run", popen=Forked) as swarm:
        swarm.start()
        swarm.wait_until(lambda: swarm.round("west") >= 4, "five rounds")
        swarm.signal("west", signal.SIGKILL)
        swarm.start("west", resume=True)
        assert swarm.wait() == dict.fromkeys(NAMES, 0), swarm.logs()
    for name in NAMES:
        rounds = [line["round"] for line in swarm.metrics(name)]
        assert rounds[-1] == 11
        print(name, rounds, [m["missing"] for m in swarm.metrics(name)], [m["seconds"]["wait"] for m in swarm.metrics(name)])
        print(swarm.log(name)[-1500:])
    assert 0
