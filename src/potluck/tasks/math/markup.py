r"""The text of an answer in mathematics, without markup and unit: the first half of reading one.

    "$\boxed{\left(\dfrac12, 3\right]}$"  ->  "(\frac12, 3]"        "5 cm"  ->  "5", "centimeter"

Standard library only, as in ``form.py``, which reads what is left.
"""

import re

LONGEST_ANSWER = 300
"""Characters. The longest gold of MATH-500 has 59."""
SIGNS = str.maketrans({
    "\u2212": "-", "\u00b0": r"^\circ ", "\u03c0": r"\pi ", "\u221e": r"\infty ",
    "\u222a": r"\cup ", "\u00b1": r"\pm ", "\u00d7": r"\times ", "\u00b7": r"\cdot ",
    "\u22c5": r"\cdot ", "\u2208": r"\in ", "\u00a0": " ", "\u2009": " ", "\u202f": " ",
    "\u200b": "", "\u2060": "", "\ufeff": "",
})  # fmt: skip
BLANK = re.compile(
    r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|quad|qquad)(?![A-Za-z])|(?<!\\)\\[,!;: ]|~"
)
BOLD = re.compile(r"\*\*((?:(?!\*\*).)+)\*\*")
ANNOUNCED = re.compile(
    r"(?:(?:so|thus|therefore|hence),? )?(?:the )?(?:final |correct )?(?:answer|result|solution)"
    r" is:? ?(\\boxed\b.*)",
    re.IGNORECASE,
)
"""The usual last sentence of a model: only a box makes it clear what in it is the answer."""
MIXED = re.compile(r"([-+]? ?[0-9]+) ([0-9]+) ?/ ?([0-9]+)")
SPELLED = re.compile(r"([0-9]{1,2}) ?\\text ?\{ ?\(([a-z]+)\) ?\}")
NUMERALS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve"),
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
SHORT_UNITS = {
    "in": "inch", "ft": "foot", "feet": "foot", "yd": "yard", "mi": "mile", "mm": "millimeter",
    "cm": "centimeter", "km": "kilometer", "kg": "kilogram", "sec": "second", "min": "minute",
    "hr": "hour", "mph": "mile per hour",
}  # fmt: skip
"""Units by their short names."""
MEASURES = {
    *SHORT_UNITS.values(),
    *("meter", "gram", "pound", "ounce", "liter", "gallon", "day", "week", "month", "year", "cent"),
}
"""Units that an answer may have where only the question names them: other words may be names."""


class Unreadable(Exception):
    """The text is no answer that we understand."""


def strip_markup(text: str) -> str:
    r"""Strip ``text`` of its box, math delimiters and marks of spacing. Raise Unreadable where it
    is too long, empty, or in characters that no answer needs.

    >>> strip_markup(r"$\boxed{ \dfrac{1}{2} }$.")
    '\\frac{1}{2}'
    """
    text = text.strip()
    if len(text) > LONGEST_ANSWER:
        raise Unreadable
    text = re.sub("\u221a([0-9]+|[a-z])", r"\\sqrt{\1}", text)
    text = " ".join(text.translate(SIGNS).split())
    if not (text.isascii() and text.isprintable()):
        raise Unreadable
    money = len(re.findall(r"(?<!\\)\$", text)) % 2  # in pairs they are math delimiters
    text = re.sub(r"(?<!\\)\$", r"\\$" if money else "", text)
    text = re.sub(r"(?<!\\)\\[()\[\]]", " ", text)
    text = BLANK.sub(" ", re.sub(r",\\! ?|\{,\}", ",", text))
    text = re.sub(r"\\[dtc]frac(?![A-Za-z])", r"\\frac", text)
    text = re.sub(r"\\(?:mbox|textrm|textbf|textit|mathrm)(?![A-Za-z])", r"\\text", text)
    text = " ".join(text.split()).removesuffix(".").strip()
    for marked in (BOLD, ANNOUNCED):
        if inside := marked.fullmatch(text):
            text = inside[1].removesuffix(".").strip()
    # Of two boxes side by side "17} \boxed{18" is left, which nothing can read.
    if box := re.fullmatch(r"\\(?:boxed|fbox) ?\{(.*)\}", text):
        text = box[1].strip()
    text = MIXED.sub(r"\1\\frac{\2}{\3}", text) if MIXED.fullmatch(text) else text
    spelled = SPELLED.fullmatch(text)
    if spelled and spelled[2] in NUMERALS and NUMERALS.index(spelled[2]) == int(spelled[1]):
        text = spelled[1]
    if not (text := text.removesuffix(".").strip()):
        raise Unreadable
    return text


def phrase(text: str, *, marked: bool) -> str:
    r"""Read the words that a bare text is, in lower case; "" if it is anything else.

    ``marked``: only where they stand in ``\text{}``. A letter in parentheses is the letter.

    >>> phrase(r"\text{(C)}", marked=True), phrase("Evelyn", marked=True), phrase("C", marked=False)
    ('c', '', 'c')
    """
    inside = re.fullmatch(r"\\text ?\{([^{}\\]*)\}", text)
    if inside is None and marked:
        return ""
    plain = (inside[1] if inside else text).strip().removesuffix(".")
    plain = re.sub(r"\(([A-Za-z])\)", r"\1", plain)
    return " ".join(plain.lower().split()) if re.fullmatch(r"[A-Za-z ]+", plain) else ""


def split_unit(text: str, expected: str = "") -> tuple[str, str]:
    r"""Split a bare text into what is left of its unit, and the unit or "".

    A unit in words needs ``\text`` around it, unless one is expected.

    >>> split_unit(r"864 \text{ inches}^2"), split_unit("864 square inches", "inch^2")
    (('864', 'inch^2'), ('864', 'inch^2'))
    """
    for unit, pattern in UNITS.items():
        if match := pattern.fullmatch(text):
            found = match.groupdict()
            amount = found.get("right")
            return (found["sign"] + amount if amount else found["left"]), unit
    match = WORDED_UNIT.fullmatch(text)
    if match and (match["text"] or expected):
        return match["left"], _unit((match["text"] or match["word"]).lower(), match["power"])
    return text, ""


def unit_named_in(text: str, question: str) -> str:
    r"""Find the unit behind a bare number if the question names it, else "".

    >>> unit_named_in("12 cm", "How many centimeters?"), unit_named_in("12 ab", "Find $ab$.")
    ('centimeter', '')
    """
    match = WORDED_UNIT.fullmatch(text)
    if match is None:
        return ""
    unit = _unit((match["text"] or match["word"]).lower(), match["power"])
    asked = {_unit(word.lower(), None) for word in re.findall("[A-Za-z]+", question)}
    return unit if unit.partition("^")[0] in asked.intersection(MEASURES) else ""


def _unit(name: str, power: str | None) -> str:
    """Bring a unit to one spelling: "square inches" and "inches^2" are "inch^2"."""
    for word, value in (("square ", "2"), ("sq ", "2"), ("cubic ", "3")):
        if name.startswith(word):
            name, power = name.removeprefix(word), value
    name = re.sub(r"(?<=ch)es$|(?<!s)s$", "", SHORT_UNITS.get(name, name))
    return name + (f"^{power}" if power else "")
