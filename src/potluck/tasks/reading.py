"""Rows of untrusted data, from files of JSON lines or from the Hub.

A file is read line by line with a limit, and what is not as expected is refused in one
line that names its place. What was expected and what to do instead the caller says.
"""

import codecs
import json
import re
import reprlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from potluck.tasks.base import TaskError

Row = tuple[str, Any]
"""Where it stands, for an error, and what the JSON there holds: anything at all."""

LONGEST_LINE_BYTES = 65_536
"""The longest line of the files of GSM8K has 1,744, of MATH-500 5,500."""

# Terminal escapes have no place in a question, and lone surrogates no encoding.
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def folder_at(path: str, *, expected: str) -> Path:
    """The folder that ``task.path`` names; ``expected`` is what it should be: "one with ...".

    Raises:
        TaskError: there is none.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise TaskError(
            f"task.path is {path!r}, but there is no folder {folder.absolute()}; expected "
            f"{expected}"
        )
    return folder


def json_lines(
    path: Path, *, file: str, line: str, longest_bytes: int = LONGEST_LINE_BYTES
) -> Iterator[Row]:
    """Every line of JSON with its place; blank lines are skipped.

    Args:
        path: to the file.
        file: what is expected where it cannot be read: ``"test.jsonl in task.path"``.
        line: what is expected in each line: ``'{"question": ..., "answer": ...}'``.
        longest_bytes: of a line.

    Raises:
        TaskError: no such file, not UTF-8, not JSON, or a line beyond ``longest_bytes``.
    """
    try:
        with path.open("rb") as source:
            lines = iter(partial(source.readline, longest_bytes + 1), b"")
            for number, raw in enumerate(lines, start=1):
                where = f"{path}, line {number}"
                if len(raw) > longest_bytes:
                    raise TaskError(
                        f"{where} has more than {longest_bytes} bytes; expected one problem"
                    )
                if raw.strip():
                    yield where, _decoded(raw, where, line)
    except OSError as error:
        raise TaskError(f"cannot read {path} ({error.strerror}); expected {file}") from error


KINDS = ("parquet", "json", "csv", "arrow", "text")
"""Of files in a data set of the Hub: data and nothing else."""
READERS = "datasets.packaged_modules"


def hub_rows(name: str, config: str | None, split: str, *, empty: str, way_out: str) -> list[Row]:
    """Every row of a split of a data set of the Hub, each with its place.

    Nothing that the data set brings along is run: ``trust_remote_code`` is never given, and
    formats that can hold code (pickles of pandas, tar files of them, a script) are refused.

    Args:
        name, config, split: as the library ``datasets`` has them.
        empty: why the Hub is asked: ``"task.path is empty"``.
        way_out: what else can be done: ``"or download ..."``.

    Raises:
        TaskError: the library, the Hub or the data set is not there.
    """
    try:
        # Here and not above: an extra, slow to import, and no need of whoever has files.
        from datasets import load_dataset, load_dataset_builder
    except ImportError:
        raise TaskError(
            f"{empty}, and without the library 'datasets' the Hub cannot be read; "
            f"pip install 'potluck[data]', {way_out}"
        ) from None
    try:
        reader = type(load_dataset_builder(name, config)).__module__
        if reader not in (f"{READERS}.{kind}.{kind}" for kind in KINDS):
            raise TaskError(
                f"{name} is read by {reader}, which may run what stands in it; expected files of "
                f"{', '.join(KINDS)}"
            )
        rows = list(load_dataset(name, config, split=split))
    except TaskError:
        raise
    except Exception as error:  # what it raises is not documented: httpx, OSError, ValueError ...
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise TaskError(
            f"cannot load {name} from the Hub ({reason}); try later, {way_out}"
        ) from error
    return [(f"{name} {split}, row {i}", row) for i, row in enumerate(rows)]


def text_of(row: Any, key: str, where: str) -> str:
    """The text under ``key``; raises TaskError where there is none."""
    if not isinstance(row, dict) or key not in row:
        raise TaskError(f"{where} is {reprlib.repr(row)}, without the key {key!r}; expected it")
    if not isinstance(row[key], str):
        raise TaskError(f"{where} has {reprlib.repr(row[key])} as {key!r}; expected a text")
    return str(row[key])


def printable_text_of(row: Any, key: str, where: str, *, expected: str) -> str:
    """The text under ``key``, which holds more than space and nothing that a terminal obeys.

    Raises:
        TaskError: it does not; ``expected`` says what should stand there: "a problem in words".
    """
    text = text_of(row, key, where)
    if not text.strip():
        raise TaskError(f"{where} has an empty {key!r}; expected {expected}")
    if odd := UNPRINTABLE.search(text):
        raise TaskError(
            f"{where} has {odd[0]!r} at {odd.start()} of its {key!r}; expected printable text"
        )
    return text


def _decoded(line: bytes, where: str, expected: str) -> Any:
    try:
        text = line.removeprefix(codecs.BOM_UTF8).decode("utf-8")  # Windows writes one
    except UnicodeDecodeError as error:
        found = f"byte {line[error.start]:#04x} at {error.start}"
        raise TaskError(f"{where} has {found}, which is not UTF-8; save it as UTF-8") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # too long a number; too deep a list
        raise TaskError(
            f"{where} is {reprlib.repr(text.strip())}, which is not JSON; expected {expected}"
        ) from None
