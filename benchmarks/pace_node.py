"""A node that takes FACTOR times as long to write and to learn, else as ``potluck`` starts it.

    python benchmarks/pace_node.py FACTOR CORE FILE join RECIPE --as NAME ...

It sleeps for the rest of the time, so it costs no core. A phase lasts FACTOR times UNIT times its
processor time: so a phase of the fastest node too has room for what else the machine does. If that
is not enough, FILE tells: it gets the seconds of all phases, and those that they should have had.
"""

import atexit
import json
import os
import sys
import time
from pathlib import Path

from potluck.cli import main
from potluck.node.learning.learner import Learner
from potluck.rollout.hf import HFEngine

UNIT = 3.0
lasted_s = {"all": 0.0, "planned": 0.0}


def slowed(phase, factor):
    def lasts(*args, **options):
        begun_s, used_s = time.monotonic(), time.thread_time()
        result = phase(*args, **options)
        planned_s = factor * UNIT * (time.thread_time() - used_s)
        time.sleep(max(0.0, begun_s + planned_s - time.monotonic()))
        lasted_s["all"] += time.monotonic() - begun_s
        lasted_s["planned"] += planned_s
        return result

    return lasts


if __name__ == "__main__":
    factor, core, file, *words = sys.argv[1:]
    atexit.register(lambda: Path(file).write_text(json.dumps(lasted_s)))
    os.sched_setaffinity(0, {int(core)})
    HFEngine.generate = slowed(HFEngine.generate, float(factor))
    Learner.learn = slowed(Learner.learn, float(factor))
    sys.argv[1:] = words
    main()
