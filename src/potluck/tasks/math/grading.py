r"""Grading of an answer in mathematics: strict on its form, before algebra decides on its value.

    "$\boxed{\left(\dfrac12, 3\right]}$"  ->  "( \frac { 1 } { 2 } , 3 ]"
    ->  "(]", ["\frac { 1 } { 2 }", "3"]

docs/grading.md has the rules. Nothing is evaluated here; standard library only, as in the worker.
**Deviation** from math-verify alone, which takes ``0.333333`` for 1/3, ``2x+1 = 7`` for 7,
(1,2) for {1,2}, ``R`` for ``r``, 5 cm for 5 cents: reinforcement learning finds each leniency.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from itertools import accumulate
from unicodedata import normalize

Equal = Callable[[str, str], bool]
"""Decides whether two values, gold first, are the same. Asked last, and may be slow."""
LONGEST_ANSWER, LONGEST_NUMBER, MOST_TOKENS = 300, 40, 150
"""Characters, digits; the longest gold of MATH-500 has 59 characters."""
DEEPEST, LARGEST_EXPONENT = 6, 50

FUNCTIONS = "arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|log|ln|pi|sqrt"
LETTERS = "alpha|beta|gamma|delta|epsilon|theta|lambda|mu|phi|omega|sigma"
COMMANDS = f"{FUNCTIONS}|{LETTERS}|infty|frac|cdot|pm|mp|cup|in|begin|end"
SIGNS = str.maketrans({
    "\u2212": "-", "\u00b0": r"^\circ ", "\u03c0": r"\pi ", "\u221e": r"\infty ",
    "\u222a": r"\cup ", "\u00b1": r"\pm ", "\u00d7": r"\times ", "\u00b7": r"\cdot ",
    "\u22c5": r"\cdot ", "\u2208": r"\in ", "\u00a0": " ", "\u2009": " ", "\u202f": " ",
    "\u200b": "", "\u2060": "", "\ufeff": "", "\u2205": r"\emptyset ", "\u2236": ":",
})  # fmt: skip
DASHES = dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d", "-")
"""Signs that people and their editors write for a minus."""
VULGAR = {
    "\u00bd": "12", "\u2153": "13", "\u2154": "23", "\u00bc": "14", "\u00be": "34", "\u2155": "15",
    "\u2156": "25", "\u2157": "35", "\u2158": "45", "\u2159": "16", "\u215a": "56", "\u215b": "18",
    "\u215c": "38", "\u215d": "58", "\u215e": "78",
}  # fmt: skip
"""Fractions of one sign, and their two digits."""
RAISED = str.maketrans(
    "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b\u207f", "0123456789-n"
)
POWER = re.compile(r"(?<=[0-9A-Za-z)\]}])[\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207b\u207f]+")
SPELLINGS = (
    (r"\\varnothing(?![A-Za-z])", r"\\emptyset"),
    (r"\\(?:text|mbox|textrm|textbf|textit|mathrm) ?\{ ?([Ii]nfinity) ?\}", r"\1"),
    (r"(?<![\\A-Za-z])[Ii]nfinity(?![A-Za-z])", r"\\infty"),
    (r"\\mathbin ?\{ ?: ?\}|\\colon(?![A-Za-z])", ":"),
    (r"(?<!\\)\\[()\[\]]", " "),
    (r",\\! ?|\{,\}", ","),
    (r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|q?quad)(?![A-Za-z])|(?<!\\)\\[,!;: ]|~", " "),
    (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
    (r"\\(?:mbox|textrm|textbf|textit|mathrm)(?![A-Za-z])", r"\\text"),
    (rf"(?<![\\A-Za-z])({FUNCTIONS})(?![A-Za-z])", r"\\\1"),
    (r"\\sqrt ?\(([^()]*)\)", r"\\sqrt{\1}"),
    (r"\\(sqrt|frac) ?([0-9A-Za-z])", r"\\\1{\2}"),
    (r"(\\frac ?\{(?:[^{}]|\{[^{}]*\})*\}) ?([0-9A-Za-z])", r"\1{\2}"),
    (r"([\^_]) ?(-? ?[0-9]+(?:\.[0-9]+)?|[A-Za-z])", r"\1{\2}"),
    (r"\\\{ *\\\}", r"\\emptyset"),
    (" *: *", ":"),
    (r"(?:\\\\ ?)?\\(begin|end) ?\{[pb]?matrix\}", r"\\\1 "),
)
"""(what is written, the one spelling of it), in this order."""
MARKED = (
    r"\*\*((?:(?!\*\*).)+)\*\*",
    r"(?i:(?:so |thus |hence )?(?:the )?(?:final |correct )?answer is:? ?)(\\boxed\b.*)",
    r"\\(?:boxed|fbox) ?\{(.*)\}",  # of two boxes "17} \boxed{18" is left, which nothing can read
    "(.*)",
)
"""Marks of the answer: bold type, a model's usual last sentence, a box, none."""
UNITS = {
    "degree": (r"\^ ?\{? ?\\circ ?\}?|\\degree\b", r"degrees|degree measure|[A-Za-z]\^\{?\\circ"),
    "percent": (r"\\?%", "[Pp]ercent"),
    "dollar": (r"\\\$", r"\A(?!.*\bcents\b).*dollars"),
}
"""Marks of units that an answer may have where only the question asks for them, and how it asks."""
WORDS = re.compile(r"(\\text ?\{)? ?(\()?([A-Za-z][A-Za-z ]*)(?(2)\)) ?(?(1)\})")
UNIT = re.compile(
    r"(.*[^ ])(?: ?\\text ?\{ ?([A-Za-z ]*?[A-Za-z])s? ?\}|(?<=[0-9}]) ?([A-Za-z]{2,}?)s?)"
    r"( ?\^\{[23]\})?"
)
TRUTHS = ("true", "false", "yes", "no")
"""Golds that are words although nothing marks them as text, and no products of letters."""
THOUSANDS = re.compile(r"[-+]? ?[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?: [0-9]{3})+)(?:\.[0-9]+)?")
TOKEN = re.compile(
    rf"[0-9]*\.?[0-9]+|\\\\|\\(?:{COMMANDS})(?![A-Za-z])|\\[{{}}]|[A-Za-z]|[-+*/^_=()\[\]{{}},&]"
)
SCRIPT = re.compile(r"[\^_] \{(?:[^{}^_]|\{[^{}^_]*\})*\}")
BRACKETS = re.compile(
    r"\\frac \{ B \} \{ B \}|\\sqrt (?:\[ [2-9] \] )?\{ B \}|[\^_] \{ B \}"
    r"|(?:\(|(?<!sqrt )\[) B [)\]]|\\\{ B \\\}|\\begin B \\end".replace("B", r"[^][(){}]+")
)
"""A pair of brackets with none inside. An interval may be open at one end alone."""

