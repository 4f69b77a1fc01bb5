"""The doctor: each check on made-up values, and all of them on this machine."""

import datetime
import errno
import os
import socket
import threading
import time
from contextlib import nullcontext
from dataclasses import astuple
from datetime import UTC
from pathlib import Path
from types import SimpleNamespace

import pytest

from potluck import STARTING_RECIPE
from potluck.config import from_tree, load
from potluck.doctor import checks, examine
from potluck.doctor.checks import Finding, Target
from potluck.exchange.keys.keys import Key, public_text, roster_text
from potluck.exchange.protocol.signed import encode_announcement
from potluck.exchange.zenoh.session import Endpoints, Tls, open_router, open_session
from town import certify

NOW = datetime.datetime.now(UTC)
DAY = datetime.timedelta(days=1)


def is_(finding, verdict, *words):
    """Whether it is that verdict, and says all these words."""
    *_, found, text = astuple(finding) if isinstance(finding, Finding) else finding
    return found == verdict and all(word in text for word in words)


def wanted(folder=Path(), name="", nodes=("north",), tls=None, **swarm):
    tables = {"swarm": {**swarm, **({"tls": {"folder": str(tls)}} if tls else {})}}
    tables["node"] = {each: {"model": "m"} for each in nodes}
    return Target(from_tree({"name": "r", "plan": "vertical", **tables}), name, folder)


# The machine.


def test_a_library_that_is_not_here_is_named_and_what_nodes_need_alike_is_said(monkeypatch):
    assert is_(checks.versions(wanted()), "ok", "torch 2.", "the same on all nodes: completions")
    monkeypatch.setattr(checks, "LIBRARIES", ("torch", "no-such-library"))
    assert is_(checks.versions(wanted()), "FAIL", "no-such-library not")


def test_an_accelerator_wants_a_torch_that_is_built_for_it(monkeypatch):
    for seen, torch, *found in (
        ("an NVIDIA GPU", "2.13.0+cu130", "ok", "NVIDIA GPU, for torch"),
        ("an NVIDIA GPU", "2.13.0+cpu", "warn", "is for CPUs; install"),
        ("", "2.13.0+cpu", "ok", "none: models run on the CPU"),
    ):
        monkeypatch.setattr(checks, "seen_accelerator", lambda seen=seen: seen)
        monkeypatch.setattr(checks, "version", lambda name, torch=torch: torch)
        assert is_(checks.accelerator(wanted()), *found)


# The line.


def test_a_node_that_names_no_other_is_reached_by_none():
    def meeting(listen, connect, name="b"):
        found = Target(wanted(nodes="abc").config, name, Path(), (*listen,), (*connect,))
        return examine.meeting(found)

    assert is_(meeting("", ""), "FAIL", "--connect", "--listen")
    assert is_(meeting("x", "y"), "ok", "listens, so", "names 1 other address")
    assert is_(meeting("x", "y", name="c"), "warn", "names 1 of 2 nodes before it")
    assert is_(meeting("x", "yz", name="c"), "ok", "names 2 other")
    assert meeting("", "yz", name="c") == ("ok", "names 2 other addresses")


def test_why_an_address_cannot_be_listened_at_or_does_not_answer_is_said():
    at = "tcp/1.2.3.4:5"
    assert is_(examine.listening(at, None), "ok")
    for number, words in (
        (errno.EADDRINUSE, "may be running"),
        (errno.EACCES, "below 1024"),
        (errno.EPERM, "below 1024"),
        (errno.EADDRNOTAVAIL, "0.0.0.0"),
        (errno.EINVAL, "choose another address"),
    ):
        found = examine.listening(at, OSError(number, os.strerror(number)))
        assert is_(found, "FAIL", at, os.strerror(number), words)
    assert is_(examine.reaching(at, None), "ok")
    for complaint, words in (
        (socket.gaierror(-2, "Name or service not known"), "no such host"),
        (ConnectionRefusedError(111, "refused"), "nothing listens"),
        (TimeoutError(), "a firewall"),
        (OSError(101, "Network is unreachable"), "Network is unreachable"),
    ):
        assert is_(examine.reaching(at, complaint), "warn", at, words)


def test_a_bucket_of_the_recipe_is_not_written_to_until_its_user_names_it(tmp_path):
    bucket, line = "s3://bucket/run", SimpleNamespace(try_endpoint=lambda *_, **__: OSError("no"))
    for named, verdict in (((), "ok"), ((bucket,), "warn")):
        found = examine._calling(Target(None, "", tmp_path, (), named), line, bucket)
        assert is_(found, verdict, bucket)


# Key, roster, certificates.


