"""Files as people have them: packed, in other forms, in other encodings; and right ones.

Each case of FOREIGN is a file that is no text of rows: the line says what it is and the way out,
and nothing that is not so. Each of READ is read as if its rows stood one a line.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import pickle
import re
import sqlite3
import struct
import tarfile
import zipfile

import numpy as np
import pytest
import zstandard

from potluck import file_forms
from potluck.tasks import TaskError, json_rows
from potluck.tasks.table import JsonlOptions

ROWS = [{"question": f"What is {n} + 1, café?", "answer": n + 1} for n in range(20)]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
TABLE = "question,answer\n" + "".join(f'"{r["question"]}",{r["answer"]}\n' for r in ROWS)
PRETTY = "\n".join(json.dumps(row, indent=2) for row in ROWS)


@pytest.fixture
def table(tmp_path):
    """A function that writes a file and makes a task of it."""

    def table(content, name="rows.jsonl", **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return JsonlOptions(path=str(path), **({"held_out": 0} | options)).make()

    return table


def asked(task):
    return [(p.question, p.answer) for p in map(task.problem, task.ids("train"))]


EXPECTED = [(row["question"], str(row["answer"])) for row in ROWS]


def parts(row):
    content = [{"type": "text", "text": row["question"]}]
    return {"question": [{"role": "user", "content": content}], "answer": row["answer"]}


def lines_of(*pairs):
    return "".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in pairs)


def many(*texts):
    """The texts packed as members of one gzip file, as ``cat a.gz b.gz`` makes it."""
    return b"".join(gzip.compress(text.encode()) for text in texts)


READ = {
    "gzip": ("rows.jsonl.gz", gzip.compress(LINES.encode())),
    "gzip without its ending": ("rows.jsonl", gzip.compress(LINES.encode())),
    "gzip of several members": ("rows.jsonl.gz", many(LINES[:300], LINES[300:])),
    "gzip with zeros behind it": ("rows.jsonl.gz", gzip.compress(LINES.encode()) + bytes(512)),
    "gzip of a table": ("rows.csv.gz", gzip.compress(TABLE.encode())),
    "gzip of a table in capitals": ("ROWS.CSV.GZ", gzip.compress(TABLE.encode())),
    "gzip of a list": ("rows.json.gz", gzip.compress(json.dumps(ROWS).encode())),
    "gzip of a marked text": ("rows.csv.gz", gzip.compress(TABLE.encode("utf-8-sig"))),
    "an ending of gzip alone": ("rows.csv.gz", TABLE.encode()),
    "bzip2": ("rows.jsonl.bz2", bz2.compress(LINES.encode())),
    "xz": ("rows.jsonl.xz", lzma.compress(LINES.encode())),
    "zstd": ("rows.jsonl.zst", zstandard.compress(LINES.encode())),
    "zstd of several frames": (
        "rows.jsonl.zst",
        zstandard.compress(LINES[:300].encode()) + zstandard.compress(LINES[300:].encode()),
    ),
    "zstd of a tab table": (
        "rows.tsv.zst",
        zstandard.compress(TABLE.replace('",', '"\t').replace("n,a", "n\ta").encode()),
    ),
    "pretty-printed objects": ("rows.jsonl", PRETTY),
    "pretty-printed with old line ends": ("rows.json", PRETTY.replace("\n", "\r")),
    "pretty-printed with blank lines": ("rows.json", "\n\n" + PRETTY.replace("\n}", "\n}\n\n")),
    "a pretty-printed list": ("rows.jsonl", json.dumps(ROWS, indent=4)),
    "a list with an object a line": (
        "rows.json",
        "[\n" + ",\n".join(map(json.dumps, ROWS)) + "\n]\n",
    ),
    "a list behind blank lines": ("rows.json", "\n \n" + json.dumps(ROWS)),
    "objects in one line": ("rows.jsonl", " ".join(map(json.dumps, ROWS))),
    "data": ("rows.json", json.dumps({"version": 1, "data": ROWS})),
    "pretty-printed data": ("rows.json", json.dumps({"data": ROWS}, indent=1)),
    "data with an object a line": (
        "rows.json",
        '{"data": [\n' + ",\n".join(map(json.dumps, ROWS)) + "\n]}",
    ),
    "train": ("rows.json", json.dumps({"train": ROWS})),
    "rows": ("rows.json", json.dumps({"features": ["question", "answer"], "rows": ROWS})),
    "a name of one's own": ("rows.json", json.dumps({"info": {"by": "me"}, "sums": ROWS, "n": 20})),
    "JSON in a file called csv": ("rows.csv", LINES),
    "a list in a file called csv": ("rows.csv", json.dumps(ROWS, indent=1)),
    "old Mac line ends": ("rows.csv", TABLE.replace("\n", "\r")),
    "old Mac line ends in JSON lines": ("rows.jsonl", LINES.replace("\n", "\r")),
    "UTF-16": ("rows.jsonl", LINES.encode("utf-16")),
    "UTF-16, the other order": (
        "rows.csv",
        "\ufeff".encode("utf-16-be") + TABLE.encode("utf-16-be"),
    ),
    "UTF-16 of Windows": ("rows.csv", TABLE.replace("\n", "\r\n").encode("utf-16")),
    "UTF-32": ("rows.jsonl", LINES.encode("utf-32")),
    "parts": ("rows.jsonl", "".join(json.dumps(parts(row)) + "\n" for row in ROWS)),
}


@pytest.mark.parametrize("case", READ)
def test_a_file_in_another_form_is_read_as_its_rows_without_a_note(table, case):
    name, content = READ[case]
    task = table(content, name)
    assert asked(task) == EXPECTED
    assert task.notes == ()


def written(rows, **options):
    """A CSV file as Python's own writer makes it."""
    made = io.StringIO()
    writer = csv.writer(made, **options)
    writer.writerows(rows)
    return made.getvalue()