OPEN, SHUT = ("(", "[", "{", "\\{", "\\begin"), (")", "]", "}", "\\}", "\\end")
DIGITS = r"[0-9]*\.?[0-9]+"
FRACTION = rf"\\frac \{{ (-? ?{DIGITS}) \}} \{{ (-? ?{DIGITS}) \}}"
PLAIN = re.compile(
    rf"(- )?(?:(?:([0-9]+) )?{FRACTION}"
    rf"|({DIGITS})(?: / (-? ?{DIGITS}))?(?: \\cdot 10 \^ \{{ (-? ?[0-9]+) \}})?)"
)
IN_BASE = re.compile(r"([0-9]+) _ \{ [0-9]+ \}")
NAME = r"([A-Za-z](?: _ \{ [A-Za-z0-9] \}| \( [A-Za-z] \))?)"
FORMULA = re.compile(r"(?<!\\)(\$\$?)(?:\\.|[^$\\])+\1|\\\[.+?\\\]|\\\(.+?\\\)", re.DOTALL)
"""Formulas of a question."""
LETTER = re.compile(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])")
PRODUCT = (  # with a bracket, or the power of one; 1/7 (x+2) is a quotient
    r"[])0-9] [([]|[])] (?=[0-9A-Za-z]|\\(?!cdot [([])|\^ \{ -? ?[0-9])"
    r"|(?:\\cdot|\\pi|\b(?<!\\)[A-Za-z]|(?<!\{ 1 \} \{ [0-9] )(?<!\{ 1 \} \{ [0-9]{2} )\})"
    r" [([] (?=[^][()]* [-+] )"
)
PLAIN_NUMBER = rf"(?:{DIGITS}|{FRACTION})"
FACTOR = rf"(?:[A-Za-z]|\\(?:cdot|frac|sqrt|pi|{LETTERS})|\^|\{{ [^{{}}]* \}})"
UNFINISHED = (
    r"(?<=[^({[/,=^_] )[-+] ",  # additions
    PRODUCT,
    rf"{PLAIN_NUMBER} (?:{FACTOR} )*(?:\\cdot - )?{PLAIN_NUMBER}"  # 2 * 9, 2 pi * 9
    rf"|{DIGITS} \^|\( {DIGITS} \)|\}} \^ \{{ -? ?[0-9]"  # 3^2, 2(9), sqrt(2)^3
    rf"|\\sqrt \{{ {DIGITS} \}} (?:\\cdot )?\\sqrt|{DIGITS} / {DIGITS} [A-Za-z(\\]",  # half of x?
    r"(?=[0-9]*\.)[0-9.]{12}|[0-9]{12} [/}]",  # rounded: algebra compares 15 digits
)
"""Marks that an answer may not have more often than the gold."""
NO_VALUE = {",", "=", "&", "\\\\", "\\pm", "\\mp", "\\cup", "\\in", "\\{", "\\begin"}


