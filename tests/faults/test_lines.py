"""What lines do to a swarm: they are long, lossy, narrow, or not there.

Each pair of nodes meets over relays of its own, one for each that calls.
"""

import time
from dataclasses import replace
from itertools import combinations

from faults.exchanges import (
    DEADLINE_S,
    address,
    all_closed,
    meshed,
    require_each_once,
    require_nothing_lost,
)
from faults.relay import Weather


def over_relays(plans, network):
    """The same plans, but with a relay on each way; and the relays, by who calls whom."""
    relays = {
        (one, other): network.relay(int(plans[other].listen.rpartition(":")[2]))
        for other, one in combinations(plans, 2)
    }
    changed = {
        name: replace(
            plan,
            connect=tuple(address(relay.port) for (o, _), relay in relays.items() if o == name),
        )
        for name, plan in plans.items()
    }
    return changed, relays


def test_bad_lines_lose_nothing(swarm, network, tmp_path):
    plans = meshed("abcd", tmp_path, rounds=3, deadline_s=DEADLINE_S, tokens=2000)
    plans, relays = over_relays(plans, network)
    for relay in relays.values():
        relay.weather = Weather(delay_s=0.02, loss=0.05)
    swarm.start(*plans.values())
    swarm.wait_for("all rounds", all_closed(swarm, plans, 2))
    swarm.stop()
    require_nothing_lost(swarm, "abcd")


def partition(swarm, network, folder, *, cut_s, pause_s, deadline_s):
    """Both sides go on, and each batch of the other side comes after healing."""
    plans = meshed("abcd", folder, pause_s=pause_s, deadline_s=deadline_s, kept_rounds=64)
    plans, relays = over_relays(plans, network)
    swarm.start(*plans.values())
    swarm.wait_for("two rounds of all", all_closed(swarm, plans, 1))
    halves = {"a": set("ab"), "b": set("ab"), "c": set("cd"), "d": set("cd")}
    across = [relay for (one, other), relay in relays.items() if other not in halves[one]]
    for relay in across:
        relay.cut()
    cut_at = time.monotonic()
    time.sleep(cut_s)
    # What a node told before the cut has been read when something that it told later has.
    swarm.wait_for(
        "all rounds from before the cut are known",
        lambda: all(any(e["t"] > cut_at for e in swarm.of(name, "begin")) for name in plans),
    )
    cut = max(e["round"] for name in plans for e in swarm.of(name, "begin") if e["t"] <= cut_at)

    def alone(name):
        return [event for round, event in swarm.rounds(name).items() if round > cut]

    swarm.wait_for("both sides go on", all_closed(swarm, plans, cut + 2))
    swarm.wait_for(
        "each side is whole in itself",
        lambda: all(any({*e["came"]} == halves[name] for e in alone(name)) for name in plans),
    )
    apart = {name: alone(name) for name in plans}
    for relay in across:
        relay.heal()
    sent = set().union(*(swarm.sent(name) for name in plans))
    swarm.wait_for("all comes after healing", lambda: all(swarm.got(n) >= sent for n in plans))
    healed = max(swarm.last_round(name, "begin") for name in plans)
    swarm.wait_for(
        "rounds are whole again",
        lambda: all(
            any(r > healed and not e["missing"] for r, e in swarm.rounds(name).items())
            for name in plans
        ),
    )
    swarm.stop()
    for name, half in halves.items():
        assert all(set(event["came"]) <= half for event in apart[name]), apart[name]
        assert not any(event["wrong"] for event in swarm.rounds(name).values())
        require_each_once(swarm, name)


def test_both_sides_of_a_short_partition_go_on_and_have_everything_when_it_heals(
    swarm, network, tmp_path
):
    partition(swarm, network, tmp_path, cut_s=0.0, pause_s=0.1, deadline_s=0.5)


def test_a_member_with_a_narrow_line_keeps_nothing_from_the_others(swarm, network, tmp_path):
    """It is behind a line that carries a third of what it asks for. It gives up waiting soon and
    sends little, so that others wait for what it sends, but not for what it reads."""
    plans = meshed("abcs", tmp_path, pause_s=0.1, deadline_s=DEADLINE_S, tokens=6000)
    plans["s"] = replace(plans["s"], tokens=8, deadline_s=0.2)
    plans, relays = over_relays(plans, network)
    for pair, relay in relays.items():
        if "s" in pair:
            relay.weather = Weather(bytes_per_s=300_000)
    swarm.start(*plans.values())
    swarm.wait_for("all rounds", all_closed(swarm, "abc", 3))
    # How often depends on how busy this machine is; that it happens, on the line alone.
    swarm.wait_for(
        "the line is too narrow for it",
        lambda: sum(bool(event["missing"]) for event in swarm.rounds("s").values()) >= 3,
    )
    swarm.stop()
    require_nothing_lost(swarm, "abc")
    require_each_once(swarm, "s")