def zipped(**files):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return made.getvalue()


def tarred(text=""):
    made, content = io.BytesIO(), text.encode()
    with tarfile.open(fileobj=made, mode="w") as archive:
        member = tarfile.TarInfo("rows.jsonl")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def database():
    with sqlite3.connect(":memory:") as made:
        made.execute("create table rows (question, answer)")
        return made.serialize()


def array():
    made = io.BytesIO()
    np.save(made, np.arange(9))
    return made.getvalue()


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345\n"
HTML = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n"
PARQUET = b"PAR1\x15\x04\x15\x10" + bytes(range(256)) + b"PAR1"
GZIP = gzip.compress(LINES.encode() * 50)
FOREIGN = {
    "parquet": (
        "rows.parquet",
        PARQUET,
        "is a parquet file; write its rows .* 'hub' reads a folder",
    ),
    "parquet's first letters": ("rows.jsonl", b"PAR1", "is a parquet file"),
    "parquet called csv": ("rows.csv", PARQUET, "is a parquet file"),
    "packed parquet": ("rows.jsonl.gz", gzip.compress(PARQUET), "by gzip and holds a parquet file"),
    "arrow": (
        "rows.arrow",
        b"ARROW1\x00\x00\xff\xff\xff\xff" + bytes(9),
        "an Arrow file; .* 'hub'",
    ),
    "an arrow stream": (
        "data.arrow",
        b"\xff\xff\xff\xff\x10" + bytes(30),
        "an Arrow stream; .* 'hub'",
    ),
    "ORC": (
        "rows.orc",
        b"ORC\n\x02\x00\xff\x81" + bytes(9),
        "is an ORC file; write its rows as JSON",
    ),
    "Avro": ("rows.avro", b"Obj\x01\x04\x16avro.schema", "is an Avro file"),
    "a pickle": ("rows.pkl", pickle.dumps(ROWS), "is a pickle, which may run code"),
    "an old pickle": (
        "rows.pkl",
        pickle.dumps(ROWS, protocol=0),
        "is an old pickle, which may run",
    ),
    "a packed pickle": ("rows.pkl.gz", gzip.compress(pickle.dumps(ROWS)), "holds a pickle"),
    "a workbook": (
        "rows.xlsx",
        zipped(**{"xl/workbook.xml": "", "a.xml": ""}),
        "is an Excel workbook; save its sheet as CSV",
    ),
    "a workbook called csv": (
        "rows.csv",
        zipped(**{"xl/workbook.xml": ""}),
        "is an Excel workbook",
    ),
    "an old workbook": (
        "rows.xls",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99),
        "is an old Excel",
    ),
    "OpenDocument": (
        "rows.ods",
        zipped(**{"mimetype": "", "content.xml": ""}),
        "is an OpenDocument file",
    ),
    "zip": (
        "rows.zip",
        zipped(**{"rows.jsonl": LINES}),
        "is a zip archive of 'rows.jsonl'; unpack it",
    ),
    "zip of several": ("rows.zip", zipped(a="", b="", c=""), "is a zip archive of 'a' and 2 more"),
    "a damaged zip": ("rows.zip", zipped(a="")[:20], "is a damaged zip archive; download it again"),
    "torch.save": ("rows.pt", zipped(**{"rows/data.pkl": ""}), "is a file of torch.save"),
    "npz": ("rows.npz", zipped(**{"a.npy": ""}), r"is NumPy arrays \(.npz\)"),
    "npy": ("rows.npy", array(), "is a NumPy array"),
    "tar": ("rows.tar", tarred(), "is a tar archive; unpack it"),
    "tar of a long text": ("rows.tar", tarred(LINES * 50), "is a tar archive; unpack it"),
    "parquet of a long text": (
        "rows.parquet",
        b"PAR1\x15\x00" + LINES.encode() * 50,
        "is a parquet file",
    ),
    "a PDF of text": ("rows.pdf", "%PDF-1.4\n1 0 obj\n", "is a PDF; name a file of rows"),
    "packed tar": (
        "rows.tar.gz",
        gzip.compress(tarred()),
        "packed by gzip and holds a tar archive",
    ),
    "7z": ("rows.7z", b"7z\xbc\xaf\x27\x1c\x00\x04" + bytes(9), "is a 7z archive"),
    "LZ4": ("rows.lz4", b"\x04\x22\x4d\x18" + bytes(9), "is an LZ4 file"),
    "SQLite": ("rows.db", database(), "is an SQLite database"),
    "HDF5": ("rows.h5", b"\x89HDF\r\n\x1a\n" + bytes(9), "is an HDF5 file"),
    "PDF": ("rows.pdf", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n" + bytes(9), "is a PDF"),
    "an unknown form": (
        "rows.bin",
        struct.pack("<300d", *range(300)),
        "is no text, and of no form",
    ),
    "packed twice": ("rows.jsonl.gz", gzip.compress(GZIP), "holds what gzip packed before; unpack"),
    "gzip that is cut": (
        "rows.jsonl.gz",
        GZIP[:-30],
        "by gzip and cannot be unpacked .it ends too e",
    ),
    "gzip that is damaged": (
        "rows.jsonl.gz",
        GZIP[:40] + b"\xff" * 9 + GZIP[49:],
        "cannot be unpacked",
    ),
    "gzip of another sum": ("rows.jsonl.gz", GZIP[:-8] + bytes(8), "cannot be unpacked"),
    "bzip2 that is cut": (
        "r.bz2",
        bz2.compress(LINES.encode())[:-9],
        "packed by bzip2 and cannot be",
    ),
    "xz that is cut": ("r.xz", lzma.compress(LINES.encode())[:-9], "packed by xz and cannot be"),
    "zstd that is cut": (
        "r.zst",
        zstandard.compress(LINES.encode())[:-9],
        "packed by zstd and cannot",
    ),
    "gzip of nothing": ("rows.jsonl.gz", gzip.compress(b""), "is packed by gzip and holds nothing"),
    "nothing": ("rows.jsonl", b"", r"is empty \(0 bytes\); download it again"),
    "nothing, called csv": ("rows.csv", b"", r"is empty \(0 bytes\)"),
    "Git LFS": ("rows.jsonl", LFS, "is a pointer of Git LFS and not the data; .* git lfs pull"),
    "Git LFS of a table": ("rows.csv", LFS, "is a pointer of Git LFS"),
    "git-annex": ("rows.jsonl", "/annex/objects/MD5-s9--0\n", "is a pointer of git-annex"),
    "a page": ("rows.jsonl", HTML, "is a page of HTML and not the data; download the file itself"),
    "a page called csv": ("rows.csv", "\n" + HTML.lower(), "is a page of HTML"),
    "a page behind a comment": ("rows.json", "<!-- saved -->" + HTML, "is a page of HTML"),
    "XML": (
        "rows.jsonl",
        "<?xml version='1.0'?>\n<rows><row/></rows>",
        "is XML; write its rows as",
    ),
    "UTF-16LE unmarked": (
        "rows.jsonl",
        LINES.encode("utf-16-le"),
        "is text in UTF-16LE without a mark",
    ),
    "UTF-16BE unmarked": (
        "rows.csv",
        TABLE.encode("utf-16-be"),
        "in UTF-16BE .*; save it as UTF-8",
    ),
    "UTF-16 that is cut": (
        "rows.jsonl",
        LINES.encode("utf-16")[:-1],
        "begins as UTF-16, but trunc",
    ),
    "Latin-1": (
        "rows.jsonl",
        LINES.encode("latin-1"),
        r"not UTF-8 \(Latin-1, Windows-1252\?\); save",
    ),
    "Latin-1 in a table": (
        "rows.csv",
        TABLE.encode("latin-1"),
        "line 2 has byte 0xe9 at 19, .* save it",
    ),
    "a list in Latin-1": (
        "rows.json",
        json.dumps(ROWS, ensure_ascii=False).encode("latin-1"),
        "not UTF-8",
    ),
    "columns": (
        "rows.json",
        json.dumps({"question": ["1?", "2?"], "answer": [1, 2]}),
        r"holds a whole table \(question, answer\); .*pandas",
    ),
    "columns by number": (
        "rows.json",
        json.dumps({"question": {"0": "1?"}, "answer": {"0": 1}}),
        "holds a whole table",
    ),
    "rows by number": (
        "rows.json",
        json.dumps({str(i): row for i, row in enumerate(ROWS)}),
        "holds a whole table",
    ),
    "two lists": (
        "rows.json",
        json.dumps({"train": ROWS, "test": ROWS[:3]}),
        r"2 lists of rows \(train, test\); write each into",
    ),
    "no rows in data": ("rows.json", '{"data": []}', "holds no problem"),
    "an object of something else": (
        "rows.json",
        '{"error": "Not found"}',
        "no column 'question'; it has error",
    ),
    "pretty-printed that breaks": ("rows.json", PRETTY[:-1], r"breaks at line 80, column 1 \(Exp"),
    "a list that breaks": (
        "rows.json",
        json.dumps(ROWS)[:-9],
        "breaks at line 1, .*, which is not JSON",
    ),
    "a list with a comma too many": (
        "rows.json",
        json.dumps(ROWS)[:-1] + ",]",
        "breaks at line 1, col",
    ),
    "two lists behind each other": (
        "rows.json",
        "[{}]\n[{}]",
        "has 2 JSON values, and lists among",
    ),
    "Python": (
        "rows.jsonl",
        "\n".join(map(str, ROWS)),
        "line 1 is .*, which is Python and no JSON; .*dumps",
    ),
    "a comma behind each line": (
        "rows.jsonl",
        LINES.replace("}\n", "},\n"),
        "line 1 has ',' behind its JSON",
    ),
    "two objects in a line": (
        "rows.jsonl",
        "\n".join(f"{row} {row}" for row in LINES.split("\n")[:-1]),
        "line 1 has ' {.* behind",
    ),
    "names that columns has": (
        "rows.csv",
        "question,answer\n",
        "line 1 has the names of the columns again",
        {"columns": ("question", "answer")},
    ),
    "msgpack": (
        "rows.msgpack",
        b"\x82\xa8question\xa61 + 1?\xa6answer\x02" * 9,
        "is no text, and of no form",
    ),
    "a table called jsonl": (
        "rows.jsonl",
        TABLE,
        "line 1 is 'question,answer', which is not JSON; .*csv",
    ),
    "semicolons": (
        "rows.csv",
        TABLE.replace(",", ";"),
        "line 1 has ';' between names, not ','; save it",
    ),
    "tabs in csv": (
        "rows.csv",
        TABLE.replace(",", "\t"),
        r"line 1 has '\\t' between names, not ','",
    ),
    "commas in tsv": ("rows.tsv", TABLE, r"line 1 has ',' between names, not '\\t'"),
    "the first line of Excel": ("rows.csv", "sep=;\n" + TABLE, "line 1 has ';' between names"),
    "a picture among parts": (
        "rows.jsonl",
        json.dumps({"question": [{"role": "user", "content": [{"type": "image"}]}], "answer": 1}),
        "a part of type 'image' in messages of 'question'; expected texts",
    ),
    "parts that are none": (
        "rows.jsonl",
        json.dumps({"question": [{"role": "user", "content": [9]}], "answer": 1}),
        "expected a text, or messages with",
    ),
    "messages of ShareGPT": (
        "rows.jsonl",
        json.dumps({"question": [{"from": "human", "value": "9?"}], "answer": 1}),
        "messages with 'role' and 'content'",
    ),
    "two users": (
        "rows.jsonl",
        json.dumps({"question": [{"role": "user", "content": "9"}] * 2, "answer": 1}),
        "expected 'user' and 'assistant' in turn, 'user' last, 'system' first or not",
    ),
    "an answer at the end": (
        "rows.jsonl",
        json.dumps(
            {"question": [{"role": r, "content": "9"} for r in ("user", "assistant")], "answer": 1}
        ),
        "; drop the last, which the model is to",
    ),
    "an answer within": (
        "rows.jsonl",
        json.dumps({"question": "9?", "reward_model": {"style": "rule", "ground_truth": "9"}}),
        r"no column 'answer'; it has question, reward_model \(with style, ground_truth\); .* or "
        r"set task.answer = '' and let a \[\[reward\]\] read it",
    ),
    "all within": (
        "rows.jsonl",
        json.dumps({"row": ROWS[0]}),
        r"no column 'question'; it has row \(with question, answer\); .* give it its own$",
    ),
}


