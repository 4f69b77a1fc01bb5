r"""Multiple choice: the options of a row, the right one among them, and the one that a text names.

    {"question": "2+2?", "choices": ["3", "4"], "answer": 1}   ->   2+2?
                                                                    A. 3
                                                                    B. 4
    "(B)", "B. 4", "\boxed{\text{B}}", "The answer is B", "4"  ->   "B"

docs/grading.md has the rules. An answer that names two options names none: nothing is gained by
naming several, and no list of words that take one back ("not", "rather than") is complete.
"""

import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from string import ascii_uppercase
from typing import Any, Literal, NamedTuple
from unicodedata import normalize

from potluck.tasks.base import TaskError
from potluck.tasks.grading import BOX, last_box, last_match
from potluck.tasks.json_rows import text_of_value
from potluck.tasks.sources import printable

FEWEST_OPTIONS, MOST_OPTIONS = 2, len(ascii_uppercase)
LONGEST_PLACE = 3
"""Digits of an option's place."""
LONGEST_END = 20_000
"""Characters of a completion's end in which its answer is looked for."""
LONGEST_ANSWER = 2_000
"""Characters of an answer that stands between tags, in a box, or in a line."""

AnswerAs = Literal["", "label", "index", "index-from-1", "text"]
"""What an answer is in the data: the letter or label of an option, its place from 0 or from 1, its
text; empty: whichever of label, index (from 0) and text fits, if they do not contradict."""

QUOTES = "\"'\u201c\u201d"

LABEL = re.compile(r"\(?([A-Za-z])[).:]?|\[([A-Za-z])\]")
"""Letter of an option, alone."""
LABELLED = re.compile(r"\(?([A-Z])[).:]\s*")
"""Letter that data have before the text of an option: "A)21"."""
PAIRS = (("text", "label"), ("value", "key"))
"""Names under which data have the text and the label of an option."""

MARKS = re.compile(r"\*\*|__|`|\\[()\[\]]|\\?\$")
"""Marks that make a text bold, code or mathematics, or a sum of money."""
COMMAND = re.compile(
    r"\\(?:boxed|fbox|text|textbf|textit|textrm|mathrm|mathbf|mathsf|mbox) ?"
    r"\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
)
DEEPEST = 3
"""Commands within each other."""
ALONE = re.compile(r"(?:\(([A-Za-z])\)|\[([A-Za-z])\]|([A-Za-z])[):]?)\s*[.,;!]?")
BEFORE_TEXT = re.compile(
    r"""(?: \(([A-Za-z])\) [.:,]? \s* | \[([A-Za-z])\] [.:,]? \s* | ([A-Za-z]) \) [.:]? \s*
          | ([A-Za-z]) [.:,] \s+ | ([A-Z]) \s+ [-\u2013\u2014] \s+ | ([A-Z]) [ ]* \n \s*
          | ([A-Z]) [ ] (?= \( | (?: because | since | as | which | for ) \b ) )""",
    re.VERBOSE,
)
"""Letter with something behind it."""
CUE = re.compile(
    r"""\b (?: (?: answer | (?: correct | right | best | final | my ) [ ] (?: option | choice ) ) \b
               (?: [ ] (?: to | for ) [ ] [^.:\n]{1,80}? )? ["']?
               (?: [ ]? [:=] | [ ] (?: is | was | (?: would | must | should | will ) [ ] be ) \b )
            | (?: choose | pick | select ) \b )
        (?: [ ]* (?: : | (?: most | likely | probably | clearly | definitely | therefore | thus
            | hence | indeed | then | the | correct | right | best | final | answer | option
            | choice | letter ) \b (?: [ ] (?: is | would [ ] be ) \b )? ) )* \s* """,
    re.VERBOSE | re.IGNORECASE,
)
"""Words before an answer: "The answer is", "Answer:", "the correct option would be"."""
NOUN = re.compile(r"(?:the )?(?:answer|option|choice|letter) (?=[(\[A-Z])", re.IGNORECASE)
"""Noun before a letter: "Option B"."""
IS_RIGHT = re.compile(
    r"""(?: (?: so | thus | hence | therefore ) ,? [ ] )?
        (?: the [ ] )? (?: (?: option | choice ) [ ] )?
        \(? ([A-Z]) \)? [ ] is [ ] (?: the [ ] )?
        (?: (?: only [ ] )? (?: correct | right | best ) (?: [ ] (?: answer | option | choice ) )?
            | answer ) [ ]? [.!]?""",
    re.VERBOSE | re.IGNORECASE,
)
"""Words around one: "Option B is the correct answer."."""
OTHER = re.compile(r"(?<![\w'\u2019])[A-Z](?![\w'\u2019])")
"""Letter that stands alone."""
NEXT_WORD = re.compile(r" (\w+)")
FEW_WORDS = re.compile(r"(?:I (?!or |and )|[A-Za-z]{2,},? ){0,6}")
"""Words that may stand before "the answer is": "So, I think that". None is a letter alone."""
FIRST_LETTER = re.compile(r"[(\[]?([A-Z])\b")
NO_NOUN = frozenset(("or", "and", "nor", "is", "was", "are", "but", "because", "as", "not", "if"))
"""Words behind which "A" and "I" are letters, and no article or pronoun."""