def same_answer(gold: str, answer: str, *, question: str = "", equal: Equal) -> bool:
    """Tell whether ``answer``, which may say anything, is the ``gold`` one; where that cannot be
    read only its own text is right. Linear in the answer's length but for ``equal``; raises nothing
    that it does not. The ``question`` has names and units, and is not to be copied."""
    if normalize("NFC", answer.strip()) == normalize("NFC", gold.strip()):
        return True
    try:
        expected, written = _bare(gold), _bare(answer)
        words, said = WORDS.fullmatch(expected), WORDS.fullmatch(written)
        if words and (words[1] or words[3].lower() in TRUTHS):
            return said is not None and words[3].lower().split() == said[3].lower().split()
        if expected == written:
            return True
        if re.fullmatch("[A-Za-z]", expected) and said and said[1]:
            return said[3].strip() == expected  # a choice: B, and \\text{B} or \\textbf{(B)}
        expected, unit = _without_unit(expected, "")
        written, found = _without_unit(written, unit)
        asked = not unit and found in UNITS and re.search(UNITS[found][1], question, re.DOTALL)
        if found not in ("", unit) and not asked:
            return False
        expected = _tokens(expected)
        written = _tokens(written, is_list="," in expected)
    except ValueError:
        return False
    (expected, name), (written, called) = _without_name(expected), _without_name(written)
    if expected != written and _is_unworked(expected, written, question):
        return False
    names = {letter for it in FORMULA.finditer(question) for letter in LETTER.findall(it[0])}
    is_named = called in ("", name) or (not name and called[0] in names)
    return is_named and _same(expected, written, equal)


def _bare(text: str) -> str:
    """Strip ``text`` of its box, math delimiters and marks of spacing; raise ValueError where it is
    too long, or in characters that no answer needs."""
    if len(text := text.strip()) > LONGEST_ANSWER:
        raise ValueError
    text = re.sub("\u221a([0-9]+|[a-z])", r"\\sqrt{\1}", text)
    text = POWER.sub(lambda raised: f"^{{{raised[0].translate(RAISED)}}}", text)
    for sign, digits in VULGAR.items():
        up, down = digits[0], digits[1]
        # Behind a letter, a bracket or another one it is unclear what it belongs to: unread.
        text = re.sub(rf"(?<![A-Za-z^)}}\]{sign}]){sign}", rf"\\frac{{{up}}}{{{down}}}", text)
    text = text.translate(SIGNS | str.maketrans(DASHES))
    text = " ".join(text.split())
    if not (text.isascii() and text.isprintable()):
        raise ValueError
    money = len(re.findall(r"(?<!\\)\$", text)) % 2  # in pairs they are math delimiters
    text = re.sub(r"(?<!\\)\$", r"\\$" if money else "", text)
    for pattern, spelling in SPELLINGS:
        text = re.sub(pattern, spelling, text)
    for pattern in MARKED:
        text = " ".join(text.split()).removesuffix(".").strip()
        if inside := re.fullmatch(pattern, text):
            text = inside[1]
    if inside := re.fullmatch(r"\\boxed ?\{([^{}]*|[^{}]*\{[^{}]*\}[^{}]*)\}", text):
        text = inside[1].strip()  # a box in a box
    text = text.removeprefix("= ")
    text = re.sub(r"\A([-+]? ?[0-9]+) ([0-9]+) ?/ ?([0-9]+)\Z", r"\1\\frac{\2}{\3}", text)
    text = re.sub(r"\A([-+]?) ?\\\$ ?([-+]?[0-9.].*)", r"\1\2\\$", text)
    for unit, (mark, _) in UNITS.items():
        text = re.sub(mark, rf"\\text{{{unit}}}", text)
    return text