def test_a_key_is_there_its_owners_alone_and_in_the_roster(tmp_path):
    secret, roster = tmp_path / "north.key", tmp_path / "roster.toml"
    alone = wanted(tmp_path, "north", key=str(secret))
    listed = wanted(tmp_path, "north", key=str(secret), roster=str(roster))
    assert is_(checks.key(alone), "ok", "joining makes one")
    assert is_(checks.key(listed), "FAIL", "potluck keys north")
    Key.new().write(secret)
    assert is_(checks.key(alone), "ok")
    assert secret.read_text().strip().partition(":")[2] not in checks.key(alone)[1]
    own = Key.load(secret).public
    for known, *found in (
        ({"south": Key.new().public}, "FAIL", "no line for 'north'", "add: north ="),
        ({"north": Key.new().public}, "FAIL", "another key", "all owners to change its"),
        ({"large": own, "north": Key.new().public}, "FAIL", "key of 'large'", "--as large, or"),
        ({"large": own}, "FAIL", "is the key of 'large'", "--set swarm.key=", "north.key"),
        ({"north": own}, "ok", "as in the roster"),
    ):
        roster.write_text(roster_text(known))
        assert is_(checks.key(listed), *found)
    roster.unlink()
    assert is_(checks.key(listed), "FAIL", "roster.toml cannot be read")
    secret.chmod(0o644)
    assert is_(checks.key(alone), "FAIL", "chmod 600")
    secret.chmod(0o600)
    stranger = [f"swarm.key={secret}", "swarm.roster=none.toml", "swarm.open=true"]
    config = load(STARTING_RECIPE, [*stranger, "node.large.stranger=true"])
    assert is_(checks.key(Target(config, "large", tmp_path)), "ok")  # no roster has its key


def test_a_roster_is_readable_and_has_every_member(tmp_path):
    file = tmp_path / "roster.toml"
    one, two = (wanted(nodes=n, roster=str(file)) for n in (["north"], ["north", "south"]))
    assert is_(checks.roster(wanted()), "warn")
    assert is_(checks.roster(one), "FAIL")
    file.write_text(roster_text({"north": Key.new().public}))
    assert is_(checks.roster(one), "ok", "1 names")
    assert is_(checks.roster(two), "FAIL", "no key for south")
    file.write_text("north = 3")
    assert is_(checks.roster(one), "FAIL", "north is 3")


def test_certificates_are_there_for_this_name_and_hold_for_some_time(tmp_path, monkeypatch):
    def found(folder, days=0):
        monkeypatch.setattr(checks, "now", lambda: NOW + days * DAY)
        return checks.certificates(wanted(name="north", tls=folder))

    assert is_(checks.certificates(wanted(name="north")), "warn")
    assert is_(found(tmp_path / "none"), "FAIL")
    certify(tmp_path, "north", "south")
    assert is_(found(tmp_path), "ok", "north.pem holds to")
    assert is_(found(tmp_path / "north", 80), "ok")
    assert is_(found(tmp_path, 90), "warn", "ends on")
    for end in ("pem", "key"):
        (tmp_path / f"south/south.{end}").rename(tmp_path / f"north/north.{end}")
    assert is_(found(tmp_path), "FAIL", "is for 'south'")


# Who is there.


def free_place(protocol):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"{protocol}/127.0.0.1:{one.getsockname()[1]}"


@pytest.fixture
def relay():
    place = free_place("tcp")
    with open_router(Endpoints(listen=(place,))):
        yield Endpoints(connect=(place,))


def test_nodes_that_are_there_are_told_with_the_difference_of_the_clocks(relay):
    keys = {"a": Key.new(), "north": Key.new()}
    with open_session(relay, run="r") as session:
        tokens = [session.liveliness().declare_token(f"r/live/{n}") for n in ("a", "b", "north")]
        saying = {
            "a": said("a", keys["a"], clock_s=time.time() + 1000),
            "north": said("north", keys["north"], clock_s=time.time()),
            "c": b"garbage",
        }
        heard = []
        end = time.monotonic() + 300
        while len(heard) < 3 and time.monotonic() < end:
            seen = look_while(session, saying, relay)
            heard = [*seen.difference_s, *seen.complaints]
        assert len(tokens) == 3
    assert seen.live == {"a", "b", "north"}
    assert seen.difference_s["a"] > 900
    assert abs(seen.difference_s["north"]) < 100
    assert seen.public == {name: key.public for name, key in keys.items()}
    assert set(seen.complaints) == {"c"}


