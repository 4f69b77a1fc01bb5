"""Grading many answers in mathematics: what reading cannot decide, killable processes do.

A process of its own for each of up to four cores, started when first needed and killed
when it takes too long; the next answer gets a new one. Nobody is left behind: a process
ends when its input does, so also when its parent is killed.
"""

import atexit
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

from potluck.tasks.base import TaskError
from potluck.tasks.math_grading import same_answer

CPU_LIMIT_S = 1.0
"""Processor time for one answer. An ordinary one takes 0.01 to 0.2."""
WALL_LIMIT_S = 20.0
"""Time on the clock for one answer: for a process that is stuck without computing."""
START_LIMIT_S = 120.0
"""Time on the clock until a process is ready. An idle machine needs one or two."""
MEMORY_LIMIT_BYTES = 2 * 2**30
"""Address space of a process; a warm one has 0.15 GiB of it."""
MOST_PROCESSES = 4
LONGEST_QUESTION = 100_000
"""Characters of a question that a process is sent, of up to six bytes each."""
MOST_KEPT = 20_000
"""Verdicts of algebra that are remembered, the latest ones."""


class Ask(NamedTuple):
    """Is this the right answer?"""

    question: str
    gold: str
    answer: str | None
    """None where there is none to be found, which is never right."""


class Undecided(Exception):
    """Only algebra can tell."""


def require_algebra() -> None:
    """Raises TaskError unless math-verify and what it reads LaTeX with are installed."""
    for name in ("math_verify", "latex2sympy2_extended", "antlr4"):
        if find_spec(name) is None:
            raise TaskError(
                f"answers in mathematics are graded with math-verify, but there is no module "
                f"{name!r}; pip install 'potluck[math]'"
            )


class Process:
    """One worker: what it is busy with, and since when."""

    def __init__(self, *, cpu_limit_s: float) -> None:
        arguments = [str(cpu_limit_s), str(MEMORY_LIMIT_BYTES)]
        # It sees the modules that we see, however we came to see them.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", "potluck.tasks.math_worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **single, "PYTHONPATH": path},
            bufsize=0,
            start_new_session=True,  # Ctrl-C in the terminal is for the run, not for it
        )
        assert self._popen.stdout is not None
        self.pid, self.out = self._popen.pid, self._popen.stdout.fileno()
        self.ready = False
        self.busy_with: int | None = None
        self._deadline_s = time.monotonic() + START_LIMIT_S
        self._line = b""

    def ask(self, place: int, ask: Ask, wall_limit_s: float) -> bool:
        """Hands it over; whether it was alive to take it."""
        assert self._popen.stdin is not None
        # A longer line would be none to it; names and units stand in the first pages.
        short = ask._replace(question=ask.question[:LONGEST_QUESTION])
        line = json.dumps(short._asdict()).encode() + b"\n"
        try:
            while line:  # a raw pipe may take a part
                line = line[self._popen.stdin.write(line) or 0 :]
        except OSError:
            return False
        self.busy_with, self._deadline_s = place, time.monotonic() + wall_limit_s
        return True

    def heard(self) -> str | None:
        """The line that it has written, "" where it is none yet, None where it has ended."""
        piece = os.read(self.out, 4096)
        if not piece:
            return None
        self._line += piece
        if not self._line.endswith(b"\n"):
            return ""
        line, self._line = self._line, b""
        return line.decode(errors="replace").strip()

    def left_s(self) -> float:
        """Until it has to answer; never, where nothing is asked."""
        if self.ready and self.busy_with is None:
            return float("inf")
        return self._deadline_s - time.monotonic()

    def end(self) -> int:
        """Kills it and waits for it; its exit status."""
        self._popen.kill()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        return self._popen.wait()


