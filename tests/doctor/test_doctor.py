"""The doctor: each check on made-up values, and all of them on this machine."""

import datetime
import errno
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import astuple
from functools import partial
from pathlib import Path

import pytest

import potluck
from potluck import STARTING_RECIPE
from potluck.config import load
from potluck.doctor import credentials, machine, network
from potluck.doctor.examine import Target, examine
from potluck.doctor.machine import Finding
from potluck.exchange import transport
from potluck.exchange.keys.certificates import write_certificates
from potluck.exchange.keys.keys import Key, public_text, roster_text
from potluck.exchange.protocol.announcement import encode_announcement
from potluck.exchange.zenoh.session import Endpoints, Tls, open_router, open_session, try_endpoint

GIB = 1 << 30
ZENOH = transport("zenoh")
NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


def is_(finding, verdict, *words):
    """Whether it is that verdict, and says all these words."""
    *_, found, text = astuple(finding) if isinstance(finding, Finding) else finding
    return found == verdict and all(word in text for word in words)


# The machine.


def test_a_library_that_is_not_here_is_named_and_what_nodes_need_alike_is_said():
    protocol = {"completions": "2 and 3"}
    assert is_(
        machine.versions({"torch": "2.5"}, protocol),
        "ok",
        "torch 2.5",
        "the same on all nodes: completions 2 and 3",
    )
    assert is_(machine.versions({"torch": "2.5", "msgspec": None}, protocol), "FAIL", "msgspec not")


def test_an_accelerator_wants_a_torch_that_is_built_for_it():
    assert is_(machine.accelerator("an NVIDIA GPU", "2.13.0+cu130"), "ok", "NVIDIA GPU, for torch")
    assert is_(machine.accelerator("an NVIDIA GPU", "2.13.0+cpu"), "warn", "is for CPUs; install")
    assert is_(machine.accelerator("", "2.13.0+cpu"), "ok", "none: models run on the CPU")


def test_extras_are_told_with_what_installs_them():
    assert is_(machine.extras({"data": False, "web": True}), "ok", "web; not data: pip")
    assert is_(machine.extras({}), "ok", "none")


def test_an_extra_is_here_if_all_that_it_brings_is(monkeypatch):
    lines = ["numpy", "numpy>=1; extra == 'web'", "numpy; extra == 'data'", "numpy; extra == 'dev'"]
    lines.append('no-such-library[its-extra]<3,>=2; extra == "data"')
    monkeypatch.setattr("potluck.doctor.examine.requires", lambda name: lines)
    (found,) = (f for f in examine(Target(None, "", Path())) if f.name == "extras")
    assert found.text == "web; not data: pip install 'potluck[data]'"


def test_nodes_that_share_too_few_cores_are_warned():
    for well in ((8, 4, 0), (8, 4, 2), (2, 2, 0)):
        assert is_(machine.cores(*well), "ok")
    assert is_(machine.cores(2, 4, 0), "warn", "2 for 4 nodes")
    assert is_(machine.cores(8, 4, 3), "warn", "lower threads")


def test_memory_is_asked_for_each_node_that_is_here():
    assert is_(machine.memory(4 * GIB, 4), "ok")
    assert is_(machine.memory(4 * GIB, 5), "warn", "4.0 GiB free", "5 GiB")
    assert is_(machine.memory(None, 1), "warn")
    for text in ("", "MemAvailable:", "MemAvailable: x kB"):
        assert machine.available_memory(text) is None
    assert machine.available_memory("MemFree: 1 kB\nMemAvailable:     3 kB\n") == 3072


def test_open_files_are_held_against_the_nodes_of_the_swarm():
    for limit, nodes, verdict in ((1024, 48, "ok"), (-1, 1000, "ok"), (1024, 49, "warn")):
        assert is_(machine.open_files(limit, nodes), verdict)
    assert is_(machine.open_files(100, 2), "FAIL", "ulimit -n 288")


def test_bbr_is_recommended_with_what_makes_it_so():
    assert is_(machine.congestion("bbr", "bbr cubic"), "ok")
    here = machine.congestion("cubic", "reno bbr cubic")
    assert is_(here, "warn", "cubic", "sysctl -w net.ipv4.tcp_congestion_control=bbr")
    assert "modprobe" not in here[1]
    assert is_(machine.congestion("cubic", "reno cubic"), "warn", "modprobe tcp_bbr && sysctl")
    assert is_(machine.congestion(None, ""), "warn")


