"""Whole runs beside each other, and a run's controls: started, stopped and killed, gone on with."""

import io
import os
import signal
import subprocess
import sys
from unittest.mock import Mock

import pytest
from rich.console import Console

import tiny
from forked import FORKING
from launch.runs import lines, numbers
from potluck.config import load
from potluck.launch import children
from potluck.launch.children import Children
from potluck.launch.in_process import run
from potluck.launch.side_by_side import WholeRun, run_controls, run_side_by_side
from potluck.reports.answers import answers, told
from potluck.reports.events import Notice, encode_event
from potluck.types import PotluckError

SAYS_AND_FAILS = "import sys; print('first\\n\\x1b[31mno disk left'); sys.exit(3)"
SLEEPS = (
    "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]); "
    "print('here', flush=True); signal.sigwait([signal.SIGINT]); raise SystemExit(130)"
)


def console():
    return Console(file=io.StringIO(), width=100)


def stands_in(monkeypatch, code):
    """Have other processes started in place of runs."""
    started, popen = [], subprocess.Popen

    def start(words, **options):
        started.append(popen([sys.executable, "-c", code], **options))
        return started[-1]

    monkeypatch.setattr(children.subprocess, "Popen", start)
    return started


@pytest.fixture
def whole(tmp_path):
    model = tiny.save(tmp_path / "model", 0)
    config = tiny.recipe({"small": model}, "rounds=3", "checkpoint_every=1", "threads=1")
    return WholeRun(config, tmp_path / "runs")


def test_an_event_behind_what_a_library_wrote_without_a_newline_is_heard(monkeypatch):
    lines = f"50%|###{encode_event(Notice('hello'))}\n", 'an {"event" is none\n'
    stands_in(monkeypatch, f"print({''.join(lines)!r})")
    heard = []
    with Children() as group:
        child = group.start("small", [], threads=1)
        while group.going:
            group.hear(lambda _, event: heard.append(event))
    assert heard == [Notice("hello")]
    assert list(child.said) == ["50%|###", 'an {"event" is none']


def test_a_run_that_breaks_down_is_named_with_its_last_words(whole, monkeypatch):
    started = stands_in(monkeypatch, SAYS_AND_FAILS)
    with pytest.raises(PotluckError, match=r"ended with exit code 3: \[31mno disk left \(.*log"):
        run_side_by_side([whole], console())
    assert started[0].poll() is not None


def test_ctrl_c_stops_each_run_once_and_starts_no_other(whole, tmp_path, monkeypatch):
    """Once it hears that signal, which it says."""

    def interrupted(line):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(children, "decode_event", interrupted)
    started = stands_in(monkeypatch, SLEEPS)
    other = WholeRun(whole.config, tmp_path / "other")
    monkeypatch.setattr("potluck.launch.side_by_side.available_cores", lambda: 1)
    assert not run_side_by_side([whole, other], console())
    assert [process.returncode for process in started] == [130]


def test_a_run_stops_with_its_starter(whole, monkeypatch):
    monkeypatch.setattr(children, "subprocess", FORKING)
    monkeypatch.setattr(children, "Thread", Mock())
    with Children() as started:
        process = whole.start(started, ["--set", "rounds=100000"]).process
        process.stdout.close()  # as when this process is killed
        assert process.wait()


# Controls.


PAYS = """
import os, signal
from pathlib import Path

calls = 0


def pays(completions, **columns):
    \"\"\"Pays by the text; within a control its process is killed, or its starter stopped.\"\"\"
    global calls
    calls += 1
    if calls == 12 and os.environ.get("HITS") == "kill":
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
        return run_controls(config, place, console(), options=["--trust-code"])

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
