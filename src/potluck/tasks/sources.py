"""Rows of untrusted data, from files (JSON lines, a JSON array, CSV, TSV) or from the Hub."""

import codecs
import csv
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from potluck.file_forms import Unreadable, open_rows, plain_suffix
from potluck.proxies import proxy_remark
from potluck.tasks.base import Split, TaskError
from potluck.tasks.json_rows import (
    LONGEST_ROW_BYTES,
    Refuse,
    SourceRow,
    begins_json,
    json_rows,
    raw_lines,
    row_of,
    text_of_line,
)

Parts = Mapping[Split, Iterable[SourceRow]]
"""Rows of the splits that there are."""
FILES = "a file with one JSON object a line, a JSON array, .csv or .tsv"
SEPARATORS = {".csv": ",", ".tsv": "\t"}
MOST_ROWS = 1_000_000
"""Number of rows of one part. All of them are held in memory."""
# Terminal escapes have no place in a question, and lone surrogates no encoding.
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


class Label(str):
    """A class label by its name, which the data set holds as a number."""


def refuse_all(error: TaskError) -> None:
    raise error


KINDS = ("parquet", "json", "csv", "arrow", "text")
"""Formats of files in a data set of the Hub: data and nothing else."""
READERS = "datasets.packaged_modules"
SAVED_DATASET = "state.json"
"""File in a folder of ``Dataset.save_to_disk``; one of a DatasetDict has it a folder deeper."""
HUB = "https://huggingface.co"
NETWORK = re.compile(r"connect|proxy|timeout|timed out|unreachable|offline", re.IGNORECASE)
"""Words in errors of libraries where a server was not reached."""
SHORT_FLOATS = ("float32", "float16")


def hub_rows(
    name: str, subset: str, split: str, *, empty: str, way_out: str
) -> Iterator[SourceRow]:
    """Read every row of a split of a data set of the Hub, each with its place. Raise TaskError,
    with why the Hub is asked (``empty``) and the ``way_out``, where it cannot be. Nothing that the
    data set brings along is run: ``trust_remote_code`` is never given, and formats that can hold
    code (pickles of pandas, tar files of them, a script) are refused."""
    try:
        # Here and not above: an extra, slow to import, and not needed for files.
        import datasets
    except ImportError:
        raise TaskError(
            f"{empty}, and without the library 'datasets' the Hub cannot be read; "
            f"pip install 'potluck[data]', {way_out}"
        ) from None
    try:
        config = subset or None
        if Path(name).expanduser().is_file():
            raise TaskError(
                f"task.dataset is the file {name}; expected the folder that holds it, or set "
                f"task.name = 'jsonl' and task.path for a text of rows"
            )
        if (Path(name).expanduser() / SAVED_DATASET).is_file():
            return _counted(_saved_rows(name, split), f"{name} {split}")
        reader = type(datasets.load_dataset_builder(name, config)).__module__
        is_data = reader in (f"{READERS}.{kind}.{kind}" for kind in KINDS)
        table = datasets.load_dataset(name, config, split=split) if is_data else ()
        rows = list(_as_named(table))
    except TaskError:
        raise
    except Exception as error:  # what it raises is not documented: httpx, OSError, ValueError ...
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        if NETWORK.search(reason):
            reason += proxy_remark(os.environ.get("HF_ENDPOINT", HUB))
        raise TaskError(
            f"cannot load {name} from the Hub ({reason}); try later, {way_out}"
        ) from error
    if not is_data:
        raise TaskError(
            f"{name} is read by {reader}, which may run what stands in it; expected files of "
            f"{', '.join(KINDS)}"
        )
    found = ((f"{name} {split}, row {i}", row) for i, row in enumerate(rows))
    return _counted(found, f"{name} {split}")


def _saved_rows(folder: str, split: str) -> Iterable[SourceRow]:
    """Read the one part that ``Dataset.save_to_disk`` wrote: Arrow and JSON, nothing that is run.
    Raise TaskError if it is another part than ``split``."""
    from datasets import load_from_disk

    table = load_from_disk(str(Path(folder).expanduser()))
    part = str(table.split or "train")
    if split not in (part, "train"):
        raise TaskError(
            f"{folder} is one part, {part!r}, as Dataset.save_to_disk wrote it, and has no split "
            f"{split!r}; save a DatasetDict with that split, or set task.held_out"
        )
    return [(f"{folder} {split}, row {i}", row) for i, row in enumerate(_as_named(table))]


def _as_named(table: Iterable[Any]) -> Iterator[Any]:
    """Yield the rows of a data set, class labels by their names and numbers as they were written:
    what ``datasets`` calls 0.10000000149011612 is 0.1 in a column of 32 bits."""
    features: Mapping[str, Any] = getattr(table, "features", None) or {}
    unlike = {name: feature for name, feature in features.items() if _is_unlike(feature)}
    for row in table:
        if unlike:
            row = row | {name: _named(row[name], unlike[name]) for name in unlike}
        yield row


def _is_unlike(feature: Any) -> bool:
    """Tell whether values of this kind, or within it, are not what the library returns."""
    if isinstance(feature, Mapping):
        return any(map(_is_unlike, feature.values()))
    if isinstance(feature, list):
        return any(map(_is_unlike, feature))
    if hasattr(feature, "feature"):  # of a List
        return _is_unlike(feature.feature)
    return hasattr(feature, "int2str") or getattr(feature, "dtype", "") in SHORT_FLOATS


