"""Progress as lines: what one process shows, another one tells it."""

import io
import json
import os
import signal

import pytest

from dashboard.run_folders import HOSTILE, metrics
from potluck.dashboard.events import EventLines, show_event


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


class Heard:
    def __init__(self):
        self.calls = []

    def phase(self, node, name, done, total):
        self.calls.append(("phase", node, name, done, total))

    def round_done(self, node, metrics):
        self.calls.append(("round_done", node, metrics))

    def evaluated(self, node, evaluation):
        self.calls.append(("evaluated", node, evaluation))

    def say(self, text):
        self.calls.append(("say", text))


def tell(display):
    display.phase("small", "write", 1, 9)
    display.round_done("small", metrics(3, refused={"mallory": 2}, reward_mean=None))
    display.evaluated("small", {"round": 4, "validation": 0.5})
    display.say(HOSTILE)


def test_what_was_told_on_one_side_is_shown_on_the_other():
    out, heard, expected = io.StringIO(), Heard(), Heard()
    tell(EventLines(out))
    tell(expected)
    lines = out.getvalue().splitlines()
    names = ["phase", "round_done", "evaluated", "say"]
    assert sorted(show_event(line, heard) for line in lines) == sorted(names)
    assert heard.calls == expected.calls


def test_whatever_is_told_is_one_line_each():
    out = io.StringIO()
    EventLines(out).say("one\ntwo\r\n\u2028three")
    assert len(out.getvalue().splitlines()) == 1


def test_a_phase_is_told_ten_times_a_second_and_its_end_always():
    out, clock = io.StringIO(), Clock()
    lines = EventLines(out, clock=clock)
    for at in range(100):
        lines.phase("small", "write", at, 100)
        clock.now_s += 1 / 64  # exact in binary
    lines.phase("small", "write", 100, 100)
    done = [json.loads(line)["phase"]["done"] for line in out.getvalue().splitlines()]
    assert done == [*range(0, 100, 7), 100]


def test_phases_and_nodes_do_not_silence_each_other():
    out = io.StringIO()
    lines = EventLines(out, clock=Clock())
    for node, name in (("small", "write"), ("small", "learn"), ("large", "write")):
        lines.phase(node, name, 0, 9)
        lines.phase(node, name, 1, 9)
    told = [json.loads(line)["phase"] for line in out.getvalue().splitlines()]
    assert [(each["node"], each["name"], each["done"]) for each in told] == [
        ("small", "write", 0),
        ("small", "learn", 0),
        ("large", "write", 0),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Loading weights: 100%",
        "{",
        "3",
        "[]",
        "null",
        "{}",
        '"say"',
        '{"say": {"text": "a"}, "phase": {}}',
        '{"say": "text"}',
        '{"say": {}}',
        '{"say": {"text": "a", "more": 1}}',
        '{"say": null}',
        '{"shout": {"text": "a"}}',
        '{"calls": {}}',
        '{"__init__": {}}',
        "[" * 100_000,
    ],
)
def test_what_is_no_event_is_not_taken_for_one(line):
    heard = Heard()
    assert not show_event(line, heard)
    assert heard.calls == []


def test_each_line_leaves_at_once():
    class Pipe(io.StringIO):
        flushed = 0

        def flush(self):
            self.flushed += 1

    pipe = Pipe()
    EventLines(pipe).say("hello")
    assert pipe.flushed == 1


def test_a_node_that_nobody_listens_to_any_more_asks_itself_to_stop(monkeypatch):
    killed = []
    monkeypatch.setattr(os, "kill", lambda *words: killed.append(words))
    reading, writing = os.pipe()
    os.close(reading)
    out = open(writing, "w")  # noqa: SIM115
    EventLines(out).say("is anybody there?")
    assert killed == [(os.getpid(), signal.SIGTERM)]
    with pytest.raises(BrokenPipeError):
        out.close()
