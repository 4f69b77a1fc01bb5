"""An observer while nodes in other processes are killed and come back: the page's feed tells it."""

import signal
import time

from faults.exchanges import DEADLINE_S, meshed
from faults.peer import key_of
from potluck.exchange.zenoh.observer import observe
from potluck.exchange.zenoh.session import Endpoints
from potluck.show.web.swarm import swarm_feed

LONG_S = 240.0


def wait_for(holds):
    end_s = time.monotonic() + LONG_S
    while not (it := holds()):
        assert time.monotonic() < end_s
        time.sleep(0.05)
    return it


def test_a_killed_node_is_red_and_no_longer_when_it_is_back(swarm, tmp_path):
    plans = meshed("ab", tmp_path, pause_s=0.3, deadline_s=DEADLINE_S)
    peers = swarm.start_all(plans)
    roster = {name: key_of(name).public for name in plans}
    line = Endpoints(connect=tuple(plan.listen for plan in plans.values()))
    with observe(line, "run", roster) as observer, swarm_feed(observer, "run") as feed:
        run = feed.run("")

        def states():
            run.look()
            return {node.name: node.state for node in run.view().nodes or ()}

        def told():
            run.look()
            return run.view().matrix

        wait_for(lambda: states() == {"a": "training", "b": "training"})
        wait_for(lambda: told() and {*told()} == {"a", "b"})
        assert {*run.view().matrix["a"]} == {"a", "b"}
        peers["b"].signal(signal.SIGKILL)
        wait_for(lambda: states() == {"a": "training", "b": "silent"})
        swarm.start(plans["b"])
        wait_for(lambda: states()["b"] in ("training", "recovering"))
        wait_for(lambda: states()["b"] == "training")
        curve = run.view().curves["a"].columns
        assert curve["round"] == sorted({*curve["round"]})
        assert [(e.kind, e.text) for e in run.view().events if e.text.startswith("b")] == [
            ("joined", "b joined"), ("left", "b is silent"), ("joined", "b joined"),
        ]  # fmt: skip
        assert {one.known for one in run.view().nodes} == {"signed"}
        assert not any(one.refused for one in observer.seen().values())
    swarm.stop("a", "b")