class Option(NamedTuple):
    """One option of a question."""

    letter: str
    """Letter under which it is shown: A to Z."""
    text: str
    label: str
    """Label that the data have for it, or its letter."""


def options_of(row: Mapping[str, Any], columns: str | Sequence[str], where: str) -> list[Option]:
    """Read the options in a row: of one column a list, a mapping of labels, lists of ``text`` and
    ``label``, or a list of such pairs; or one option of each of several ``columns``. Labels that
    are letters are kept, in their order; else the letters are A, B, C in the order of the options.
    Raise TaskError, which names the row, where they are no options."""
    if isinstance(columns, str):
        key = columns
        pairs = _pairs(_column(row, key, where), key, where)
    else:
        key = ", ".join(columns)
        pairs = [(name, _column(row, name, where)) for name in columns]
        while pairs and pairs[-1][1] in (None, ""):  # a table has an empty cell where there is none
            pairs.pop()

    texts = list[str]()
    for _, value in pairs:
        text = text_of_value(value)
        if text is None:
            raise TaskError(
                f"{where} has {reprlib.repr(value)} among the options of {key!r}; expected texts "
                f"or numbers"
            )
        texts.append(printable(text, key, where, expected="a text for each option").strip())
    if not FEWEST_OPTIONS <= len(texts) <= MOST_OPTIONS:
        count = "one option" if len(texts) == 1 else f"{len(texts)} options"
        raise TaskError(
            f"{where} has {count} as {key!r}; expected {FEWEST_OPTIONS} to {MOST_OPTIONS}"
        )

    options = _lettered([label for label, _ in pairs], _without_letters(texts), key, where)
    same = dict[str, Option]()
    for option in options:
        other = same.setdefault(_spaced(option.text), option)
        if other is not option:
            raise TaskError(
                f"{where} has the options {other.letter} and {option.letter} of {key!r} alike, "
                f"{reprlib.repr(option.text)}; expected different texts"
            )
    return options


def _column(row: Mapping[str, Any], key: str, where: str) -> Any:
    if key not in row:
        there = ", ".join(name[:40] for name in list(row)[:20])
        raise TaskError(
            f"{where} has no column {key!r} with options; it has {there}; set task.options to the "
            f"column of a list or mapping, or to a list of columns"
        )
    return row[key]