def _without_unit(text: str, expected: str) -> tuple[str, str]:
    """Split a bare text into what is left of its unit, and the unit or ""; words that are not
    marked as text are one only if they are the ``expected`` one."""
    if match := UNIT.fullmatch(text):
        unit = (match[2] or match[3]).lower() + (match[4] or "").strip()
        if match[2] or unit == expected or unit in UNITS:
            return match[1], unit
    return text, ""


def _tokens(text: str, *, is_list: bool = False) -> str:
    """Write a bare text as tokens with a space between any two. ``is_list``: a list is expected, so
    that "1,234" is two numbers and not one. Raise ValueError where anything else is there or too
    much of it, brackets do not close, or an argument is unclear."""
    if not is_list and THOUSANDS.fullmatch(text):
        text = re.sub("[, ]", "", text)
    text = re.sub(r",? ?(?:\\text ?\{ ?(?:and|or) ?\}|\b(?:and|or)\b)", ",", text)
    text = re.sub(r"\*|\\times(?![A-Za-z])", r"\\cdot ", text)
    tokens = TOKEN.findall(text)
    left = written = " ".join(tokens)
    scripts = SCRIPT.findall(written)
    for _ in range(DEEPEST):
        left = BRACKETS.sub("x", left)
    if (
        written.replace(" ", "") != text.replace(" ", "")
        or not 0 < len(tokens) <= MOST_TOKENS
        or re.search(rf"[0-9)}}] [0-9.]|[0-9.]{{{LONGEST_NUMBER + 1}}}", written)  # 1 8, x^{2}3
        or re.search(r"[][(){}^_]|\\(?:frac|sqrt|begin|end)", left)
        or len(scripts) != written.count("^") + written.count("_")  # one in another
        or any(float(x) > LARGEST_EXPONENT for it in scripts for x in re.findall(DIGITS, it))
    ):
        raise ValueError
    return written


def _is_unworked(gold: str, written: str, question: str) -> bool:
    """Tell whether less is factored than was asked for, or the question holds a formula of the same
    signs, but not of the gold's; plain numbers and names may well be in both."""
    plus = (it.removeprefix("+ ").replace(" - ", " + ") for it in (written, gold))
    terms, most = (len(_split(it, "+")) for it in plus)
    if "actor" in question and (terms > most or _count(PRODUCT, written) < _count(PRODUCT, gold)):
        return True
    signs = _signs(written)
    if signs == _signs(gold) or not re.search(r"[\\+/^(]|. - ", written):
        return False
    for match in FORMULA.finditer(question):
        with suppress(ValueError):
            if _signs(_without_name(_tokens(_bare(match[0])))[0]) == signs:
                return True
    return False


def _signs(text: str) -> list[str]:
    """Sort the tokens without those that change no value: brackets, a factor of 1, a plus."""
    text = re.sub(r"(?<!\S)(?:[][(){}+]|\\cdot|1(?:\.0+)?)(?!\S)", "", text.replace("\\frac", "/"))
    return sorted(str(float(it)) if it[-1].isdigit() else it for it in text.split())


