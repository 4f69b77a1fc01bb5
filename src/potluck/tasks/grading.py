"""Grading of answers in numbers: nothing here raises, runs what it reads, or takes more than linear
time. It is strict because reinforcement learning finds every leniency: math-verify, which the field
uses, takes ``2*9``, ``18%`` and ``17, 18`` for 18.
"""

import re
from decimal import Decimal
from fractions import Fraction

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
}
SYSTEM_PROMPTS = {grading: prompt_for_tags(alone) for grading, alone in ALONE.items()}
"""Default system prompt where ``tags`` are asked for and neither recipe nor row gives one."""


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
