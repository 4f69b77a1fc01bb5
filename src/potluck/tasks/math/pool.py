"""Grading of answers in mathematics, with computer algebra in processes that can be killed.

Reading decides most answers here. The rest goes to at most four processes, started when first
needed. The kernel kills a process whose answer takes too much processor time (not time on the
clock, so that a busy machine grades like an idle one). A process ends when its input does, so
also when its parent is killed.

No answer reaches a parser of Python: math-verify reads plain expressions with sympy's
``parse_expr``, which is ``eval``, so only its LaTeX reader is used.
"""

import atexit
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from typing import Literal, NamedTuple

from potluck.files import available_cores
from potluck.tasks.base import TaskError
from potluck.tasks.math.grading import Equal, same_answer

CPU_LIMIT_S = 1.0
"""Processor time for one answer. An ordinary answer takes 0.01 to 0.2."""
WALL_LIMIT_S = 20.0
"""Time on the clock for one answer, for a process that is stuck without computing."""
START_LIMIT_S = 120.0
"""Time on the clock until a process is ready. An idle machine needs one or two."""
MEMORY_LIMIT_BYTES = 2 * 2**30
"""Address space of a process; a warm one has 0.15 GiB of it."""
MOST_PROCESSES = 4
LONGEST_QUESTION = 100_000
"""Characters of a question that are sent to a process."""
LONGEST_PLAIN_ANSWER = 2_000
"""Characters of an answer for math-verify alone; a longer one is wrong."""
MOST_KEPT = 20_000
"""Number of verdicts of algebra that are remembered, the latest ones."""
MARKED = re.compile(r"\\boxed|\\\[|\\\(|(?<!\\)\$")
"""LaTeX that is marked as such, so that math-verify finds it without a box around it."""
DECIMAL = re.compile(r"([^ .]*)\.([^ ]*)")
SERVE = "from potluck.tasks.math.pool import serve; serve()"

MathGrading = Literal["math", "math-verify"]
"""``math``: the rules of ``math/grading.py``; ``math-verify``: that library and no rule of ours."""


class Ask(NamedTuple):
    """A question, its right answer, and the answer to be graded."""

    question: str
    gold: str
    answer: str | None
    """None where there is no answer, which is never right."""
    grading: MathGrading = "math"


class Undecided(Exception):
    """Only algebra can tell whether the answer is right."""


def require_algebra() -> None:
    """Raise TaskError unless math-verify and its reader of LaTeX are installed."""
    for name in ("math_verify", "latex2sympy2_extended", "antlr4"):
        if find_spec(name) is None:
            raise TaskError(
                f"answers in mathematics are graded with math-verify, but there is no module "
                f"{name!r}; pip install 'potluck[math]'"
            )


class Worker:
    """A process that judges one answer at a time."""

    def __init__(self, cpu_limit_s: float) -> None:
        """Start the process and wait for it; raise TaskError where it does not get ready."""
        # The process sees the modules that this one sees, however they were found.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        # With one hash seed, algebra takes the same steps on every node.
        fixed = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", SERVE, str(cpu_limit_s), str(MEMORY_LIMIT_BYTES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **fixed, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C in the terminal is for the run, not for it
        )
        if (line := self._answer("", START_LIMIT_S)) != "ready":
            self.end()
            raise TaskError(
                f"math-verify cannot be used ({line}); see potluck[math]"
                if line
                else f"a process that grades mathematics did not start (exit status "
                f"{self.process.returncode}); try `python -c 'import math_verify'`"
            )

    def judge(self, ask: Ask, limit_s: float) -> bool:
        """Judge; False, and end, beyond a limit; BrokenPipeError if it had ended."""
        short = ask._replace(question=ask.question[:LONGEST_QUESTION])
        return self._answer(json.dumps(short) + "\n", limit_s) == "1"

    def _answer(self, text: str, limit_s: float) -> str:
        """Write ``text`` and read the next line; "" where the process ends instead."""
        assert self.process.stdin
        assert self.process.stdout
        end_s = time.monotonic() + limit_s
        timer = threading.Timer(limit_s, self.process.kill)  # which ends the wait for a line
        timer.start()
        try:
            self.process.stdin.write(text.encode())
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        finally:
            timer.cancel()
            timer.join()
        if not line or time.monotonic() >= end_s:
            self.end()
        return line.decode(errors="replace").strip()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in filter(None, (self.process.stdin, self.process.stdout)):
            with suppress(OSError):
                pipe.close()


class Workers:
    """Processes that judge; safe to call from any thread."""

    def __init__(
        self, count: int = 0, cpu_limit_s: float = CPU_LIMIT_S, wall_limit_s: float = WALL_LIMIT_S
    ) -> None:
        """Start nothing yet. ``count``: processes; 0: one for each core, at most four."""
        self._count = count or min(available_cores(), MOST_PROCESSES)
        self._cpu_limit_s, self._wall_limit_s = cpu_limit_s, wall_limit_s
        self._lock = threading.Lock()
        self.idle: list[Worker] = []
        """Processes that wait for an answer to judge."""

    def judge(self, asks: Sequence[Ask]) -> list[bool]:
        """Tell ``same_answer`` of each; False too where that takes too much time or memory.

        Ctrl-C is heard when the answers that are being judged are done: after a second or so.
        Raise TaskError where no process can be started.
        """
        with self._lock, ThreadPoolExecutor(self._count) as threads:
            return list(threads.map(self._judge, asks))

    def _judge(self, ask: Ask) -> bool:
        while True:
            try:
                worker = self.idle.pop()
            except IndexError:
                worker = Worker(self._cpu_limit_s)
            try:
                verdict = worker.judge(ask, self._wall_limit_s)
            except BrokenPipeError:  # it died of something else, and the question still stands
                worker.end()
                continue
            if worker.process.returncode is None:
                self.idle.append(worker)
            return verdict

    def close(self) -> None:
        """End the processes; the next question starts new ones."""
        with self._lock:
            while self.idle:
                self.idle.pop().end()


