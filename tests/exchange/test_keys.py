"""Keys, seals and rosters, and the keys that a node believes."""

import os
import re
import resource
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import get_args

import pytest

from potluck.exchange.base import ExchangeError, Reason, WireError
from potluck.exchange.keys.keys import (
    STRANGERS,
    Key,
    KnownKeys,
    make_key,
    public_text,
    read_roster,
    roster_line,
    roster_text,
    verify,
    without_signature,
)
from town import refused

DATA = bytes(range(256)) * 8


def test_what_was_sealed_comes_out_for_its_key_and_its_purpose_only():
    key = Key.new()
    signed = key.sign(b"batch", DATA)
    assert verify(b"batch", signed, key.public) == DATA == without_signature(signed)
    for what, public in ((b"announcement", key.public), (b"batch", Key.new().public)):
        with pytest.raises(WireError, match="not by this key"):
            verify(what, signed, public)


@pytest.mark.parametrize("at", [0, 4, 35, 67, 68, 68 + len(DATA) - 1])
def test_one_flipped_bit_anywhere_breaks_a_seal(at):
    key = Key.new()
    signed = bytearray(key.sign(b"batch", DATA))
    signed[at] ^= 1
    with pytest.raises(WireError):
        verify(b"batch", bytes(signed), key.public)


def test_a_public_key_of_another_size_and_bytes_without_a_signature_are_refused():
    with pytest.raises(WireError, match="not by this key"):
        verify(b"batch", Key.new().sign(b"batch", DATA), bytes(31))
    for data in (b"", b"PTLS" + bytes(63), b"PTLK" + bytes(900)):
        with pytest.raises(WireError, match="without a signature"):
            verify(b"batch", data, Key.new().public)


def test_a_key_file_is_one_line_that_only_its_owner_reads(tmp_path):
    path, before = tmp_path / "keys" / "north.key", os.umask(0)
    try:
        key = make_key(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert re.fullmatch(r"ed25519-secret:[\w-]{43}\n", path.read_text())
    assert make_key(path).public == Key.load(path).public == key.public


def test_a_key_file_that_is_there_is_never_written_over(tmp_path):
    (path := tmp_path / "north.key").write_text("anything")
    assert "is there already and is left as it is" in refused(Key.new().write, path)
    assert path.read_text() == "anything"


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_key_that_others_can_read_is_refused_with_the_way_out(tmp_path, mode):
    Key.new().write(path := tmp_path / "north.key")
    path.chmod(mode)
    message = refused(make_key, path)
    assert f"{mode:04o}" in message
    assert f"chmod 600 {path}" in message


def test_what_is_no_secret_key_is_refused_and_not_shown(tmp_path):
    Key.new().write(path := tmp_path / "north.key")
    secret = path.read_text().strip()
    assert secret[20:50] not in repr(Key.load(path))
    for text in ("", secret[:-1], secret + "\nmore", public_text(Key.new().public)):
        path.write_text(text)
        assert "holds no secret key" in refused(Key.load, path)
        assert secret[20:50] not in refused(Key.load, path)
    path.write_bytes(b"\xff\xfe")
    assert "holds no secret key" in refused(Key.load, path)


def test_a_key_where_none_can_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refused(Key.new().write, tmp_path / "file" / "north.key")


def test_a_full_disk_leaves_no_part_of_a_key_in_the_way_of_the_next_one(tmp_path):
    limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, most))
    try:
        complaint = refused(Key.new().write, tmp_path / "north.key")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    assert "cannot be written: File too large" in complaint
    assert list(tmp_path.iterdir()) == []


def test_a_public_key_has_one_text(tmp_path):
    roster, public = tmp_path / "roster.toml", Key.new().public
    roster.write_text(f'north = "{public_text(public)}"')
    assert read_roster(roster) == {"north": public}
    assert public_text(bytes(32)) == "ed25519:" + 43 * "A"
    # 43 letters hold 258 bits for 256: three more texts would mean the same key.
    for text in ("", "ed25519:", "ed25519:" + 42 * "A" + "B", 43 * "A", "ed25519:" + 44 * "A"):
        roster.write_text(f'north = "{text}"')
        assert "no public key" in refused(read_roster, roster)


def test_a_secret_in_a_roster_is_refused_and_not_repeated(tmp_path):
    Key.new().write(path := tmp_path / "north.key")
    secret = path.read_text().strip()
    (roster := tmp_path / "roster.toml").write_text(f'north = "{secret}"')
    message = refused(read_roster, roster)
    assert "a secret" in message
    assert secret[20:50] not in message


def test_a_roster_is_the_lines_that_nodes_give_each_other(tmp_path):
    keys = {name: Key.new() for name in ("north", "south-2")}
    lines = [roster_line(name, key) for name, key in keys.items()]
    (path := tmp_path / "roster.toml").write_text("# Who we are\n" + "\n".join(lines))
    publics = {name: key.public for name, key in keys.items()}
    assert read_roster(path) == publics
    assert roster_text(publics) == "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "text, hint",
    [
        ("north = ed25519:abc", "is not TOML"),
        ('north = "ed25519:abc"', "north: 'ed25519:abc' is no public key"),
        ('North = "{a}"', "'North' is no name of a node; expected [a-z0-9-]{1,32}"),
        ('[north]\nkey = "{a}"', "north is {"),
        ("north = 3", "north is 3; expected"),
        ('north = "{a}"\nnorth = "{b}"', "is not TOML"),
        ('north = "{a}"\nsouth = "{a}"', "a key one name"),
    ],
)
def test_a_roster_with_a_slip_is_refused_with_its_place(tmp_path, text, hint):
    a, b = (public_text(Key.new().public) for _ in "ab")
    (path := tmp_path / "roster.toml").write_text(text.replace("{a}", a).replace("{b}", b))
    message = refused(read_roster, path)
    assert message.startswith(f"roster {path}")
    assert hint in message


