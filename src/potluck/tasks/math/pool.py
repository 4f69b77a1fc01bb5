"""Grading of answers in mathematics, with computer algebra in processes that can be killed: at most
four (``confined.py``), for what ``math/grading.py`` cannot decide.

No answer reaches a parser of Python: math-verify reads plain expressions with sympy's
``parse_expr``, which is ``eval``, so only its LaTeX reader is used.
"""

import json
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from typing import Literal, NamedTuple

from potluck.confined import Confined, NotReady
from potluck.files import available_cores
from potluck.tasks.base import TaskError
from potluck.tasks.math.grading import Equal, same_answer

CPU_LIMIT_S, WALL_LIMIT_S = 1.0, 20.0
"""Time for one answer, of the processor (an ordinary one takes 0.01 to 0.2) and on the clock."""
MEMORY_LIMIT_BYTES = 2 * 2**30
"""Address space of a process; a warm one has 0.15 GiB of it."""
MOST_PROCESSES = 4
LONGEST_QUESTION, LONGEST_PLAIN_ANSWER = 100_000, 2_000
"""Characters of a question that are sent, and of an answer for math-verify alone."""
MOST_KEPT = 20_000
"""Number of verdicts of algebra that are remembered, the latest ones."""
MARKED = re.compile(r"\\boxed|\\\[|\\\(|(?<!\\)\$")
"""LaTeX that is marked as such, so that math-verify finds it without a box around it."""
SPACED = re.compile(r"-?[1-9][0-9]{0,2}(?: [0-9]{3})+(?:\.[0-9]+)?")
"""Number with a space at each thousand."""
DECIMAL = re.compile(r"([^ .]*)\.([^ ]*)")

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


class Workers:
    """Processes that judge; safe to call from any thread."""

    def __init__(self, count: int = 0, cpu_limit_s: float = CPU_LIMIT_S) -> None:
        """Start nothing yet. ``count``: processes; 0: one for each core, at most four."""
        count = count or min(available_cores(), MOST_PROCESSES)
        self._lock = threading.Lock()
        self.idle = [Confined(__name__, cpu_limit_s, MEMORY_LIMIT_BYTES) for _ in range(count)]

    def judge(self, asks: Sequence[Ask]) -> list[bool]:
        """Tell ``same_answer`` of each; False too where that takes too much time or memory. Raise
        TaskError where no process can be started."""
        with self._lock, ThreadPoolExecutor(len(self.idle)) as threads:
            return list(threads.map(self._judge, asks))

    def _judge(self, ask: Ask) -> bool:
        short, worker = ask._replace(question=ask.question[:LONGEST_QUESTION]), self.idle.pop()
        try:
            return worker.ask(json.dumps(short) + "\n", WALL_LIMIT_S) == "1"
        except NotReady as error:
            why = str(error) or "its process ended as it began"
            raise TaskError(
                f"math-verify cannot be used ({why}); see potluck[math], or try "
                f"`python -c 'import math_verify'`"
            ) from None
        finally:
            self.idle.append(worker)


_kept: dict[Ask, bool] = {}


@cache
def shared_workers() -> Workers:
    return Workers()


def are_right(asks: Sequence[Ask]) -> list[bool]:
    """Tell whether each answer is right. Nothing that an answer says is run, and none raises. Raise
    TaskError where algebra is needed, but math-verify cannot be used."""
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


def prepare() -> Callable[[bytes], str]:
    """Make what judges a line in a process of its own: an Ask as JSON, "1" or "0"."""
    equal = _equality()
    return lambda line: "01"[_verdict(Ask(*json.loads(line)), equal, plain_verdict)]


def _verdict(ask: Ask, equal: Equal, plain: Equal) -> bool:
    if ask.answer is None:
        return False
    if ask.grading == "math-verify":
        return len(ask.answer) <= LONGEST_PLAIN_ANSWER and plain(ask.gold, ask.answer)
    return same_answer(ask.gold, ask.answer, question=ask.question, equal=equal)


def _without_marks(text: str) -> str:
    """Strip what math-verify's search for plain numbers passes over, and a box would hold: bold
    type, a full stop, "=" before, spaces at thousands."""
    bare = text.strip().removesuffix(".").strip()
    if bold := re.fullmatch(r"\*\*([^*]+)\*\*", bare):
        bare = bold[1].strip().removesuffix(".")
    bare = bare.removeprefix("=").strip()
    return bare.replace(" ", "") if SPACED.fullmatch(bare) else bare


def plain_verdict(gold: str, answer: str) -> bool:
    """Ask math-verify with its own settings. **Deviation** from them: plain expressions, which it
    would run as Python, are not looked for; in a box they are read as LaTeX."""
    import math_verify

    def parsed(text: str) -> list[object]:
        boxed = text if MARKED.search(text) else f"\\boxed{{{_without_marks(text)}}}"
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
