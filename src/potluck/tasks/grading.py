"""Grading of answers in numbers: nothing here raises, runs what it reads, or takes more than linear
time. It is strict because reinforcement learning finds every leniency: math-verify, which the field
uses, takes ``2*9``, ``18%`` and ``17, 18`` for 18.
"""

import re
from collections import deque
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Literal

LONGEST_TEXT = 1_000_000
"""Characters of a completion; a longer one is no answer. Far beyond any real run."""
LONGEST_NUMBER = 40
"""Characters of a number."""
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
TAGGED = re.compile(r"\s*<think>.*?</think>\s*<answer>(.*?)</answer>\s*", re.DOTALL)
NUMBER = re.compile(
    r"""(?: [+-]?[ ]? (?: (?: \\?\$ | [€£] )[ ]? )?   # 18  -18  - 18  $18  \$18  £ 18  -$18
          | (?: \\?\$ | [€£] ) [+-] )                # $-18
        ( (?: [1-9][0-9]{0,2} (?: ,[0-9]{3} )+   # 1,234,567: commas at every thousand
            | [0-9]+ )                           # 1234567:   or at none
          (?: \.[0-9]+ )? | \.[0-9]+ )           # 1.5  .5
        \.?[ ]?(?: \\?\$ | [€£] )?              # the full stop of a sentence; $18$, 18$, 18 €
    """,
    re.VERBOSE,
)
MARKUP = tuple(
    re.compile(rf"\s*{pattern}\s*\.?\s*", re.DOTALL)
    for pattern in (
        r"\*\*(.*)\*\*",
        r"\\\((.*)\\\)",
        r"\\\[(.*)\\\]",
        r"\$?\s*\\boxed\s*\{([^{}]*)\}\s*\$?",
    )
)
"""Marks that may stand around a number, each once, in this order: bold type, math mode, a box."""


DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d", "-"))
"""Signs that people and their editors write for a minus."""
MINUS = str.maketrans({"\u2212": "-"})
"""The sign that is no dash between words, too."""
AFTER_MARK = re.compile(r"####([^\n]*)")
"""End of a worked answer of GSM8K: "#### 18"."""
IN_TEXT = re.compile(r"(?<!\w)(?:(?<!\.)\.)?[0-9][0-9.,]*")
"""Number within a text, with the points and commas behind it; no part of a name, as in CO2."""
SIGN_BEFORE = re.compile(r"(?:\A|[^\w)}\]])-(?:\\?[$\u20ac\u00a3] ?)?\Z|\\?[$\u20ac\u00a3]-\Z")
UNWORKED_BEFORE = re.compile(
    r"""(?: [0-9)}\]] [ ]? (?: [-+*/^\u00d7\u00b7\u00f7] | \\times | \\cdot | \\div )
              [ ]? (?: \\?[$\u20ac\u00a3][ ]? )?   # 36/  9 +  $9 + $
          | [0-9] (?: : | [eE][-+] )                # 10:30  1e-5
          | \} [ ]? \{                              # \frac{36}{2}
          | [\^_] \{? -?                            # 2^{4}  x_{2}
          | \\sqrt [ ]? \{?
        ) \Z""",
    re.VERBOSE,
)
"""Text before a number that is the end of an expression: 36/2, 9 + 9, 2^{4}, 10:30."""
EXPONENT = re.compile(r"[eE][+-]?[0-9]")
LONGEST_BEFORE = 12
"""Characters before a number that are looked at."""
BOX = re.compile(r"\\(?:boxed|fbox)[ ]?\{")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)

LastAnswer = Literal["", "number", "box"]
"""Part of a completion without tags that is its answer; empty: the whole of it."""


def prompt_for_tags(alone: str, *, noun: str = "answer") -> str:
    """Word the system prompt that asks for the format of ``answer_in``."""
    return (
        "You are an assistant who solves a user's problem step by step. First reason inside "
        f"<think></think> tags, then give the final {noun} inside <answer></answer> tags: {alone}. "
        "Write nothing outside the tags, like this: "
        f"<think>your steps</think><answer>your {noun}</answer>"
    )


ALONE = {
    "number": "the number alone, without words or units",
    "exact": "the answer alone, without further words",
    "math": "the number or expression alone, without words",
    "math-verify": "the number or expression alone, without words",
    "choice": "the letter of the right option alone",
}
SYSTEM_PROMPTS = {grading: prompt_for_tags(alone) for grading, alone in ALONE.items()}
"""Default system prompt where ``tags`` are asked for and neither recipe nor row gives one."""
PLAIN_PROMPTS = {
    "choice": "Choose the right option, and end with its letter, like this: The answer is (X)."
}
"""The same without ``tags``; other gradings have none."""


