"""A member, with a session to each node, that serves other bytes than it announces."""

import random
import threading
import time
from contextlib import contextmanager, suppress

import zenoh

from faults.exchanges import address, all_closed, free_ports, meshed
from faults.peer import Plan, key_of, open_session
from nouns import terms
from potluck.exchange.protocol.signed import Offer, encode_announcement, encode_answer


@contextmanager
def repeated(work, every_s):
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

    (own,) = free_ports(1)
    plan = Plan("c", (), address(own), (plans["a"].listen, plans["b"].listen), "")
    with open_session(plan) as session:
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
