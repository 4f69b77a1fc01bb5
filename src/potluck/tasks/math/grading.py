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

from potluck.tasks.math.form import FUNCTIONS, LETTERS, OPEN, PAIRS, Answer, parse
from potluck.tasks.math.markup import Unreadable, phrase, strip_markup, unit_named_in

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
HALF = r"\{ (?:1 / 2|\\frac \{ 1 \} \{ 2 \}) \}"
LEFT_TO_DO = re.compile(
    rf"{DIGITS} \\cdot (?:- )?{DIGITS}"  # 2 * 9
    rf"|{DIGITS} \^ (?!{HALF})|\( {DIGITS} \)"  # 3^2, 2(9); 2^{{1/2}} is a root
    rf"|{DIGITS} / {DIGITS} (?:[A-Za-z(]|\\)"  # 1/2x: which of two?
    rf"|{DIGITS} \\frac \{{ -? ?{DIGITS} \}} \{{ -? ?{DIGITS} \}}"  # 1 1/2 x, or half of x?
)
EXPAND, FACTOR = re.compile("expand", re.IGNORECASE), re.compile(r"[)0-9] \(")
WORKED_OUT = re.compile(r"\)\s*\(|expand|simplif|multipl|product", re.IGNORECASE)
"""Marks of a question whose answer may not be left, or copied, as a product."""
OPTION = re.compile(r"\(([A-Za-z])\) ([A-Za-z ]+)")
MATH = re.compile(r"\$([^$]+)\$")
"""Formulas of a question."""
LETTER = re.compile(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])|\\(?:[a-z]+)")


def same_answer(gold: str, answer: str, *, question: str = "", equal: Equal) -> bool:
    """Tell whether ``answer``, which may say anything, is the ``gold`` one; where that cannot be
    read only its own text is right. Linear in the answer's length but for ``equal``; raises nothing
    that it does not. The ``question`` may ask for degrees, percent or dollars."""
    if answer.strip() == gold.strip():
        return True
    try:
        written, reference = strip_markup(answer), strip_markup(gold)
    except Unreadable:
        return False
    if expected_phrase := phrase(reference, marked=True):
        return phrase(_option(written, question), marked=False) == expected_phrase
    if written == reference:
        return True
    try:
        expected = parse(reference)
        unit = expected.unit or unit_named_in(written, question)
        found = parse(written, unit=unit, is_list=expected.shape == "list")
    except Unreadable:
        return False
    if found.expression != expected.expression and _is_copied(written, question):
        return False
    if (expected.unit, found.unit) == ("percent", "") and _is_hundredth(expected, found):
        return True
    if not (_unit_fits(expected, found, unit, question) and _name_fits(expected, found, question)):
        return False
    if expected.shape == found.shape == "one":
        if EXPAND.search(question) and len(FACTOR.findall(found.expression)) > len(
            FACTOR.findall(expected.expression)
        ):
            return False
        factors = bool(question) and not WORKED_OUT.search(question)
        return same_expression(expected.expression, found.expression, equal, factors=factors)
    return _same_structure(expected, found, equal)


def number(expression: str) -> Fraction | None:
    """Read the number that a leaf is, exactly; None where it is more than a way to write one.

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
    """Tell whether the question holds it just so; plain numbers and names may well be both."""
    if "\\" not in written:
        return False
    for span in MATH.findall(question):
        with suppress(Unreadable):
            if strip_markup(span) == written:
                return True
    return False


def _option(written: str, question: str) -> str:
    """Find the letter of "(C) Plane" where the question offers just that."""
    option = OPTION.fullmatch(written)
    is_offered = option and written.lower() in " ".join(question.lower().split())
    return option[1] if option and is_offered else written


def _is_hundredth(expected: Answer, found: Answer) -> bool:
    """Tell whether ``found`` is the gold's percentage as a plain number: 0.1 for 10%."""
    whole, part = number(expected.expression), number(found.expression)
    return whole is not None and part is not None and not found.name and whole == 100 * part


def _unit_fits(expected: Answer, found: Answer, named: str, question: str) -> bool:
    """``named``: the unit that an answer may have though the gold has none."""
    if found.unit in ("", expected.unit, named):
        return True
    asked = ASKED_FOR.get(found.unit)
    return not expected.unit and asked is not None and bool(asked.search(question))


def _name_fits(expected: Answer, found: Answer, question: str) -> bool:
    if not found.name or expected.name:
        return found.name in ("", expected.name)
    # "a" and "I" are words, too: only in a formula are they names for sure.
    letters, formulas = set(LETTER.findall(question)), " ".join(MATH.findall(question))
    names = (letters - {"a", "A", "I"}) | set(LETTER.findall(formulas))
    is_named = any(len(name) == 1 or name[1:] in LETTERS for name in names)
    return not is_named or found.name[0] in letters


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
    """Tell whether each part has its own partner. Greedy will do: sameness is transitive."""
    left = list(found)
    for part in expected:
        # By their text first: most partners are spelled alike, and no algebra is needed.
        order = sorted(left, key=lambda other: other != part)
        partner = next((other for other in order if _same_structure(part, other, equal)), None)
        if partner is None:
            return False
        left.remove(partner)
    return True


def same_expression(gold: str, answer: str, equal: Equal, *, factors: bool = False) -> bool:
    """Tell whether two leaves are worth the same and the answer is as finished as the gold.

    ``factors``: a sum may be written as a product of sums that are no longer than it.
    """
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
    most, additions = (len(ADDITION.findall(leaf)) for leaf in (gold, answer))
    return (
        letters.issuperset(LETTER.findall(answer))
        and (additions <= most or (factors and _is_product(answer, most)))
        and len(LEFT_TO_DO.findall(answer)) <= len(LEFT_TO_DO.findall(gold))
        and equal(gold, answer)
    )


def _is_product(answer: str, most: int) -> bool:
    """Tell whether only factors have additions, ``most`` each, and no sum has one inside."""
    groups, before = [(0, False)], "("
    for token in answer.split():
        if token in OPEN:
            groups.append((0, False))
        elif token in PAIRS:
            (count, inside), (outer, has_sum) = groups.pop(), groups.pop()
            if count > most or (count and inside):
                return False
            groups.append((outer, has_sum or inside or count > 0))
        elif token in "+-" and before not in ("(", "[", "{", "/", ",", "=", "^", "_"):
            groups[-1] = (groups[-1][0] + 1, groups[-1][1])
        before = token
    return groups[0][0] == 0
