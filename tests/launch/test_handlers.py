"""Processes that a reward starts during a run: they end when they are told to, as without a run."""

import multiprocessing
import signal
import time

from potluck.launch.children import interrupts

LIMIT_S = 20.0
"""Reached only where something is broken; each case takes a part of a second."""
METHODS = ("fork", "spawn", "forkserver")


def wait_for_ever():
    while True:
        time.sleep(60.0)


def compute_for_ever():
    while True:
        pass


def test_a_process_that_is_terminated_ends():
    with interrupts():
        for method in METHODS:
            for work in (wait_for_ever, compute_for_ever):
                process = multiprocessing.get_context(method).Process(target=work, daemon=True)
                process.start()
                process.terminate()
                process.join(LIMIT_S)
                assert process.exitcode == -signal.SIGTERM, (method, work)