def test_a_disk_without_room_or_leave_to_write_fails():
    assert is_(machine.disk("/r", 20 * GIB, None), "ok")
    assert is_(machine.disk("/r", 5 * GIB, None), "warn", "5.0 GiB free at /r")
    assert is_(machine.disk("/r", 1 << 20, None), "FAIL", "make room")
    assert is_(machine.disk("/r", 20 * GIB, "Permission denied"), "FAIL", "/r takes no file: Perm")


# The line.


def test_addresses_that_are_none_are_named():
    assert network.spelling(ZENOH, "listen", ["tcp/0.0.0.0:1"], tls=False, listen=True) is None
    assert is_(
        network.spelling(ZENOH, "connect", ["no:1"], tls=False, listen=False), "FAIL", "'no:1'"
    )
    assert is_(
        network.spelling(ZENOH, "connect", ["tcp/h:1"], tls=True, listen=False), "FAIL", "tls/h:1"
    )


def test_a_node_that_names_no_other_is_reached_by_none():
    assert is_(network.meeting([], [], 3, 0), "FAIL", "--connect", "--listen")
    assert is_(network.meeting(["a"], ["b"], 3, 1), "ok", "names 1 of 2 others", "the rest must")
    assert is_(network.meeting(["a"], ["b"], 3, 2), "warn", "names 1 of 2 others")
    assert is_(network.meeting(["a"], ["b", "c"], 3, 2), "ok", "names 2 others")
    assert is_(network.meeting([], ["b"], 3, 1), "ok", "1 address", "a second one")
    assert network.meeting([], ["b", "c"], 3, 2) == ("ok", "through 2 addresses")
    assert "relay" not in network.meeting([], ["b"], 3, 1)[1]  # it may be a node


def test_why_an_address_cannot_be_listened_at_or_does_not_answer_is_said():
    at = "tcp/1.2.3.4:5"
    assert is_(network.listening(at, None), "ok")
    for number, words in (
        (errno.EADDRINUSE, "may be running"),
        (errno.EACCES, "below 1024"),
        (errno.EPERM, "below 1024"),
        (errno.EADDRNOTAVAIL, "0.0.0.0"),
        (errno.EINVAL, "choose another address"),
    ):
        found = network.listening(at, OSError(number, os.strerror(number)))
        assert is_(found, "FAIL", at, os.strerror(number), words)
    assert is_(network.reaching(at, None), "ok")
    for complaint, words in (
        (socket.gaierror(-2, "Name or service not known"), "no such host"),
        (ConnectionRefusedError(111, "refused"), "nothing listens"),
        (TimeoutError(), "a firewall"),
        (OSError(101, "Network is unreachable"), "Network is unreachable"),
    ):
        assert is_(network.reaching(at, complaint), "warn", at, words)