def _pairs(value: Any, key: str, where: str) -> list[tuple[str, Any]]:
    """List (label, text) of each option; an empty label where the data have none."""
    if isinstance(value, dict):
        for text_key, label_key in PAIRS:
            texts, labels = value.get(text_key), value.get(label_key)
            if isinstance(texts, list) and isinstance(labels, list):
                if len(texts) != len(labels):
                    raise TaskError(
                        f"{where} has {len(texts)} texts and {len(labels)} labels as {key!r}; "
                        f"expected one label for each text"
                    )
                return list(zip(map(str, labels), texts, strict=True))
        # The Hub's library writes None where another row has an option more.
        return [(str(label), text) for label, text in value.items() if text is not None]
    if isinstance(value, list):
        for text_key, label_key in PAIRS:
            names = {text_key, label_key}
            if value and all(isinstance(it, dict) and names <= it.keys() for it in value):
                return [(str(it[label_key]), it[text_key]) for it in value]
        return [("", text) for text in value]
    raise TaskError(
        f"{where} has {reprlib.repr(value)} as {key!r}; expected a list of options or a mapping of "
        f"letters to options; columns of a table are a list: task.options = ['A', 'B', 'C', 'D']"
    )


def _without_letters(texts: Sequence[str]) -> list[str]:
    """Leave the letters A, B, C out of texts that all begin with theirs."""
    found = [LABELLED.match(text) for text in texts]
    letters = [match[1] if match else "" for match in found]
    if letters != list(ascii_uppercase[: len(texts)]):
        return list(texts)
    bare = [text[match.end() :] for text, match in zip(texts, found, strict=True) if match]
    return bare if all(bare) else list(texts)


def _lettered(labels: Sequence[str], texts: Sequence[str], key: str, where: str) -> list[Option]:
    named = [label.casefold() for label in labels if label]
    if len({*named}) < len(named):
        raise TaskError(f"{where} has {list(labels)} as labels of {key!r}; expected different ones")
    found = [LABEL.fullmatch(label.strip()) for label in labels]
    letters = [(match[1] or match[2]).upper() if match else "" for match in found]
    if all(letters) and len({*letters}) == len(letters):
        options = [Option(*its) for its in zip(letters, texts, letters, strict=True)]
        return sorted(options, key=lambda option: option.letter)
    shown = ascii_uppercase[: len(texts)]
    own = [label.strip() or letter for label, letter in zip(labels, shown, strict=True)]
    return [Option(*its) for its in zip(shown, texts, own, strict=True)]


def with_options(question: str, options: Sequence[Option]) -> str:
    """Write the options below the question, a line for each."""
    return "\n".join([question.rstrip(), *(f"{it.letter}. {it.text}" for it in options)])


def readings_of(answer: str, options: Sequence[Option], answer_as: AnswerAs) -> dict[str, str]:
    """Find the letter of the option that an answer of the data is, by each way to read it."""
    found = dict[str, str]()
    bare = answer.strip()
    by_label = {option.label.casefold(): option.letter for option in options}
    label = by_label.get(bare.casefold())
    if label is None and (match := LABEL.fullmatch(bare)):
        label = by_label.get(_letter(match).casefold())
    if label is None and (match := BEFORE_TEXT.match(bare)):
        named = by_label.get(_letter(match).casefold())
        label = named if named == _named_by_text(bare[match.end() :], options) else None
    if label:
        found["label"] = label
    if bare.isascii() and bare.isdigit() and len(bare) <= LONGEST_PLACE:
        by_place = {"index": int(bare), "index-from-1": int(bare) - 1}
        for reading, place in by_place.items():
            if 0 <= place < len(options):
                found[reading] = options[place].letter
    if letter := _named_by_text(bare, options):
        found["text"] = letter

    if answer_as:
        return {reading: letter for reading, letter in found.items() if reading == answer_as}
    found.pop("index-from-1", None)
    if _have_numbers(options):
        found.pop("index", None)
    return found


def _have_numbers(options: Sequence[Option]) -> bool:
    """Tell whether labels are numbers, so that a number is a label or nothing."""
    return any(option.label.isdigit() for option in options)


