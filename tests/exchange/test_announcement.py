"""What a node says of itself: bytes in, offers out, and nothing but ``WireError`` otherwise. What
nodes of older releases send, byte for byte, was written by their own code."""

from pathlib import Path

import msgspec
import pytest

from faults.peer import batch_of, key_of
from nouns import terms
from potluck.exchange import Key, WireError, decode
from potluck.exchange.keys.keys import BATCH, verify
from potluck.exchange.protocol.signed import (
    HELLO,
    MAX_ANNOUNCEMENT_BYTES,
    WHAT,
    Offer,
    decode_announcement,
    digest_of,
    encode_announcement,
    encode_answer,
    offer_of,
    split_answer,
)

GOLDEN = Path(__file__).parents[1] / "golden"
BATCH_OF_OLD = (GOLDEN / "0.1-batch.ptls").read_bytes()
"""Of b's round 3; 0.2 writes the same bytes."""
KEY = Key.new()
OFFERS = (Offer(3, 300, b"c" * 16), Offer(7, 700, b"g" * 16))
ABOUT = {"session": b"s" * 16, "task": b"t" * 16, "clock_s": 12.5}
SAID = encode_announcement("first", "north", KEY, OFFERS, **ABOUT)


def signed(*fields):
    return KEY.sign(WHAT, msgspec.msgpack.encode(fields))


def fields(*more, version=2, run="first", node="north", key=KEY.public, clock_s=12.5, packed=b""):
    """An announcement with these fields, signed by north whatever they are."""
    return signed(version, run, node, key, b"s" * 16, b"t" * 16, clock_s, packed, *more)


def test_what_is_said_is_heard():
    heard = decode_announcement(SAID, run="first", node="north")
    assert heard.offers() == OFFERS
    about = {name: getattr(heard, name) for name in ABOUT}
    assert (heard.run, heard.node, heard.public, about) == ("first", "north", KEY.public, ABOUT)


def test_the_bytes_are_those_of_the_description():
    offers = b"".join(
        o.round.to_bytes(4, "little") + o.size_bytes.to_bytes(4, "little") + o.digest
        for o in OFFERS
    )
    assert fields(packed=offers) == SAID


def test_offers_are_said_by_round_and_the_newest_64_of_them():
    offers = [Offer(round, 1, b"d" * 16) for round in reversed(range(70))]
    said = encode_announcement("r" * 64, "n" * 32, KEY, offers, **ABOUT)
    assert len(said) <= MAX_ANNOUNCEMENT_BYTES
    heard = decode_announcement(said, run="r" * 64, node="n" * 32)
    assert [offer.round for offer in heard.offers()] == list(range(6, 70))


def test_a_digest_is_of_the_seal_which_differs_with_what_is_sealed():
    one, other = KEY.sign(b"batch", b"one"), KEY.sign(b"batch", b"two")
    assert digest_of(one) != digest_of(other)
    assert digest_of(one) == digest_of(one[:68])
    assert offer_of(5, one) == Offer(5, 68 + 3, digest_of(one))
    assert len(digest_of(one)) == 16


WRONG = {
    "no version of ours": (fields(version=3), "of version 3, and"),
    "another run": (fields(run="second"), "in run 'second' came"),
    "another name": (fields(node="south"), "of 'south' in run"),
    "a field too few": (signed(2, "first", "north", KEY.public, b"s" * 16, 0.0), "not readable"),
    "a short session": (
        signed(2, "first", "north", KEY.public, b"s", b"", 0.0, b""),
        "length >= 16",
    ),
    "a clock that is no number": (fields(clock_s=float("nan")), "clock of nan"),
    "a field too many": (fields((1.0, 1.0), None), "not readable"),
    "half an offer": (fields(packed=b"x" * 30), "take 30 bytes"),
    "65 offers": (fields(packed=b"x" * 24 * 65), "take 1560 bytes"),
    "a round twice": (fields(packed=(b"\1" + bytes(23)) * 2), "do not go up"),
    "a late round": (fields(packed=b"\xff" * 24), "4294967295"),
    "another's key": (fields(key=Key.new().public), "signature"),
    "a short key": (fields(key=b"short"), "length >= 32"),
    "a batch": (KEY.sign(b"batch", SAID[68:]), "signature"),
    "no seal": (SAID[68:], "without a signature"),
    "too long": (SAID + bytes(2048), "at most 2048"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_it_is_said(name):
    data, complaint = WRONG[name]
    with pytest.raises(WireError, match=complaint):
        decode_announcement(data, run="first", node="north")


def test_an_answer_has_the_challenge_and_the_announcement_under_one_signature():
    answer = encode_answer(KEY, b"c" * 16, SAID)
    assert verify(HELLO, answer, KEY.public) == b"c" * 16 + SAID
    assert split_answer(answer, b"c" * 16) == SAID


@pytest.mark.parametrize("answer", [b"", SAID, encode_answer(KEY, b"d" * 16, SAID)])
def test_an_answer_to_another_challenge_is_refused(answer):
    with pytest.raises(WireError, match="do not answer the challenge"):
        split_answer(answer, b"c" * 16)


# Older releases.


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
