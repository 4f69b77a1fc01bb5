"""A node that takes FACTOR times as long to write and to learn, else as ``potluck`` starts it.

    python benchmarks/pace_node.py FACTOR CORE join RECIPE --as NAME ...

It sleeps for the rest of the time, so it costs no core. A phase lasts FACTOR times UNIT times its
processor time: so a phase of the fastest node too has room for what else the machine does.
"""

import os
import sys
import time

from potluck.cli import main
from potluck.node.learner import Learner
from potluck.rollout.hf import HFEngine

UNIT = 2.0


def slowed(phase, factor):
    def lasts(*args, **options):
        begun_s, used_s = time.monotonic(), time.thread_time()
        result = phase(*args, **options)
        ends_s = begun_s + factor * UNIT * (time.thread_time() - used_s)
        time.sleep(max(0.0, ends_s - time.monotonic()))
        return result

    return lasts


if __name__ == "__main__":
    factor, core, *words = sys.argv[1:]
    os.sched_setaffinity(0, {int(core)})
    HFEngine.generate = slowed(HFEngine.generate, float(factor))
    Learner.learn = slowed(Learner.learn, float(factor))
    sys.argv[1:] = words
    main()
