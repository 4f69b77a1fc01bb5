"""A process with limits: what it may say, and when."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from select import select
from unittest import mock

import pytest

from potluck import confined
from potluck.confined import Confined, NotReady

TALKER = """
import os, signal, subprocess, time

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
        os.kill(os.getpid(), signal.SIGSTOP)
    if word == "twice":  # and together with another
        say(b"forged\\nforged\\n")
    if word == "start":
        return str(subprocess.Popen(["sleep", "600"]).pid)
    while word == "compute" and time.process_time() < 5:
        pass
    if word == "variables":
        return " ".join(sorted(os.environ))
    if word == "begin":  # a line that never ends
        say(b"half")
        time.sleep(600)
    return "x" * int(rest) if word == "long" else line.decode().strip()

def prepare():
    return answer
"""


HOST = """
import sys
from potluck.confined import Confined
talker = Confined("talker", 60.0, 2**30)
if __name__ == "__main__":
    assert talker.ask("a\\n", 60.0) == "a"
    print(talker.process.pid, flush=True)
    sys.stdin.read()
"""
SLOW_S = 300
"""Reached only where something is broken."""


@pytest.fixture
def talker(tmp_path, monkeypatch):
    (tmp_path / "talker.py").write_text(TALKER)
    monkeypatch.syspath_prepend(tmp_path)
    process = Confined("talker", 60.0, 2**30)
    yield process
    process.end()


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A child of nobody may wait a moment for init to take it.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def gone(pid):
    until_s = time.monotonic() + SLOW_S
    while is_there(pid) and time.monotonic() < until_s:
        time.sleep(0.01)
    return not is_there(pid)


def test_a_line_is_answered_by_a_line_and_one_that_is_begun_is_not_waited_for(talker):
    assert talker.process is None
    assert [talker.ask(f"{word}\n", 60.0) for word in ("a", "long 100000")] == ["a", "x" * 10**5]
    assert talker.ask("begin\n", 0.2) == ""
    assert talker.process is None


SECRETS = (
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "OPENAI_API_KEY", "TINKER_API_KEY"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GOOGLE_APPLICATION_CREDENTIALS"),
    *("HTTPS_PROXY", "https_proxy", "SSH_AUTH_SOCK", "NETRC", "DATABASE_URL", "PASSWORD"),
    *("LC_TOKEN", "HF_HOME_TOKEN", "PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD"),
)
"""Variables that are a secret, or hold one, or name code."""
NEEDED = ("HOME", "PATH", "TMPDIR", "LC_CTYPE", "CUDA_VISIBLE_DEVICES", "HF_HOME", "OMP_PLACES")


def test_a_process_gets_variables_to_find_files_and_to_compute_and_no_secret(talker, monkeypatch):
    for name in (*SECRETS, *NEEDED):
        monkeypatch.setenv(name, "/a/place")
    names = talker.ask("variables\n", 60.0).split()
    assert not {*names} & {*SECRETS}
    assert {*names} >= {*NEEDED}


def test_a_process_that_does_not_read_is_not_waited_for(talker):
    talker.ask("a\n", 60.0)
    pid = talker.process.pid
    os.kill(pid, signal.SIGSTOP)
    assert talker.ask("x" * 2**22 + "\n", 0.2) == ""
    assert not is_there(pid)
    assert talker.ask("next\n", 60.0) == "next"


def test_a_second_or_an_endless_line_ends_the_process(talker, monkeypatch):
    assert talker.ask("twice\n", 60.0) == ""
    assert talker.process is None
    assert talker.ask("early\n", 60.0) == "forged"
    pid = talker.process.pid
    os.waitid(os.P_PID, pid, os.WSTOPPED)  # or it would go on before it stops
    os.kill(pid, signal.SIGCONT)
    select([talker.process.stdout], [], [])
    # What is left of it in the pipe is not the answer to the next line.
    assert talker.ask("next\n", 60.0) == ""
    assert talker.process is None
    monkeypatch.setattr(confined, "LONGEST_ANSWER", 2**20)
    assert talker.ask("long 3000000\n", 60.0) == ""
    assert talker.process is None


def test_a_line_has_its_own_time_of_the_processor(talker):
    hasty = Confined("talker", 0.5, 2**30)
    assert hasty.ask("compute\n", SLOW_S) == ""  # ended long before the clock says so
    assert hasty.ask("a\n", 60.0) == "a"


def test_a_process_that_was_killed_costs_no_line(talker, monkeypatch):
    talker.ask("a\n", 60.0)
    for notices in (True, False):
        if not notices:  # it ends a moment later than it is looked for
            monkeypatch.setattr(talker.process, "poll", lambda: None)
        os.kill(pid := talker.process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert talker.ask("b\n", 60.0) == "b"


def test_a_process_that_ends_whenever_it_is_asked_is_replaced_once_or_not(talker, monkeypatch):
    """Not where only the process before could answer the line."""
    for tries in (1, 2):
        asked = mock.Mock(side_effect=["ready", BrokenPipeError, BrokenPipeError])
        monkeypatch.setattr(talker, "_said", asked)
        assert talker.ask("a\n", 60.0, tries=tries) == ""
        assert asked.call_count == 1 + tries
        talker.end()


def test_after_an_interruption_no_line_is_taken_for_anothers(talker):
    talker.ask("a\n", 60.0)
    interruption = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))

    def ask():
        interruption.start()
        talker.ask("begin\n", SLOW_S)

    with pytest.raises(KeyboardInterrupt):
        ask()
    interruption.join()
    assert talker.ask("b\n", 60.0) == "b"


def test_why_a_process_did_not_start_is_told(tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("def prepare(): raise OSError('no\\nroom')")
    monkeypatch.syspath_prepend(tmp_path)
    for module, said in (("broken", "OSError: no"), ("no_such_module", "")):
        with pytest.raises(NotReady, match=f"^{said}$"):
            Confined(module, 60.0, 2**30).ask("a\n", 60.0)


def test_it_ends_with_what_it_works_for_and_with_it_what_it_started(talker, tmp_path):
    started = int(talker.ask("start\n", 60.0))
    talker.end()
    assert gone(started)
    fresh = Confined("talker", 60.0, 2**30)
    fresh.ask("a\n", 60.0)
    pid = fresh.process.pid
    del fresh
    assert gone(pid)
    (tmp_path / "host.py").write_text(HOST)
    command = [sys.executable, "-X", "dev", "-W", "error", str(tmp_path / "host.py")]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    for is_killed in (False, True):
        with subprocess.Popen(command, text=True, **pipes) as host:
            pid = int(host.stdout.readline())
            assert is_there(pid)
            if is_killed:
                host.kill()
            _, error = host.communicate(timeout=SLOW_S)
        assert gone(pid)
        assert is_killed or (host.returncode, error) == (0, "")
