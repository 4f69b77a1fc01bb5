r"""The form of an answer: one value, a list, a point, an interval, a matrix, an equation.

    "(\frac12, 3]"  ->  Form("(]", (one "\frac { 1 } { 2 }", one "3"))

A leaf is written in one spelling, so that equal leaves are mostly equal strings. What it
is worth is asked elsewhere: nothing is evaluated. Standard library only, as ``math_text``.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from potluck.tasks.math_text import (
    OPEN,
    PAIRS,
    WORDS,
    Unreadable,
    split_unit,
    tokens_of,
)

MOST_PARTS = 16
"""Of a list, a point, a matrix."""
LARGEST_EXPONENT = 50

LETTERS = {
    "alpha", "beta", "gamma", "delta", "epsilon", "theta", "lambda", "mu", "phi", "omega", "sigma",
}  # fmt: skip
COMMANDS = {f"\\{name}" for name in WORDS | LETTERS | {"infty", "cdot", "pm", "mp", "frac"}}
THOUSANDS = re.compile(r"[-+]? ?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")
MATRIX = re.compile(r"\\begin ?\{([pb]?matrix)\}(.*)\\end ?\{\1\}")
NAME = re.compile(r"[A-Za-z](?: _ (?:[A-Za-z0-9]|\{ [A-Za-z0-9] \})| \( [A-Za-z] \))?")
NUMBER = re.compile(r"[0-9.]+")
SCRIPTS = ("^", "_")


@dataclass(frozen=True, slots=True)
class Form:
    """What an answer is."""

    shape: str
    """"one", "list", "equation", "union", "matrix 2", or brackets: "()", "(]", "[)", "[]"."""
    parts: tuple["Form", ...] = ()
    """In order; the two sides of an equation; the rows of a matrix, of shape "list"."""
    leaf: str = ""
    """Of shape "one": LaTeX in one spelling, a space between any two tokens."""
    name: str = ""
    """Of what this is the value: the x of ``x = 5`` and of ``x \\in [0, 1]``."""
    unit: str = ""
    """As ``math_text.split_unit`` has it."""


def read(text: str, *, unit: str = "", is_list: bool = False) -> Form:
    """The form of a bare text.

    Args:
        text: as ``math_text.bare`` returns it.
        unit: the gold's, which is then understood in plain words too.
        is_list: whether a list is expected, so that "1,234" is two numbers and not one.

    Raises:
        Unreadable: it is nothing that we know.
    """
    text, found = split_unit(text, unit)
    if not is_list and THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    if matrix := MATRIX.fullmatch(text):
        return _matrix(matrix[2])
    text = re.sub(r",? ?(?:\\text ?\{ ?(?:and|or) ?\}|\b(?:and|or)\b)", ",", text)
    return replace(_named(tokens_of(text)), unit=found)


def _matrix(inside: str) -> Form:
    rows = inside.strip().removesuffix("\\\\").split("\\\\")
    if len(rows) > MOST_PARTS or max(row.count("&") for row in rows) >= MOST_PARTS:
        raise Unreadable
    parts = (Form("row", tuple(_one(tokens_of(cell)) for cell in row.split("&"))) for row in rows)
    return Form("matrix", tuple(parts))


def _named(tokens: Sequence[str]) -> Form:
    """An equation, or what follows ``x =`` or ``x \\in``, or what stands there alone."""
    sides = list(_split(tokens, "="))
    if len(sides) == 2:
        left, right = (" ".join(side) for side in sides)
        for name, value in ((left, sides[1]), (right, sides[0])):
            if NAME.fullmatch(name):
                return replace(_alone(value), name=name)
        return Form("equation", (_one(sides[0]), _one(sides[1])))
    sides = list(_split(tokens, "\\in"))
    if len(sides) == 2 and NAME.fullmatch(name := " ".join(sides[0])):
        return replace(_alone(sides[1]), name=name)
    return _alone(tokens)


def _alone(tokens: Sequence[str]) -> Form:
    members = list(_split(tokens, "\\cup"))
    if len(members) > 1:
        return Form("union", tuple(_bracketed(member) for member in members))
    elements = list(_split(tokens, ","))
    if len(elements) == 1 and _is_wrapped(tokens) and tokens[0] == "\\{":
        elements = list(_split(tokens[1:-1], ","))
    elif len(elements) == 1:
        return _element(tokens)
    if len(elements) > MOST_PARTS:
        raise Unreadable
    parts: list[Form] = []
    for element in elements:
        part = _named(element) if "=" in element else _element(element)
        parts += part.parts if part.shape == "list" else [part]
    names = {part.name for part in parts} - {""}
    if len(names) > 1:  # x = 1, y = 2 is a point
        raise Unreadable
    anonymous = tuple(replace(part, name="") for part in parts)
    return Form("list", anonymous, name="".join(names))


def _element(tokens: Sequence[str]) -> Form:
    """A point, an interval or one value; two values where it says ``\\pm``."""
    if _is_wrapped(tokens) and tokens[0] in ("(", "[") and "," in tokens:
        return _bracketed(tokens)
    if sum(token in ("\\pm", "\\mp") for token in tokens) == 1:
        both = ({"\\pm": "+", "\\mp": "-"}, {"\\pm": "-", "\\mp": "+"})
        return Form("list", tuple(_one([s.get(t, t) for t in tokens]) for s in both))
    return _one(tokens)


def _bracketed(tokens: Sequence[str]) -> Form:
    if not (_is_wrapped(tokens) and tokens[0] in ("(", "[")):
        raise Unreadable
    parts = tuple(_one(part) for part in _split(tokens[1:-1], ","))
    if not 2 <= len(parts) <= MOST_PARTS:
        raise Unreadable
    return Form(tokens[0] + tokens[-1], parts)


def _one(tokens: Sequence[str]) -> Form:
    tokens = tokens[1:] if tokens[:1] == ["+"] else tokens
    written = _written(list(tokens))
    if not written or "\\pm" in written or "\\mp" in written:
        raise Unreadable
    return Form("one", leaf=" ".join(written))


def _written(tokens: list[str]) -> list[str]:
    """The tokens with every argument in braces.

    Raises:
        Unreadable: what stands where is not clear, or is nothing that an answer needs.
    """
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
    """Takes an argument off the tokens and returns it in braces.

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
    """An exponent or an index: not a tower, and no larger than a reader would write out."""
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
    index = tokens[:3]
    del tokens[:3]
    return index


def _split(tokens: Sequence[str], mark: str) -> Iterator[list[str]]:
    """The tokens between the marks that stand in no bracket."""
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
    """Whether the first token is a bracket that the last one closes."""
    return bool(tokens) and tokens[0] in OPEN and _end_of(tokens) == len(tokens) - 1


def _end_of(tokens: Sequence[str]) -> int:
    depth = 0
    for place, token in enumerate(tokens):
        depth += (token in OPEN) - (token in PAIRS)
        if not depth:
            return place
    raise Unreadable