@pytest.mark.parametrize("case", FOREIGN)
@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_file_that_is_no_rows_is_named_for_what_it_is(table, case, skip_bad):
    name, content, message, *more = FOREIGN[case]
    options = more[0] if more else {}
    with pytest.raises(TaskError, match=message) as caught:
        table(content, name, skip_bad=skip_bad, **options)
    said = str(caught.value)
    assert said.isprintable()
    assert name in said
    raw = content if isinstance(content, bytes) else content.encode()
    try:
        json.loads(raw)
    except ValueError:
        return
    assert "is not JSON" not in said


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress], ids=["bzip2", "xz"])
def test_little_is_unpacked_at_once_of_what_is_much(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(file_forms, "MOST_PIECE_BYTES", 2**16)
    (tmp_path / "zeros").write_bytes(pack(b" " * 2**22) * 2)  # two members
    packing = next(p for p in file_forms.PACKINGS if p.start.match(pack(b"")[:10] + b"1AY&SY"))
    with (tmp_path / "zeros").open("rb") as source:
        pieces = [len(p) for p in file_forms._unpacked(source, packing, tmp_path / "zeros")]
    assert max(pieces) <= 2**16
    assert sum(pieces) == 2**23


def test_what_a_packed_file_holds_is_bounded(table, monkeypatch):
    zeros = gzip.compress(b" " * 2**24)
    assert len(zeros) < 2**15
    monkeypatch.setattr(file_forms, "MOST_UNPACKED_BYTES", 2**22)
    for name, packed in (
        ("rows.jsonl.gz", zeros),
        ("rows.csv.bz2", bz2.compress(b"\n" * 2**24)),
        ("rows.json.xz", lzma.compress(b"\n" * 2**24)),
        ("rows.zst", zstandard.compress(b"\n" * 2**24)),
    ):
        with pytest.raises(TaskError, match="holds more than 4194304 bytes; give fewer rows"):
            table(packed, name)


def test_a_line_of_a_packed_file_has_the_bound_of_any_line(table):
    long = gzip.compress((LINES + json.dumps({"x": "y" * 2**20}) + "\n").encode())
    with pytest.raises(TaskError, match="line 21 has more than 1048576 bytes"):
        table(long, "rows.jsonl.gz")
    for name, first in (("rows.json", {"x": "y" * 2**20}), ("rows.jsonl", {"x": "y" * 2**21})):
        for rest in ("", LINES):
            with pytest.raises(TaskError, match="line 1 has more than 1048576 bytes; expected one"):
                table(json.dumps(first) + "\n" + rest, name)


def test_a_document_and_a_text_in_utf_16_are_read_at_once_and_bounded(table, monkeypatch):
    monkeypatch.setattr(json_rows, "LONGEST_DOCUMENT_BYTES", 99)
    for text in (
        PRETTY,
        json.dumps(ROWS),
        gzip.compress(json.dumps({"data": ROWS}, indent=1).encode()),
    ):
        with pytest.raises(
            TaskError, match="is one JSON document of more than 99 bytes; write one"
        ):
            table(text)
    assert asked(table(LINES)) == EXPECTED
    monkeypatch.setattr(file_forms, "MOST_RECODED_BYTES", 99)
    for text in (LINES.encode("utf-16"), TABLE.replace("\n", "\r")):
        with pytest.raises(
            TaskError, match=r"has .* and more than 99 bytes; save it as UTF-8 with"
        ):
            table(text, "rows.csv")


def test_a_list_of_a_row_is_none_around_rows(table):
    """A row that has the column of the question is a row, whatever lists it holds."""
    tests = [{"in": 1, "out": 2}, {"in": 2, "out": 3}]
    row = {"question": "n + 1?", "answer": 2, "tests": tests}
    for text in (json.dumps(row), json.dumps(row, indent=1)):
        task = table(text)
        assert task.row("jsonl/train/0") == row
    asks = {"Body": "Ada has 2.", "Ask": "How many?", "answer": 2, "tests": tests}
    assert asked(table(json.dumps(asks), question="{Body} {Ask}")) == [
        ("Ada has 2. How many?", "2")
    ]
    messages = {"question": [{"role": "user", "content": "9?"}], "answer": 9}
    assert asked(table(json.dumps(messages))) == [("9?", "9")]
    two = json.dumps({"q": "1?", "tests": tests}) + json.dumps({"q": "2?", "tests": tests})
    with pytest.raises(TaskError, match="line 1 has no column 'question'; it has q, tests"):
        table(two)


def test_one_bad_line_before_good_ones_is_a_bad_line(table):
    for bad in ('{"question": "9?"', '{"question": [', "{", '{"question": "9', "nothing"):
        with pytest.raises(TaskError, match=r"line 1 is .*, which is not JSON; expected an object"):
            table(bad + "\n" + LINES)
        assert asked(table(bad + "\n" + LINES, skip_bad=True)) == EXPECTED


def test_a_text_that_begins_like_another_form_is_a_text(table):
    for start in ("PAR1", "ORC", "GGUF", "BZh9", "PK", "LZIP", "Obj", "]"):
        task = table(f"{start}ID,question,answer\n1,9?,9\n", "rows.csv")
        assert task.row("jsonl/train/0")[f"{start}ID"] == "1"


def test_several_text_parts_are_lines_of_one_text(table):
    content = [{"type": "text", "text": "Add."}, {"text": "1 + 1?", "type": "text", "image": None}]
    row = {
        "question": [{"role": "system", "content": content}, {"role": "user", "content": content}],
        "answer": 2,
    }
    task = table(json.dumps(row))
    problem = task.problem("jsonl/train/0")
    assert problem.question == problem.system == "Add.\n1 + 1?"


def test_each_part_of_a_task_is_read_by_the_one_function(tmp_path):
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(LINES.encode()))
    (tmp_path / "dev.json").write_text(json.dumps({"data": [{"question": "8?", "answer": 8}]}))
    (tmp_path / "far.csv").write_bytes("question,answer\r7?,7\r".encode("utf-16"))
    places = {"path": "train.jsonl.gz", "validation": "dev.json", "out_of_distribution": "far.csv"}
    options = JsonlOptions(**{key: str(tmp_path / name) for key, name in places.items()})
    task = options.make()
    assert [len(task.ids(s)) for s in ("train", "validation", "out-of-distribution")] == [20, 1, 1]
    (tmp_path / "far.csv").write_bytes(PARQUET)
    with pytest.raises(TaskError, match=r"is a parquet file; .* in task.out_of_distribution"):
        options.make()


