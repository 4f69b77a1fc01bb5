"""What nodes of older releases send, byte for byte: written by their own code, with a key that all
tests know. It is read, or refused in one line."""

from pathlib import Path

import pytest

from faults.peer import batch_of, key_of
from nouns import terms
from potluck.exchange import WireError, decode
from potluck.exchange.keys.keys import BATCH, verify
from potluck.exchange.protocol.announcement import decode_announcement, offer_of

GOLDEN = Path(__file__).parents[1] / "golden"
BATCH_OF_OLD = (GOLDEN / "0.1-batch.ptls").read_bytes()
"""Of b's round 3; 0.2 writes the same bytes."""


def said_by(release):
    return (GOLDEN / f"{release}-announcement.ptls").read_bytes()


def test_a_batch_of_0_1_and_of_0_2_is_read():
    message = decode(verify(BATCH, BATCH_OF_OLD, key_of("b").public))
    assert terms("a").accept("b", 3, message) == tuple(batch_of("b", 3, 2, 16))


def test_an_announcement_of_0_2_is_read_with_the_speed_that_it_tells():
    heard = decode_announcement(said_by("0.2"), run="run", node="b")
    assert heard.offers() == (offer_of(3, BATCH_OF_OLD),)
    assert heard.task == terms("b").provenance.task
    assert heard.measured == (12.5, 0.5)


def test_an_announcement_of_0_1_is_refused_in_one_line_that_tells_why():
    with pytest.raises(WireError) as refused:
        decode_announcement(said_by("0.1"), run="run", node="b")
    assert refused.value.reason == "other version"
    assert str(refused.value) == (
        "announcement of 'b' is of version 1, and this node reads version 2; nodes need one "
        "version of potluck"
    )
