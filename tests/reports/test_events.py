"""Progress as lines: what one process shows, another one tells it."""

import io
import json
import os
import signal
from types import SimpleNamespace

import pytest

from potluck.reports import EvaluationReport, events
from potluck.reports.events import EventLines, Notice, PhaseProgress, decode_event, encode_event
from show.terminal.run_folders import HOSTILE, report

EVENTS = [
    PhaseProgress("small", "write", 1, 9),
    events.RoundDone("small", report(3, refused={"mallory": 2}, reward_mean=None)),
    events.Evaluated("small", EvaluationReport(4, validation=0.5)),
    Notice(HOSTILE),
    Notice("a folder \udcff of bytes"),  # text that no file system can spell
    events.PeerNews("quarantined", "mallory", HOSTILE),
    events.Alert("small", "silent", 7, HOSTILE),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_what_was_told_on_one_side_is_the_same_on_the_other(event):
    line = encode_event(event)
    assert line.isascii()
    assert decode_event(line) == event


def test_whatever_is_told_is_one_line_each_and_leaves_at_once():
    class Pipe(io.StringIO):
        flushed = 0

        def flush(self):
            self.flushed += 1

    pipe = Pipe()
    EventLines(pipe).show(Notice("one\ntwo\r\n\u2028three"))
    assert pipe.getvalue() == '{"event": "message", "text": "one\\ntwo\\r\\n\\u2028three"}\n'
    assert pipe.flushed == 1


def test_a_phase_is_told_ten_times_a_second_and_its_end_always(monkeypatch):
    out = io.StringIO()
    clock = SimpleNamespace(now_s=100.0, monotonic=lambda: clock.now_s)
    monkeypatch.setattr(events, "time", clock)
    lines = EventLines(out)
    for at in range(100):
        lines.show(PhaseProgress("small", "write", at, 100))
        clock.now_s += 1 / 64  # exact in binary
    lines.show(PhaseProgress("small", "write", 100, 100))
    for node, name in (("small", "learn"), ("large", "write")):  # these silence no other
        lines.show(PhaseProgress(node, name, 0, 9))
        lines.show(PhaseProgress(node, name, 1, 9))
    done = [json.loads(line)["done"] for line in out.getvalue().splitlines()]
    assert done == [*range(0, 100, 7), 100, 0, 0]


NO_EVENTS = (
    "", "Loading weights: 100%", "{", "3", "[]", "null", "{}", '"message"',
    '{"event": "message"}', '{"text": "a"}', '{"event": "message", "text": 3}',
    '{"event": "message", "text": "a", "more": 1}', '{"event": "shout", "text": "a"}',
    '{"event": "phase", "node": "a", "phase": "b", "done": "1", "total": 2}',
    '{"event": "round_done", "node": "a", "report": {}}', '{"event": "__init__"}',
    '{"event": "round_done", "node": "a", "report": null}',
    '{"event": "peer", "kind": "dances", "peer": "a"}', "[" * 100_000,
)  # fmt: skip


def test_what_is_no_event_is_not_taken_for_one():
    assert [line for line in NO_EVENTS if decode_event(line) is not None] == []


def test_a_node_that_nobody_listens_to_any_more_asks_itself_to_stop(monkeypatch):
    killed = []
    monkeypatch.setattr(os, "kill", lambda *words: killed.append(words))
    reading, writing = os.pipe()
    os.close(reading)
    out = open(writing, "w")  # noqa: SIM115
    lines = EventLines(out)
    for text in ("is anybody there?", "a second signal would mean: at once"):
        lines.show(Notice(text))
    assert killed == [(os.getpid(), signal.SIGTERM)]
    out.close()  # what is left in its buffer is lost without an error


def test_equal_messages_within_ten_seconds_are_one_event():
    told = [("a", 0.0), ("a", 0.0), ("a", 9.9), ("b", 9.9), ("a", 5.0), ("a", 10.0), ("b", 10.0)]
    once = events.Once()
    assert [once.is_new(*each) for each in told] == [True, False, False, True, False, True, False]