def _named(value: Any, feature: Any) -> Any:
    """Return the value, in it labels by their names and short floats at their shortest text."""
    if isinstance(feature, list):
        feature = feature[0]
    elif isinstance(value, list):
        # A Sequence of a dict is a dict of lists: there ``feature`` is a Mapping already.
        feature = getattr(feature, "feature", feature)
    if isinstance(value, list):
        return [_named(item, feature) for item in value]
    if isinstance(value, dict) and isinstance(feature, Mapping):
        return {key: _named(item, feature[key]) for key, item in value.items()}
    if isinstance(value, int) and hasattr(feature, "int2str"):
        is_label = 0 <= value < len(feature.names)  # -1: the data set does not tell
        return Label(feature.int2str(value)) if is_label else value
    dtype = getattr(feature, "dtype", "")
    if isinstance(value, float) and dtype in SHORT_FLOATS:
        return float(str(np.dtype(dtype).type(value)))
    return value


def printable(text: str, key: str, where: str, *, expected: str) -> str:
    """Return the text; raise TaskError if it is blank or a terminal obeys it."""
    if not text.strip():
        raise TaskError(f"{where} has an empty {key!r}; expected {expected}")
    if odd := UNPRINTABLE.search(text):
        raise TaskError(f"{where} has {odd[0]!r} at {odd.start()} of {key!r}; use printable text")
    return text


def file_rows(
    file: str,
    wanted: str,
    columns: Sequence[str] = (),
    refuse: Refuse = refuse_all,
    names: Collection[str] = (),
) -> Iterator[SourceRow]:
    """Yield the rows of a file of any format; ``columns`` names those of a CSV or TSV file (empty:
    its first line has them), ``names`` some of which each row has. Raise TaskError, with what is
    ``wanted``, if it cannot be read, is not UTF-8 or JSON, or a line is too long."""
    if "://" in file:
        raise TaskError(
            f"{file} is an address and no file; download it, or set task.name = 'hub' for a data "
            f"set of the Hub; expected {wanted}"
        )
    place = Path(file).expanduser()
    refused = list[TaskError]()

    def count_and_refuse(error: TaskError) -> None:
        refused.append(error)
        refuse(error)

    try:
        separator = SEPARATORS.get(plain_suffix(place))
        if separator and not _holds_json(place):
            found = _separated(place, separator, columns, count_and_refuse, names)
        else:
            found = json_rows(place, names, count_and_refuse)
        yield from _counted(found, file, refused)
    except Unreadable as error:
        hub = "; task.name = 'hub' reads a folder of such files as task.dataset"
        more = hub if error.is_table else ""
        raise TaskError(f"{error}{more}; expected {wanted}") from None
    except OSError as error:
        raise TaskError(f"cannot read {place} ({error.strerror}); expected {wanted}") from error


def _holds_json(path: Path) -> bool:
    """Tell whether the text begins as JSON does and no table."""
    with open_rows(path) as source:
        lines = (line.removeprefix(codecs.BOM_UTF8).strip() for line in raw_lines(source))
        return begins_json(next(filter(None, lines), b""))


def _separated(
    path: Path,
    separator: str,
    columns: Sequence[str],
    refuse: Refuse,
    wanted: Collection[str],
) -> Iterator[SourceRow]:
    names = list(columns)
    # Python's own limit of 131,072 is for all readers of the process: it is only ever raised.
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_ROW_BYTES))
    with open_rows(path) as source:
        lines = enumerate(raw_lines(source), start=1)
        texts = (text_of_line(raw, f"{path}, line {n}") for n, raw in lines)
        reader = csv.reader(texts, delimiter=separator, strict=True)
        try:
            for cells in reader:
                where = f"{path}, line {reader.line_num}"
                if not cells:
                    continue
                if not names:
                    names = cells
                    if len(names) == 1 and names[0] not in wanted:
                        _require_separator(names[0], separator, where)
                elif cells == names:  # of files that were put behind each other
                    refuse(TaskError(f"{where} has the names of the columns again; drop the line"))
                elif len(cells) != len(names):
                    refuse(TaskError(f"{where} has {len(cells)} columns; expected {len(names)}"))
                else:
                    yield where, row_of(zip(names, cells, strict=True))
        except csv.Error as error:
            if "field limit" in str(error):
                raise TaskError(
                    f"{path}, line {reader.line_num} has a cell of more than {LONGEST_ROW_BYTES} "
                    f"characters; shorten it, or close its quotation mark"
                ) from None
            # A quotation mark is not closed, or a cell without end
            raise TaskError(
                f"{path}, line {reader.line_num}: {error}; a text with a quotation mark stands in "
                f"quotation marks and doubles it"
            ) from None


def _require_separator(name: str, separator: str, where: str) -> None:
    """Raise TaskError if the only name of a table holds another sign that separates names."""
    for sign in (*SEPARATORS.values(), ";", "|"):
        if sign in name:
            raise TaskError(
                f"{where} has {sign!r} between names, not {separator!r}; save it with commas as "
                f".csv or with tabs as .tsv"
            )


def _counted(
    rows: Iterable[SourceRow], source: str, refused: Sequence[TaskError] = ()
) -> Iterator[SourceRow]:
    """Yield the rows; raise TaskError if there are too many, or none: the first one ``refused``."""
    count = 0
    for count, row in enumerate(rows, start=1):
        if count > MOST_ROWS:
            raise TaskError(f"{source} has more than {MOST_ROWS} rows; give fewer")
        yield row
    if refused and not count:
        raise refused[0]
    if not count:
        raise TaskError(f"{source} holds no problem; expected one in every row")
