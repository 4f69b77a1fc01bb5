"""Faults of a process in a swarm of small real nodes, one after the other: it is killed, its clock
jumps, its memory ends.

    PYTHONPATH=src:tests python tests/faults/soak_faults.py FOLDER [--only kills memory] [--seed 0]

Prints a table: what was done, what was there afterwards. The exit code is 1 if a fault lost
something, left a node hanging, or ended one that it should not.
"""

import argparse
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from faults.faulty import INSTANTS, PHASES, Faulty
from faults.soak_nodes import NAMES, recipe, require_all_whole
from faults.swarm import Swarm

LONG_S = 900.0
"""For one fault; reached only where something hangs."""
HOUR_S = 3600


@dataclass(frozen=True)
class Row:
    """What a fault did, and what was there afterwards."""

    fault: str
    done: str
    seen: str
    seconds: float = 0.0


def ended(swarm, rounds, pace="free"):
    """Wait for the end of all nodes, look at what they have; return it in words."""
    codes = swarm.wait(patience_s=LONG_S)
    assert set(codes.values()) == {0}, swarm.logs()
    taken = require_all_whole(swarm, rounds, pace)
    lines = [line for name in codes for line in swarm.metrics(name)]
    rows = sum(its["completions"] for line in lines for its in line["sources"].values())
    skipped = len(codes) * rounds - len(lines)
    return (
        f"{len(codes)} nodes, exit 0; {len(lines)} rounds, {skipped} skipped; "
        f"{sum(taken.values())} batches of others and {rows} completions, each once"
    )


def kills(folder, seed):
    """SIGKILL before, within and after each phase at pace "free", then --resume."""
    rounds, dice = 150, random.Random(seed)
    points = [(phase, instant) for phase in PHASES for instant in INSTANTS]
    dice.shuffle(points)
    left = {name: points[at :: len(NAMES)] for at, name in enumerate(NAMES)}
    killed = []
    with Swarm(recipe(folder / "models", rounds, "free"), folder / "run", popen=Faulty) as swarm:

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
        seen = ended(swarm, rounds)
    by_phase = Counter(phase for phase, _ in killed)
    assert by_phase == dict.fromkeys(PHASES, len(INSTANTS))
    return Row("SIGKILL in each phase", f"{len(killed)} in {len(by_phase)} phases, resumed", seen)


def clocks(folder, seed, pace):
    """Clocks that jump by an hour, both ways, in two of three nodes; one of them is killed and
    comes back with a clock an hour behind."""
    rounds = 80
    jumps = {
        "east": {"clock": [0, HOUR_S, -HOUR_S], "every_s": 2},
        "north": {"clock": [0, -HOUR_S, HOUR_S], "every_s": 3},
        "south": {},
    }
    config = recipe(folder / "models", rounds, pace)
    with Swarm(config, folder / "run", popen=Faulty) as swarm:
        for name, fault in jumps.items():
            swarm.start(name, fault=fault)
        swarm.wait_until(lambda: swarm.round("east") >= 20, "20 rounds")
        swarm.signal("east")
        at = swarm.round("east")
        swarm.start("east", resume=True, fault={"clock": [-HOUR_S], "every_s": 1})
        seen = ended(swarm, rounds, pace)
        later = [line for line in swarm.metrics("south") if line["round"] > at + 5]
        back = sum("east" in line["sources"] for line in later)
        assert back, "nothing of east was used after it came back"
        times = [line["time_s"] for line in swarm._lines("north", "events")]
    jumped = sum(abs(b - a) > HOUR_S / 2 for a, b in pairwise(times))
    return Row(f"clocks, pace {pace!r}", f"+- 1 h, {jumped} jumps in north's events", seen)


def memory(folder, seed):
    """SIGKILL at the peak of resident memory, and a lesson that gets no memory; each time --resume.

    To a process the kernel's OOM killer is a SIGKILL at such a moment. No control group is made for
    it: that is the machine's, and what is left on the disk is the same.
    """
    # Those that are left go on by themselves, a hundred rounds while one is started again.
    rounds, kills, lesson = 600, 4, 10
    config = recipe(folder / "models", rounds, "free")
    with Swarm(config, folder / "run", popen=Faulty) as swarm:
        swarm.start("east", "south")
        swarm.start("north", fault={"starve_in": lesson})
        starving = swarm.running.pop("north")
        peaks = []
        for _ in range(kills):
            peaks.append(killed_at_peak(swarm, "east"))
            swarm.start("east", resume=True)
        assert starving.wait(timeout=LONG_S) == 1, swarm.log("north")[-3000:]
        why = swarm.log("north").strip().splitlines()[-1]
        swarm.start("north", resume=True)
        seen = ended(swarm, rounds)
    sizes = ", ".join(f"{mib:.0f}" for mib in peaks)
    return Row("memory", f"east killed at {sizes} MiB; north: {why[:60]}", seen)


def killed_at_peak(swarm, name, rounds=5):
    """Watch a node for some rounds, then kill it when it has as much memory as ever since; return
    how much, in MiB."""
    begun, peak_mib = swarm.round(name), 0.0
    swarm.wait_until(lambda: swarm.round(name) > begun, "a round of this start")
    until, end_s = swarm.round(name) + rounds, time.monotonic() + LONG_S
    while True:
        assert time.monotonic() < end_s, swarm.logs()
        statm = Path(f"/proc/{swarm.running[name].pid}/statm").read_text()
        mib = int(statm.split()[1]) * resource.getpagesize() / 2**20
        if mib >= peak_mib and swarm.round(name) >= until:
            swarm.signal(name)
            return mib
        peak_mib = max(peak_mib, mib)
        time.sleep(0.002)


FAULTS = {
    "kills": kills,
    "memory": memory,
    "clocks-together": partial(clocks, pace="together"),
    "clocks-free": partial(clocks, pace="free"),
}


def table(rows):
    lines = ["| fault | done | seen | s |", "|---|---|---|---|"]
    lines += [f"| {r.fault} | {r.done} | {r.seen} | {r.seconds:.0f} |" for r in rows]
    return "\n".join(lines)


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("folder", type=Path)
    ask.add_argument("--only", nargs="+", choices=FAULTS, default=list(FAULTS))
    ask.add_argument("--seed", type=int, default=0)
    asked = ask.parse_args()
    rows, broken = [], 0
    for name in asked.only:
        begun_s = time.monotonic()
        try:
            row = FAULTS[name](asked.folder / name, asked.seed)
        except AssertionError as error:
            traceback.print_exc()
            row, broken = Row(name, "", f"BROKEN: {str(error)[:200]!r}"), broken + 1
        rows.append(Row(row.fault, row.done, row.seen, time.monotonic() - begun_s))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
    print("\n" + table(rows))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