def test_a_folder_is_named_and_who_reads_it(tmp_path):
    with pytest.raises(TaskError, match=r"is a folder; name a file in it; task.name = 'hub' reads"):
        JsonlOptions(path=str(tmp_path)).make()


def test_an_address_is_told_from_a_file():
    for address in ("https://example.org/rows.jsonl", "hf://datasets/a/b/rows.jsonl", "s3://b/r"):
        with pytest.raises(TaskError, match="is an address and no file; download it"):
            JsonlOptions(path=address).make()


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TaskError, match="is a pipe or a device, which is read only once; save it"):
        JsonlOptions(path=str(tmp_path / "pipe")).make()


def test_an_answer_within_a_column_is_for_a_reward(table):
    """As docs/trl.md says: without the column ``answer`` the row reaches a reward function."""
    row = {"question": "9?", "reward_model": {"style": "rule", "ground_truth": "9"}}
    task = table(json.dumps(row), answer="")
    assert task.row("jsonl/train/0")["reward_model"]["ground_truth"] == "9"
    assert task.notes == ()


# Files that are read, of which something is not as it stands there.


TWICE = '{"question": "1?", "answer": 1, "answer": 2}\n'
NOTED = {
    "a name twice": ("rows.jsonl", TWICE, {}, "twice in a row .*: 'answer' "),
    "a name twice, packed": ("rows.jsonl.gz", gzip.compress(TWICE.encode()), {}, "'answer' "),
    "a name twice in a list": ("rows.json", f"[{TWICE}]", {}, "'answer' .*element 0"),
    "a name twice in data": ("rows.json", f'{{"data": [{TWICE}]}}', {}, "element 0 of 'data'"),
    "a name twice, pretty-printed": (
        "rows.json",
        TWICE.replace(",", ",\n"),
        {},
        "'answer' .*line 1",
    ),
    "a name twice in old Mac": ("rows.csv", "question,note,note,answer\r1?,a,b,1\r", {}, "'note' "),
    "a name twice in UTF-16": (
        "rows.csv",
        "question,note,note,answer\n1?,a,b,1\n".encode("utf-16"),
        {},
        "'note' ",
    ),
    "two answers": (
        "rows.jsonl",
        lines_of(("1?", 1), ("1?", 2)),
        {},
        "1 of 1 questions come with more than one",
    ),
    "two answers in a list": (
        "rows.json",
        json.dumps([{"question": "1?", "answer": a} for a in "12"]),
        {},
        "1 of 1 questions",
    ),
    "two answers, one as messages": (
        "rows.jsonl",
        lines_of(("1?", 1)) + json.dumps(parts({"question": "1?", "answer": 2})),
        {},
        "1 of 1 questions",
    ),
    "two answers but for spaces": (
        "rows.csv",
        "question,answer\n1  + 1?,2\n1 + 1? ,3\n",
        {},
        "1 of 1 questions",
    ),
    "bad rows": (
        "rows.jsonl",
        lines_of(("1?", 1), ("2?", "two")),
        {"skip_bad": True},
        "1 of 2 rows are left out",
    ),
    "bad lines": (
        "rows.jsonl",
        lines_of(("1?", 1)) + "nothing\n",
        {"skip_bad": True},
        "1 of 2 rows are left out",
    ),
    "bad lines, packed": (
        "rows.zst",
        zstandard.compress((lines_of(("1?", 1)) + "{\n").encode()),
        {"skip_bad": True},
        "1 of 2 rows",
    ),
    "short lines of a table": (
        "rows.csv",
        "question,answer\n1?,1\n2?\n",
        {"skip_bad": True},
        "1 of 2 rows are left out",
    ),
    "a bad row, pretty-printed": (
        "rows.json",
        '{"question":\n"1?", "answer": 1}\n{"question":\n"2?"}',
        {"skip_bad": True},
        "line 3 has no column 'answer'",
    ),
    "names again": (
        "rows.csv",
        "question,answer\n1?,A\n\ufeffquestion,answer\n2?,B\n",
        {"skip_bad": True, "grading": "exact"},
        "line 3 has the names of the columns again",
    ),
    "messages as a text": (
        "rows.csv",
        written([("question", "answer"), ('[{"role": "user", "content": "1?"}]', 1)]),
        {},
        "1 of 1 questions look like messages",
    ),
    "messages as Python": (
        "rows.csv",
        written([("question", "answer"), (str(parts(ROWS[0])["question"]), 1)]),
        {},
        "1 of 1 questions look like messages",
    ),
    "a bad row in data": (
        "rows.json",
        json.dumps({"data": [{"question": "1?", "answer": 1}, 2]}),
        {"skip_bad": True},
        "element 1 of 'data' is 2",
    ),
}


