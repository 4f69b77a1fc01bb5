"""What becomes of nodes that are killed, frozen, or wrong about the time.

Processes on loopback. No test asks for speed: what is waited for is long past when a
deadline is over, and a deadline is reached only where nodes wait for what never comes.
"""

import signal
from dataclasses import replace

from faults.exchanges import (
    DEADLINE_S,
    all_closed,
    meshed,
    require_each_once,
    require_nothing_lost,
)

PAUSE_S = 0.15


def is_last(swarm, name, others):
    """Whether ``others`` wait for the batch of ``name``, which has begun the same round."""
    round = swarm.last_round(name, "begin")
    sent = [swarm.last_round(other, "sent") for other in others]
    return sent == [round] * len(others) and swarm.last_round(name, "sent") < round


def first_used(swarm, name, author, after):
    """The first round behind ``after`` for which ``name`` had ``author``'s batch in time."""
    rounds = [r for r, e in swarm.rounds(name).items() if r > after and author in e["came"]]
    return min(rounds, default=None)


def test_a_kill_costs_the_others_nothing_and_who_is_back_is_used_within_two_rounds(swarm, tmp_path):
    plans = meshed("abcd", tmp_path, pause_s=PAUSE_S, deadline_s=DEADLINE_S)
    plans["c"] = replace(plans["c"], pause_s=0.4)
    peers = swarm.start_all(plans)
    swarm.wait_for("two rounds of all", all_closed(swarm, "abcd", 1))
    swarm.wait_for("c alone has not sent", lambda: is_last(swarm, "c", "abd"))
    peers["c"].signal(signal.SIGKILL)
    killed = swarm.last_round("c", "begin")
    swarm.wait_for("the others go on", all_closed(swarm, "abd", killed + 1))

    swarm.start(plans["c"])
    swarm.wait_for("c is back", lambda: len(swarm.of("c", "gathered")) == 2)
    swarm.wait_for(
        "c is used again", lambda: all(first_used(swarm, n, "c", killed + 1) for n in "abd")
    )
    back_at = swarm.of("c", "open")[1]["t"]
    swarm.stop()
    for name in "abd":
        # Not by the clock: a node that has not heard of c yet does not wait for it.
        begun = [e for e in swarm.of(name, "begin") if e["t"] > back_at and "c" in e["sees"]]
        seen = min((event["round"] for event in begun), default=float("inf"))
        assert first_used(swarm, name, "c", killed + 1) <= seen + 2
    require_nothing_lost(swarm, "abd", others="c")
    require_each_once(swarm, "c")


def test_a_frozen_node_is_waited_for_until_its_lease_ends_and_then_catches_up(swarm, tmp_path):
    """And clocks that are years off matter to nobody."""
    plans = meshed("abc", tmp_path, pause_s=PAUSE_S, deadline_s=DEADLINE_S)
    years_s = 20 * 365 * 86400.0
    swarm.start(plans["a"], clock_off_s=years_s)
    swarm.start(plans["b"])
    frozen = swarm.start(plans["c"], clock_off_s=-years_s)
    swarm.wait_for("two rounds of all", all_closed(swarm, "abc", 1))
    frozen.signal(signal.SIGSTOP)
    last = max(swarm.last_round(name, "begin") for name in "abc")
    swarm.wait_for("the others go on", all_closed(swarm, "ab", last + 3))
    frozen.signal(signal.SIGCONT)
    resumed = max(swarm.last_round(name) for name in "ab")
    missed = {(name, r) for name in "ab" for r in range(resumed + 1)}
    swarm.wait_for("c has what it missed", lambda: swarm.got("c") >= missed)
    swarm.wait_for("c is used again", lambda: all(first_used(swarm, n, "c", resumed) for n in "ab"))
    swarm.stop()
    require_nothing_lost(swarm, "ab", others="c")
    require_each_once(swarm, "c")
