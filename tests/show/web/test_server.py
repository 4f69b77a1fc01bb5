"""The server, asked over its socket."""

import base64
import hashlib
import re
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from types import SimpleNamespace
from urllib.error import HTTPError

import pytest

from potluck.show.web import folder as folder_module
from potluck.show.web import server, states
from potluck.show.web.place import Place
from show.terminal.run_folders import metrics
from show.web.run_files import append, make_run, write_status
from show.web.stand_in_page_server import serving
from show.web.watching import answer, asked, events, watching


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "r", "small", "large")


@pytest.fixture(scope="module")
def address(folder):
    with watching(folder) as (found, _):
        yield found


def test_the_page_allows_its_own_parts_and_nothing_from_outside(address):
    status, headers, body = answer(address)
    page, policy = body.decode(), headers["content-security-policy"]
    assert status == 200
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        (text,) = re.findall(rf"<{tag}(?: type=.module.)?>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    wanted = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
    wanted |= {"cross-origin-resource-policy": "same-origin", "cache-control": "no-store"}
    assert {name: headers[name] for name in wanted} == wanted
    assert headers["server"] is None


def test_each_path_of_the_api_answers(address):
    assert [run["run"] for run in asked(address, "start")["runs"]] == [""]
    assert set(asked(address, "run", run="")["curves"]) == {"small", "large"}
    assert answer(address, "api/run", run="")[1]["content-type"] == "application/json"
    pair = asked(address, "pair", run="", learner="small", author="large")
    assert pair["columns"]["round"] == [0, 1, 2]
    assert asked(address, "texts", run="", node="small")["texts"][0]["round"] == 2
    assert asked(address, "texts", run="", node="small", round=1)["texts"][0]["round"] == 1


@pytest.mark.parametrize(
    "path, question, status",
    [
        ("nothing", {}, 404),
        ("events", {"run": "x"}, 404),
        ("pair", {"run": "", "learner": "x", "author": "y"}, 404),
        ("texts", {"run": "", "node": "../small"}, 404),
        ("texts", {"run": "", "node": "small", "round": "x"}, 400),
        ("texts", {"run": "", "node": "small", "round": 99 * "9"}, 400),
        ("experiment", {"experiment": "x"}, 404),
    ],
)
def test_an_error_is_one_line_with_its_status(address, path, question, status):
    got, _, body = answer(address, f"api/{path}", **question)
    assert got == status
    assert re.fullmatch(rb'\{"error":"[^"\n]+"\}', body)


@pytest.fixture
def at_once(monkeypatch):
    """Streams look at the files as fast as they can."""
    monkeypatch.setattr(server, "LOOK_EVERY_S", 0.01)


def test_a_stream_has_the_run_then_its_changes_then_ends(tmp_path, at_once):
    folder = make_run(tmp_path / "r", "small")
    write_status(folder, "small", phase="learn", round=3)
    with serving(Place([folder])) as address:
        stream = events(address)
        assert next(stream)["curves"]["small"]["columns"]["round"] == [0, 1, 2]
        append(folder / "small" / "metrics.jsonl", metrics(3))
        change = next(each for each in stream if each.get("curves"))
        assert change["curves"]["small"]["first"] == 3
        write_status(folder, "small", phase="ended", round=4)
        *_, last = stream  # it ends by itself
        assert last["is_over"]


def test_readers_of_a_run_share_its_feed_and_its_text(folder):
    made, both = [], threading.Barrier(2)

    class Slow(Place):
        def run(self, run):
            with suppress(threading.BrokenBarrierError):
                both.wait(0.2)  # two that make it at once meet here
            made.append(super().run(run))
            return made[-1]

    with serving(Slow([folder])) as address, ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: asked(address, "run", run=""), range(2)))
    (run,) = made
    step, whole = run.look(), run.message(0)
    assert run.message(0) is whole
    append(folder / "small" / "metrics.jsonl", metrics(3))
    assert run.look() == step + 1
    assert run.message(0) != whole


def test_a_look_is_not_repeated_soon_after_its_end(tmp_path, monkeypatch):
    clock = SimpleNamespace(now_s=0.0, looks=0, time=lambda: -1e9 * clock.now_s)
    clock.monotonic = lambda: clock.now_s

    class Slow(folder_module.WatchedRun):
        def _make(self, step):
            clock.now_s += 0.7
            clock.looks += 1
            return {}

    monkeypatch.setattr(folder_module, "time", clock)
    run = Slow(tmp_path)
    for later_s, looks in ((0, 1), (0.4, 1), (0.2, 2), (0, 2)):
        clock.now_s += later_s
        run.look(every_s=0.5)
        assert clock.looks == looks


def test_streams_are_bounded_and_one_that_is_closed_makes_room(folder, at_once, monkeypatch):
    monkeypatch.setattr(server, "MOST_STREAMS", 2)
    monkeypatch.setattr(states, "SILENT_S", 1e9)
    write_status(folder, "small")
    with serving(Place([folder])) as address, ExitStack() as stack:
        for _ in range(2):
            next(stream := events(address))
            stack.callback(stream.close)
        with pytest.raises(HTTPError, match="503") as refused:
            next(events(address))
        assert b"2 pages are open here; close one" in refused.value.read()
        stack.close()
        until(lambda: opens(address))


def opens(address):
    with suppress(HTTPError):
        next(stream := events(address))
        stream.close()
        return True


def until(is_true, limit_s=60):
    end_s = time.monotonic() + limit_s
    while not is_true():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def test_a_token_is_made_shown_and_needed_and_ctrl_c_ends_the_server_of_open_pages(folder):
    with watching(folder, "--web-at", "0.0.0.0:0", "--web-token") as (address, process):
        shown, _, token = address.partition("?token=")
        assert shown.startswith(f"http://{socket.gethostname()}:")
        assert len(token) >= 32
        port = shown.rsplit(":")[-1].strip("/")
        place = f"http://127.0.0.1:{port}/"
        assert answer(place, "api/run", run="")[0] == 401
        next(events(place, headers={"Cookie": f"potluck_{port}={token}"}))
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0


@pytest.mark.parametrize(
    "words, why",
    [
        (["--web-at", "0.0.0.0:0"], "--web-token"),
        (["--web-at", "127.0.0.1:BUSY"], "the port is in use"),
        (["--web-at", "127.0.0.1:99999"], "'99999' is no port"),
        (["--web-at", "8.8.8.8:1", "--web-token"], "the page at 8.8.8.8:1"),
        (["nothing"], "there is no folder nothing"),
    ],
)
def test_what_cannot_be_served_is_told_in_a_line(folder, potluck_says, words, why):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        words = [word.replace("BUSY", str(busy.getsockname()[1])) for word in words]
        code, out, err = potluck_says("watch", folder, *words)
    assert (code, (out + err).count("\n")) == (2, 1)
    assert why in out + err


def test_a_port_that_is_free_is_taken():
    with server.open_socket(server.HOST, None) as one, server.open_socket(server.HOST, None) as two:
        assert one.getsockname()[1] != two.getsockname()[1]


def test_without_its_packages_the_way_to_them_is_told_in_a_line(potluck_says, monkeypatch):
    monkeypatch.delitem(sys.modules, "potluck.show.web.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, _, said = potluck_says("watch", "nothing")
    assert (code, said.count("\n")) == (2, 1)
    assert "pip install 'potluck[web]'" in said