@pytest.mark.parametrize("case", NOTED)
def test_what_is_not_taken_as_it_stands_is_told_in_one_note(table, case):
    name, content, options, message = NOTED[case]
    (note,) = table(content, name, **options).notes
    assert re.search(message, note)
    assert note.isprintable()


# Right files, in the forms that are usual.


Q = [("1 + 1?", "2"), ("2 + 2?", "4")]
CELLS = [("question", "answer"), *Q]
JSONL = '{"question": "1 + 1?", "answer": 2}\n{"question": "2 + 2?", "answer": 4}\n'


def lines(*rows, **options):
    return "".join(json.dumps(row, **options) + "\n" for row in rows)


RIGHT = {
    "JSON lines": ("rows.jsonl", JSONL, {}, Q),
    "without a line end at the end": ("rows.jsonl", JSONL[:-1], {}, Q),
    "CRLF": ("rows.jsonl", JSONL.replace("\n", "\r\n"), {}, Q),
    "BOM": ("rows.jsonl", "\ufeff" + JSONL, {}, Q),
    "blank lines": ("rows.jsonl", "\n" + JSONL.replace("\n", "\n \n") + "\n\n\n", {}, Q),
    "space before and behind": (
        "rows.jsonl",
        JSONL.replace("{", "  { ").replace("}", " } \t"),
        {},
        Q,
    ),
    "another ending": ("rows.ndjson", JSONL, {}, Q),
    "no ending": ("rows", JSONL, {}, Q),
    "ints and floats": (
        "rows.jsonl",
        lines(*({"question": q, "answer": a} for q, a in (("a", 7), ("b", 0.5)))),
        {},
        [("a", "7"), ("b", "0.5")],
    ),
    "answers as texts": ("rows.jsonl", lines(*({"question": q, "answer": a} for q, a in Q)), {}, Q),
    "escapes": (
        "rows.jsonl",
        lines({"question": "\u00e9\u4e16\U0001f600", "answer": 1}),
        {},
        [("\u00e9\u4e16\U0001f600", "1")],
    ),
    "letters of the world": (
        "rows.jsonl",
        lines({"question": "\u00e9\u4e16\U0001f600 \u0661", "answer": 1}, ensure_ascii=False),
        {},
        [("\u00e9\u4e16\U0001f600 \u0661", "1")],
    ),
    "Chinese in a table": (
        "rows.csv",
        "question,answer\n" + "\u4e00\u52a0\u4e00" * 3000 + ",2\n",
        {},
        [("\u4e00\u52a0\u4e00" * 3000, "2")],
    ),
    "right to left": (
        "rows.csv",
        "question,answer\n\u05db\u05de\u05d4 1 + 1?,2\n",
        {},
        [("\u05db\u05de\u05d4 1 + 1?", "2")],
    ),
    "line separators within": (
        "rows.jsonl",
        lines({"question": "a\u2028b\u0085c", "answer": 1}, ensure_ascii=False).replace(
            "\u0085", ""
        ),
        {},
        [("a\u2028bc", "1")],
    ),
    "more columns": (
        "rows.jsonl",
        lines(
            {
                "id": 9,
                "question": "1?",
                "answer": 1,
                "tests": [[1, 2]],
                "meta": {"a": None, "b": [True]},
            }
        ),
        {},
        [("1?", "1")],
    ),
    "nulls in other columns": (
        "rows.jsonl",
        lines({"question": "1?", "answer": 1, "hint": None}, {"question": "2?", "answer": 2}),
        {},
        [("1?", "1"), ("2?", "2")],
    ),
    "a list of objects in a column": (
        "rows.jsonl",
        lines(*({"question": q, "answer": a, "data": [{"x": 1}]} for q, a in Q)),
        {},
        Q,
    ),
    "messages": (
        "rows.jsonl",
        lines(*({"prompt": [{"role": "user", "content": q}], "answer": a} for q, a in Q)),
        {"question": "prompt"},
        Q,
    ),
    "messages with a system": (
        "rows.jsonl",
        lines(
            *(
                {
                    "prompt": [
                        {"role": "system", "content": "Add."},
                        {"role": "user", "content": q, "name": "me"},
                    ],
                    "answer": a,
                }
                for q, a in Q
            )
        ),
        {"question": "prompt"},
        Q,
    ),
    "one message": (
        "rows.jsonl",
        lines({"prompt": {"role": "user", "content": "1?"}, "answer": 1}),
        {"question": "prompt"},
        [("1?", "1")],
    ),
    "no answers": (
        "rows.jsonl",
        lines({"prompt": "Write."}, {"prompt": "Sing."}),
        {"question": "prompt", "answer": ""},
        [("Write.", ""), ("Sing.", "")],
    ),
    "a single column": (
        "rows.csv",
        "prompt\nWrite.\nSing.\n",
        {"question": "prompt", "answer": ""},
        [("Write.", ""), ("Sing.", "")],
    ),
    "a single column without names": (
        "rows.csv",
        "Write; or not\nSing.\n",
        {"columns": ("prompt",), "question": "prompt", "answer": ""},
        [("Write; or not", ""), ("Sing.", "")],
    ),
    "GSM8K": (
        "rows.jsonl",
        lines({"question": "1?", "answer": "It is\n#### 1,000"}),
        {"answer_after": "####"},
        [("1?", "1,000")],
    ),
    "texts as answers": (
        "rows.jsonl",
        lines({"question": "A?", "answer": "B"}),
        {"grading": "exact"},
        [("A?", "B")],
    ),
    "a template": (
        "rows.jsonl",
        lines({"Body": "Ada has 2.", "Ask": "How many?", "Answer": 2}),
        {"question": "{Body} {Ask}", "answer": "Answer"},
        [("Ada has 2. How many?", "2")],
    ),
    "a list": ("rows.json", f"[{','.join(JSONL.splitlines())}]", {}, Q),
    "a list over lines": ("rows.json", "[\n" + ",\n".join(JSONL.splitlines()) + "\n]\n\n", {}, Q),
    "CSV": ("rows.csv", written(CELLS, lineterminator="\n"), {}, Q),
    "CSV of Excel": ("rows.csv", "\ufeff" + written(CELLS), {}, Q),
    "CSV in quotation marks": ("rows.csv", written(CELLS, quoting=csv.QUOTE_ALL), {}, Q),
    "CSV with blank lines at its end": ("rows.csv", written(CELLS) + "\r\n\r\n\n", {}, Q),
    "CSV with blank lines before": ("rows.csv", "\n\r\n" + written(CELLS), {}, Q),
    "CSV with a mark and blank lines before": ("rows.csv", "\ufeff\n" + written(CELLS), {}, Q),
    "CSV with lines in cells": (
        "rows.csv",
        written([CELLS[0], ("1\n\n+\r\n1?", "2"), ('say "2"', "2")]),
        {},
        [("1\n\n+\r\n1?", "2"), ('say "2"', "2")],
    ),
    "CSV with a line of Macs in a cell": (
        "rows.csv",
        'question,answer\n"1\r+ 1?",2\n',
        {},
        [("1\r+ 1?", "2")],
    ),
    "CSV of pandas with its index": (
        "rows.csv",
        ",question,answer\n0,1 + 1?,2\n1,2 + 2?,4\n",
        {},
        Q,
    ),
    "CSV with other signs": (
        "rows.csv",
        "question,answer\n1; or\t2 | 3?,2\n",
        {},
        [("1; or\t2 | 3?", "2")],
    ),
    "CSV with JSON in cells": (
        "rows.csv",
        written(
            [("tests", "question", "answer"), ('{"in": [1, 2]}', "1?", "1"), ("[]", "2?", "2")]
        ),
        {},
        [("1?", "1"), ("2?", "2")],
    ),
    "CSV that begins with a bracket": (
        "rows.csv",
        "[1] + [1]?,2\n{1}?,1\n",
        {"columns": ("question", "answer")},
        [("[1] + [1]?", "2"), ("{1}?", "1")],
    ),
    "a table of JSON without names": (
        "rows.tsv",
        '{"in": 1}\t1?\t1\n',
        {"columns": ("tests", "question", "answer")},
        [("1?", "1")],
    ),
    "a name with another sign": (
        "rows.csv",
        "ask; please\n1?\n",
        {"question": "ask; please", "answer": ""},
        [("1?", "")],
    ),
    "a long cell": (
        "rows.csv",
        written([("question", "answer", "tests"), ("1?", "1", "9 " * 300_000)]),
        {},
        [("1?", "1")],
    ),
    "a long line": (
        "rows.jsonl",
        lines({"question": "1?", "answer": 1, "tests": "9 " * 500_000}),
        {},
        [("1?", "1")],
    ),
    "TSV": ("rows.tsv", "question\tanswer\n1, or 1?\t1\n", {}, [("1, or 1?", "1")]),
    "TSV without names": (
        "rows.TSV",
        "1 + 1?\t2\n2 + 2?\t4",
        {"columns": ("question", "answer")},
        Q,
    ),
    "code": (
        "rows.jsonl",
        lines({"question": "def f():\n\treturn '<html>' # {x}", "answer": 1}),
        {},
        [("def f():\n\treturn '<html>' # {x}", "1")],
    ),
    "JSON to be asked about": (
        "rows.jsonl",
        lines({"question": '{"a": 1} has what at "role"?', "answer": 1}),
        {},
        [('{"a": 1} has what at "role"?', "1")],
    ),
    "many equal rows": ("rows.jsonl", JSONL * 3, {}, Q * 3),
}


@pytest.mark.parametrize("case", RIGHT)
def test_a_right_file_is_read_and_causes_no_note(table, case):
    name, content, options, expected = RIGHT[case]
    task = table(content, name, **options)
    assert asked(task) == expected
    assert task.notes == ()
    packed = table(gzip.compress(content.encode()), f"{name}.gz", **options)
    assert (asked(packed), packed.digest, packed.notes) == (expected, task.digest, ())
