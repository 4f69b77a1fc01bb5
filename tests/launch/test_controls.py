"""A run's controls: stopped and killed on the way, gone on with, and told of in every place."""

import io
import os

import pytest
from rich.console import Console

import tiny
from forked import FORKING
from launch.runs import lines, numbers
from potluck.config import load
from potluck.launch import children
from potluck.launch.in_process import run
from potluck.launch.side_by_side import WholeRun, run_controls
from potluck.reports.answers import answers, told
from potluck.types import PotluckError

PAYS = """
import os, signal
from pathlib import Path

calls = 0


def pays(completions, **columns):
    \"\"\"Pays by the text; within a control its process is killed, or its starter stopped.\"\"\"
    global calls
    calls += 1
    if calls == 6 and os.environ.get("HITS") == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if calls == 2 and os.environ.get("HITS") == "stop":
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        os.kill(int(os.environ["STARTER"]), signal.SIGINT)
        signal.sigwait([signal.SIGINT])  # which the starter hands on
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        os.kill(os.getpid(), signal.SIGINT)
    return [len(set(text)) / 6 for text in completions]
"""


def test_a_control_that_is_killed_or_stopped_is_gone_on_with_to_the_bit(tmp_path, monkeypatch):
    (tmp_path / "pays.py").write_text(PAYS)
    model = tiny.save(tmp_path / "model")
    config = tiny.recipe(
        dict.fromkeys(("small", "twin"), model),
        *("rounds=3", "checkpoint_every=1", "plan=horizontal", "evaluation.problems=0"),
        *("objective.method=lws", 'control=["own-part"]'),
        reward=[{"function": f"{tmp_path / 'pays.py'}:pays"}],
    )

    def controlled(place):
        console = Console(file=io.StringIO())
        return run_controls(config, place, console, options=["--trust-code"])

    monkeypatch.setattr(children, "subprocess", FORKING)
    monkeypatch.setenv("STARTER", str(os.getpid()))
    for name in ("whole", "broken"):
        run(config, tmp_path / name, trust_code=True)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert controlled(whole)
    control = broken / "control.own-part"
    monkeypatch.setenv("HITS", "kill")
    with pytest.raises(PotluckError, match=r"tiny\.own-part ended with exit code -9"):
        controlled(broken)
    assert 0 < len(lines(control, "small")) < 3
    monkeypatch.setenv("HITS", "stop")
    assert not controlled(broken)
    assert len(lines(control, "small")) < 3
    assert answers(broken) == ()
    monkeypatch.delenv("HITS")
    assert controlled(broken)
    monkeypatch.setenv("HITS", "kill")
    assert controlled(broken)  # it is done, and not started
    for node in config.node:
        assert numbers(control, node) == numbers(whole / "control.own-part", node)
    found = answers(broken)
    assert [(each.node, each.control) for each in found] == [
        ("small", "own-part"),
        ("twin", "own-part"),
    ]
    assert found == answers(whole)
    card = (broken / "small" / "checkpoints" / "000003" / "README.md").read_text()
    assert f"against a control: {told(broken)[0]}" in card


def test_a_run_of_another_recipe_is_not_taken_for_done(tmp_path):
    model = tiny.save(tmp_path / "model")
    config = tiny.recipe({"small": model}, "rounds=1", "evaluation.problems=0")
    run(config, tmp_path / "run")
    assert WholeRun(config, tmp_path / "run").is_done
    for change, is_done in (("group_size=2", False), ('control=["half"]', True)):
        other = load(tmp_path / "run" / "recipe.json", [change])
        assert WholeRun(other, tmp_path / "run").is_done is is_done
