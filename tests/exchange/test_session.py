"""Sessions: what may be configured, who may connect, and what the refused are told."""

import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import zenoh

import potluck
from potluck.exchange.zenoh.session import (
    Endpoints,
    Tls,
    _config,
    open_patiently,
    open_router,
    open_session,
    try_endpoint,
)
from town import LONG_S, certify, free_endpoint, refused, until

ACCEPTING = """
import sys
from pathlib import Path
from potluck.exchange.zenoh.session import Endpoints, Tls, open_session
endpoint, folder = sys.argv[1:]
line = Endpoints((endpoint,), (), Tls(Path(folder), "north", ("north", "south")))
with open_session(line, run="demo") as session:
    hear = lambda sample: print("heard", sample.key_expr, flush=True)
    subscriber = session.declare_subscriber("demo/**", hear)
    live = session.liveliness().declare_subscriber("demo/**", hear, history=True)
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    certify(made := tmp_path_factory.mktemp("ours"), "north", "south", "eve", "relay", "relay-2")
    return made


def tls(folder, name, names=("north", "south")):
    return Tls(folder, name, names)


@pytest.mark.parametrize(
    "endpoint",
    [
        *("host:7447", "tcp/host", "tcp/host:65536", "tcp/:7447", "udp/host:7447"),
        *("tcp/::1:7447", "tcp/h:1#iface=x"),
    ],
)
def test_an_endpoint_that_is_none_is_refused_with_its_key_and_value(endpoint):
    expected = "expected tcp/HOST:PORT or tls/HOST:PORT"
    for line, key in (
        (Endpoints(connect=(endpoint,)), "connect"),
        (Endpoints((endpoint,)), "listen"),
    ):
        assert refused(open_session, line, run="r") == f"swarm.{key} is {endpoint!r}; {expected}"


def test_port_0_can_be_listened_on_and_not_be_called():
    with open_session(Endpoints(("tcp/127.0.0.1:0",)), run="r"):
        pass
    assert "expected" in refused(open_session, Endpoints(connect=("tcp/127.0.0.1:0",)), run="r")


def test_an_endpoint_of_the_other_kind_than_the_certificates_ask_for_is_refused(folder):
    line = Endpoints(("tls/127.0.0.1:7447",))
    message = refused(open_session, line, run="r")
    assert message.endswith("makes one), or use 'tcp/127.0.0.1:7447'")
    assert "add [swarm.tls]" in message
    line = Endpoints(connect=("tcp/127.0.0.1:7447",), tls=tls(folder, "north"))
    assert "expected 'tls/127.0.0.1:7447'" in refused(open_session, line, run="r")


def test_an_address_of_ipv6_is_called_without_its_brackets(monkeypatch):
    called = []

    def call(place, timeout):
        called.append(place)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", call)
    assert isinstance(try_endpoint("tls/[::1]:7447", listen=False), ConnectionRefusedError)
    assert called == [("::1", 7447)]


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_all_addresses_of_ipv6_are_those_of_ipv4_too():
    with socket.create_server(("0.0.0.0", 0)) as taken:
        place = f"tcp/[::]:{taken.getsockname()[1]}"
        assert isinstance(try_endpoint(place, listen=True), OSError)
    assert try_endpoint(place, listen=True) is None


def test_names_of_relays_and_of_nodes_are_kept_apart(folder):
    line = Endpoints(("tls/127.0.0.1:0",), (), tls(folder, "north"))
    assert "which nodes take for a node" in refused(open_router, line)
    line = Endpoints(("tls/127.0.0.1:0",), (), tls(folder, "north", ("north", "relay")))
    assert "'relay' is a relay's name" in refused(open_session, line, run="r")
    line = Endpoints(("tls/127.0.0.1:0",), (), tls(folder, "north", ("north", "**")))
    assert "'**' is no name of a node" in refused(open_session, line, run="r")


def test_a_port_in_use_is_named_once_with_the_way_out():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        endpoint = f"tcp/127.0.0.1:{taken.getsockname()[1]}"
        message = refused(open_session, Endpoints(("tcp/127.0.0.1:0", endpoint)), run="r")
    way_out = "stop what listens there, or listen elsewhere (--listen)"
    assert message == f"{endpoint} is in use: {way_out}"


def test_an_address_of_another_machine_is_refused_in_the_systems_words():
    endpoint = "tcp/192.0.2.1:0"  # for documents, so nobody's
    message = refused(open_session, Endpoints((endpoint,)), run="r")
    assert message.startswith(f"the line at {endpoint} cannot be opened: ")
    assert message.count("192.0.2.1") == 1
    assert message.endswith(")")
    assert ".rs" not in message


def test_a_missing_certificate_is_refused_and_not_waited_for(tmp_path):
    line = Endpoints(connect=("tls/127.0.0.1:7447",), tls=tls(tmp_path, "north"))
    assert "ca.pem cannot be read" in refused(open_session, line, run="r")


def test_a_session_is_set_up_as_it_was_measured(folder):
    secure = Endpoints(("tls/127.0.0.1:0",), ("tls/127.0.0.1:1",), tls(folder, "north"))
    plain = Endpoints(connect=("tcp/127.0.0.1:1",))
    for line, mode, protocol in ((secure, "peer", "tls"), (plain, "client", "tcp")):
        config = _config(line, mode, "demo")
        settings = {
            "mode": mode,
            "scouting/multicast/enabled": False,
            "transport/shared_memory/enabled": False,
            "transport/link/tx/lease": 4000,
            "transport/link/rx/max_message_size": 2**24,
            "transport/link/protocols": [protocol],  # Whatever others gossip of.
            "connect/exit_on_failure": False,
        }
        assert {key: json.loads(config.get_json(key)) for key in settings} == settings


@contextmanager
def hearing(session, pattern):
    """The keys that are put, or come alive, under ``pattern``; they grow."""
    heard = []

    def hear(sample):
        heard.append(str(sample.key_expr))

    one = session.declare_subscriber(pattern, hear)
    two = session.liveliness().declare_subscriber(pattern, hear, history=True)
    yield heard
    one.undeclare()
    two.undeclare()


def opening(line):
    """Where the session will be; a client that finds no relay must not hold up the tests."""
    opened = queue.Queue()
    threading.Thread(target=lambda: opened.put(open_session(line, run="r")), daemon=True).start()
    return opened


def until_heard(heard, key, again=lambda: None):
    """``again`` and again, until ``key`` is among the keys that were heard."""
    until(lambda: again() or key in heard, f"{key} is heard")


def test_a_client_waits_for_its_relay_is_asked_meanwhile_and_can_leave(caplog, monkeypatch):
    monkeypatch.setattr("potluck.exchange.zenoh.session.PAUSE_S", 10 * LONG_S)
    end_s = time.monotonic() + LONG_S

    def waiting():
        assert time.monotonic() < end_s
        if "no node or relay at tcp/127.0.0.1" in caplog.text:
            raise KeyboardInterrupt

    line = Endpoints(connect=(free_endpoint(),))
    with pytest.raises(KeyboardInterrupt):
        open_patiently(line, run="r", waiting=waiting)

    def not_for_ever():
        assert time.monotonic() < end_s, "a peer waits for somebody"

    open_patiently(Endpoints((free_endpoint(),)), run="r", waiting=not_for_ever).close()


def test_a_client_goes_to_another_relay_when_one_is_away_or_dies():
    nowhere, one, two = (free_endpoint() for _ in "abc")
    first, second = open_router(Endpoints((one,))), open_router(Endpoints((two,), (one,)))
    with (
        opening(Endpoints(connect=(nowhere, one, two))).get(timeout=LONG_S) as north,
        opening(Endpoints(connect=(two,))).get(timeout=LONG_S) as south,
        hearing(north, "r/**") as heard,
    ):
        until_heard(heard, "r/ann/before", lambda: south.put("r/ann/before", b"x"))
        assert north.info.routers_zid() == [first.zid()]
        first.close()
        until_heard(heard, "r/ann/after", lambda: south.put("r/ann/after", b"x"))
        assert north.info.routers_zid() == [second.zid()]
        second.close()
        with open_router(Endpoints((one,), (two,))), open_router(Endpoints((two,))):
            until_heard(heard, "r/ann/again", lambda: south.put("r/ann/again", b"x"))


def test_a_relay_that_is_frozen_does_not_keep_a_client_from_the_next(monkeypatch):
    monkeypatch.setattr("potluck.exchange.zenoh.session.HANDSHAKE_MS", 300)
    with socket.socket() as frozen:
        frozen.bind(("127.0.0.1", 0))
        frozen.listen()
        silent = f"tcp/127.0.0.1:{frozen.getsockname()[1]}"
        endpoint = free_endpoint()
        with (
            open_router(Endpoints((endpoint,))) as relay,
            opening(Endpoints(connect=(silent, endpoint))).get(timeout=LONG_S) as north,
        ):
            assert north.info.routers_zid() == [relay.zid()]


def test_with_certificates_two_relays_carry_everything_a_node_may_say(folder):
    first, second = (free_endpoint().replace("tcp", "tls") for _ in "ab")
    with (
        open_router(Endpoints((first,), (), tls(folder, "relay"))),
        open_router(Endpoints((second,), (first,), tls(folder, "relay-2"))),
        open_session(Endpoints(connect=(first,), tls=tls(folder, "north")), run="demo") as north,
        open_session(Endpoints(connect=(second,), tls=tls(folder, "south")), run="demo") as south,
        hearing(north, "demo/**") as heard,
        south.declare_queryable("demo/q/south/*", zenoh.handlers.FifoChannel(8)) as asked,
        south.liveliness().declare_token("demo/live/south"),
    ):
        until_heard(heard, "demo/live/south")

        def speak():
            south.put("demo/ann/north", b"forged")
            south.put("demo/status/north", b"forged")
            south.put("demo/ann/south", b"x")
            south.put("demo/status/south", b"x")

        until_heard(heard, "demo/status/south", speak)
        assert not {"demo/ann/north", "demo/status/north"} & {*heard}

        def serve():
            with asked.recv() as query:
                query.reply(query.key_expr, b"batch")

        server = threading.Thread(target=serve)
        server.start()
        got = []

        def comes():
            replies = north.get("demo/q/south/3", timeout=5.0)
            got.extend(reply.ok.payload.to_bytes() for reply in replies if reply.ok)
            return got

        until(comes, "a batch comes")
        assert got == [b"batch"]
        server.join(LONG_S)


class Accepting:
    """A process that lets north and south in, and all that it says."""

    def __init__(self, folder, log):
        self.log, self.endpoint = log, free_endpoint().removeprefix("tcp/")
        paths = {"PYTHONPATH": str(Path(potluck.__file__).parents[1])}
        environment = {k: v for k, v in os.environ.items() if k != "RUST_LOG"} | paths
        with open(log, "wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", ACCEPTING, f"tls/{self.endpoint}", str(folder)],
                stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, env=environment,
            )  # fmt: skip
        self.line("ready")

    def line(self, text, again=lambda: time.sleep(0.02)):
        """The first line that has ``text``, which may be yet to come; ``again`` until it does."""
        end = time.monotonic() + LONG_S
        while time.monotonic() < end and self.process.poll() is None:
            if found := [line for line in self.log.read_text().splitlines() if text in line]:
                return found[0]
            again()
        pytest.fail(f"{text!r} was never said, only:\n{self.log.read_text()}")

    def stop(self):
        self.process.stdin.close()
        self.process.wait(LONG_S)


@pytest.fixture
def accepting(folder, tmp_path):
    process = Accepting(folder, tmp_path / "log")
    yield process
    process.stop()


def turned_away(endpoint, **settings):
    """A client of Zenoh as it comes, that tries for a moment and is never let in."""
    config = zenoh.Config()
    settings |= {"mode": "client", "connect/endpoints": [endpoint], "connect/timeout_ms": 1000}
    settings["scouting/multicast/enabled"] = False
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    with pytest.raises(zenoh.ZError):
        zenoh.open(config)


def test_no_certificate_an_unlisted_name_and_plain_tcp_are_refused_and_the_log_says_why(
    folder, tmp_path, accepting
):
    # Each calls until it is heard: a moment may be too short for a machine that is busy.
    plain, tls_end = f"tcp/{accepting.endpoint}", f"tls/{accepting.endpoint}"
    accepting.line(
        "zenoh_link_tls::unicast: received corrupt message of type InvalidContentType",
        lambda: turned_away(plain),
    )
    trusted = {"root_ca_certificate": str(folder / "ca.pem")}
    accepting.line(
        "zenoh_link_tls::unicast: peer sent no certificates",
        lambda: turned_away(tls_end, **{"transport/link/tls": trusted}),
    )

    certify(tmp_path / "theirs", "south")
    foreign = {"root_ca_certificate": str(folder / "ca.pem"), "enable_mtls": True}
    for kind in ("certificate", "private_key"):
        end = {"certificate": "pem", "private_key": "key"}[kind]
        foreign[f"connect_{kind}"] = str(tmp_path / "theirs" / "south" / f"south.{end}")
    accepting.line(
        "invalid peer certificate", lambda: turned_away(tls_end, **{"transport/link/tls": foreign})
    )

    everyone = ("north", "south", "eve")
    call = (tls_end,)
    with (
        open_session(Endpoints(connect=call, tls=tls(folder, "eve", everyone)), run="demo") as eve,
        eve.liveliness().declare_token("demo/live/eve"),
    ):
        assert "it is not listed" in accepting.line("refused 'eve' at tls/127.0.0.1:")
        accepting.line("did not match any configured ACL subject")
        with open_session(Endpoints(connect=call, tls=tls(folder, "south")), run="demo") as south:
            for name in ("eve", "north", "south"):
                eve.put(f"demo/ann/{name}", b"forged")
            south.put("demo/ann/north", b"forged")
            token = south.liveliness().declare_token("demo/live/south")
            accepting.line("heard demo/live/south")
            south.put("demo/ann/south", b"x")
            accepting.line("heard demo/ann/south")
            token.undeclare()
    said = accepting.log.read_text()
    assert "heard demo/ann/eve" not in said
    assert "heard demo/live/eve" not in said
    assert "heard demo/ann/north" not in said
    assert "\x1b" not in said