def gold_of(
    answer: str, options: Sequence[Option], answer_as: AnswerAs, key: str, where: str
) -> str:
    """Find the letter of the right option. Raise TaskError where ``answer`` is none of them, or one
    by its label and another one by its place or text."""
    found = readings_of(answer, options, answer_as)
    if len({*found.values()}) == 1:
        return next(iter(found.values()))
    has = f"{where} has {reprlib.repr(answer)} as {key!r}"
    if found:
        said = " and ".join(f"the {reading} of {letter}" for reading, letter in found.items())
        ways = " or ".join(repr(reading) for reading in found)
        raise TaskError(f"{has}, which is {said}; set task.answer_as = {ways}")
    labels = ", ".join(option.label for option in options)
    last = len(options) - 1
    expected = {
        "label": f"one of {labels}",
        "index": f"a number of 0 to {last}",
        "index-from-1": f"a number of 1 to {last + 1}",
        "text": "the text of an option",
    }
    if answer_as:
        raise TaskError(f"{has}; expected {expected[answer_as]}, as task.answer_as = {answer_as!r}")
    more = ""
    if answer.strip() == str(len(options)) and not _have_numbers(options):
        more = "; if the first option is 1, set task.answer_as = 'index-from-1'"
    readings = ("label", "text") if _have_numbers(options) else ("label", "index", "text")
    told = (expected[reading] for reading in readings)
    raise TaskError(f"{has}; expected {', or '.join(told)}{more}")


def named_in_answer(answer: str, options: Sequence[Option]) -> str | None:
    """Find the letter of the option that a text names which is nothing but an answer; None: it
    names none, or more than one."""
    if len(answer) > LONGEST_ANSWER:
        return None
    bare = _unmarked(answer)
    # As it stands, before its marks are gone: "$5" is not "5", where both are options.
    if letter := _alone(bare, options) or _named_by_text(answer, options):
        return letter
    for _ in range(2):  # "Final answer: The answer is B"
        if letter := _named(bare, options):
            return letter
        cue = CUE.search(bare)
        if cue is None or not FEW_WORDS.fullmatch(bare[: cue.start()]):
            return None
        bare = bare[cue.end() :]
    return _named(bare, options)


def named_in_text(text: str, options: Sequence[Option]) -> str | None:
    """Find the letter of the option that a completion without tags names: in its last box, else
    behind its last "the answer is", else by all of it, by its last line, or by its first, else at
    the end of its last sentence."""
    text = text[-LONGEST_END:]
    box = last_box(text)
    if box is not None and (begin := last_match(BOX, text)):
        line = text[: begin.start()].rpartition("\n")[2]
        is_one = BOX.search(line) is None
        return named_in_answer(box, options) if is_one else None

    bare = _unmarked(text)
    if cue := last_match(CUE, bare):
        line = bare[: cue.start()].rpartition("\n")[2]
        before = {FIRST_LETTER.match(line, each.end()) for each in CUE.finditer(line)}
        letter = named_in_answer(bare[cue.end() :].partition("\n")[0], options)
        is_one = {each[1] for each in before if each} <= {letter}
        if letter and is_one and not re.search(r"\bor (?:the )?\Z", line):
            return letter

    if letter := named_in_answer(bare, options):
        return letter
    lines = [line for line in bare.splitlines() if line]
    for at in (-1, 0) if lines else ():
        letter = named_in_answer(lines[at], options)
        # Options that were written down again, and then a letter: it is the answer.
        lists = _stand_alone if _alone(lines[at], options) else _begin_lines
        if letter and lists(lines, options) <= {letter}:
            return letter
    return _named_at_end(lines[-1], options) if lines else None


def _named_at_end(line: str, options: Sequence[Option]) -> str | None:
    """Find the option in whose text a sentence ends: "The capital of France is Paris."."""
    for option in options:
        end = rf"(?:\b(?:is|are|was|were)|[:=]) (?:the |an? )?{re.escape(_bare(option.text))}\W*\Z"
        if re.search(end, line, re.IGNORECASE):
            is_one = not _names_another(line, option.letter, option.text, options)
            return option.letter if is_one else None
    return None


def _stand_alone(lines: Sequence[str], options: Sequence[Option]) -> set[str]:
    """Find the letters that are a line of their own."""
    return {letter for line in lines if (letter := _alone(line, options))}