listen, call = partial(try_endpoint, listen=True), partial(try_endpoint, listen=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_port_is_tried_as_a_node_would_take_it(host):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        address = f"tcp/{host}:{one.getsockname()[1]}"
        one.listen()
        assert listen(f"tcp/127.0.0.1:{one.getsockname()[1]}").errno == errno.EADDRINUSE
        assert call(address) is None
    assert listen(address) is None
    assert isinstance(call(address), ConnectionRefusedError)


def test_a_host_that_is_not_there_is_an_answer_too():
    assert isinstance(call("tcp/no-such-host.invalid:1"), OSError)
    assert isinstance(listen("tcp/no-such-host.invalid:1"), OSError)


# Key, roster, certificates, clock.


def test_a_key_is_there_its_owners_alone_and_in_the_roster(tmp_path):
    secret, roster = tmp_path / "north.key", tmp_path / "roster.toml"
    assert is_(credentials.key(secret, "north", None), "ok", "joining makes one")
    assert is_(credentials.key(secret, "north", roster), "FAIL", "potluck keys north")
    Key.new().write(secret)
    own = Key.load(secret)
    assert is_(credentials.key(secret, "north", None), "ok")
    roster.write_text(roster_text({"south": Key.new().public}))
    assert is_(
        credentials.key(secret, "north", roster), "FAIL", "no line for 'north'", "add: north ="
    )
    roster.write_text(roster_text({"north": Key.new().public}))
    assert is_(
        credentials.key(secret, "north", roster), "FAIL", "another key", "change its line to: no"
    )
    roster.write_text(roster_text({"north": own.public}))
    assert is_(credentials.key(secret, "north", roster), "ok", "as in the roster")
    roster.unlink()
    assert is_(credentials.key(secret, "north", roster), "FAIL", "roster.toml cannot be read")
    secret.chmod(0o644)
    assert is_(credentials.key(secret, "north", None), "FAIL", "chmod 600")


def test_no_finding_holds_the_secret(tmp_path):
    secret = tmp_path / "north.key"
    Key.new().write(secret)
    _, text = credentials.key(secret, "north", None)
    assert secret.read_text().strip().partition(":")[2] not in text


def test_a_peers_key_is_the_rosters():
    own, other = Key.new().public, Key.new().public
    assert credentials.peer_key("large", own, own) is None
    finding = credentials.peer_key("large", other, own)
    assert is_(finding, "FAIL", f"'large' signs with {public_text(other)}, but", "keys large`")
    assert is_(finding, "FAIL", f"the roster has {public_text(own)};")


def test_a_roster_is_readable_and_has_every_member(tmp_path):
    file = tmp_path / "roster.toml"
    assert is_(credentials.roster(None, ["north"]), "warn")
    assert is_(credentials.roster(file, ["north"]), "FAIL")
    file.write_text(roster_text({"north": Key.new().public}))
    assert is_(credentials.roster(file, ["north"]), "ok", "1 names")
    assert is_(credentials.roster(file, ["north", "south"]), "FAIL", "no key for south")
    file.write_text("north = 3")
    assert is_(credentials.roster(file, ["north"]), "FAIL", "north is 3")


def test_certificates_are_there_for_this_name_and_hold_for_some_time(tmp_path):
    assert is_(credentials.certificates(None, "north", NOW), "warn")
    assert is_(credentials.certificates(tmp_path / "none", "north", NOW), "FAIL")
    write_certificates(tmp_path, ["north", "south"], days=100)
    assert is_(credentials.certificates(tmp_path, "north", NOW), "ok", "north.pem holds to")
    assert is_(credentials.certificates(tmp_path / "north", "north", NOW + 80 * DAY), "ok")
    assert is_(credentials.certificates(tmp_path, "north", NOW + 90 * DAY), "warn", "ends on")
    for end in ("pem", "key"):
        (tmp_path / f"south/south.{end}").rename(tmp_path / f"north/east.{end}")
    (tmp_path / "north/north.pem").write_bytes((tmp_path / "north/east.pem").read_bytes())
    (tmp_path / "north/north.key").write_bytes((tmp_path / "north/east.key").read_bytes())
    assert is_(credentials.certificates(tmp_path, "north", NOW), "FAIL", "is for 'south'")


def test_a_clock_that_cannot_be_right_is_seen():
    assert is_(credentials.clock(NOW, None), "ok")
    assert is_(credentials.clock(NOW, NOW - 3 * DAY), "ok")
    assert is_(credentials.clock(NOW, NOW + DAY / 1e5), "ok")
    assert is_(credentials.clock(NOW, NOW + DAY), "warn", "but the recipe is from")
    assert is_(credentials.clock(credentials.MADE - DAY, None), "FAIL", "set it")


@pytest.mark.parametrize("by, verdict", [(0.3, "ok"), (-59, "ok"), (61, "warn"), (-4000, "warn")])
def test_a_peers_clock_may_be_a_minute_off(by, verdict):
    assert is_(credentials.skew("south", by), verdict, f"{by:+.1f} s")


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
        return network.look(relay, "r", listen_s=0.5)
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def seen(monkeypatch):
    """Findings from what was seen."""

    def findings(live=(), difference_s=None, complaints=None, *, public=None, keys=None, tls=None):
        result = network.Seen(frozenset(live), difference_s or {}, public or {}, complaints or {})
        monkeypatch.setattr(network, "look", lambda *_: result)
        told = network.peers(
            Endpoints(tls=tls), "r", "north", members=("a", "north", "z"), keys=keys or {}
        )
        return [(f.verdict, f.text) for f in told]

    return findings


def test_what_was_seen_is_told_by_name(seen):
    told = seen(["a", "b"], {"a": 100.0}, {"c": "garbage"})
    assert [verdict for verdict, _ in told] == ["warn", "warn", "warn", "warn"]
    assert [text.split()[0].strip(":") for _, text in told[:3]] == ["a", "c", "b"]
    assert "says nothing" in told[2][1]
    assert told[3][1] == "not there: z"
    assert seen(["a", "z"], {"a": 0.0, "z": 0.0})[-1][1].startswith("z is there")


def test_a_peer_of_another_key_than_the_rosters_fails(seen):
    keys = {name: Key.new().public for name in ("a", "north", "z")}
    clocks = dict.fromkeys(["a", "guest", "north"], 0.0)
    public = {name: Key.new().public for name in clocks}
    failed = [text for verdict, text in seen([], clocks, public=public, keys=keys)
              if verdict == "FAIL"]  # fmt: skip
    assert len(failed) == 1  # not of a guest, whom no roster knows
    assert failed[0].startswith(f"'a' signs with {public_text(public['a'])}, but the roster has")
    well = seen([], clocks, public=public, keys={"a": public["a"]})
    assert not [text for verdict, text in well if verdict == "FAIL"]


def test_a_name_that_is_taken_is_no_name_to_join_under(seen):
    told = seen(["north"], {"north": 0.0})
    assert ("FAIL", "'north' is taking part already; each name is there once") in told


def test_an_empty_run_is_said_and_the_nodes_that_are_missing(seen, tmp_path):
    text = "no node of run 'r' is there yet (not there: a, z)"
    assert seen() == [("warn", text)]
    listed = ", or the relay does not list 'north' (--names)"
    assert seen(tls=Tls(tmp_path, "north", ())) == [("warn", text + listed)]


@pytest.fixture
def look_for(monkeypatch):
    """The one finding of a short look."""
    look = network.look
    monkeypatch.setattr(network, "look", lambda line, run: look(line, run, listen_s=0.1))

    def finding(connect, tls=None):
        (found,) = network.peers(Endpoints((), (connect,), tls), "r", "north", members=(), keys={})
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
        write_certificates(tmp_path / folder, ["north", "relay"])
    own = Tls(tmp_path / "ours", "north", ("north",))
    foreign, plain = free_place("tls"), relay.connect[0].replace("tcp/", "tls/")
    with open_router(Endpoints((foreign,), (), Tls(tmp_path / "theirs", "relay", ("north",)))):
        for connect in (plain, foreign):
            words = f"{connect} answers TCP but speaks no Potluck here"
            assert is_(look_for(connect, own), "FAIL", words, "a certificate of another CA")
    (own.folder / "north" / "north.pem").unlink()
    assert is_(look_for(plain, own), "FAIL", "north.pem cannot be read")


# All together.


def names_of(target):
    return [finding.name for finding in examine(target)]


def test_without_a_recipe_only_the_machine_is_looked_at(tmp_path):
    names = names_of(Target(None, "", tmp_path))
    assert names == ["versions", "extras", "gpu", "cores", "memory", "open files", "tcp congestion",
                     "disk", "clock"]  # fmt: skip


def test_a_run_on_this_machine_needs_no_papers(tmp_path):
    config = load(STARTING_RECIPE)
    names = names_of(Target(config, "", tmp_path, recipe=STARTING_RECIPE))
    assert not {"key", "roster", "certificates", "meeting"} & set(names)


def test_a_node_that_joins_is_looked_at_from_all_sides(tmp_path, relay, monkeypatch):
    look = network.look
    monkeypatch.setattr(network, "look", lambda line, run: look(line, run, listen_s=0.3))
    Key.new().write(tmp_path / "key")
    own = Key.load(tmp_path / "key").public
    roster = roster_text({"large": own, "small": Key.new().public})
    (tmp_path / "roster.toml").write_text(roster)
    config = load(STARTING_RECIPE, [
        f"swarm.key={tmp_path / 'key'}", f"swarm.roster={tmp_path / 'roster.toml'}",
    ])  # fmt: skip
    target = Target(config, "large", tmp_path / "not/yet/there", said_connect=relay.connect)
    found = {finding.name: finding for finding in examine(target)}
    assert is_(found["key"], "ok", "as in the roster")
    assert is_(found["roster"], "ok")
    assert is_(found["certificates"], "warn")
    assert is_(found["meeting"], "ok")
    assert is_(found["connect"], "ok", "answers")
    assert is_(found["peers"], "warn", "no node of run 'digits'", "not there: small")
    assert is_(found["disk"], "ok") or is_(found["disk"], "warn")
    assert not (tmp_path / "not").exists()


def test_a_look_goes_where_tcp_is_answered_and_knows_the_roster(tmp_path, relay, monkeypatch):
    looked = []

    def look(line, run):
        looked.append((line.connect, run))
        return network.Seen(frozenset(), {"small": 0.0}, {"small": bytes(32)}, {})

    monkeypatch.setattr(network, "look", look)
    roster = roster_text({"large": Key.new().public, "small": Key.new().public})
    (tmp_path / "roster.toml").write_text(roster)
    config = load(STARTING_RECIPE, [f"swarm.roster={tmp_path / 'roster.toml'}"])
    connect = (free_place("tcp"), *relay.connect)
    target = Target(config, "large", tmp_path, said_connect=connect)
    all_found = list(examine(target))
    assert [found.verdict for found in all_found if found.name == "connect"] == ["warn", "ok"]
    found = [finding for finding in all_found if finding.name == "peer"]
    assert looked == [(relay.connect, "digits")]
    assert [finding.verdict for finding in found] == ["ok", "FAIL"]
    (tmp_path / "roster.toml").write_text("small = 3")
    found = [finding for finding in examine(target) if finding.name == "peer"]
    assert [finding.verdict for finding in found] == ["ok"]  # what is wrong is told of the roster


def test_a_strangers_key_need_not_be_in_the_roster(tmp_path):
    Key.new().write(tmp_path / "key")
    roster = roster_text({name: Key.new().public for name in ("large", "small")})
    (tmp_path / "roster.toml").write_text(roster)
    config = load(STARTING_RECIPE, [
        f"swarm.key={tmp_path / 'key'}", f"swarm.roster={tmp_path / 'roster.toml'}",
        "swarm.open=true", "node.large.stranger=true",
    ])  # fmt: skip
    found = {f.name: f for f in examine(Target(config, "large", tmp_path))}
    assert is_(found["key"], "ok")
    assert is_(found["meeting"], "FAIL")


def test_addresses_of_the_wrong_kind_are_not_tried(tmp_path):
    config = load(STARTING_RECIPE)
    target = Target(config, "large", tmp_path, said_connect=("tls/no-such-host.invalid:1",))
    found = {finding.name: finding for finding in examine(target)}
    assert is_(found["addresses"], "FAIL", "certificates")
    assert "connect" not in found


def test_no_address_that_answers_is_more_than_a_warning(tmp_path):
    target = Target(None, "", tmp_path, said_connect=(free_place("tcp"), free_place("tcp")))
    one, other, alone = [found for found in examine(target) if found.name == "connect"]
    assert is_(one, "warn", "nothing listens")
    assert is_(other, "warn", "nothing listens")
    assert is_(alone, "FAIL", "train alone")


def test_a_port_in_use_is_found(tmp_path):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        place = f"tcp/127.0.0.1:{one.getsockname()[1]}"
        found = {f.name: f for f in examine(Target(None, "", tmp_path, said_listen=(place,)))}
    assert is_(found["listen"], "FAIL", "in use")


def test_what_is_said_on_the_command_line_goes_before_the_recipe(tmp_path):
    config = load(STARTING_RECIPE, ["swarm.listen=['tcp/a:1']", "swarm.connect=['tcp/b:1']"])
    target = Target(config, "large", tmp_path, said_connect=("tcp/c:1",))
    assert (target.listen, target.connect) == (("tcp/a:1",), ("tcp/c:1",))


def test_the_doctor_loads_no_torch():
    code = (
        f"import sys; sys.path.insert(0, {str(Path(potluck.__file__).parents[1])!r}); "
        f"import pathlib; from potluck.doctor.examine import *; "
        f"print(len(list(examine(Target(None, '', pathlib.Path('.')))))); "
        f"print({{'torch', 'transformers'}} & {{*sys.modules}})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("9\nset()\n", "")
