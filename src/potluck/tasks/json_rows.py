"""Rows of JSON: one object a line, or a document: a list, pretty-printed objects, an object around
a list."""

import codecs
import json
import re
import reprlib
from collections.abc import Callable, Collection, Iterable, Iterator
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from potluck.file_forms import open_rows
from potluck.tasks.base import TaskError
from potluck.tasks.grading import LONGEST_NUMBER

SourceRow = tuple[str, Any]
"""The place, for an error, and what the JSON there holds: anything at all."""
Refuse = Callable[[TaskError], None]
"""Takes the error of a bad row: raises it, or counts it and the row is left out."""
LONGEST_ROW_BYTES, LONGEST_DOCUMENT_BYTES = 2**20, 2**28
"""Longest line of a file; size of one that is a document, which is read at once."""
OBJECTS = "an object with a question and an answer (or a file that is one JSON array, .csv, .tsv)"
BLANKS = re.compile(r"[ \t\n\r]*")


class JsonNumber(float):
    """A number with a point or an exponent, and its own text: 0.1 is not always 0.1 as a float."""

    text: str

    def __new__(cls, text: str) -> "JsonNumber":
        number = super().__new__(cls, text)
        number.text = text
        return number


class Repeated(dict[str, Any]):
    """A row in which names stand more than once with unlike values; the last value counts."""

    names: tuple[str, ...] = ()


