"""A process with limits: what it may say, and when."""

import os
import signal
from select import select

import pytest

from potluck import confined
from potluck.confined import Confined

TALKER = """
import os, time

def say(text):
    for number in os.listdir("/proc/self/fd"):
        try:
            os.write(int(number), text)
        except OSError:
            pass

def answer(line):
    word, _, rest = line.decode().strip().partition(" ")
    if word == "early":  # a forged line, written before its own
        say(b"forged\\n")
    if word == "begin":  # a line that never ends
        say(b"half")
        time.sleep(600)
    return "x" * int(rest) if word == "long" else line.decode().strip()

def prepare():
    return answer
"""


@pytest.fixture
def talker(tmp_path, monkeypatch):
    (tmp_path / "talker.py").write_text(TALKER)
    monkeypatch.syspath_prepend(tmp_path)
    process = Confined("talker", 60.0, 2**30)
    assert process.state == "ready"
    yield process
    process.end()


def test_a_line_is_answered_by_a_line(talker):
    assert [talker.ask(f"{word}\n", 60.0) for word in ("a", "b", "long 100000")] == [
        "a", "b", "x" * 100_000,
    ]  # fmt: skip


def test_a_line_that_is_begun_and_not_ended_is_not_waited_for(talker):
    assert talker.ask("begin\n", 1.0) == ""
    assert talker.process.returncode is not None


def test_a_process_that_does_not_read_is_not_waited_for(talker):
    os.kill(talker.process.pid, signal.SIGSTOP)
    assert talker.ask("x" * 2**22 + "\n", 1.0) == ""
    assert talker.process.returncode is not None
    with pytest.raises(BrokenPipeError):
        talker.ask("next\n", 1.0)


def test_a_second_line_ends_the_process(talker):
    if talker.ask("early\n", 60.0) == "forged":
        select([talker.process.stdout], [], [])
        # What is left of it in the pipe is not the answer to the next line.
        assert talker.ask("next\n", 60.0) == ""
    assert talker.process.returncode is not None


def test_an_endless_line_ends_the_process(talker, monkeypatch):
    monkeypatch.setattr(confined, "LONGEST_ANSWER", 2**20)
    assert talker.ask("long 3000000\n", 60.0) == ""
    assert talker.process.returncode is not None
