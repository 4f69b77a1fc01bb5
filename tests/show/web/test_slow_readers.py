"""Readers that do not read: they are dropped, and nobody else notices."""

import json
import signal
import socket
import time
from contextlib import ExitStack
from itertools import islice, takewhile
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest

from show.terminal.run_folders import metrics
from show.web.run_files import append, make_run, write_status
from show.web.watching import OPENER, answer, asked, events, watching

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
        assert refusal(address) == "503: 2 pages are open here; close one"
        stack.close()
        until(lambda: not refusal(address))


def refusal(address):
    """Ask for a stream, and close one that opens: it would never end."""
    try:
        OPENER.open(f"{address}api/events?run=", timeout=300).close()
        return ""
    except HTTPError as error:
        with error:
            return f"{error.code}: {json.load(error)['error']}"


TELLING = """
import potluck.show.web.folder as f, potluck.show.web.server as s
s.LOOK_EVERY_S = 0.01
look, counted = f.WatchedRun.look, s.Server._counted
def told(run):
    print("look", flush=True)
    return look(run)
async def closed(server, channel):
    try:
        async for part in counted(server, channel):
            yield part
    finally:
        print("closed", flush=True)
f.WatchedRun.look, s.Server._counted = told, closed
"""


def test_nobody_looks_at_the_files_while_no_page_is_open(folder):
    with watching(folder, before=ALIVE + TELLING) as (address, process):
        next(stream := events(address))
        stream.close()
        told = [*takewhile(lambda line: line != "closed\n", islice(process.stdout, 5_000))]
        assert 0 < len(told) < 5_000
        for _ in range(20):
            assert answer(address)[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == ""