_kept: dict[Ask, bool] = {}


@cache
def shared_workers() -> Workers:
    workers = Workers()
    atexit.register(workers.close)
    return workers


def are_right(asks: Sequence[Ask]) -> list[bool]:
    """Tell whether each answer is right. Nothing that an answer says is run, and none raises.

    Raise TaskError where algebra is needed, but math-verify cannot be used.
    """
    verdicts: dict[Ask, bool] = {}
    for ask in asks:
        with suppress(Undecided):
            verdicts[ask] = _kept[ask] if ask in _kept else _verdict(ask, _undecided, _undecided)
    if undecided := [ask for ask in dict.fromkeys(asks) if ask not in verdicts]:
        verdicts.update(zip(undecided, shared_workers().judge(undecided), strict=True))
        _kept.update((ask, verdicts[ask]) for ask in undecided)
        for old in list(_kept)[: max(0, len(_kept) - MOST_KEPT)]:
            del _kept[old]
    return [verdicts[ask] for ask in asks]


def _undecided(gold: str, answer: str) -> bool:
    raise Undecided


def serve() -> None:
    """Judge what standard input asks, in a process of its own; see ``Worker``.

    First line out: "ready", or what is wrong. Then for each line in, an Ask as JSON, a line
    out, "1" or "0". The kernel's timer kills the process at its limit; no handler runs.
    """
    limit_s, limit_bytes = float(sys.argv[1]), int(sys.argv[2])
    out, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # libraries that print, print to nowhere
    with suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    try:
        equal = _equality()
    except Exception as error:
        os.write(out, f"{type(error).__name__}: {error}".splitlines()[0].encode() + b"\n")
        return
    os.write(out, b"ready\n")
    for line in sys.stdin.buffer:
        ask = Ask(*json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        try:
            verdict = _verdict(ask, equal, plain_verdict)
        except MemoryError:
            return  # another process is better than one with something left half done
        except Exception:  # what algebra raises on nonsense is not documented
            verdict = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.write(out, b"1\n" if verdict else b"0\n")


def _verdict(ask: Ask, equal: Equal, plain: Equal) -> bool:
    if ask.answer is None:
        return False
    if ask.grading == "math-verify":
        return len(ask.answer) <= LONGEST_PLAIN_ANSWER and plain(ask.gold, ask.answer)
    return same_answer(ask.gold, ask.answer, question=ask.question, equal=equal)


def plain_verdict(gold: str, answer: str) -> bool:
    """Ask math-verify with its own settings, both texts being LaTeX in a box.

    **Deviation** from its defaults: plain expressions, which it would run as Python, are not
    looked for; in a box they are read as LaTeX.
    """
    import math_verify

    def parsed(text: str) -> list[object]:
        boxed = text if MARKED.search(text) else f"\\boxed{{{text}}}"
        return list(math_verify.parse(boxed, latex_only, parsing_timeout=None))

    latex_only = [math_verify.LatexExtractionConfig()]
    return bool(math_verify.verify(parsed(gold), parsed(answer), timeout_seconds=None))


def _equality() -> Equal:
    """Make math-verify's ``verify(gold, answer)`` of two leaves, after it has run once: warm."""
    import math_verify
    from latex2sympy2_extended import NormalizationConfig
    from sympy.core.cache import clear_cache

    # Leaves are in one spelling already; taking away "units" would take letters.
    as_it_is = NormalizationConfig(basic_latex=False, boxed="none")
    latex_only = [math_verify.LatexExtractionConfig(normalization_config=as_it_is)]

    def parsed(expression: str) -> list[object]:
        # Its own time-outs use signal.alarm; the limits above are ours.
        text = f"${_exact(expression)}$"
        return list(math_verify.parse(text, latex_only, "no_fallback", parsing_timeout=None))

    def equal(gold: str, answer: str) -> bool:
        verdict = math_verify.verify(parsed(gold), parsed(answer), timeout_seconds=None)
        clear_cache()  # else the memory of a long run fills up
        return bool(verdict)

    if not equal(r"\frac { \sqrt { 3 } } { 3 } + x ^ { 2 }", r"\frac { 1 } { \sqrt { 3 } } + x x"):
        raise RuntimeError("math-verify does not know that 1/sqrt(3) = sqrt(3)/3")
    return equal


def _exact(expression: str) -> str:
    """Write decimals as fractions, since floats are compared to six places only."""
    return DECIMAL.sub(lambda m: rf"\frac {{ {m[1] + m[2]} }} {{ {10 ** len(m[2])} }}", expression)