def row_of(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Make a row of names and values, a ``Repeated`` one where a value replaces another."""
    row = dict[str, Any]()
    replaced = dict[str, None]()
    for name, value in pairs:
        if name in row and row[name] != value:
            replaced[name] = None
        row[name] = value
    if not replaced:
        return row
    repeated = Repeated(row)
    repeated.names = tuple(replaced)
    return repeated


def text_of_value(value: Any) -> str | None:
    """Write a text, or a number as its file has it and without an exponent; None: it is neither."""
    match value:
        case JsonNumber():
            text = value.text
        case float():
            # The Hub's library has made a float of every number of the column.
            text = str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
        case str() | int() if not isinstance(value, bool):
            return str(value)
        case _:
            return None
    if "e" in text.lower() and abs(Decimal(text).adjusted()) < LONGEST_NUMBER:
        return f"{Decimal(text):f}"
    return text


DECODER = json.JSONDecoder(parse_float=JsonNumber, object_pairs_hook=row_of)


def text_of_line(line: bytes, where: str) -> str:
    """Decode a line; raise TaskError if it is too long or not UTF-8."""
    if len(line) > LONGEST_ROW_BYTES:
        raise _too_long(where)
    return _text(line, where)


def _too_long(where: str) -> TaskError:
    return TaskError(f"{where} has more than {LONGEST_ROW_BYTES} bytes; expected one problem")


def _text(raw: bytes, where: str) -> str:
    try:
        return raw.removeprefix(codecs.BOM_UTF8).decode("utf-8")  # Windows writes one
    except UnicodeDecodeError as error:
        found = f"byte {raw[error.start]:#04x} at {error.start}"
        raise TaskError(
            f"{where} has {found}, which is not UTF-8 (Latin-1, Windows-1252?); save it as UTF-8"
        ) from None


def raw_lines(source: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file, of a longer one no more than shows that it is too long."""
    return iter(partial(source.readline, LONGEST_ROW_BYTES + 1), b"")


def json_rows(path: Path, names: Collection[str], refuse: Refuse) -> Iterator[SourceRow]:
    """Yield the rows of a file of JSON. An only object with none of ``names`` may stand around the
    rows; without ``names`` it is a row. Raise TaskError if the file is not JSON, Unreadable if it
    is no text."""
    with open_rows(path) as source:
        lines = (line.removeprefix(codecs.BOM_UTF8) for line in raw_lines(source))
        filled = (line for line in lines if line.strip())
        first = next(filled, b"")
        second = next(filled, b"")

    is_list = first.lstrip().startswith(b"[")
    is_long = len(first) > LONGEST_ROW_BYTES
    goes_on = is_long or _goes_on(first)
    rows: Iterable[SourceRow] | None = None

    if is_list or goes_on or not second:
        # One bad line before good ones may look as if it went on.
        is_sure = is_list or (goes_on and not is_long and not _is_object(second))
        rows = _document(path, names, is_sure=is_sure)
    if rows is None:
        rows = _lines(path, refuse)
    yield from rows


def _goes_on(line: bytes) -> bool:
    """Tell whether a line is the beginning of JSON that does not end in it."""
    text = line.decode("utf-8", "replace").strip()
    try:
        DECODER.decode(text)
    except json.JSONDecodeError as error:
        return text.startswith("{") and error.pos >= len(text)
    except (ValueError, RecursionError):
        return False
    return False


def begins_json(line: bytes) -> bool:
    """Tell whether the first line of a file is JSON, or the beginning of it, and of no table."""
    is_list = re.match(rb'\[(\s*\{\s*"|$)', line)
    return bool(is_list) or _goes_on(line) or _is_object(line)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(DECODER.decode(line.decode("utf-8").strip()), dict)
    except (ValueError, RecursionError):
        return False


def _lines(path: Path, refuse: Refuse) -> Iterator[SourceRow]:
    with open_rows(path) as source:
        for number, raw in enumerate(raw_lines(source), start=1):
            where = f"{path}, line {number}"
            if len(raw) > LONGEST_ROW_BYTES:  # what follows is the rest of it, and no line
                raise _too_long(where)
            if not raw.strip():
                continue
            try:
                text = text_of_line(raw, where)
                row = _value_of_line(text.strip(), where)
            except TaskError as error:
                refuse(error)
            else:
                yield where, row


def _value_of_line(text: str, where: str) -> Any:
    try:
        value, end = DECODER.raw_decode(text)
    except json.JSONDecodeError:
        raise _not_json(text, where) from None
    except (ValueError, RecursionError) as error:
        raise _beyond_limits(where, error) from None
    if end < len(text) and isinstance(value, dict):
        raise TaskError(
            f"{where} has {reprlib.repr(text[end:])} behind its JSON value; expected one object a "
            f"line, and nothing between lines"
        )
    if end < len(text):
        raise _not_json(text, where)
    return value


def _not_json(text: str, where: str) -> TaskError:
    found = reprlib.repr(text)
    if text.startswith("{'"):
        return TaskError(f"{where} is {found}, which is Python and no JSON; write it by json.dumps")
    return TaskError(f"{where} is {found}, which is not JSON; expected {OBJECTS}")


def _beyond_limits(where: str, error: Exception) -> TaskError:
    """Make the error for JSON that may be right and that Python does not read."""
    if isinstance(error, RecursionError):
        return TaskError(f"{where} has lists or objects too deep in each other; expected a row")
    return TaskError(f"{where} has a whole number with too many digits; write it as a text")


class _Value(NamedTuple):
    """A value of a document, and the line that it begins in."""

    line: int
    value: Any
    size: int


def _document(path: Path, names: Collection[str], *, is_sure: bool) -> list[SourceRow] | None:
    """Read all rows of a document. If it is none, raise TaskError; return None if it is not
    ``is_sure`` that the file is no lines."""
    with open_rows(path) as source:
        raw = source.read(LONGEST_DOCUMENT_BYTES + 1)
    try:
        if len(raw) > LONGEST_DOCUMENT_BYTES:
            raise TaskError(
                f"{path} is one JSON document of more than {LONGEST_DOCUMENT_BYTES} bytes; write "
                f"one object a line"
            )
        values = _values(_text(raw, str(path)), path)
        if len(values) > 1 and any(isinstance(each.value, list) for each in values):
            raise TaskError(
                f"{path} has {len(values)} JSON values, and lists among them; expected one list, "
                f"or one object a line"
            )
    except TaskError:
        if is_sure:
            raise
        return None

    alone = values[0].value if len(values) == 1 else None
    if isinstance(alone, list):
        return [(f"{path}, element {i}", row) for i, row in enumerate(alone)]
    if isinstance(alone, dict) and names:
        _require_no_columns(alone, path)
        is_row = any(name in alone for name in names)
        rows = None if is_row else _rows_within(alone, path)
        if rows is not None:
            return rows

    for each in values:
        if each.size > LONGEST_ROW_BYTES:
            raise _too_long(f"{path}, line {each.line}")
    return [(f"{path}, line {each.line}", each.value) for each in values]


def _values(text: str, path: Path) -> list[_Value]:
    """Read all JSON values of a text; raise TaskError where it breaks."""
    values = list[_Value]()
    line, at = 1, 0
    while True:
        start = BLANKS.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
        line += text.count("\n", at, start)
        if start == len(text):
            return values
        try:
            value, at = DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            raise TaskError(
                f"{path} breaks at line {error.lineno}, column {error.colno} ({error.msg}), which "
                f"is not JSON; expected one JSON array, or one object a line"
            ) from None
        except (ValueError, RecursionError) as error:
            raise _beyond_limits(str(path), error) from None
        values.append(_Value(line, value, at - start))
        line += text.count("\n", start, at)


def _require_no_columns(alone: dict[str, Any], path: Path) -> None:
    """Raise TaskError if the only object of a file is a whole table, of columns or by numbers."""
    values = list(alone.values())
    are_lists = all(isinstance(value, list) and value for value in values)
    are_objects = all(isinstance(value, dict) and value for value in values)
    if len(values) < 2 or not (are_lists or are_objects):
        return
    if are_lists and any(isinstance(value[0], dict) for value in values):
        return  # lists of rows, or of messages
    shapes = {len(value) if are_lists else tuple(value) for value in values}
    if len(shapes) == 1:
        raise TaskError(
            f"{path} is one JSON object that holds a whole table ({_names(alone)}); write one "
            f"object a row (pandas: to_json(FILE, orient='records', lines=True))"
        )


def _rows_within(around: dict[str, Any], path: Path) -> list[SourceRow] | None:
    """Find the one list of objects in the object ``around`` it; None if there is none. Raise
    TaskError if there are several."""
    lists = {key: value for key, value in around.items() if isinstance(value, list)}
    of_rows = {key: rows for key, rows in lists.items() if rows and isinstance(rows[0], dict)}
    if len(of_rows) > 1:
        raise TaskError(
            f"{path} is one JSON object with {len(of_rows)} lists of rows ({_names(of_rows)}); "
            f"write each into a file of its own"
        )
    for key, rows in (of_rows or lists).items():
        if of_rows or not rows:
            return [(f"{path}, element {i} of {key[:40]!r}", row) for i, row in enumerate(rows)]
    return None


def _names(columns: Iterable[str]) -> str:
    return ", ".join(name[:40] for name in islice(columns, 9))
