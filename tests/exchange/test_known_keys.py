"""Who is believed to be who."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import get_args

import pytest

from potluck.exchange.base import Reason, WireError
from potluck.exchange.keys.keys import (
    STRANGERS,
    IdentityError,
    Key,
    KnownKeys,
    public_text,
    read_roster,
)

A, B, C = (Key.new().public for _ in "abc")


@pytest.fixture
def pins(tmp_path):
    return tmp_path / "here" / "known.toml"


def refused(trust, name, offered, *reasons):
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
    message = refused(trust, "north", B, "forged")
    assert public_text(A) in message
    assert public_text(B) in message
    assert "the roster" in message
    assert not pins.exists()


def test_a_members_first_key_is_remembered_and_another_refused(pins):
    trust = KnownKeys({}, ["north", "south"], False, pins)
    assert trust.public_key("north", A) == A
    assert trust.public_key("south", B) == B
    assert read_roster(pins) == {"north": A, "south": B}
    assert str(pins) in refused(trust, "north", C)
    assert trust.public_key("north", A) == A


def test_a_pinned_key_survives_a_restart(pins):
    KnownKeys({}, ["north"], False, pins).public_key("north", A)
    again = KnownKeys({}, ["north"], False, pins)
    refused(again, "north", B)
    assert again.public_key("north", A) == A


def test_a_roster_goes_before_what_was_pinned(pins):
    KnownKeys({}, ["north", "south"], False, pins).public_key("north", A)
    again = KnownKeys({"north": B}, ["north", "south"], False, pins)
    assert again.public_key("north", B) == B
    assert again.public_key("south", A) == A


def test_a_pin_with_a_key_that_the_roster_gives_to_another_is_forgotten(pins):
    KnownKeys({}, ["south"], True, pins).public_key("south", A)
    again = KnownKeys({"north": A}, ["north", "south"], True, pins)
    assert again.public_key("north", A) == A
    refused(again, "south", A)


def test_a_stranger_needs_an_open_swarm(pins):
    message = refused(KnownKeys({}, ["north"], False, pins), "eve", A, "unknown sender")
    assert "open = true" in message
    assert not pins.exists()
    assert KnownKeys({}, ["north"], True, pins).public_key("eve", A) == A
    # Pinned when it was open, and a stranger still.
    refused(KnownKeys({}, ["north"], False, pins), "eve", A)


def test_a_stranger_of_the_roster_may_take_part_in_a_closed_swarm(pins):
    trust = KnownKeys({"north": A, "guest": B}, ["north"], False, pins)
    assert trust.public_key("guest", B) == B
    refused(trust, "guest", C)


def test_two_names_with_one_key_are_refused(pins):
    trust = KnownKeys({"north": A}, ["north", "south"], True, pins)
    trust.public_key("south", B)
    for known in (A, B):
        assert "potluck keys" in refused(trust, "eve", known, "forged")
    assert trust.public_key("eve", C) == C


def test_strangers_have_a_number_and_members_come_in_above_it(pins):
    trust = KnownKeys({}, ["north"], True, pins)
    for at in range(STRANGERS):
        trust.public_key(f"eve-{at}", Key.new().public)
    assert "one stranger too many" in refused(trust, "mallory", A, "unknown sender")
    assert trust.public_key("north", A) == A
    again = KnownKeys({}, ["north"], True, pins)
    assert "one stranger too many" in refused(again, "mallory", B)
    assert len(read_roster(pins)) == STRANGERS + 1


@pytest.mark.parametrize("name", ["", "North", "a" * 33, "x" * 10_000, "a/b", "a\n"])
def test_what_no_node_can_be_called_is_refused(pins, name):
    assert len(refused(KnownKeys({}, [name], True, pins), name, A)) < 300


@pytest.mark.parametrize("offered", [b"", bytes(31), bytes(33)])
def test_what_is_no_key_is_refused_and_not_pinned(pins, offered):
    trust = KnownKeys({}, ["north"], False, pins)
    refused(trust, "north", offered)
    assert trust.public_key("north", A) == A


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


def test_threads_write_the_file_one_after_the_other(pins, monkeypatch):
    writing, at_once = threading.Semaphore(1), []

    def slowly(path, text):
        if not writing.acquire(blocking=False):
            at_once.append(text)
        time.sleep(0.01)
        writing.release()

    monkeypatch.setattr("potluck.exchange.keys.keys.write_atomically", slowly)
    trust = KnownKeys({}, [], True, pins)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda at: trust.public_key(f"n{at}", Key.new().public), range(8)))
    assert not at_once


def test_a_disk_that_takes_nothing_is_told_and_stops_nobody(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    trust = KnownKeys({}, ["north"], False, tmp_path / "file" / "known.toml")
    assert trust.public_key("north", A) == A
    refused(trust, "north", B)
    assert "cannot be written" in caplog.text


def test_pins_that_cannot_be_read_are_an_error_at_the_start(tmp_path):
    (pins := tmp_path / "known.toml").write_text("nonsense")
    with pytest.raises(IdentityError, match=r"known\.toml is not TOML"):
        KnownKeys({}, [], True, pins)
