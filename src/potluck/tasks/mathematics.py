r"""Grading of answers in mathematics: math-verify decides, in processes that can be killed.

By itself math-verify takes whatever is worth the same: ``9+9`` for 18, 0.333333 for 1/3, and for
"simplify $\sqrt{242}$" that very formula. Reinforcement learning finds every leniency, so the
grading "math" asks it only about an answer that is finished, and compares decimals exactly;
docs/grading.md has the rules. The grading "math-verify" is the library alone.

No answer reaches a parser of Python: math-verify reads plain expressions with sympy's
``parse_expr``, which is ``eval``, so only its LaTeX reader is used.
"""

import atexit
import json
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from typing import Literal, NamedTuple

from potluck.confined import Confined
from potluck.files import available_cores
from potluck.tasks.base import TaskError
from potluck.tasks.grading import one_number

CPU_LIMIT_S = 1.0
"""Processor time for one answer. An ordinary answer takes 0.01 to 0.2."""
WALL_LIMIT_S = 20.0
"""Time on the clock for one answer, for a process that is stuck without computing."""
MEMORY_LIMIT_BYTES = 2 * 2**30
"""Address space of a process; a warm one has 0.15 GiB of it."""
MOST_PROCESSES = 4
LONGEST_ANSWER = 2_000
"""Characters. The longest gold of MATH-500 has 59."""

MathGrading = Literal["math", "math-verify"]
"""``math``: that library and the rules of this file; ``math-verify``: the library alone."""
Pair = tuple[str, str]
"""LaTeX of a right answer, and of one to be graded."""

SIGNS = str.maketrans({
    "\u2212": "-", "\u00b0": r"^\circ ", "\u03c0": r"\pi ", "\u221e": r"\infty ",
    "\u222a": r"\cup ", "\u00b1": r"\pm ", "\u00d7": r"\times ", "\u00b7": r"\cdot ",
    "\u22c5": r"\cdot ", "\u2208": r"\in ", "*": r"\cdot ",
    "\u200b": "", "\u2060": "", "\ufeff": "",
})  # fmt: skip
BLANK = re.compile(
    r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|quad|qquad)(?![A-Za-z])|(?<!\\)\\[,!;: ]|~"
    r"|(?<!\\)\\[()\[\]]"
)
"""Marks of spacing, of the size of brackets, and of where mathematics begins and ends."""
ROOT = re.compile("(?:\u221a|(?<!\\\\)sqrt) ?\\(?([0-9]+|[a-z])\\)?")
BETWEEN = re.compile(r",? ?(?:\\text ?\{ ?(?:and|or) ?\}|\b(?:and|or)\b)")
NAME = re.compile(r"(?:^|(?<=[,{]) ?)[A-Za-z]{1,3}(?:_\{?\w\}?|\([a-z]\))? ?(?:=|\\in(?![a-z])) ?")
BARE_WORD = re.compile(r"(?<![\\A-Za-z])(pi|sin|cos|tan|cot|sec|csc|log|ln)(?![A-Za-z])")
"""Commands that people write without the backslash."""
BOLD = re.compile(r"\*\*((?:(?!\*\*).)+)\*\*\.?")
ANNOUNCED = re.compile(r"(?:the )?(?:final )?answer is:? ?(\\boxed\b.*)", re.IGNORECASE)
"""The usual last sentence of a model: only a box makes it clear what in it is the answer."""
BOX = re.compile(r"\\(?:boxed|fbox) ?\{(.*)\}")
MIXED = re.compile(r"(-? ?[0-9]+) ([0-9]+) ?/ ?([0-9]+)")
THOUSANDS = re.compile(r"[0-9]{1,3}(?: [0-9]{3})+")
DECIMAL = re.compile(r"([0-9]*)\.([0-9]+)")
FORMULA = re.compile(r"\$([^$]+)\$")
MARKED = re.compile(r"\\boxed|\\\[|\\\(|(?<!\\)\$")
"""LaTeX that is marked as such, so that math-verify finds it without a box around it."""

