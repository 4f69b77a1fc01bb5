"""Whole runs beside each other: started, stopped, gone on with; and what is said of a break."""

import io
import signal
import subprocess
import sys
from unittest.mock import Mock

import pytest
from rich.console import Console

import tiny
from forked import FORKING
from potluck.launch import children
from potluck.launch.children import Children
from potluck.launch.side_by_side import WholeRun, run_side_by_side
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