def test_of_made_up_names_without_end_few_are_kept(monkeypatch):
    class Session(nullcontext):
        liveliness = lambda self: self  # noqa: E731

        def declare_subscriber(self, pattern, hear, **_):
            for at in range(9):
                noise = SimpleNamespace(to_bytes=lambda: b"noise")
                hear(SimpleNamespace(key_expr=f"r/any/x{at}", payload=noise))

    monkeypatch.setattr(examine, "MOST", 3)
    monkeypatch.setattr(examine, "open_session", lambda *_, **__: Session())
    seen = examine.look(Endpoints(), "r", listen_s=0.0)
    assert (len(seen.live), len(seen.complaints)) == (3, 3)


def said(name, key, *, clock_s):
    about = {"session": bytes(16), "task": bytes(16), "clock_s": clock_s}
    return encode_announcement("r", name, key, [], **about)


def look_while(session, saying, relay):
    """What is seen in half a second in which every node speaks a few times."""
    stop = threading.Event()

    def speak():
        while not stop.wait(0.05):
            for name, word in saying.items():
                session.put(f"r/ann/{name}", word)

    thread = threading.Thread(target=speak)
    thread.start()
    try:
        return examine.look(relay, "r", listen_s=0.5)
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def seen(monkeypatch):
    """Findings from what was seen."""

    def findings(live=(), difference_s=None, complaints=None, *, public=None, tls=None, **swarm):
        result = examine.Seen(frozenset(live), difference_s or {}, public or {}, complaints or {})
        monkeypatch.setattr(examine, "look", lambda *_: result)
        patient = wanted(name="north", nodes=("a", "north", "z"), **swarm)
        return [(f.verdict, f.text) for f in examine.peers(patient, Endpoints(tls=tls))]

    return findings


def test_what_was_seen_is_told_by_name(seen):
    told = seen(["a", "b"], {"a": 100.0}, {"c": "garbage"})
    assert [verdict for verdict, _ in told] == ["warn", "warn", "warn", "warn"]
    assert [text.split()[0].strip(":") for _, text in told[:3]] == ["a", "c", "b"]
    assert "says nothing" in told[2][1]
    assert told[3][1] == "not there: z"
    assert seen(["a", "z"], {"a": 0.0, "z": 0.0})[-1][1].startswith("z is there")
    for by, verdict in ((0.3, "ok"), (-59, "ok"), (61, "warn"), (-4000, "warn")):
        assert is_(seen(["a"], {"a": by})[0], verdict, f"{by:+.1f} s")
    told = seen(["north"], {"north": 0.0})
    assert ("FAIL", "'north' is taking part already; each name is there once") in told


def test_a_peer_of_another_key_than_the_rosters_fails(seen, tmp_path):
    (tmp_path / "roster.toml").write_text(
        roster_text(keys := {name: Key.new().public for name in ("a", "north", "z")})
    )
    clocks = dict.fromkeys(["a", "guest", "north"], 0.0)
    public, roster = {name: Key.new().public for name in clocks}, str(tmp_path / "roster.toml")
    told = seen([], clocks, public=public, roster=roster)
    (failed,) = [text for verdict, text in told if verdict == "FAIL"]  # no roster knows a guest
    said = f"'a' signs with {public_text(public['a'])}, but the roster has {public_text(keys['a'])}"
    assert failed == f"{said}; ask it for the line of `potluck keys a`"
    well = seen([], clocks, public=public | {"a": keys["a"]}, roster=roster)
    assert not [text for verdict, text in well if verdict == "FAIL"]


def test_an_empty_run_is_said_and_the_nodes_that_are_missing(seen, tmp_path):
    text = "no node of run 'r' is there yet (not there: a, z)"
    assert seen() == [("warn", text)]
    listed = ", or the relay does not list 'north' (--names)"
    assert seen(tls=Tls(tmp_path, "north", ())) == [("warn", text + listed)]


@pytest.fixture
def look_for(monkeypatch):
    """The one finding of a short look."""
    look = examine.look
    monkeypatch.setattr(examine, "look", lambda line, run: look(line, run, listen_s=0.1))

    def finding(connect, tls=None):
        (found,) = examine.peers(wanted(name="north"), Endpoints((), (connect,), tls))
        return found

    return finding


def test_an_address_that_speaks_something_else_does_not_keep_the_doctor(look_for):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))  # and does not listen
        connect = f"tcp/127.0.0.1:{other.getsockname()[1]}"
        found = look_for(connect)
    assert is_(found, "FAIL", f"{connect} answers TCP but speaks no Potluck here", "tls/ there")
    assert "a frozen process" in found.text
    assert "left" not in found.text


