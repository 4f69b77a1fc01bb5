r"""Grading of an answer in mathematics against the gold one, as a careful person would do it.

One answer is expected, finished, in the form that the gold has. docs/grading.md has the rules, each
with what is right and wrong by it; here they stand strictest first: words, numbers, form, finished,
letters, equations, units, bases. What is left, two leaves that are no numbers, is for computer
algebra: ``equal`` is asked.

**Deviation** from math-verify alone, which takes ``0.333333`` for 1/3, ``2x+1 = 7`` for 7,
(1,2) for {1,2}, ``R`` for ``r``, 5 cm for 5 cents: reinforcement learning finds every leniency.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction

from potluck.tasks.math.form import FUNCTIONS, Answer, Unreadable, parse, phrase, strip_markup

Equal = Callable[[str, str], bool]
"""Decides whether two leaves, gold first, are worth the same. Asked last, and may be slow."""

ASKED_FOR = {
    "degree": re.compile(r"degrees|degree measure|[A-Za-z]\^\{?\\circ"),
    "percent": re.compile(r"[Pp]ercent"),
    "dollar": re.compile(r"\A(?!.*\bcents\b).*dollars", re.DOTALL),
}
DIGITS = r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
PLAIN = re.compile(
    rf"(?P<sign>- )?(?:(?P<whole>{DIGITS})(?: / (?P<per>- {DIGITS}|{DIGITS}))?"
    rf"(?: \\cdot 10 \^ \{{ (?P<power>-? ?[0-9]+) \}})?"
    rf"|(?:(?P<mixed>[0-9]+) )?\\frac \{{ (?P<up>-? ?{DIGITS}) \}} \{{ (?P<down>-? ?{DIGITS}) \}})"
)
IN_BASE = re.compile(r"([0-9]+) _ \{ ([0-9]+) \}")
ADDITION = re.compile(r"(?<=[^({[/,=^_] )[-+] ")
LEFT_TO_DO = re.compile(
    rf"{DIGITS} \\cdot (?:- )?{DIGITS}"  # 2 * 9
    rf"|{DIGITS} \^|\( {DIGITS} \)"  # 3^2, 2(9)
    rf"|{DIGITS} / {DIGITS} (?:[A-Za-z(]|\\)"  # 1/2x: which of two?
    rf"|{DIGITS} \\frac \{{ -? ?{DIGITS} \}} \{{ -? ?{DIGITS} \}}"  # 1 1/2 x, or half of x?
)
MATH = re.compile(r"\$([^$]+)\$")
"""Formulas of a question."""
LETTER = re.compile(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])|\\(?:[a-z]+)")


def same_answer(gold: str, answer: str, *, question: str = "", equal: Equal) -> bool:
    """Return whether ``answer``, which may say anything, is the ``gold`` one.

    Linear in the answer's length but for ``equal``; raises nothing that it does not. Where the
    gold cannot be read only its own text is right. ``answer`` is what stands between the tags;
    ``question``, which both answer, may ask for degrees, percent or dollars.
    """
    if answer.strip() == gold.strip():
        return True
    try:
        written, reference = strip_markup(answer), strip_markup(gold)
    except Unreadable:
        return False
    if expected_phrase := phrase(reference, marked=True):
        return phrase(written, marked=False) == expected_phrase
    if written == reference:
        return True
    try:
        expected = parse(reference)
        found = parse(written, unit=expected.unit, is_list=expected.shape == "list")
    except Unreadable:
        return False
    if found.expression != expected.expression and _is_copied(written, question):
        return False
    return (
        _unit_fits(expected, found, question)
        and _name_fits(expected, found, question)
        and _same_structure(expected, found, equal)
    )


def number(expression: str) -> Fraction | None:
    """Return the number that a leaf is, exactly; None where it is more than a way to write one.

    >>> number("1 \\\\frac { 4 } { 5 }"), number("- .5"), number("2 \\\\cdot 9")
    (Fraction(9, 5), Fraction(-1, 2), None)
    """
    if (match := PLAIN.fullmatch(expression)) is None:
        return None
    found = {key: (text or "").replace(" ", "") for key, text in match.groupdict().items()}
    if found["whole"]:
        up, down = Fraction(found["whole"]), Fraction(found["per"] or 1)
    else:
        up, down = Fraction(found["up"]), Fraction(found["down"])
    if down == 0 or (found["mixed"] and (up < 0 or down < 0)):
        return None
    value = (int(found["mixed"] or 0) + up / down) * Fraction(10) ** int(found["power"] or 0)
    return -value if found["sign"] else value


def _is_copied(written: str, question: str) -> bool:
    """Return whether the question holds it just so; plain numbers and names may well be both."""
    if "\\" not in written:
        return False
    for span in MATH.findall(question):
        with suppress(Unreadable):
            if strip_markup(span) == written:
                return True
    return False


def _unit_fits(expected: Answer, found: Answer, question: str) -> bool:
    if found.unit in ("", expected.unit):
        return True
    asked = ASKED_FOR.get(found.unit)
    return not expected.unit and asked is not None and bool(asked.search(question))


def _name_fits(expected: Answer, found: Answer, question: str) -> bool:
    if not found.name or expected.name:
        return found.name in ("", expected.name)
    return not question or found.name[0] in LETTER.findall(question)


def _same_structure(expected: Answer, found: Answer, equal: Equal) -> bool:
    if expected.shape != found.shape or len(expected.parts) != len(found.parts):
        return False
    match expected.shape:
        case "one":
            return same_expression(expected.expression, found.expression, equal)
        case "list" | "union" | "equation":
            return _in_any_order(expected.parts, found.parts, equal)
        case _:
            pairs = zip(expected.parts, found.parts, strict=True)
            return all(_same_structure(one, other, equal) for one, other in pairs)


def _in_any_order(expected: Sequence[Answer], found: Sequence[Answer], equal: Equal) -> bool:
    """Return whether each part has its own partner. Greedy will do: sameness is transitive."""
    left = list(found)
    for part in expected:
        # By their text first: most partners are spelled alike, and no algebra is needed.
        order = sorted(left, key=lambda other: other != part)
        partner = next((other for other in order if _same_structure(part, other, equal)), None)
        if partner is None:
            return False
        left.remove(partner)
    return True


def same_expression(gold: str, answer: str, equal: Equal) -> bool:
    """Return whether two leaves are worth the same and the answer is as finished as the gold."""
    if gold == answer:
        return True
    if base := IN_BASE.fullmatch(gold):
        return answer == base[1]
    if (expected := number(gold)) is not None:
        ten = IN_BASE.fullmatch(answer)
        return number(ten[1] if ten and ten[2] == "10" else answer) == expected
    if "_" in answer and "_" not in gold:
        return False
    letters = set(LETTER.findall(gold)) | {"\\frac", "\\sqrt", "\\cdot"}
    if any(f"\\{name}" in letters for name in FUNCTIONS):
        letters |= {f"\\{name}" for name in FUNCTIONS}
    return (
        letters.issuperset(LETTER.findall(answer))
        and len(ADDITION.findall(answer)) <= len(ADDITION.findall(gold))
        and len(LEFT_TO_DO.findall(answer)) <= len(LEFT_TO_DO.findall(gold))
        and equal(gold, answer)
    )
