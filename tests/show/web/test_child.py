"""The server of a run that is being started: it begins with it, ends with it, never stops it."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from potluck import STARTING_RECIPE
from potluck.cli import watching
from potluck.cli.watching import page_of
from show.web.run_files import make_run, write_status
from show.web.watching import asked, events


def watcher_of(pid):
    """The process with which a process serves its page."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(file.read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"--of-run" in file.with_name("cmdline").read_bytes():
                return int(file.parent.name)
    raise AssertionError(f"{pid} serves no page")


def is_there(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until_gone(pid, limit_s=30):
    end_s = time.monotonic() + limit_s
    while is_there(pid):
        assert time.monotonic() < end_s
        time.sleep(0.05)


def test_a_page_has_the_last_state_before_its_server_ends(tmp_path):
    folder, seen = tmp_path / "r", []

    def read(address):
        seen.extend(events(address))

    with page_of(folder) as address:  # the folder is not there yet
        reader = threading.Thread(target=read, args=(address,))
        reader.start()
        make_run(folder, "small", rounds=1)
        write_status(folder, "small", phase="learn")
        while not any(view.get("curves") for view in seen):
            time.sleep(0.05)
        watcher = watcher_of(os.getpid())
        write_status(folder, "small", phase="ended", round=1)
    reader.join()
    assert not is_there(watcher)
    assert seen[-1]["is_over"]
    assert seen[-1]["nodes"][0]["state"] == "ended"


def test_the_server_of_a_killed_process_ends(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from potluck.cli.watching import page_of\n"
        "with page_of(Path(sys.argv[1])) as address:\n"
        "    print(address, flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "r")], stdout=subprocess.PIPE, text=True
    )
    address = process.stdout.readline().strip()
    assert asked(address, "start")["runs"]
    watcher = watcher_of(process.pid)
    process.kill()
    process.communicate()
    until_gone(watcher)


def test_a_server_that_hangs_is_killed_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "END_S", 0.2)
    with page_of(tmp_path / "r"):
        watcher = watcher_of(os.getpid())
        os.kill(watcher, signal.SIGSTOP)
    assert not is_there(watcher)


def test_a_node_whose_page_cannot_be_does_not_begin(tmp_path, potluck_says):
    words = ["--as", "large", "--out", tmp_path / "r", "--web-at", "127.0.0.1:x"]
    code, _, said = potluck_says("join", STARTING_RECIPE, *words)
    assert (code, said.count("\n")) == (2, 1)
    assert "'x' is no port" in said
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_page_stays_until_ctrl_c_in_a_terminal(tmp_path, monkeypatch, capsys, is_terminal):
    def wait():
        raise KeyboardInterrupt

    event = SimpleNamespace(Event=lambda: SimpleNamespace(wait=wait))
    monkeypatch.setattr(watching, "threading", event)
    monkeypatch.setattr(watching, "page_of", lambda *_, **__: nullcontext("http://here"))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: is_terminal))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    with watching.shown_in_browser(tmp_path, [], web=True, at="", token=False) as stay:
        stay()
    assert ("stays until Ctrl-C" in capsys.readouterr().out) is is_terminal