def _without_name(text: str) -> tuple[str, str]:
    r"""Split what follows ``x =`` or ``x \in``, or stands before ``= x``, from the name."""
    value = text
    if match := re.match(rf"{NAME} (?:=|\\in) ", text):
        value = re.sub(rf"(?:\A|(?<=, )){re.escape(match[0])}", "", text)  # x = 1 , x = 2
    elif match := re.search(rf" = {NAME}\Z", text):
        value = text[: match.start()]
    return (value, match[1]) if match and value and "=" not in value else (text, "")


def _same(gold: str, answer: str, equal: Equal) -> bool:
    """Tell whether both have one form, and each part of the gold a partner that is the same."""
    (form, parts), (found, others) = _form(gold), _form(answer)
    if form != found or len(parts) != len(others):
        return False
    if form == "one":
        return _same_value(parts[0], others[0], equal)
    if form not in ("list", "union", "equation"):
        return all(_same(*pair, equal) for pair in zip(parts, others, strict=True))
    for part in parts:  # greedy will do: sameness is transitive
        # By their text first: most partners are spelled alike, and no algebra is needed.
        order = sorted(others, key=lambda other: other != part)
        partner = next((other for other in order if _same(part, other, equal)), None)
        if partner is None:
            return False
        others.remove(partner)
    return True


def _form(text: str) -> tuple[str, list[str]]:
    r"""Split tokens into form and parts: "one" value, "list", "equation", "union", "matrix" with
    its "row"s, or a pair of brackets. A ``\pm`` makes two parts."""
    for mark, form in (("\\cup", "union"), ("&", "row"), (",", "list"), ("=", "equation")):
        if len(parts := _split(text, mark)) > 1:
            return form, [one for part in parts for one in _both(part)]
    first, *inner, last = text.split() if " " in text else ("", text, "")
    depths = accumulate((token in OPEN) - (token in SHUT) for token in inner)
    if first not in OPEN or last not in SHUT or min(depths) < 0:
        return "list" if len(parts := _both(text)) > 1 else "one", parts
    inside = " ".join(inner)
    parts = _split(inside, "\\\\" if first == "\\begin" else ",")
    if first == "\\{":
        return "list", [one for part in parts for one in _both(part)]
    is_value = first + last == "()" and _form(inside)[0] == "one"
    return _form(inside) if is_value else (first + last, parts)


def _both(text: str) -> list[str]:
    r"""Write the two values of a ``\pm``."""
    both = [re.sub(r"\\(?:pm|mp)\b", sign, text) for sign in "+-"]
    return both if len(re.findall(r"\\(?:pm|mp)\b", text)) == 1 else [text]


def _split(text: str, mark: str) -> list[str]:
    """Return the tokens between the marks that stand in no bracket."""
    parts, depth = [""], 0
    for token in text.split():
        depth += (token in OPEN) - (token in SHUT)
        if token == mark and not depth:
            parts.append("")
        else:
            parts[-1] += f" {token}"
    return [part.strip() for part in parts]


def _same_value(gold: str, answer: str, equal: Equal) -> bool:
    """Tell whether two values are the same and the answer is as finished as the gold."""
    gold, answer = gold.removeprefix("+ "), answer.removeprefix("+ ")
    if gold == answer:
        return True
    if base := IN_BASE.fullmatch(gold):
        return answer == base[1]
    if (expected := number(gold)) is not None:
        return number(answer) == expected
    known, found = {*gold.split(), "\\frac", "\\cdot"}, answer.split()
    return (
        all(token in known or not (token[-1].isalpha() or token == "_") for token in found)
        and NO_VALUE.isdisjoint(found)
        and all(_count(it, answer) <= _count(it, gold) for it in UNFINISHED)
        and equal(gold, answer)
    )


def _count(pattern: str, text: str) -> int:
    return len(re.findall(pattern, text))


def number(expression: str) -> Fraction | None:
    """Read a number exactly; None where it is more than a way to write one: ``2 * 9``."""
    if (match := PLAIN.fullmatch(expression)) is None:
        return None
    minus, whole, up, down, plain, per, tens = (it and it.replace(" ", "") for it in match.groups())
    size, by = Fraction(up or plain), Fraction(down or per or 1)
    if not by or (whole and not 0 <= size < by):  # 2 9/1 is an addition to be done
        return None
    size = (int(whole or 0) + size / by) * Fraction(10) ** int(tens or 0)
    return -size if minus else size
