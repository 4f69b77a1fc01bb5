"""What peers may do to a node over the network: come, go, lie, and never disturb the others."""

import errno
import threading
import time

import pytest
import zenoh

from nouns import collect, completion
from potluck.exchange import ExchangeError, Limits, batches_of, encode
from potluck.exchange.keys.keys import BATCH
from potluck.exchange.protocol.fetch_queue import FetchJob
from potluck.exchange.protocol.outbox import Outbox
from potluck.exchange.protocol.signed import Offer, encode_answer, offer_of
from potluck.exchange.zenoh import exchange
from potluck.exchange.zenoh.exchange import QUERIES, SERVERS, Channels
from town import LONG_S, answers, batch, has_batch, live, open_sessions, peer, refusals, until


def all_send(round, *problems, **nodes):
    for name, node in nodes.items():
        node.send(round, batch(name, *problems))


def authors(got):
    return {c.author for c in got.completions}


def sealed_by(place, name, data):
    return place.key(name).sign(BATCH, data)


def batch_of(place, name, round=0, **changes):
    """What ``name`` would send, or what it would if its terms were others."""
    return encode(place.terms(name, **changes).message(round, tuple(batch(name))))


# Coming and going.


def test_who_comes_is_seen_and_who_leaves_is_no_longer_waited_for(place):
    north, south = place.nodes("north", "south")
    assert live(north) == {"south"}
    all_send(0, north=north, south=south)
    assert authors(collect(north, 0, deadline_s=LONG_S)) == {"north", "south"}
    south.close()
    until(lambda: not live(north), "south is gone")
    north.send(1, batch("north"))
    start_s = time.monotonic()
    assert collect(north, 1, deadline_s=LONG_S).missing == ("east", "south")
    assert time.monotonic() - start_s < LONG_S
    assert place.said["north"] == ["'south' joined", "'south' left"]


def test_only_a_deadline_that_was_waited_for_is_missed(place):
    north, _ = place.nodes("north", "south")
    for round, deadline_s in enumerate((0, 0.05, 0.05)):
        north.send(round, batch("north"))
        assert collect(north, round, deadline_s=deadline_s).missing == ("east", "south")
    told = [text for text in place.said["north"] if "not in time" in text]
    assert told == ["'south' was not in time in round 2: it is not waited for until it is"]


@pytest.mark.parametrize("remembers", [True, False])
def test_who_is_started_again_has_what_it_learned_from_late_only_if_it_forgot(place, remembers):
    session = place.sessions.pop()
    north, south = place.node("north", session), place.node("south")
    until(lambda: live(north) == {"south"} and live(south) == {"north"}, "they meet")
    all_send(0, north=north, south=south)
    before = collect(north, 0, deadline_s=LONG_S)
    north.close()
    options = {"already_received": batches_of(before)} if remembers else {}
    again = place.node("north", session, **options)
    until(lambda: live(again) == {"south"}, "they meet again")
    until(lambda: has_batch(again, "south", 0), "it knows of the first batch")
    all_send(1, north=again, south=south)
    got = collect(again, 1, deadline_s=LONG_S)
    assert authors(got) == {"north", "south"}
    assert set(got.late) == (set() if remembers else {0})


def test_who_comes_late_fetches_what_is_newest_and_goes_on_where_the_others_are(place):
    north, south = place.nodes("north", "south")
    for round in range(5):
        all_send(round, f"p{round}", north=north, south=south)
        collect(north, round, deadline_s=LONG_S)
    east = place.node("east")
    assert east.gather(LONG_S) == ()
    assert east.status().round == 4
    east.send(4, batch("east", "p4"))
    got = collect(east, 4, deadline_s=LONG_S)
    assert authors(got) == {"east", "north", "south"}
    until(lambda: has_batch(east, "north", 3), "what is one round stale")
    assert not has_batch(east, "north", 2)


