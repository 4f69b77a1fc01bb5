"""Readers that do not read: they are dropped, and nobody else notices."""

import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from show.terminal.run_folders import metrics
from show.web.run_files import append, make_run, write_status
from show.web.watching import answer, asked, events, watching

ALIVE = "import potluck.show.web.states as states; states.SILENT_S = 1e9\n"
"""The run of these tests is training, whatever the age of its status: its streams stay open."""
IMPATIENT = f"{ALIVE}import potluck.show.web.guard as guard; guard.TAKE_S = 1.0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run whose view is larger than what the system keeps of an answer for its reader."""
    folder = make_run(tmp_path_factory.mktemp("runs") / "r", "small", rounds=1)
    rows = (metrics(at, loss=at / 7, gradient_norm=at / 3, sources={}) for at in range(1, 8000))
    append(folder / "small" / "metrics.jsonl", *rows)
    write_status(folder, "small")
    return folder


def connect(address, path):
    """Open a connection, ask, and never read."""
    place = urlsplit(address)
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.connect((place.hostname, place.port))
    one.sendall(f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
    return one


def sockets_of(process):
    return sum(_is_socket(link) for link in Path(f"/proc/{process.pid}/fd").iterdir())


def _is_socket(link):
    try:
        return "socket:" in str(link.readlink())
    except FileNotFoundError:  # the server closes connections while they are counted
        return False


def resident_mb(process):
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def until(is_true, limit_s=60):
    end_s = time.monotonic() + limit_s
    while not is_true():
        assert time.monotonic() < end_s
        time.sleep(0.1)


@pytest.mark.parametrize("path", ["/api/events?run=", "/api/run?run="])
def test_200_readers_that_never_read_are_dropped_and_the_others_served(folder, path):
    with watching(folder, before=IMPATIENT) as (address, process), ExitStack() as stack:
        size = len(answer(address, "api/run", run="")[2])
        assert size > 1_000_000
        for _ in range(200):
            stack.enter_context(connect(address, path))
        until(lambda: sockets_of(process) > 150)
        assert asked(address, "start")["runs"]
        assert next(events(address))["curves"]
        until(lambda: sockets_of(process) < 50)
        assert resident_mb(process) < 200
        assert asked(address, "start")["runs"]


def test_streams_are_bounded(folder):
    few = f"{ALIVE}import potluck.show.web.server as server; server.MOST_STREAMS = 2"
    with watching(folder, before=few) as (address, _), ExitStack() as stack:
        for _ in range(2):
            next(stream := events(address))
            stack.callback(stream.close)
        status, _, body = answer(address, "api/events", run="")
        assert (status, b"2 pages are open" in body) == (503, True)
        stack.close()
        until(lambda: answer(address, "api/run", run="")[0] == 200)
        until(lambda: _opens(address))


def _opens(address):
    try:
        return bool(next(events(address)))
    except OSError:  # still 503
        return False


def test_nobody_looks_at_the_files_while_no_page_is_open(folder):
    counting = (
        ALIVE + "import time, potluck.show.web.folder as f; look = f.WatchedRun.look\n"
        "def told(self):\n    print('look', time.time(), flush=True); return look(self)\n"
        "f.WatchedRun.look = told"
    )
    with watching(folder, before=counting) as (address, process):
        stream = events(address)
        next(stream)
        process.stdout.readline()
        stream.close()
        closed_s = time.time()
        time.sleep(4)
        answer(address)
        process.send_signal(signal.SIGTERM)
        looks = process.communicate(timeout=20)[0].split("look ")[1:]
        assert all(float(look) < closed_s + 2 for look in looks)
