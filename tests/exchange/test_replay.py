"""Somebody without a key who has recorded what the nodes said: what was said in another run, in an
earlier start or by a node that is gone is believed by nobody."""

import time

import pytest
import zenoh

from nouns import collect
from potluck.exchange import encode
from potluck.exchange.keys.keys import BATCH
from potluck.exchange.protocol.signed import encode_answer, offer_of
from potluck.exchange.zenoh import exchange
from town import LONG_S, batch, has_batch, live, peer, town, until

THREE = ("east", "north", "south")


@pytest.fixture
def place(tmp_path, sessions):
    with town(tmp_path, sessions, *THREE) as place:
        yield place


def test_a_recorded_run_is_not_learned_from_and_the_reason_is_told(place):
    """Everything of the recording is genuine, and its batches are served; but nobody can answer."""
    eve, north = place.sessions.pop(), place.node("north")
    message = place.terms("south").message(5, tuple(batch("south")))
    signed = place.key("south").sign(BATCH, encode(message))
    old = place.announcement("south", offer_of(5, signed), clock_s=time.time() - 30 * 86_400)
    asked = []

    def serve(query):
        asked.append(str(query.key_expr).rpartition("/")[2])
        if asked[-1] != "hello":
            query.reply(query.key_expr, signed)

    served = eve.declare_queryable(f"{place.run}/q/south/*", serve)
    token = eve.liveliness().declare_token(f"{place.run}/live/south")

    def repeated():
        eve.put(f"{place.run}/ann/south", old)
        return peer(north, "south").refused.get("other run")

    until(repeated, "it is refused")
    assert set(asked) == {"hello"}  # No batch is asked for.
    assert north.status().round == 0
    assert peer(north, "south").heard_s is None
    north.send(0, batch("north"))
    start_s = time.monotonic()
    assert collect(north, 0, deadline_s=LONG_S).missing == ("east", "south")
    assert time.monotonic() - start_s < LONG_S
    assert any("of this run; are they replayed" in text for text in place.said["north"])
    token.undeclare()
    served.undeclare()


def test_a_node_answers_a_challenge_of_16_bytes_and_nothing_else(place):
    place.node("north")
    eve = place.sessions[0]

    def answers(payload):
        got = eve.get(
            f"{place.run}/q/north/hello",
            payload=payload,
            timeout=LONG_S,
            target=zenoh.QueryTarget.ALL,
        )
        return [reply.ok.payload.to_bytes() for reply in got if reply.ok]

    until(lambda: len(answers(b"c" * 16)) == 1, "it answers")
    assert b"c" * 16 in answers(b"c" * 16)[0]
    assert [answers(bad) for bad in (None, b"", b"c" * 15, b"c" * 9999)] == [[]] * 4


def test_questions_without_end_cost_few_signatures_and_a_batch_still_comes(place, monkeypatch):
    signed = []

    def sign(key, challenge, said):
        signed.append(challenge)
        return encode_answer(key, challenge, said)

    monkeypatch.setattr(exchange, "encode_answer", sign)
    eve, south = place.sessions.pop(), place.node("south")
    monkeypatch.setattr(exchange, "HELLOS_PER_S", 1e-9)  # one answer, then a pause without end
    south.send(0, batch("south"))
    left = []
    for at in range(1000):
        asked = {"payload": at.to_bytes(16, "big"), "target": zenoh.QueryTarget.ALL}
        left.append(eve.get(f"{place.run}/q/south/hello", timeout=LONG_S, **asked))
    until(lambda: signed, "the first is answered")
    replies = eve.get(f"{place.run}/q/south/0", timeout=LONG_S, target=zenoh.QueryTarget.ALL)
    assert any(reply.ok for reply in replies)
    assert len(signed) == 1


def test_a_flood_under_a_name_does_not_silence_it(place, monkeypatch):
    """No announcement of south gets through: as more came than is kept, it is asked what it has."""
    monkeypatch.setattr(exchange, "SILENCE_S", 1e6)
    south, north = place.liar("south"), place.node("north")
    until(lambda: south.announce() or live(north) == {"south"}, "they meet")
    message = place.terms("south").message(0, tuple(batch("south")))
    south.offer(0, place.key("south").sign(BATCH, encode(message)))
    place.words["south"] = place.announcement("south", offer_of(0, south.signed[0]))
    eve = place.sessions.pop()

    def flood():
        for _ in range(200):
            eve.put(f"{place.run}/ann/south", b"noise")
        return has_batch(north, "south", 0)

    until(flood, "its batch comes")
    assert peer(north, "south").refused.keys() == {"malformed"}
