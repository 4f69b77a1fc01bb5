r"""The reading of an answer in mathematics: from what a person writes to its form.

    "$\boxed{\left(\dfrac12, 3\right]}$"  ->  "(\frac12, 3]"  ->  ( \frac 12 , 3 ]
    ->  Answer("(]", (one "\frac { 1 } { 2 }", one "3"))

A leaf is written in one spelling, so that equal leaves are mostly equal strings. Nothing is
evaluated. What is too long, too deep or in signs that no answer needs is refused, so towers of
powers, sums and prose never come to computer algebra. Standard library only, as in the worker.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from potluck.tasks.math.markup import Unreadable, split_unit

LONGEST_NUMBER = 40
"""Digits."""
MOST_TOKENS = 150
DEEPEST = 6
"""Brackets in brackets."""

TOKEN = re.compile(
    r" ?(?:(?P<number>\d+(?:\.\d+)?|\.\d+)|(?P<command>\\[A-Za-z]+|\\[{}])"
    r"|(?P<word>[A-Za-z]+)|(?P<sign>[-+*/^_=()\[\]{},])) ?"
)
FUNCTIONS = {"sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "log", "ln"}
WORDS = FUNCTIONS | {"pi", "sqrt"}
"""Commands that people write without the backslash."""
PAIRS = {")": ("(", "["), "]": ("(", "["), "}": ("{",), "\\}": ("\\{",)}
"""An interval may be open at one end and closed at the other."""
OPEN = ("(", "[", "{", "\\{")
MOST_PARTS = 16
"""Limit of a list, a point, a matrix."""
LARGEST_EXPONENT = 50

LETTERS = {
    "alpha", "beta", "gamma", "delta", "epsilon", "theta", "lambda", "mu", "phi", "omega", "sigma",
}  # fmt: skip
COMMANDS = {f"\\{name}" for name in WORDS | LETTERS | {"infty", "cdot", "pm", "mp", "frac"}}
THOUSANDS = re.compile(r"[-+]? ?[0-9]{1,3}(?:(?:,[0-9]{3})+|(?: [0-9]{3})+)(?:\.[0-9]+)?")
MATRIX = re.compile(r"\\begin ?\{([pb]?matrix)\}(.*)\\end ?\{\1\}")
NAME = re.compile(r"[A-Za-z](?: _ (?:[A-Za-z0-9]|\{ [A-Za-z0-9] \})| \( [A-Za-z] \))?")
NUMBER = re.compile(r"[0-9.]+")
SCRIPTS = ("^", "_")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, read."""

    shape: str
    """"one", "list", "equation", "union", "matrix", "row", or brackets: "()", "(]", "[)", "[]"."""
    parts: tuple["Answer", ...] = ()
    """In order; the two sides of an equation; the rows of a matrix."""
    expression: str = ""
    """LaTeX of a "one" in one spelling, a space between any two tokens."""
    name: str = ""
    """The x of ``x = 5`` and of ``x \\in [0, 1]``."""
    unit: str = ""
    """Unit, as ``split_unit`` returns it."""


