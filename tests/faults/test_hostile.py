"""Somebody on the network who is no member: repeats, answers for others, reads and never ends. And
a member that is silent.

It has a session of its own to each of the nodes, which know nothing of it.
"""

import random
import threading
import time
from contextlib import contextmanager, suppress

import zenoh

from faults.exchanges import (
    DEADLINE_S,
    address,
    all_closed,
    free_ports,
    meshed,
    require_nothing_lost,
)
from faults.peer import Plan, batch_of, key_of, open_session
from nouns import terms
from potluck.exchange import encode
from potluck.exchange.protocol.signed import (
    Offer,
    decode_announcement,
    encode_announcement,
    encode_answer,
)

ROUNDS = 5


@contextmanager
def stranger(*ports):
    """A session that is connected to these ports, and to nobody else."""
    (own,) = free_ports(1)
    plan = Plan("rogue", (), address(own), tuple(address(port) for port in ports), "")
    with open_session(plan) as session:
        yield session


@contextmanager
def repeated(work, every_s=0.002):
    """``work`` again and again in a thread of its own."""
    over = threading.Event()

    def repeat():
        with suppress(zenoh.ZError):  # the session was closed
            while not over.is_set():
                work()
                time.sleep(every_s)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def started(swarm, folder, **changes):
    """The ports of three nodes, which go from round to round until they are stopped."""
    plans = meshed("abc", folder, pause_s=0.05, deadline_s=DEADLINE_S, **changes)
    swarm.start(*plans.values())
    swarm.wait_for("all listen", lambda: all(swarm.of(name, "open") for name in plans))
    return [int(plan.listen.rpartition(":")[2]) for plan in plans.values()]


def go_on(swarm, *begun, until=lambda: True):
    """Some rounds from when each list in ``begun`` has something in it: who disturbs is there; and
    further ones, until this has happened."""
    swarm.wait_for("one round", lambda: all(begun) and all_closed(swarm, "abc", 0)())
    here = max(swarm.last_round(name) for name in "abc")
    swarm.wait_for("more rounds", all_closed(swarm, "abc", here + ROUNDS))
    swarm.wait_for("what is tested", until)
    swarm.stop()


def refused(swarm, name):
    """What ``name`` refused in all rounds, by author."""
    counts = {}
    for event in swarm.of(name, "round"):
        for author, count in event["refused"].items():
            counts[author] = counts.get(author, 0) + count
    return counts


def test_a_stranger_that_repeats_forges_and_answers_for_others_costs_no_batch(swarm, tmp_path):
    """It says again what was said, and what b never said; it serves what a and c sent, and garbage
    for b."""
    ports, heard, served, sizes = started(swarm, tmp_path), [], set(), {}

    def hear(sample):
        key, said = str(sample.key_expr), sample.payload.to_bytes()
        author = key.rpartition("/")[2]
        heard.append((key, said))
        offers = decode_announcement(said, run="run", node=author).offers()
        sizes.update({(author, offer.round): offer.size_bytes for offer in offers})

    def serve(query):
        author, what = str(query.key_expr).split("/")[-2:]
        served.add(author)
        if author == "b":
            size = 99 if what == "hello" else sizes.get((author, int(what)), 99)
            query.reply(query.key_expr, b"PTLS" + random.randbytes(size - 4))
            query.reply(query.key_expr, b"")
        elif what != "hello":  # It has seen no challenge of theirs answered.
            message = terms(author).message(int(what), tuple(batch_of(author, int(what), 4, 64)))
            query.reply(query.key_expr, key_of(author).sign(b"batch", encode(message)))

    offers = [Offer(round, 999, bytes(16)) for round in range(64)]
    about = {"session": bytes(16), "task": bytes(16), "clock_s": 0.0}
    forged = encode_announcement("run", "b", key_of("rogue"), offers, **about)

    def speak():
        session.put("run/ann/b", forged)
        if heard:
            session.put(*random.choice(heard))

    with stranger(*ports) as session:
        session.declare_subscriber("run/ann/*", hear, allowed_origin=zenoh.Locality.REMOTE)
        for name in "abc":
            # Whoever serves a whole range is otherwise the only one to be asked.
            session.declare_queryable(f"run/q/{name}/**", serve, complete=True)
        with repeated(speak):
            # A true answer that is quicker is taken, and the garbage behind it is not looked at.
            go_on(swarm, heard, served, until=lambda: refused(swarm, "a") or refused(swarm, "c"))
    for name in "abc":
        assert not any(event["quarantined"] for event in swarm.of(name, "round"))
    # To each node its own word is somebody else's that uses its name.
    require_nothing_lost(swarm, "abc", refused="abc")


def told(swarm, name, of):
    """What ``name`` told of whether it waits for ``of``."""
    texts = [event["text"] for event in swarm.of(name, "told")]
    return [text for text in texts if text.startswith(f"'{of}' ") and "waited for" in text]


def test_a_member_that_serves_other_bytes_costs_one_deadline(swarm, tmp_path):
    plans = meshed("abc", tmp_path, pause_s=0.02, deadline_s=2.0, gather_s=0.0)
    swarm.start(plans["a"], plans["b"])
    swarm.wait_for("both listen", lambda: all(swarm.of(name, "open") for name in "ab"))
    served, about = [], {"session": bytes(16), "task": terms("c").provenance.task}

    def said():
        # Near both: of a node far behind it would else have left the round out.
        newest = [max(0, swarm.last_round(name)) for name in "ab"]
        near = {round for here in newest for round in range(max(0, here - 3), here + 3)}
        offers = [Offer(round, 999, random.randbytes(16)) for round in sorted(near)]
        return encode_announcement("run", "c", key_of("c"), offers, clock_s=time.time(), **about)

    def serve(query):
        """It proves that it is there, whatever else it does not do."""
        if str(query.key_expr).endswith("hello"):
            answer = encode_answer(key_of("c"), query.payload.to_bytes(), said())
            query.reply(query.key_expr, answer)
        else:
            served.append(query)
            query.reply(query.key_expr, random.randbytes(999))

    ports = [int(plans[name].listen.rpartition(":")[2]) for name in "ab"]
    with stranger(*ports) as session:
        session.declare_queryable("run/q/c/*", serve)
        announcing = repeated(lambda: session.put("run/ann/c", said()), every_s=0.2)
        with announcing, session.liveliness().declare_token("run/live/c"):
            swarm.wait_for("a stall", lambda: all(told(swarm, name, "c") for name in "ab"))
            here = max(swarm.last_round(name) for name in "ab")
            swarm.wait_for("more rounds", all_closed(swarm, "ab", here + 20))
    swarm.stop()
    assert served
    for name in "ab":
        (stall,) = told(swarm, name, "c")
        assert stall.endswith("it is not waited for until it is")
        for round, event in swarm.rounds(name).items():
            assert "c" in event["missing"], (round, event)
