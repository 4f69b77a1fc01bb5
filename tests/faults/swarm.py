"""A swarm of real nodes, each in a process of its own, of which a test may kill some."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from potluck.launch import local_swarm

PATIENCE_S = 300
"""Reached only where something is broken: machines are slow, and torch takes seconds to load."""
QUIET = {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0"}


class Swarm:
    """Started as ``potluck run`` starts its nodes; ended by ``with``. ``popen`` starts them."""

    def __init__(self, config, folder, *, more=(), popen=subprocess.Popen):
        self.config, self.folder, self.more = config, Path(folder), tuple(more)
        self.popen = popen
        local_swarm.prepare_local_swarm(config, self.folder)
        self.running = {}
        self._every = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._every:
            if process.poll() is None:
                process.kill()
            process.wait()

    def start(self, *names, resume=False, fault=None):
        """``fault``: what ``Faulty`` reads; of other processes it is nothing."""
        for name in names or self.config.node:
            self.running[name] = self._start(name, ["--resume"] * resume, fault or {})

    def _start(self, name, more, fault):
        recipe = self.folder / local_swarm.LOCAL_SWARM / "recipe.json"
        with (self.folder / f"{name}.log").open("a") as log:
            process = self.popen(
                [
                    *(sys.executable, "-P", "-m", "potluck", "join", str(recipe), "--as", name),
                    *("--out", str(self.folder), *self.more, *more),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **QUIET, "FAULT": json.dumps(fault)},
            )
        self._every.append(process)
        return process

    def signal(self, name, number=signal.SIGKILL):
        """To one node; of one that is killed nothing is left when this returns."""
        self.running[name].send_signal(number)
        if number == signal.SIGKILL:
            self.running.pop(name).wait()

    def metrics(self, name):
        """Of each round that is done, in order."""
        return self._lines(name, "metrics")

    def _lines(self, name, what):
        try:
            text = (self.folder / name / f"{what}.jsonl").read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def round(self, name):
        """The last one that is done; -1 before the first."""
        lines = self.metrics(name)
        return lines[-1]["round"] if lines else -1

    def wait_until(self, holds, what):
        end = time.monotonic() + PATIENCE_S
        while not holds():
            for name, process in self.running.items():
                assert process.poll() in (None, 0), f"{name} broke:\n{self.log(name)}"
            assert time.monotonic() < end, f"never: {what}\n{self.logs()}"
            time.sleep(0.05)

    def wait(self, names=(), *, patience_s=PATIENCE_S):
        """Until these nodes have ended; returns their exit codes."""
        return {name: self.running[name].wait(timeout=patience_s) for name in names or self.running}

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def logs(self):
        return "\n".join(f"--- {name}\n{self.log(name)[-3000:]}" for name in self.config.node)