def tokens_of(text: str) -> list[str]:
    r"""Split a bare text into tokens; ``*`` and ``\times`` are ``\cdot``. Raise Unreadable where
    anything else is there, too much of it, or brackets do not close.

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


def parse(text: str, *, unit: str = "", is_list: bool = False) -> Answer:
    """Read the form of ``text``, which ``strip_markup`` returned; raise Unreadable without one. A
    ``unit``, the gold's, is understood in plain words too. ``is_list``: a list is expected, so that
    "1,234" is two numbers and not one."""
    text, found = split_unit(text, unit)
    if not is_list and THOUSANDS.fullmatch(text):
        text = re.sub(r"(?<=[0-9])[, ](?=[0-9])", "", text)
    if matrix := MATRIX.fullmatch(text):
        return _matrix(matrix[2])
    text = re.sub(r",? ?(?:\\text ?\{ ?(?:and|or) ?\}|\b(?:and|or)\b)", ",", text)
    return replace(_named(tokens_of(text)), unit=found)


def _matrix(inside: str) -> Answer:
    rows = inside.strip().removesuffix("\\\\").split("\\\\")
    if len(rows) > MOST_PARTS or max(row.count("&") for row in rows) >= MOST_PARTS:
        raise Unreadable
    cells = ([_one(tokens_of(cell)) for cell in row.split("&")] for row in rows)
    return Answer("matrix", tuple(Answer("row", tuple(row)) for row in cells))


def _named(tokens: Sequence[str]) -> Answer:
    """Read an equation, or what follows ``x =`` or ``x \\in``, or what stands there alone."""
    sides = list(_split(tokens, "="))
    if len(sides) == 2:
        left, right = (" ".join(side) for side in sides)
        for name, value in ((left, sides[1]), (right, sides[0])):
            if NAME.fullmatch(name):
                return replace(_alone(value), name=name)
        return Answer("equation", (_one(sides[0]), _one(sides[1])))
    sides = list(_split(tokens, "\\in"))
    if len(sides) == 2 and NAME.fullmatch(name := " ".join(sides[0])):
        return replace(_alone(sides[1]), name=name)
    return _alone(tokens)


def _alone(tokens: Sequence[str]) -> Answer:
    if len(members := list(_split(tokens, "\\cup"))) > 1:
        return Answer("union", tuple(_bracketed(member) for member in members))
    elements = list(_split(tokens, ","))
    if len(elements) == 1 and _is_wrapped(tokens) and tokens[0] == "\\{":
        elements = list(_split(tokens[1:-1], ","))
    elif len(elements) == 1:
        return _element(tokens)
    if len(elements) > MOST_PARTS:
        raise Unreadable
    parts: list[Answer] = []
    for element in elements:
        part = _named(element) if "=" in element else _element(element)
        parts += part.parts if part.shape == "list" else [part]
    names = {part.name for part in parts} - {""}
    if len(names) > 1:  # x = 1, y = 2 is a point
        raise Unreadable
    return Answer("list", tuple(replace(part, name="") for part in parts), name="".join(names))


def _element(tokens: Sequence[str]) -> Answer:
    """Read a point, an interval or one value; two values where it says ``\\pm``."""
    if _is_wrapped(tokens) and tokens[0] in ("(", "[") and "," in tokens:
        return _bracketed(tokens)
    if _is_wrapped(tokens) and tokens[0] + tokens[-1] == "()":
        tokens = tokens[1:-1]
    if sum(token in ("\\pm", "\\mp") for token in tokens) == 1:
        both = ({"\\pm": "+", "\\mp": "-"}, {"\\pm": "-", "\\mp": "+"})
        return Answer("list", tuple(_one([s.get(t, t) for t in tokens]) for s in both))
    return _one(tokens)


def _bracketed(tokens: Sequence[str]) -> Answer:
    if not (_is_wrapped(tokens) and tokens[0] in ("(", "[")):
        raise Unreadable
    parts = tuple(_one(part) for part in _split(tokens[1:-1], ","))
    if not 2 <= len(parts) <= MOST_PARTS:
        raise Unreadable
    return Answer(tokens[0] + tokens[-1], parts)


def _one(tokens: Sequence[str]) -> Answer:
    tokens = tokens[1:] if tokens[:1] == ["+"] else tokens
    written = _written(list(tokens))
    if not written or "\\pm" in written or "\\mp" in written:
        raise Unreadable
    return Answer("one", expression=" ".join(written))


def _written(tokens: list[str]) -> list[str]:
    """Put arguments of the tokens in braces; raise Unreadable where one is unclear or unneeded."""
    written: list[str] = []
    while tokens:
        token = tokens.pop(0)
        last = written[-1] if written else ""
        if token == "\\frac":
            written += [token, *_argument(tokens, pair=True), *_argument(tokens)]
        elif token == "\\sqrt":
            written += [token, *_index_of_root(tokens), *_argument(tokens, round=True)]
        elif token in SCRIPTS:
            written += [token, *_script(tokens)]
        elif NUMBER.fullmatch(token) and (NUMBER.fullmatch(last) or last in ("}", ")")):
            raise Unreadable  # "1 8", "x^{2}3"
        elif token in ("{", "\\{", ",", "=") or (token[0] == "\\" and token not in COMMANDS):
            raise Unreadable
        else:
            written.append(token)
    return written


def _argument(tokens: list[str], *, pair: bool = False, round: bool = False) -> list[str]:
    """Take an argument off the tokens and return it in braces.

    ``pair``: "43" is the two arguments 4 and 3; ``round``: parentheses are braces, too.
    """
    first = tokens[0] if tokens else ""
    if first == "{" or (round and first == "("):
        end = _end_of(tokens)
        inside = tokens[1:end]
        del tokens[: end + 1]
        if not inside:
            raise Unreadable
        return ["{", *_written(inside), "}"]
    if pair and re.fullmatch("[0-9]{2}", first):
        tokens[0] = first[1]
        return ["{", first[0], "}"]
    if re.fullmatch("[0-9A-Za-z]", first) or first == "\\pi":
        return ["{", tokens.pop(0), "}"]
    raise Unreadable


def _script(tokens: list[str]) -> list[str]:
    """Take off an exponent or an index: no tower, no number beyond LARGEST_EXPONENT."""
    sign = [tokens.pop(0)] if tokens[:1] == ["-"] else []
    if tokens and NUMBER.fullmatch(tokens[0]):
        script = ["{", *sign, tokens.pop(0), "}"]
    else:
        script = _argument(tokens)
        script[1:1] = sign
    numbers = [float(token) for token in script if NUMBER.fullmatch(token)]
    if set(SCRIPTS) & set(script) or any(number > LARGEST_EXPONENT for number in numbers):
        raise Unreadable
    return script


def _index_of_root(tokens: list[str]) -> list[str]:
    if tokens[:1] != ["["]:
        return []
    if tokens[2:3] != ["]"] or not re.fullmatch("[2-9]", tokens[1]):
        raise Unreadable
    return [tokens.pop(0) for _ in range(3)]


def _split(tokens: Sequence[str], mark: str) -> Iterator[list[str]]:
    """Yield the tokens between the marks that stand in no bracket."""
    part: list[str] = []
    depth = 0
    for token in tokens:
        depth += (token in OPEN) - (token in PAIRS)
        if token == mark and not depth:
            yield part
            part = []
        else:
            part.append(token)
    yield part


def _is_wrapped(tokens: Sequence[str]) -> bool:
    """Tell whether the first token is a bracket that the last one closes."""
    return bool(tokens) and tokens[0] in OPEN and _end_of(tokens) == len(tokens) - 1


def _end_of(tokens: Sequence[str]) -> int:
    for place, depth in enumerate(accumulate((t in OPEN) - (t in PAIRS) for t in tokens)):
        if not depth:
            return place
    raise Unreadable