def _begin_lines(lines: Sequence[str], options: Sequence[Option]) -> set[str]:
    """Find the letters with which lines begin, or of which they are the option."""
    letters = {option.letter for option in options}
    by_text = {_folded(option.text): option.letter for option in options}
    found = set[str]()
    for line in lines:
        if (match := BEFORE_TEXT.match(line)) and _letter(match) in letters:
            found.add(_letter(match))
        elif letter := by_text.get(_folded(line)):
            found.add(letter)
    return found


def _named(bare: str, options: Sequence[Option]) -> str | None:
    letters = {option.letter for option in options}
    if letter := _alone(bare, options) or _named_by_bare_text(bare, options):
        return letter
    if (match := IS_RIGHT.fullmatch(bare)) and match[1].upper() in letters:
        return match[1].upper()
    if noun := NOUN.match(bare):
        bare = bare[noun.end() :]
        if letter := _alone(bare, options):
            return letter

    if (match := BEFORE_TEXT.match(bare)) is None:
        return None
    letter = _letter(match).upper()
    if letter not in letters:
        return None
    rest = bare[match.end() :]
    own = next(option.text for option in options if option.letter == letter)
    if _folded(rest) == _folded(own):
        return letter
    # "a, b": other letters would be hard to tell from words.
    is_small = _letter(match).islower()
    return None if is_small or _names_another(rest, letter, own, options) else letter


def _alone(bare: str, options: Sequence[Option]) -> str | None:
    """Find the letter that a text is."""
    match = ALONE.fullmatch(bare.strip(QUOTES))
    letter = _letter(match).upper() if match else ""
    return letter if letter in {option.letter for option in options} else None


def _names_another(rest: str, letter: str, own: str, options: Sequence[Option]) -> bool:
    """Tell whether what stands behind a letter names another option, by its letter or text."""
    # The text of an option may hold that of another one, or a letter: "Vitamin C".
    rest = re.sub(_within(own), " ", " ".join(rest.split()), flags=re.IGNORECASE)
    for option in options:
        if option.letter != letter and re.search(_within(option.text), rest, re.IGNORECASE):
            return True
    others = {option.letter for option in options} - {letter}
    for match in OTHER.finditer(rest):
        next_word = NEXT_WORD.match(rest, match.end())
        is_word = match[0] in "AI" and next_word and next_word[1].lower() not in NO_NOUN
        if match[0] in others and not is_word:
            return True
    return False


def _within(text: str) -> str:
    """Write a pattern that finds a text between other words."""
    return rf"(?<!\w){re.escape(_bare(text))}(?!\w)"


def _named_by_text(text: str, options: Sequence[Option]) -> str | None:
    """Find the only option with this text: as it stands, else marks aside, else case too."""
    return _spelled_so(text, options, (_spaced, _bare, _folded))


def _named_by_bare_text(text: str, options: Sequence[Option]) -> str | None:
    """Find the only option with this text, of which the marks are gone already."""
    return _spelled_so(text, options, (_bare, _folded))


def _spelled_so(
    text: str, options: Sequence[Option], spellings: Sequence[Callable[[str], str]]
) -> str | None:
    for spelled in spellings:
        said = spelled(text)
        if named := [option.letter for option in options if spelled(option.text) == said]:
            return named[0] if len(named) == 1 else None
    return None


def _letter(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group)


def _spaced(text: str) -> str:
    return " ".join(normalize("NFC", text).split())


def _bare(text: str) -> str:
    """Remove marks, quotes around a text, and its full stop; a text of marks alone stays."""
    inside = " ".join(_unmarked(text).split()).removesuffix(".").strip(QUOTES)
    return inside.removesuffix(".").strip() or _spaced(text)


def _folded(text: str) -> str:
    return _bare(text).casefold()


def _unmarked(text: str) -> str:
    """Remove what makes a text bold, mathematics, or a box; lines stay."""
    text = MARKS.sub("", normalize("NFC", text))
    for _ in range(DEEPEST):
        text = COMMAND.sub(r"\1", text)
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())
