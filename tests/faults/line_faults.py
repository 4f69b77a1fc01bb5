"""Faults of the lines between nodes, and members of older releases, for ``soak_faults.py``."""

import json
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from faults.bridge import Bridge
from faults.exchanges import DEADLINE_S, all_closed, meshed, require_each_once
from faults.exchanges import Swarm as Peers
from faults.faulty import Faulty
from faults.packets import Losses, Switch
from faults.peer import key_of
from faults.process_faults import LONG_S, Row, ended
from faults.soak_nodes import recipe
from faults.swarm import Swarm
from faults.test_hostile import repeated, stranger
from potluck.config import LOCAL_SWARM
from potluck.exchange.protocol.signed import encode_answer

GOLDEN = Path(__file__).parents[1] / "golden"


@contextmanager
def on_machines(folder, rounds, pace):
    """Yield a swarm of four nodes, each on a machine of its own, and the switch between them."""
    names = ("east", "north", "south", "west")
    config = recipe(folder / "models", rounds, pace, "swarm.gather_s=60", names=names)
    with Switch(names) as switch, Swarm(config, folder / "run", popen=Faulty) as swarm:
        addresses = {name: switch.endpoint(name) for name in names}
        place = swarm.folder / LOCAL_SWARM / "addresses.json"
        place.write_text(json.dumps(addresses))
        for name in names:
            fault = {"machine": switch.machines[name].namespace, "pause_s": 0.3}
            swarm.start(name, fault=fault)
        yield swarm, switch


def packets(folder, seed, pace):
    """A line that drops, doubles and reorders packets of IP."""
    rounds, losses = 40, Losses(dropped=0.03, doubled=0.05, delayed=0.25, delay_s=0.02)
    try:
        with on_machines(folder, rounds, pace) as (swarm, switch):
            switch.losses = losses
            seen = ended(swarm, rounds, pace)
            require_all_heard(swarm, rounds)
    except OSError as error:
        return Row(f"packets, pace {pace!r}", f"not tried: {error}", "-")
    return Row(f"packets, pace {pace!r}", told(switch.counts), seen)


def told(counts):
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in ("dropped", "doubled", "delayed"))
    return f"of {counts['passed']}: {kinds}"


def messages(folder, seed):
    """Whole announcements and answers are dropped, doubled and reordered between nodes in step,
    which have no model; and then no more."""
    losses = Losses(dropped=0.3, doubled=0.3, delayed=0.5, delay_s=1.0)
    names, rounds = "abcd", 30
    plans = {
        name: replace(plan, connect=())
        for name, plan in meshed(names, folder, deadline_s=DEADLINE_S, pause_s=0.05).items()
    }
    ports = {name: int(plan.listen.rpartition(":")[2]) for name, plan in plans.items()}
    with Peers() as swarm, Bridge(ports, losses, seed=seed) as bridge:
        swarm.start(*plans.values())
        swarm.wait_for("all rounds", all_closed(swarm, names, rounds - 1), within_s=LONG_S)
        bridge.losses = Losses()
        sent = set().union(*(swarm.sent(name) for name in names))
        swarm.wait_for("everything comes", lambda: all(swarm.got(n) >= sent for n in names))
        swarm.stop()
    for name in names:
        require_each_once(swarm, name)
        assert not any(event["wrong"] for event in swarm.of(name, "round"))
    late = sum(bool(e["missing"]) for name in names for e in swarm.rounds(name).values())
    what = "; ".join(f"{name}: {told(counts)}" for name, counts in bridge.counts.items())
    seen = f"4 nodes, exit 0; {len(sent)} batches came to all, each once; {late} rounds without one"
    return Row("messages", what, seen)


def partition(folder, seed, pace):
    """Nothing passes between two halves of four nodes for 30 s; then it does again."""
    rounds, cut_s = 150, 30.0
    try:
        with on_machines(folder, rounds, pace) as (swarm, switch):
            everybody = swarm.config.node
            swarm.wait_until(lambda: min(map(swarm.round, everybody)) >= 10, "10 rounds")
            before = {name: swarm.round(name) for name in everybody}
            switch.part(("east", "north"), ("south", "west"))
            time.sleep(cut_s)
            apart = {name: swarm.round(name) - before[name] for name in everybody}
            switch.heal()
            seen = ended(swarm, rounds, pace)
            require_all_heard(swarm, rounds)
    except OSError as error:
        return Row(f"partition, pace {pace!r}", f"not tried: {error}", "-")
    assert min(apart.values()) > 0, apart
    assert switch.counts["cut"]
    done = ", ".join(map(str, apart.values()))
    return Row(f"partition, pace {pace!r}", f"{cut_s:.0f} s, in which they did {done} rounds", seen)


def require_all_heard(swarm, rounds, newest=20):
    """Raise AssertionError unless each node has learned from each other in its last rounds."""
    for name in swarm.config.node:
        last = [line for line in swarm.metrics(name) if line["round"] >= rounds - newest]
        heard = set().union(*(line["sources"] for line in last))
        assert heard == {*swarm.config.node}, (name, heard)


def older(folder, seed, release):
    """A member that says and serves what one of an older release did, byte for byte, for ever."""
    said = (GOLDEN / f"{release}-announcement.ptls").read_bytes()
    batch = (GOLDEN / "0.1-batch.ptls").read_bytes()  # 0.2 writes the same

    def serve(query):
        """It lives, so it answers; as its session is the recorded one, a new answer is all it
        takes. A node of 0.1 has no such answer."""
        if not str(query.key_expr).endswith("hello"):
            query.reply(query.key_expr, batch)
        elif release != "0.1":
            answer = encode_answer(key_of("b"), query.payload.to_bytes(), said)
            query.reply(query.key_expr, answer)

    plans = meshed("abc", folder, pause_s=0.1, deadline_s=3.0, gather_s=5.0)
    with Peers() as swarm:
        swarm.start(plans["a"], plans["c"])
        swarm.wait_for("both listen", lambda: all(swarm.of(name, "open") for name in "ac"))
        ports = [int(plans[name].listen.rpartition(":")[2]) for name in "ac"]
        with stranger(*ports) as session:
            session.declare_queryable("run/q/b/*", serve)
            putting = repeated(lambda: session.put("run/ann/b", said), every_s=0.2)
            with putting, session.liveliness().declare_token("run/live/b"):
                swarm.wait_for("30 rounds", all_closed(swarm, "ac", 29))
        swarm.stop()
    took = sum(("b", 3) in swarm.got(name) for name in "ac")
    refusals = {
        e["text"] for name in "ac" for e in swarm.of(name, "told") if "refused" in e["text"]
    }
    for name in "ac":
        require_each_once(swarm, name)
        assert all({"a", "c"} <= {*event["came"]} for event in swarm.rounds(name).values())
    if release == "0.1":
        (line,) = refusals
        assert "of version 1, and this node reads version 2" in line, line
        assert not took
    else:
        assert (took, refusals) == (2, set()), (took, refusals)
    seen = f"2 nodes, exit 0, 30 rounds; its batch taken by {took}; told: {len(refusals)} line"
    return Row(f"a member of {release}", "its bytes, five times a second", seen)