def test_a_relay_of_another_authority_or_without_certificates_is_told_apart(
    look_for, relay, tmp_path, monkeypatch
):
    monkeypatch.setattr("potluck.exchange.zenoh.session.HANDSHAKE_MS", 500)
    for folder in ("ours", "theirs"):
        certify(tmp_path / folder, "north", "relay")
    own = Tls(tmp_path / "ours", "north", ("north",))
    foreign, plain = free_place("tls"), relay.connect[0].replace("tcp/", "tls/")
    with open_router(Endpoints((foreign,), (), Tls(tmp_path / "theirs", "relay", ("north",)))):
        for connect in (plain, foreign):
            words = f"{connect} answers TCP but speaks no Potluck here"
            assert is_(look_for(connect, own), "FAIL", words, "a certificate of another CA")
    (own.folder / "north" / "north.pem").unlink()
    assert is_(look_for(plain, own), "FAIL", "north.pem cannot be read")


# All together.


def examined(target):
    return {finding.name: finding for finding in examine.examine(target)}


def test_without_a_recipe_only_the_machine_is_looked_at_and_a_run_here_needs_no_papers(tmp_path):
    assert [*examined(Target(None, "", tmp_path))] == [*checks.OF_MACHINE]
    run = Target(load(STARTING_RECIPE), "", tmp_path)
    assert not {"meeting", *checks.OF_NODE} & examined(run).keys()


def test_a_node_that_joins_is_looked_at_from_all_sides(tmp_path, relay, monkeypatch):
    look = examine.look
    monkeypatch.setattr(examine, "look", lambda line, run: look(line, run, listen_s=0.3))
    Key.new().write(tmp_path / "key")
    own = Key.load(tmp_path / "key").public
    roster = roster_text({"large": own, "small": Key.new().public})
    (tmp_path / "roster.toml").write_text(roster)
    config = load(STARTING_RECIPE, [
        f"swarm.key={tmp_path / 'key'}", f"swarm.roster={tmp_path / 'roster.toml'}",
    ])  # fmt: skip
    target = Target(config, "large", tmp_path / "not/yet/there", said_connect=relay.connect)
    found = examined(target)
    for name, *judged in (
        ("key", "ok", "as in the roster"), ("roster", "ok"), ("certificates", "warn"),
        ("meeting", "ok"), ("connect", "ok", "answers"),
        ("peers", "warn", "no node of run 'digits'", "not there: small"),
    ):  # fmt: skip
        assert is_(found[name], *judged)
    assert not (tmp_path / "not").exists()


def test_a_look_goes_where_tcp_is_answered_and_knows_the_roster(tmp_path, relay, monkeypatch):
    looked = []

    def look(line, run):
        looked.append((line.connect, run))
        return examine.Seen(frozenset(), {"small": 0.0}, {"small": bytes(32)}, {})

    monkeypatch.setattr(examine, "look", look)
    roster = roster_text({"large": Key.new().public, "small": Key.new().public})
    (tmp_path / "roster.toml").write_text(roster)
    config = load(STARTING_RECIPE, [f"swarm.roster={tmp_path / 'roster.toml'}"])
    connect = (free_place("tcp"), *relay.connect)
    target = Target(config, "large", tmp_path, said_connect=connect)
    all_found = [*examine.examine(target)]
    assert [found.verdict for found in all_found if found.name == "connect"] == ["warn", "ok"]
    found = [finding for finding in all_found if finding.name == "peer"]
    assert looked == [(relay.connect, "digits")]
    assert [finding.verdict for finding in found] == ["ok", "FAIL"]
    (tmp_path / "roster.toml").write_text("small = 3")
    assert examined(target)["peer"].verdict == "ok"  # what is wrong is told of the roster


def test_addresses_are_tried_if_they_are_of_the_right_kind(tmp_path):
    address = "tls/no-such-host.invalid:1"
    found = examined(Target(load(STARTING_RECIPE), "large", tmp_path, said_connect=(address,)))
    assert is_(found["addresses"], "FAIL", "certificates")
    assert "connect" not in found
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        taken, free = f"tcp/127.0.0.1:{one.getsockname()[1]}", (free_place("tcp"),) * 2
        target = Target(None, "", tmp_path, said_listen=(taken,), said_connect=free)
        listens, one, other, alone = [*examine.examine(target)][-4:]
    assert is_(listens, "FAIL", "in use")
    assert is_(one, "warn", "nothing listens")
    assert is_(other, "warn", "nothing listens")
    assert is_(alone, "FAIL", "train alone")  # none of the addresses answers


def test_what_is_said_on_the_command_line_goes_before_the_recipe(tmp_path):
    config = load(STARTING_RECIPE, ["swarm.listen=['tcp/a:1']", "swarm.connect=['tcp/b:1']"])
    target = Target(config, "large", tmp_path, said_connect=("tcp/c:1",))
    assert (target.listen, target.connect) == (("tcp/a:1",), ("tcp/c:1",))
