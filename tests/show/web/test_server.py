"""The server, asked over its socket."""

import base64
import hashlib
import re
import signal
import socket

import pytest

from show.terminal.run_folders import HOSTILE, metrics
from show.web.run_files import append, completion, make_run, write_status
from show.web.watching import answer, asked, ended_without, events, watching


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
    pair = asked(address, "pair", run="", learner="small", author="large")
    assert pair["columns"]["round"] == [0, 1, 2]
    assert asked(address, "texts", run="", node="small")["texts"][0]["round"] == 2
    assert asked(address, "texts", run="", node="small", round=1)["texts"][0]["round"] == 1
    assert len(asked(address, "search", run="", node="small", q="1+2")["texts"]) == 3


@pytest.mark.parametrize(
    "path, question, status",
    [
        ("nothing", {}, 404),
        ("run", {"run": "../r"}, 404),
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


def test_other_hosts_and_other_sites_are_refused(address):
    assert answer(address, "api/run", {"Host": "evil.example"}, run="")[0] == 421
    assert answer(address, "api/run", {"Sec-Fetch-Site": "cross-site"}, run="")[0] == 403
    assert answer(address, "api/run", {"Origin": "http://evil.example"}, run="")[0] == 403


def test_a_stream_has_the_run_then_its_changes_then_ends(tmp_path):
    folder = make_run(tmp_path / "r", "small")
    write_status(folder, "small", phase="learn", round=3)
    with watching(folder) as (address, _):
        stream = events(address)
        assert next(stream)["curves"]["small"]["columns"]["round"] == [0, 1, 2]
        append(folder / "small" / "metrics.jsonl", metrics(3))
        change = next(each for each in stream if each.get("curves"))
        assert change["curves"]["small"]["first"] == 3
        write_status(folder, "small", phase="ended", round=4)
        *_, last = stream  # it ends by itself
        assert last["is_over"]


def test_a_node_that_says_nothing_more_turns_silent_without_a_question(tmp_path):
    folder = make_run(tmp_path / "r", "small")
    with watching(folder) as (address, _):
        write_status(folder, "small")  # not before: a server may take seconds to start
        states = (view["nodes"][0]["state"] for view in events(address) if view.get("nodes"))
        assert next(states) == "training"
        assert next(states) == "silent"
        write_status(folder, "small")
        assert next(states) == "training"


def test_hostile_text_is_json_and_no_page(tmp_path):
    folder = make_run(tmp_path / "r", "small", name=HOSTILE)
    append(folder / "small" / "completions.jsonl", completion(9, HOSTILE, text=HOSTILE))
    with watching(folder) as (address, _):
        status, headers, body = answer(address, "api/texts", run="", node="small")
        assert (status, headers["content-type"]) == (200, "application/json")
        assert b"<script>alert(1)" in body
        assert HOSTILE in asked(address, "run", run="")["name"]
        assert b"alert(1)" not in answer(address)[2]


def test_a_token_is_made_shown_and_needed(folder):
    with watching(folder, "--web-token") as (address, _):
        place, _, token = address.partition("?token=")
        assert len(token) >= 32
        assert answer(place)[0] == 401
        assert answer(place, "api/run", run="")[0] == 401
        assert answer(place, token="wrong")[0] == 401
        name = f"potluck_{place.rsplit(':')[-1].strip('/')}"
        cookie = {"Cookie": f"{name}={token}"}
        assert answer(place, "api/run", cookie, run="")[0] == 200
    with watching(folder, POTLUCK_WEB_TOKEN=24 * "x") as (address, _):
        assert address.endswith(f"?token={24 * 'x'}")


@pytest.fixture
def refused(potluck_says):
    """A function that returns (exit code, what it says) of a server that cannot begin."""

    def call(*words):
        code, out, err = potluck_says("watch", *words)
        return code, out + err

    return call


def test_an_address_for_others_without_a_token_is_refused_at_the_start(folder, refused):
    code, said = refused(folder, "--web-at", "0.0.0.0:0")
    assert (code, said.count("\n")) == (2, 1)
    assert "--web-token" in said
    with watching(folder, "--web-at", "0.0.0.0:0", "--web-token") as (address, _):
        assert address.startswith(f"http://{socket.gethostname()}:")


def test_a_port_in_use_is_told_in_a_line_and_another_one_taken_if_none_was_asked_for(
    folder, refused
):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        code, said = refused(folder, "--web-at", f"127.0.0.1:{port}")
    assert (code, said.count("\n")) == (2, 1)
    assert f"127.0.0.1:{port}: the port is in use" in said
    with watching(folder) as (one, _), watching(folder) as (two, _):
        assert one != two


@pytest.mark.parametrize("at", ["127.0.0.1:http", "127.0.0.1:99999", "8.8.8.8:1"])
def test_an_address_that_cannot_be_is_told_in_a_line(folder, at, refused):
    code, said = refused(folder, "--web-at", at, "--web-token")
    assert (code, said.count("\n")) == (2, 1)
    assert "the page" in said


def test_a_folder_that_is_not_there_is_told_in_a_line(tmp_path, refused):
    code, said = refused(tmp_path / "nothing")
    assert (code, said.count("\n")) == (2, 1)


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_without_its_packages_the_way_to_them_is_told_in_a_line(folder, package):
    code, said = ended_without(package, folder)
    assert (code, said.count("\n")) == (2, 1)
    assert "pip install 'potluck[web]'" in said


def test_ctrl_c_ends_it_while_pages_are_open(folder):
    with watching(folder) as (address, process):
        stream = events(address)
        next(stream)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