ADDITION = re.compile(r"(?<=[A-Za-z0-9)}\]|!])\s*(?:[-+]|\\pm|\\mp)")
BOTH_SIGNS = re.compile(r"(?<=[A-Za-z0-9)}\]|!])\s*\\(?:pm|mp)")
"""An addition of its own, as two answers are written for it."""
SCIENTIFIC = re.compile(r"\\(?:cdot|times) ?10 ?\^ ?(?:\{-?[0-9]+\}|[0-9])")
TO_WORK_OUT = re.compile(
    r"[0-9] ?\\(?:cdot|times) ?[0-9]|[0-9] ?\^(?! ?\{? ?\\circ| ?\{1/2\})|\) ?\(|[|!]"
)
"""A product or a power of plain numbers that is no root, a product of sums, |-3|, 3!."""
TRIGONOMETRIC = {rf"\{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc")}
ORDINARY = {
    rf"\{name}"
    for name in ("frac", "cdot", "times", "text", "pm", "mp", "circ", "cup", "begin", "end")
}
"""Commands that are no work left to do, whatever the right answer is."""
LETTER = re.compile(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])")
COMMAND = re.compile(r"\\[A-Za-z]+")
TEXT = re.compile(r"\\text ?\{[^{}]*\}")


class Ask(NamedTuple):
    """A question, its right answer, and the answer to be graded."""

    question: str
    gold: str
    answer: str | None
    """None where there is no answer, which is never right."""
    grading: MathGrading = "math"


def require_algebra() -> None:
    """Raise TaskError unless math-verify and its reader of LaTeX are installed."""
    for name in ("math_verify", "latex2sympy2_extended", "antlr4"):
        if find_spec(name) is None:
            raise TaskError(
                f"answers in mathematics are graded with math-verify, but there is no module "
                f"{name!r}; pip install 'potluck[math]'"
            )


def are_right(asks: Sequence[Ask]) -> list[bool]:
    """Tell whether each answer is right. Nothing that an answer says is run, and none raises. Raise
    TaskError where algebra is needed, but math-verify cannot be used."""
    read = [_read(ask) for ask in asks]
    if pairs := list(dict.fromkeys(each for each in read if isinstance(each, tuple))):
        verdicts = dict(zip(pairs, shared_workers().judge(pairs), strict=True))
        return [verdicts[each] if isinstance(each, tuple) else each for each in read]
    return [each is True for each in read]


def _read(ask: Ask) -> bool | Pair:
    """Decide by reading alone, or return what algebra is to decide."""
    if ask.answer is None or len(ask.answer) > LONGEST_ANSWER:
        return False
    if ask.grading == "math-verify":
        return ask.gold, ask.answer
    if ask.answer.strip() == ask.gold.strip():
        return True
    answer, gold = plain(ask.answer), plain(ask.gold)
    if answer == gold:
        return True
    numbers = one_number(answer), one_number(gold)
    if None not in numbers:
        return numbers[0] == numbers[1]
    if not is_finished(gold, answer, ask.question):
        return False
    exact = [DECIMAL.sub(_fraction, text) for text in (gold, answer)]
    return exact[0], exact[1]