def test_a_batch_is_announced_at_once_and_again_to_whoever_comes(place, monkeypatch):
    """Not only when the next announcement is due."""
    monkeypatch.setattr("potluck.exchange.zenoh.exchange.announcement_pause_s", lambda nodes: 1e6)
    north, south = place.nodes("north", "south")
    for round in (0, 1):
        all_send(round, north=north, south=south)
        assert authors(collect(north, round, deadline_s=LONG_S)) == {"north", "south"}
    east = place.node("east")
    assert east.gather(LONG_S) == ()
    east.send(1, batch("east"))
    assert authors(collect(east, 1, deadline_s=LONG_S)) == {"east", "north", "south"}


def test_what_waiting_raises_ends_the_wait(place):
    north, _ = place.nodes("north", "south")
    north.send(0, batch("north"))

    def stop(came, waited_for):
        assert (came, waited_for) == (0, 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(north, 0, deadline_s=LONG_S, waiting=stop)


def test_a_stranger_takes_part_only_where_the_swarm_is_open(place):
    open_, closed = place.node("north", open=True), place.node("south")
    stranger = place.node("mallory", open=True)
    stranger.send(0, batch("mallory"))
    until(lambda: has_batch(open_, "mallory", 0), "an open swarm fetches it")
    until(lambda: refusals(closed, "mallory"), "a closed one refuses it")
    assert peer(closed, "mallory").refused.keys() == {"unknown sender"}
    until(lambda: "south" in live(open_) and "north" in live(closed), "the members meet")
    all_send(0, north=open_, south=closed)
    assert authors(collect(open_, 0, deadline_s=LONG_S)) == {"mallory", "north", "south"}
    got = collect(closed, 0, deadline_s=LONG_S)
    assert authors(got) == {"north", "south"}
    assert set(got.traffic.refused) == {"mallory"}
    assert any("no member and the swarm is closed" in text for text in place.said["south"])
    # It sent, so it is waited for in the next round like a member.
    open_.send(1, batch("north"))
    awaited = []
    collect(open_, 1, deadline_s=0, waiting=lambda here, of: awaited.append(of))
    assert set(awaited) == {2}


# What is refused. Each time south is at fault, and east is not disturbed.


@pytest.mark.parametrize(
    "reason, complaint", [("malformed", "ends at byte 5"), ("other sampling", "temperature 2")]
)
def test_a_batch_that_its_author_signed_and_is_of_no_use_is_its_fault(place, reason, complaint):
    """And east is not disturbed."""
    south, (north, east) = place.liar("south"), place.nodes("north", "east")
    until(lambda: south.announce() or "south" in live(north), "south is there")
    bad = b"noise" if reason == "malformed" else batch_of(place, "south", temperature=2.0)
    south.offer(0, sealed_by(place, "south", bad))
    south.announce()
    east.send(0, batch("east"))
    until(lambda: refusals(north, "south"), "something of south is refused")
    north.send(0, batch("north"))
    until(lambda: has_batch(north, "east", 0), "east's batch comes")
    got = collect(north, 0, deadline_s=0)
    assert (authors(got), got.missing) == ({"east", "north"}, ("south",))
    assert got.traffic.refused == {"south": 1}
    assert got.traffic.received_bytes == len(south.signed[0]) + len(got.messages[1])
    assert peer(north, "south").refused == {reason: 1}
    (told,) = [text for text in place.said["north"] if text.startswith("refused from 'south'")]
    assert complaint in told


def test_who_serves_anothers_key_does_not_keep_its_batch_away(place):
    north, south = place.nodes("north", "south")
    eve = place.sessions.pop()
    signed = sealed_by(place, "south", batch_of(place, "south"))
    forged = {
        "too short": signed[:-1],
        "changed": signed[:-1] + bytes([signed[-1] ^ 1]),
        "an old round": sealed_by(place, "south", batch_of(place, "south", round=7)),
    }
    assert len(forged["an old round"]) == len(signed)
    queryables = [
        eve.declare_queryable(
            f"{place.run}/q/south/0",
            lambda query, data=data: query.reply(f"{place.run}/q/south/0", data),
            complete=True,
        )
        for data in forged.values()
    ]
    south.close()
    offer = offer_of(0, signed)
    until(
        lambda: place.announce(eve, "south", offer) or refusals(north, "south") >= 3,
        "the forged ones are looked at",
    )
    again = place.liar("south")
    again.offer(0, signed)
    until(lambda: again.announce() or has_batch(north, "south", 0), "the true one comes")
    north.send(0, batch("north"))
    got = collect(north, 0, deadline_s=LONG_S)
    assert authors(got) == {"north", "south"}
    assert got.traffic.refused["south"] >= 3
    assert peer(north, "south").refused.keys() == {"forged"}
    assert got.traffic.quarantined == ()
    for queryable in queryables:
        queryable.undeclare()


def test_an_answer_of_another_size_is_not_even_copied(place):
    north, no_bytes = place.node("north"), range(1000)  # a copy as bytes would raise
    assert not north._read_batch(FetchJob("south", Offer(0, 999, bytes(16))), no_bytes)
    assert refusals(north, "south") == 1


def test_what_is_put_for_all_names_at_once_has_none_of_its_own(place):
    eve, other = place.sessions[:2]
    channels, seen = Channels(eve, f"{place.run}/ann", place.members, others=4), set()
    place.exits.callback(channels.undeclare)

    def comes():
        for name in ("*", "stranger"):
            other.put(f"{place.run}/ann/{name}", b"noise")
        seen.update(channels.take())
        return "stranger" in seen

    until(comes, "the stranger is heard")
    assert seen == {*place.members, "stranger"}


def test_three_bad_batches_in_a_row_and_a_peer_is_not_listened_to_for_a_while(place):
    south, north = place.liar("south"), place.node("north", quarantine_s=0.5)
    until(lambda: south.announce() or live(north), "they meet")
    north.send(0, batch("north"))
    for round in range(3):
        south.offer(round, sealed_by(place, "south", b"noise"))
    south.announce()

    def told():
        north.gather(0)  # It says what is new.
        return [text for text in place.said["north"] if "not listened to" in text]

    until(told, "it is quarantined")
    assert len(told()) == 1
    assert told()[0].startswith("'south' is not listened to for 0.5 s: message ends at byte 5")
    assert peer(north, "south").refused == {"malformed": 3}
    north.send(3, batch("north"))
    south.offer(4, sealed_by(place, "south", batch_of(place, "south", 4)))
    until(lambda: south.announce() or has_batch(north, "south", 4), "it is listened to again")
    assert peer(north, "south").quarantined_until_s == 0


# Somebody without a key, who has recorded what the nodes said.


def test_a_recorded_run_is_not_learned_from_and_the_reason_is_told(place):
    """Everything of the recording is genuine, and its batches are served; but nobody can answer."""
    eve, north = place.sessions.pop(), place.node("north")
    signed = sealed_by(place, "south", batch_of(place, "south", 5))
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
    asked = lambda payload: answers(place, "north/hello", payload)  # noqa: E731
    until(lambda: len(asked(b"c" * 16)) == 1, "it answers")
    assert b"c" * 16 in asked(b"c" * 16)[0]
    assert [asked(bad) for bad in (None, b"", b"c" * 15, b"c" * 9999)] == [[]] * 4


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
    until(lambda: answers(place, "south/0"), "a batch still comes")  # once its routes are known
    assert len(signed) == 1


def test_a_flood_under_a_name_does_not_silence_it(place, monkeypatch):
    """No announcement of south gets through: as more came than is kept, it is asked what it has."""
    monkeypatch.setattr(exchange, "SILENCE_S", 1e6)
    south, north = place.liar("south"), place.node("north")
    until(lambda: south.announce() or live(north) == {"south"}, "they meet")
    south.offer(0, sealed_by(place, "south", batch_of(place, "south")))
    place.words["south"] = place.announcement("south", offer_of(0, south.signed[0]))
    eve = place.sessions.pop()

    def flood():
        for _ in range(200):
            eve.put(f"{place.run}/ann/south", b"noise")
        return has_batch(north, "south", 0)

    until(flood, "its batch comes")
    assert peer(north, "south").refused.keys() == {"malformed"}


# This node itself.


def test_a_full_disk_does_not_end_the_exchange_and_is_said_once(place, monkeypatch):
    north, south = place.nodes("north", "south")

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    for round in (0, 1):
        north.send(round, [])
        south.send(round, batch("south"))
        assert authors(collect(north, round, deadline_s=LONG_S)) == {"south"}
    told = [text for text in place.said["south"] if "No space left" in text]
    assert len(told) == 1


def test_a_batch_that_others_would_refuse_for_its_size_is_not_sent(place):
    tight = place.terms("north", limits=Limits(message_bytes=300))
    north = place.node("north", terms=tight)
    with pytest.raises(ExchangeError, match="for round 0, but others take at most 300"):
        north.send(0, [completion(range(300))])


def test_a_thread_that_fails_is_an_error_of_the_next_collect_and_no_silence(place, monkeypatch):
    north, south = place.nodes("north", "south")

    def fail(*args, **named):
        raise ZeroDivisionError("by accident")

    monkeypatch.setattr("potluck.exchange.process.decode", fail)
    south.send(0, batch("south"))
    until(lambda: has_failed(north), "it is noticed")
    with pytest.raises(ExchangeError, match="ZeroDivisionError: by accident"):
        north.send(0, batch("north"))
    with pytest.raises(ExchangeError, match="ZeroDivisionError: by accident"):
        collect(north, 0, deadline_s=LONG_S)


def has_failed(node):
    try:
        node.gather(0)
    except ExchangeError:
        return True
    return False


def test_a_session_that_is_closed_by_somebody_else_is_said(place):
    (own,) = open_sessions(1)
    north = place.node("north", own)
    own.close()
    until(lambda: has_failed(north), "it is noticed")
    with pytest.raises(ExchangeError, match="'north' can no longer"):
        collect(north, 0, deadline_s=LONG_S)


def test_closing_ends_all_threads_and_may_be_done_twice(place):
    before = threading.active_count()
    north, south = place.nodes("north", "south")
    south.send(0, batch("south"))
    collect(north, 0, deadline_s=0)
    for node in (north, south, north):
        node.close()
    until(lambda: threading.active_count() == before, "no thread is left")


def test_what_nobody_wrote_is_not_served(place):
    north = place.node("north")
    north.send(0, batch("north"))
    asked = lambda selector: answers(place, f"north/{selector}")  # noqa: E731
    until(lambda: len(asked("0")) == 1, "it is served")
    assert [asked(selector) for selector in ("1", "-1", "x", "*", "00000000000")] == [[]] * 5


def test_who_asks_and_does_not_listen_holds_up_nobody(place, monkeypatch):
    """More questions than are kept; what is pushed out is answered with nothing, and in time."""
    north, asking = place.node("north"), place.sessions[0]
    north.send(0, batch("north"))
    serve, go_on = Outbox.get, threading.Event()
    monkeypatch.setattr(Outbox, "get", lambda shelf, r: go_on.wait(LONG_S) and serve(shelf, r))
    silent = zenoh.handlers.RingChannel(1)
    for _ in range(SERVERS + 2 * QUERIES):
        asking.get(f"{place.run}/q/north/0", handler=silent, timeout=LONG_S)
    place.announce(asking, "east")
    heard = lambda: peer(north, "east").heard_s is not None  # noqa: E731
    until(heard, "what comes after them, by the same line, is heard")
    go_on.set()