class Workers:
    """Processes that judge; safe to call from any thread."""

    def __init__(
        self,
        count: int = 0,
        *,
        cpu_limit_s: float = CPU_LIMIT_S,
        wall_limit_s: float = WALL_LIMIT_S,
    ) -> None:
        """``count``: processes; 0: one for each core, at most four."""
        self._count = count or min(len(_cores()), MOST_PROCESSES)
        self._cpu_limit_s, self._wall_limit_s = cpu_limit_s, wall_limit_s
        self._processes: list[Process] = []
        self._lock = threading.Lock()

    def judge(self, asks: Sequence[Ask]) -> list[bool]:
        """``same_answer`` of each; False too where that takes too much time or memory.

        Raises:
            TaskError: no process can be started.
        """
        verdicts, waiting = [False] * len(asks), deque(range(len(asks)))
        with self._lock:
            try:
                while waiting or any(p.busy_with is not None for p in self._processes):
                    self._hand_out(asks, waiting)
                    for process, line in self._listen():
                        if process.busy_with is not None:
                            verdicts[process.busy_with] = line == "1"
                        process.busy_with = None
            except BaseException:  # Ctrl-C, too: an answer on its way would be the next one's
                self._end()
                raise
        return verdicts

    def pids(self) -> list[int]:
        """Of the processes that are there just now."""
        return [process.pid for process in self._processes]

    def close(self) -> None:
        """Ends the processes; the next question starts new ones."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        while self._processes:
            self._processes.pop().end()

    def _hand_out(self, asks: Sequence[Ask], waiting: deque[int]) -> None:
        busy = sum(p.busy_with is not None for p in self._processes)
        while len(self._processes) < min(self._count, busy + len(waiting)):
            self._processes.append(Process(cpu_limit_s=self._cpu_limit_s))
        for process in list(self._processes):
            if waiting and process.ready and process.busy_with is None:
                if process.ask(waiting[0], asks[waiting[0]], self._wall_limit_s):
                    waiting.popleft()
                else:  # it died of something else, and the question still stands
                    self._drop(process)

    def _listen(self) -> list[tuple[Process, str]]:
        """Waits for whoever is first; who has judged, or ended over it, and what it said."""
        with selectors.DefaultSelector() as selector:
            for process in self._processes:
                selector.register(process.out, selectors.EVENT_READ, process)
            left_s = min((p.left_s() for p in self._processes), default=0.0)
            events = selector.select(max(0.0, left_s) if left_s != float("inf") else 0.0)
            speaking = [key.data for key, _ in events]
        done = []
        for process in list(self._processes):
            line = process.heard() if process in speaking else ""
            if line is None or (not line and process.left_s() <= 0):
                status = self._drop(process)
                if not process.ready:
                    raise TaskError(
                        f"a process that grades math500 did not start (exit status {status}); "
                        f"try `python -c 'import math_verify'`"
                    )
                done.append((process, ""))
            elif line and not process.ready:
                if line != "ready":
                    raise TaskError(f"math-verify cannot be used ({line}); see potluck[math]")
                process.ready = True
            elif line:
                done.append((process, line))
        return done

    def _drop(self, process: Process) -> int:
        self._processes.remove(process)
        return process.end()


_kept: dict[Ask, bool] = {}


@cache
def shared_workers() -> Workers:
    """Those of this process, started by the first answer that needs them."""
    workers = Workers()
    atexit.register(workers.close)
    return workers


def are_right(asks: Sequence[Ask]) -> list[bool]:
    """Whether each answer is right. Nothing that an answer says is run, and none raises.

    Raises:
        TaskError: algebra is needed, but math-verify cannot be used.
    """
    verdicts: dict[Ask, bool] = {}
    for ask in asks:
        with suppress(Undecided):
            verdicts[ask] = _kept[ask] if ask in _kept else _read(ask)
    undecided = [ask for ask in dict.fromkeys(asks) if ask not in verdicts]
    if undecided:
        verdicts.update(zip(undecided, shared_workers().judge(undecided), strict=True))
        _kept.update((ask, verdicts[ask]) for ask in undecided)
        for old in list(_kept)[: max(0, len(_kept) - MOST_KEPT)]:
            del _kept[old]
    return [verdicts[ask] for ask in asks]


def _read(ask: Ask) -> bool:
    if ask.answer is None:
        return False

    def equal(gold: str, answer: str) -> bool:
        raise Undecided

    return same_answer(ask.gold, ask.answer, question=ask.question, equal=equal)


def _cores() -> Sequence[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return range(os.cpu_count() or 1)
