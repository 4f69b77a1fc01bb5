"""Processes that a reward starts during a run: they end when they are told to, and with the run."""

import multiprocessing
import signal
import subprocess
import sys
import time

import pytest

from potluck.launch import children
from potluck.launch.children import Children, interrupts

LIMIT_S = 20.0
"""Reached only where something is broken; each case takes a part of a second."""
METHODS = ("fork", "spawn", "forkserver")


def wait_for_ever():
    while True:
        time.sleep(60.0)


def compute_for_ever():
    while True:
        pass


def test_a_process_that_is_terminated_ends():
    with interrupts():
        for method in METHODS:
            for work in (wait_for_ever, compute_for_ever):
                process = multiprocessing.get_context(method).Process(target=work, daemon=True)
                process.start()
                process.terminate()
                process.join(LIMIT_S)
                assert process.exitcode == -signal.SIGTERM, (method, work)


SERVER = """
import pathlib, time
time.sleep(20)
pathlib.Path("lived").touch()
"""
LEAVES_ONE = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", {SERVER!r}], stdout=STDOUT)
print("left", flush=True)
WAITS
"""
STREAMS = {"its output": "None", "another output": "subprocess.DEVNULL"}


@pytest.mark.parametrize("stdout", STREAMS.values(), ids=STREAMS)
def test_what_a_command_leaves_behind_ends_with_it(monkeypatch, tmp_path, stdout):
    """A server that holds the output of its command would keep the run from ending."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(children, "subprocess", subprocess)  # whatever stands for it in this file
    program = LEAVES_ONE.replace("STDOUT", stdout)
    ends, stays = (
        program.replace("WAITS", ""),
        program.replace("WAITS", "import time; time.sleep(20)"),
    )
    monkeypatch.setattr(children, "COMMAND", (sys.executable, "-c", ends))
    with Children() as going:
        child = going.start("a", [], threads=1)
        while going.hear(lambda *_: None) is None:
            pass
        assert child.code == 0
        assert [*child.said] == ["left"]
        wait_for_its_end(child)

    with Children() as going:  # and where a run ends before its command
        monkeypatch.setattr(children, "COMMAND", (sys.executable, "-c", stays))
        child = going.start("b", [], threads=1)
        while not child.said:
            going.hear(lambda *_: None)
    wait_for_its_end(child)
    assert not (tmp_path / "lived").exists()


def wait_for_its_end(child):
    """Wait until no process of the command's group lives."""
    words = ["ps", "-A", "-o", "pgid=,stat="]
    alive = [child.process.pid]
    while child.process.pid in alive:
        rows = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\n")
        alive = [int(row.split()[0]) for row in rows if row and "Z" not in row]