def answer_in(text: str) -> str | None:
    """Find what stands between the answer tags, or None where the format is not kept: each of the
    four tags exactly once, in order, and only whitespace before, between and after the two pairs.

    Source: F-TIS, arXiv:2605.22537, the format reward of its experiments.
    **Deviation**: the paper is silent on text before ``<think>``. It is refused too.
    """
    # Each tag stands once, so each lazy `.*?` has one place to end: linear time.
    if len(text) > LONGEST_TEXT or any(text.count(tag) != 1 for tag in TAGS):
        return None
    match = TAGGED.fullmatch(text)
    return match and match[1]


def one_number(text: str) -> Decimal | None:
    """Read the number that ``text`` is, or None where it is anything but one number.

    Whitespace around it, a sign, a sign of money, thousands commas in their places (LaTeX:
    ``{,}``) and a full stop are how people write a number. All else is refused: "18 percent" and
    "half of 18" are no 18, and no list of harmless words is complete.

    >>> one_number(" $1,234.50. ")
    Decimal('1234.50')
    >>> [one_number(text) for text in ("2*9", "18%", "17, 18", "1e5", "1,23", "18 eggs")]
    [None, None, None, None, None, None]
    """
    bare = text.strip()
    if len(bare) > LONGEST_NUMBER:
        return None
    bare = bare.replace("{,}", ",").translate(DASHES)
    if not (match := NUMBER.fullmatch(bare)):
        return None
    size = Decimal(match[1].replace(",", ""))
    # copy_negate is exact; `-size` would round to the context's precision.
    return size.copy_negate() if "-" in bare else size


def number_in(answer: str) -> Decimal | None:
    """Read the number that an answer is, within the marks of ``MARKUP``."""
    if len(answer) <= 2 * LONGEST_NUMBER:
        answer = answer.replace("{,}", ",")  # a box ends at its first brace
        for pattern in MARKUP:
            if match := pattern.fullmatch(answer):
                answer = match[1]
    return one_number(answer)


def same_number(gold: str, answer: str, *, tolerance: float = 0.0) -> bool:
    """Tell whether both are one number, and the same: "18.0" is "18", "18.01" is not.

        |answer - gold| <= tolerance * |gold|

    The answer may stand in one box, as models that were brought up on LaTeX write it.
    """
    expected, found = one_number(gold), number_in(answer)
    if expected is None or found is None:
        return False
    if not tolerance:
        return expected == found
    # Of the tolerance as it is written: 1e-6 as a float is a little less.
    apart = abs(Fraction(found) - Fraction(expected))
    return apart <= Fraction(repr(tolerance)) * abs(Fraction(expected))


def last_number(text: str) -> str | None:
    """Find the number in which a text ends: that of its last line ``#### 18``, else the last one.
    None where there is none, or where it ends an expression that is not worked out.

    >>> [last_number(text) for text in ("9+9 is 18.", "$1,080 a day", "#### 18\\n\\n2.", "36/2")]
    ['18', '1080', '18', None]
    """
    if len(text) > LONGEST_TEXT:
        return None
    marked = AFTER_MARK.findall(text)
    if marked and (number := number_in(marked[-1].strip())) is not None:
        return f"{number:f}"

    text = text.replace("{,}", ",").replace(",\\!", ",").translate(MINUS)
    last = last_match(IN_TEXT, text)
    if last is None:
        return None
    before = text[max(0, last.start() - LONGEST_BEFORE) : last.start()]
    if UNWORKED_BEFORE.search(before) or EXPONENT.match(text, last.end()):
        return None
    sign = "-" if SIGN_BEFORE.search(before) else ""
    number = one_number(sign + last[0].rstrip(".,"))
    return None if number is None else f"{number:f}"


def last_box(text: str) -> str | None:
    """Find what stands in the last ``\\boxed{}`` of a text, or None where nothing does.

    >>> last_box(r"So $x = \\boxed{\\frac{1}{2}}$.")
    '\\\\frac{1}{2}'
    """
    if len(text) > LONGEST_TEXT:
        return None
    begin = last_match(BOX, text)
    if begin is None:
        return None
    depth = 1
    for found in BRACE.finditer(text, begin.end()):
        depth += (found[0] == "{") - (found[0] == "}")
        if not depth:
            return text[begin.end() : found.start()]
    return None


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Find the last place of a pattern in a text."""
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)


LAST: Mapping[LastAnswer, Callable[[str], str | None]] = {"number": last_number, "box": last_box}
LACKING: Mapping[LastAnswer, str] = {"number": "no number", "box": "nothing in a \\boxed{}"}
"""Words for a text without what ``LAST`` finds."""
