"""What a person writes as an answer in mathematics, as text: wrappings, words, units, tokens.

    "$\\boxed{\\left(\\dfrac12, 3\\right]}$"  ->  "(\\frac12, 3]"  ->  ( \\frac 12 , 3 ]

Nothing is evaluated. What is too long, too deep or written in an alphabet or in commands
that no answer needs is refused here, so towers of powers, factorials, sums, integrals and
prose never come to a computer algebra system. Standard library only: the worker process
reads with it too.
"""

import re
from collections.abc import Sequence

LONGEST_ANSWER = 300
"""Characters. The longest gold of MATH-500 has 59."""
LONGEST_NUMBER = 40
"""Digits."""
MOST_TOKENS = 150
DEEPEST = 6
"""Brackets in brackets."""

SIGNS = {
    "\u2212": "-", "\u00b0": r"^\circ ", "\u03c0": r"\pi ", "\u221e": r"\infty ",
    "\u222a": r"\cup ", "\u00b1": r"\pm ", "\u00d7": r"\times ", "\u00b7": r"\cdot ",
    "\u22c5": r"\cdot ", "\u2208": r"\in ", "\u00a0": " ", "\u2009": " ", "\u202f": " ",
}  # fmt: skip
BLANK = re.compile(
    r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|quad|qquad)(?![A-Za-z])|(?<!\\)\\[,!;: ]|~"
)
UNITS = {
    "degree": re.compile(
        r"(?P<left>.*?) ?(?:\^ ?\{? ?\\circ ?\}?|\\degree|\\text ?\{ ?degrees? ?\}|\bdegrees?)"
    ),
    "percent": re.compile(r"(?P<left>.*?) ?(?:\\?%|\\text ?\{ ?percent ?\}|\bpercent)"),
    "dollar": re.compile(
        r"(?P<sign>[-+]?) ?\\\$ ?(?P<right>[-+]?[\d.].*)"
        r"|(?P<left>.*?) ?(?:\\\$|\\text ?\{ ?dollars? ?\}|\bdollars?)"
    ),
}
WORDED_UNIT = re.compile(
    r"(?P<left>.*?[\d}]) ?(?:\\text ?\{ ?(?P<text>[A-Za-z ]+?) ?\}|(?P<word>[A-Za-z][A-Za-z ]+?))"
    r" ?(?:\^ ?\{? ?(?P<power>[23]) ?\}?)?"
)
TOKEN = re.compile(
    r" ?(?:(?P<number>\d+(?:\.\d+)?|\.\d+)|(?P<command>\\[A-Za-z]+|\\[{}])"
    r"|(?P<word>[A-Za-z]+)|(?P<sign>[-+*/^_=()\[\]{},])) ?"
)
FUNCTIONS = {"sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "log", "ln"}
WORDS = FUNCTIONS | {"pi", "sqrt"}
"""What is a command with its backslash left out."""
PAIRS = {")": ("(", "["), "]": ("(", "["), "}": ("{",), "\\}": ("\\{",)}
"""An interval may be open at one end and closed at the other."""
OPEN = ("(", "[", "{", "\\{")


class Unreadable(Exception):
    """It is no answer that we understand."""


def bare(text: str) -> str:
    r"""``text`` without box, math delimiters and marks of spacing.

    Raises:
        Unreadable: too long, empty, or in characters that no answer needs.

    >>> bare(r"$\boxed{ \dfrac{1}{2} }$.")
    '\\frac{1}{2}'
    """
    text = text.strip()
    if len(text) > LONGEST_ANSWER:
        raise Unreadable
    text = re.sub("\u221a([0-9]+|[a-z])", r"\\sqrt{\1}", text)
    for sign, latex in SIGNS.items():
        text = text.replace(sign, latex)
    text = _one_spaced(text)
    if not (text.isascii() and text.isprintable()):
        raise Unreadable
    text = _without_dollars(text)
    text = re.sub(r"(?<!\\)\\[()\[\]]", " ", text)
    text = BLANK.sub(" ", re.sub(r",\\! ?|\{,\}", ",", text))
    text = re.sub(r"\\[dtc]frac(?![A-Za-z])", r"\\frac", text)
    text = re.sub(r"\\(?:mbox|textrm|textbf|textit|mathrm)(?![A-Za-z])", r"\\text", text)
    text = _unboxed(_one_spaced(text).removesuffix(".").strip()).removesuffix(".").strip()
    if not text:
        raise Unreadable
    return text


def words(text: str, *, marked: bool) -> str:
    r"""The words that a bare text is, in lower case; "" if it is anything else.

    ``marked``: only where they stand in ``\text{}``. A letter in parentheses is the letter.

    >>> words(r"\text{(C)}", marked=True), words("Evelyn", marked=True), words("C", marked=False)
    ('c', '', 'c')
    """
    inside = re.fullmatch(r"\\text ?\{([^{}\\]*)\}", text)
    if inside is None and marked:
        return ""
    plain = (inside[1] if inside else text).strip().removesuffix(".")
    plain = re.sub(r"\(([A-Za-z])\)", r"\1", plain)
    return " ".join(plain.lower().split()) if re.fullmatch(r"[A-Za-z ]+", plain) else ""


def split_unit(text: str, expected: str = "") -> tuple[str, str]:
    r"""A bare text without its unit, and the unit or "".

    A unit in words needs ``\text`` around it, unless one is expected.

    >>> split_unit(r"864 \text{ inches}^2"), split_unit("864 square inches", "inch^2")
    (('864', 'inch^2'), ('864', 'inch^2'))
    """
    for unit, pattern in UNITS.items():
        if match := pattern.fullmatch(text):
            found = match.groupdict()
            if found.get("right"):
                return found["sign"] + found["right"], unit
            return found["left"], unit
    match = WORDED_UNIT.fullmatch(text)
    if match and (match["text"] or expected):
        return match["left"], _unit((match["text"] or match["word"]).lower(), match["power"])
    return text, ""


def tokens_of(text: str) -> list[str]:
    r"""Numbers, commands, letters and signs of a bare text; ``*`` and ``\times`` are ``\cdot``.

    Raises:
        Unreadable: anything else is there, too much of it, or brackets do not close.

    >>> tokens_of("2sqrt(13) * ab")
    ['2', '\\sqrt', '(', '13', ')', '\\cdot', 'a', 'b']
    """
    tokens: list[str] = []
    place = 0
    while place < len(text):
        match = TOKEN.match(text, place)
        if match is None or len(match["number"] or "") > LONGEST_NUMBER:
            raise Unreadable
        place = match.end()
        if word := match["word"]:
            tokens += [f"\\{word}"] if word in WORDS else word
        else:
            token = match[0].strip()
            tokens.append("\\cdot" if token in ("*", "\\times") else token)
    if len(tokens) > MOST_TOKENS:
        raise Unreadable
    _require_brackets(tokens)
    return tokens


def _one_spaced(text: str) -> str:
    return " ".join(text.split())


def _without_dollars(text: str) -> str:
    """Dollar signs in pairs are math delimiters; a single one is money."""
    if len(re.findall(r"(?<!\\)\$", text)) % 2:
        return re.sub(r"(?<!\\)\$", r"\\$", text)
    return re.sub(r"(?<!\\)\$", "", text)


def _unboxed(text: str) -> str:
    """What stands in the box, where the whole text is one."""
    # Of two boxes side by side "17} \boxed{18" is left, which nothing can read.
    match = re.fullmatch(r"\\(?:boxed|fbox) ?\{(.*)\}", text)
    return match[1].strip() if match else text


def _unit(name: str, power: str | None) -> str:
    """One spelling of a unit: "square inches" and "inches^2" are "inch^2"."""
    for word, value in (("square ", "2"), ("sq ", "2"), ("cubic ", "3")):
        if name.startswith(word):
            name, power = name.removeprefix(word), value
    name = re.sub(r"(?<=ch)es$|(?<!s)s$", "", name)
    return name + (f"^{power}" if power else "")


def _require_brackets(tokens: Sequence[str]) -> None:
    stack: list[str] = []
    for token in tokens:
        if token in OPEN:
            stack.append(token)
        elif token in PAIRS and (not stack or stack.pop() not in PAIRS[token]):
            raise Unreadable
        if len(stack) > DEEPEST:
            raise Unreadable
    if stack:
        raise Unreadable
