"""Faults of a process in a swarm of small real nodes: it is killed, or its clock jumps.

POTLUCK_SOAK=1 python -m pytest tests/faults        (or: make soak)
"""

import os
import random
import signal
import time
from collections import Counter

import pytest

from faults.faulty import INSTANTS, PHASES, Faulty
from faults.swarm import Swarm
from faults.whole import NAMES, recipe, require_all_whole

pytestmark = pytest.mark.skipif(not os.environ.get("POTLUCK_SOAK"), reason="takes minutes")

LONG_S = 900.0
"""Reached only where something hangs."""
HOUR_S = 3600


def require_ended(swarm, rounds, pace):
    codes = swarm.wait(patience_s=LONG_S)
    assert set(codes.values()) == {0}, swarm.logs()
    require_all_whole(swarm, rounds, pace)


def test_a_kill_before_within_or_after_any_phase_loses_nothing(tmp_path):
    rounds, dice = 150, random.Random(0)
    points = [(phase, instant) for phase in PHASES for instant in INSTANTS]
    dice.shuffle(points)
    left = {name: points[at :: len(NAMES)] for at, name in enumerate(NAMES)}
    killed = []
    with Swarm(
        recipe(tmp_path / "models", rounds, "free"), tmp_path / "run", popen=Faulty
    ) as swarm:

        def start(name):
            fault = {}
            if left[name]:
                phase, instant = left[name][-1]
                # More calls than rounds from one checkpoint to the next: each start gets further.
                fault = {"kill": [phase, instant, 1 if phase == "checkpoint" else 5]}
            swarm.start(name, resume=(swarm.folder / name).is_dir(), fault=fault)

        for name in NAMES:
            start(name)
        end_s = time.monotonic() + LONG_S
        while any(left.values()):
            assert time.monotonic() < end_s, f"left: {left}\n{swarm.logs()}"
            for name, process in [*swarm.running.items()]:
                if left[name] and (code := process.poll()) is not None:
                    assert code == -signal.SIGKILL, f"{name}: {left[name][-1]}, code {code}"
                    killed.append(left[name].pop())
                    start(name)
            time.sleep(0.02)
        require_ended(swarm, rounds, "free")
    by_phase = Counter(phase for phase, _ in killed)
    assert by_phase == dict.fromkeys(PHASES, len(INSTANTS))


@pytest.mark.parametrize("pace", ["free", "together"])
def test_clocks_that_jump_by_an_hour_lose_nothing(tmp_path, pace):
    """Both ways, in two of three nodes; one is killed, and comes back an hour behind."""
    rounds = 80
    jumps = {
        "east": {"clock": [0, HOUR_S, -HOUR_S], "every_s": 2},
        "north": {"clock": [0, -HOUR_S, HOUR_S], "every_s": 3},
        "south": {},
    }
    config = recipe(tmp_path / "models", rounds, pace)
    with Swarm(config, tmp_path / "run", popen=Faulty) as swarm:
        for name, fault in jumps.items():
            swarm.start(name, fault=fault)
        swarm.wait_until(lambda: swarm.round("east") >= 20, "20 rounds")
        swarm.signal("east")
        at = swarm.round("east")
        swarm.start("east", resume=True, fault={"clock": [-HOUR_S], "every_s": 1})
        require_ended(swarm, rounds, pace)
        later = [line for line in swarm.metrics("south") if line["round"] > at + 5]
        assert any("east" in line["sources"] for line in later)