def plain(text: str) -> str:
    r"""Strip ``text`` of its box, math delimiters, marks of spacing, and names of what is found.

    >>> plain(r"$\boxed{ x = \dfrac{1}{2} }$.")
    '\\frac{1}{2}'
    """
    text = " ".join(text.split()).removesuffix(".")
    if bold := BOLD.fullmatch(text):
        text = bold[1]
    text = ROOT.sub(r"\\sqrt{\1}", text).translate(SIGNS)
    money = len(re.findall(r"(?<!\\)\$", text)) % 2  # in pairs they are math delimiters
    text = re.sub(r"(?<!\\)\$", r"\\$" if money else "", text)
    text = BLANK.sub(" ", re.sub(r",\\! ?|\{,\}", ",", text))
    text = re.sub(r"\\sqrt ?([0-9])", r"\\sqrt{\1}", text)
    text = re.sub(r"\\[dtc]?frac ?([0-9])([0-9])", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\[dtc]frac(?![A-Za-z])", r"\\frac", text)
    text = re.sub(r"\\(?:mbox|textrm|textbf|textit|mathrm)(?![A-Za-z])", r"\\text", text)
    text = " ".join(text.split()).replace(r"^ \circ", r"^\circ")
    for around in (ANNOUNCED, BOX):
        if inside := around.fullmatch(text.removesuffix(".").strip()):
            text = inside[1].strip()
    text = MIXED.sub(r"\1\\frac{\2}{\3}", text) if MIXED.fullmatch(text) else text
    text = text.replace(" ", "") if THOUSANDS.fullmatch(text) else text
    return NAME.sub("", BETWEEN.sub(",", BARE_WORD.sub(r"\\\1 ", text))).strip()


def is_finished(gold: str, answer: str, question: str) -> bool:
    """Tell whether nothing is left to be worked out in ``answer`` that is not left in ``gold``, and
    it holds no formula of the question's and no letter that the gold has not; all are plain."""
    if "boxed" in answer or ("\\" in answer and answer in map(plain, FORMULA.findall(question))):
        return False
    commands = set(COMMAND.findall(gold))
    known = ORDINARY | commands | (TRIGONOMETRIC if commands & TRIGONOMETRIC else set())
    letters = set(LETTER.findall(gold))
    return (
        answer.count("=") == gold.count("=")
        and known.issuperset(COMMAND.findall(answer))
        and (r"\text" in gold or letters.issuperset(LETTER.findall(TEXT.sub(" ", answer))))
        and all(count(answer) <= count(gold) for count in (_additions, _left_to_do))
    )


def _additions(text: str) -> int:
    return len(ADDITION.findall(text)) + len(BOTH_SIGNS.findall(text))


def _left_to_do(text: str) -> int:
    return len(TO_WORK_OUT.findall(SCIENTIFIC.sub("", text)))


def _fraction(decimal: re.Match[str]) -> str:
    """Write a decimal exactly: math-verify compares floats to six places only."""
    whole, places = decimal.groups()
    return rf"\frac{{{whole}{places}}}{{{10 ** len(places)}}}"


class Workers:
    """Processes that judge; safe to call from any thread."""

    def __init__(
        self, count: int = 0, cpu_limit_s: float = CPU_LIMIT_S, wall_limit_s: float = WALL_LIMIT_S
    ) -> None:
        """Start nothing yet. ``count``: processes; 0: one for each core, at most four."""
        self._count = count or min(available_cores(), MOST_PROCESSES)
        self._cpu_limit_s, self._wall_limit_s = cpu_limit_s, wall_limit_s
        self._lock = threading.Lock()
        self.idle: list[Confined] = []
        """Processes that wait for an answer to judge."""

    def judge(self, pairs: Sequence[Pair]) -> list[bool]:
        """Ask math-verify about each; False too where that takes too much time or memory.

        Ctrl-C is heard when the answers that are being judged are done: after a second or so.
        Raise TaskError where no process can be started.
        """
        with self._lock, ThreadPoolExecutor(self._count) as threads:
            return list(threads.map(self._judge, pairs))

    def _judge(self, pair: Pair) -> bool:
        while True:
            try:
                worker = self.idle.pop()
            except IndexError:
                worker = self._started()
            try:
                said = worker.ask(json.dumps(pair) + "\n", self._wall_limit_s)
            except BrokenPipeError:  # it died of something else, and the question still stands
                continue
            if worker.process.returncode is None:
                self.idle.append(worker)
            return said == "1"

    def _started(self) -> Confined:
        worker = Confined(__name__, self._cpu_limit_s, MEMORY_LIMIT_BYTES)
        if worker.state == "ready":
            return worker
        worker.end()
        raise TaskError(
            f"math-verify cannot be used ({worker.state}); see potluck[math]"
            if worker.state
            else f"a process that grades mathematics did not start (exit status "
            f"{worker.process.returncode}); try `python -c 'import math_verify'`"
        )

    def close(self) -> None:
        """End the processes; the next question starts new ones."""
        with self._lock:
            while self.idle:
                self.idle.pop().end()


@cache
def shared_workers() -> Workers:
    workers = Workers()
    atexit.register(workers.close)
    return workers


def prepare() -> Callable[[bytes], str]:
    """Make what judges a line in a process of its own: a Pair as JSON, "1" or "0"."""
    from sympy.core.cache import clear_cache

    if not verdict(r"\frac{\sqrt{3}}{3} + x^2", r"\frac{1}{\sqrt{3}} + x x"):  # warm, after this
        raise RuntimeError("math-verify does not know that 1/sqrt(3) = sqrt(3)/3")

    def judged(line: bytes) -> str:
        said = "01"[verdict(*json.loads(line))]
        clear_cache()  # else the memory of a long run fills up
        return said

    return judged


def verdict(gold: str, answer: str) -> bool:
    """Ask math-verify with its own settings, both texts being LaTeX in a box.

    **Deviation** from its defaults: plain expressions, which it would run as Python, are not
    looked for; in a box they are read as LaTeX.
    """
    import math_verify

    def parsed(text: str) -> list[object]:
        boxed = text if MARKED.search(text) else f"\\boxed{{{text}}}"
        return list(math_verify.parse(boxed, latex_only, parsing_timeout=None))

    # Its own time-outs use signal.alarm; the limits above are ours.
    latex_only = [math_verify.LatexExtractionConfig()]
    return bool(math_verify.verify(parsed(gold), parsed(answer), timeout_seconds=None))