# The keys that a node believes.

A, B, C = (Key.new().public for _ in "abc")


@pytest.fixture
def pins(tmp_path):
    return tmp_path / "here" / "known.toml"


def denied(trust, name, offered, *reasons):
    """The one line with which ``offered`` is refused."""
    with pytest.raises(WireError) as caught:
        trust.public_key(name, offered)
    assert caught.value.reason in (reasons or get_args(Reason))
    assert "\n" not in str(caught.value)
    assert repr(name[:64]) in str(caught.value)
    return str(caught.value)


def test_a_name_of_the_roster_signs_with_its_key_and_no_other(pins):
    trust = KnownKeys({"north": A}, ["north"], False, pins)
    assert trust.public_key("north", A) == A
    message = denied(trust, "north", B, "forged")
    assert public_text(A) in message
    assert public_text(B) in message
    assert "the roster" in message
    assert not pins.exists()


def test_a_members_first_key_is_remembered_and_another_denied(pins):
    trust = KnownKeys({}, ["north", "south"], False, pins)
    assert trust.public_key("north", A) == A
    assert trust.public_key("south", B) == B
    assert read_roster(pins) == {"north": A, "south": B}
    for each in (trust, KnownKeys({}, ["north", "south"], False, pins)):  # a restart
        assert str(pins) in denied(each, "north", C)
        assert each.public_key("north", A) == A


def test_a_roster_goes_before_what_was_pinned(pins):
    KnownKeys({}, ["north", "south"], False, pins).public_key("north", A)
    again = KnownKeys({"north": B}, ["north", "south"], False, pins)
    assert again.public_key("north", B) == B
    assert again.public_key("south", A) == A


def test_a_pin_with_a_key_that_the_roster_gives_to_another_is_forgotten(pins):
    KnownKeys({}, ["south"], True, pins).public_key("south", A)
    again = KnownKeys({"north": A}, ["north", "south"], True, pins)
    assert again.public_key("north", A) == A
    denied(again, "south", A)


def test_a_stranger_needs_an_open_swarm(pins):
    message = denied(KnownKeys({}, ["north"], False, pins), "eve", A, "unknown sender")
    assert "open = true" in message
    assert not pins.exists()
    assert KnownKeys({}, ["north"], True, pins).public_key("eve", A) == A
    # Pinned when it was open, and a stranger still.
    denied(KnownKeys({}, ["north"], False, pins), "eve", A)


def test_two_names_with_one_key_are_denied(pins):
    trust = KnownKeys({"north": A}, ["north", "south"], True, pins)
    trust.public_key("south", B)
    for known in (A, B):
        assert "potluck keys" in denied(trust, "eve", known, "forged")
    assert trust.public_key("eve", C) == C


def test_strangers_have_a_number_and_members_come_in_above_it(pins):
    trust = KnownKeys({}, ["north"], True, pins)
    for at in range(STRANGERS):
        trust.public_key(f"eve-{at}", Key.new().public)
    assert "one stranger too many" in denied(trust, "mallory", A, "unknown sender")
    assert trust.public_key("north", A) == A
    again = KnownKeys({}, ["north"], True, pins)
    assert "one stranger too many" in denied(again, "mallory", B)
    assert len(read_roster(pins)) == STRANGERS + 1


@pytest.mark.parametrize("name", ["", "North", "a" * 33, "x" * 10_000, "a/b", "a\n"])
def test_what_no_node_can_be_called_is_denied(pins, name):
    assert len(denied(KnownKeys({}, [name], True, pins), name, A)) < 300


def test_threads_that_offer_different_keys_at_once_see_one_win(pins):
    trust = KnownKeys({}, [], True, pins)
    offers = [Key.new().public for _ in range(16)]

    def offer(public):
        try:
            return trust.public_key("north", public)
        except WireError:
            return None

    with ThreadPoolExecutor(8) as pool:
        won = {public for public in pool.map(offer, offers) if public}
    assert len(won) == 1
    assert read_roster(pins) == {"north": won.pop()}


def test_the_file_is_written_by_one_thread_at_a_time(pins, monkeypatch):
    trust, held = KnownKeys({}, [], True, pins), []
    looked = lambda *_: held.append(trust._lock.locked())  # noqa: E731
    monkeypatch.setattr("potluck.exchange.keys.keys.write_atomically", looked)
    trust.public_key("north", A)
    assert held == [True]


def test_a_disk_that_takes_nothing_is_told_and_stops_nobody(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    trust = KnownKeys({}, ["north"], False, tmp_path / "file" / "known.toml")
    assert trust.public_key("north", A) == A
    denied(trust, "north", B)
    assert "cannot be written" in caplog.text


def test_pins_that_cannot_be_read_are_an_error_at_the_start(tmp_path):
    (pins := tmp_path / "known.toml").write_text("nonsense")
    with pytest.raises(ExchangeError, match=r"known\.toml is not TOML"):
        KnownKeys({}, [], True, pins)
