"""Keys, seals and rosters."""

import os
import re
import stat

import pytest

from potluck.exchange.base import WireError
from potluck.exchange.keys.keys import (
    IdentityError,
    Key,
    make_key,
    public_bytes,
    public_text,
    read_roster,
    roster_line,
    roster_text,
    verify,
    without_signature,
)

DATA = bytes(range(256)) * 8


def refused(call, *args):
    """The one line with which ``call`` refuses."""
    with pytest.raises(IdentityError) as caught:
        call(*args)
    assert "\n" not in str(caught.value)
    return str(caught.value)


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


@pytest.mark.parametrize("data", [b"", b"PTLS", b"PTLS" + bytes(63), b"PTLK" + bytes(900)])
def test_bytes_without_a_signature_are_refused(data):
    with pytest.raises(WireError, match="without a signature"):
        verify(b"batch", data, Key.new().public)


@pytest.mark.parametrize("public", [b"", bytes(31), bytes(33)])
def test_a_public_key_of_another_size_is_a_wire_error(public):
    with pytest.raises(WireError):
        verify(b"batch", Key.new().sign(b"batch", DATA), public)


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


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused_with_the_way_out(tmp_path, mode):
    Key.new().write(path := tmp_path / "north.key")
    path.chmod(mode)
    message = refused(make_key, path)
    assert f"{mode:04o}" in message
    assert f"chmod 600 {path}" in message


def test_what_is_no_secret_key_is_refused_and_not_shown(tmp_path):
    Key.new().write(path := tmp_path / "north.key")
    secret = path.read_text().strip()
    for text in ("", secret[:-1], secret + "A", secret + "\nmore", public_text(Key.new().public)):
        path.write_text(text)
        assert "holds no secret key" in refused(Key.load, path)
        assert secret[20:50] not in refused(Key.load, path)
    path.write_bytes(b"\xff\xfe")
    assert "holds no secret key" in refused(Key.load, path)


def test_a_missing_key_names_the_command_that_makes_one(tmp_path):
    assert "potluck keys" in refused(Key.load, tmp_path / "north.key")


def test_a_key_where_none_can_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refused(Key.new().write, tmp_path / "file" / "north.key")


def test_a_secret_is_not_in_what_is_printed_of_a_key(tmp_path):
    Key.new().write(path := tmp_path / "north.key")
    assert path.read_text().strip()[20:50] not in repr(Key.load(path))


def test_a_public_key_has_one_text():
    public = Key.new().public
    assert public_bytes(public_text(public)) == public
    assert public_text(bytes(32)) == "ed25519:" + 43 * "A"
    # 43 letters hold 258 bits for 256: three more texts would mean the same key.
    for text in ("", "ed25519:", "ed25519:" + 42 * "A" + "B", 43 * "A", "ed25519:" + 44 * "A"):
        assert "no public key" in refused(public_bytes, text)


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


def test_a_roster_that_is_missing_or_no_text_is_refused(tmp_path):
    assert "cannot be read" in refused(read_roster, tmp_path / "roster.toml")
    (path := tmp_path / "roster.toml").write_bytes(b"\xff\xfe\x00")
    assert "is not TOML" in refused(read_roster, path)


@pytest.mark.parametrize("name", ["", "North", "a" * 33, "a b", 'a"', "a\n"])
def test_a_line_for_a_name_that_no_node_can_have_is_not_written(name):
    assert "is no name of a node" in refused(roster_line, name, Key.new())
