"""Reading a file of lines that grows, shrinks, is replaced, or is no file of lines at all."""

import os

import msgspec

from potluck.reports import tail as tail_module
from potluck.reports.tail import Change, Tail, newest, read_small


def read(tail):
    return tail.look(), [line.decode() for _, line in tail.lines()]


def test_only_whole_new_lines_are_read(tmp_path):
    file = tmp_path / "x.jsonl"
    tail = Tail(file, msgspec.Raw)
    assert read(tail) == (Change.NOTHING, [])
    file.write_text("one\ntw")
    assert read(tail) == (Change.MORE, ["one"])
    assert read(tail) == (Change.NOTHING, [])
    with file.open("a") as out:
        out.write("o\n\nthree\n")
    assert read(tail) == (Change.MORE, ["two", "three"])
    assert tail.number == 4


def test_the_offset_of_a_line_is_where_it_stands(tmp_path, monkeypatch):
    monkeypatch.setattr(tail_module, "CHUNK_BYTES", 7)  # lines cross the chunks
    file = tmp_path / "x.jsonl"
    file.write_text("".join(f"line {n}\n" for n in range(20)))
    tail = Tail(file, msgspec.Raw)
    tail.look()
    data = file.read_bytes()
    found = list(tail.lines())
    assert len(found) == 20
    assert all(data[at : at + len(line) + 1] == line + b"\n" for at, line in found)


def test_a_file_that_shrank_was_replaced_or_went_is_read_anew(tmp_path):
    file, beside = tmp_path / "x.jsonl", tmp_path / "y"
    file.write_text("one\ntwo\n")
    tail = Tail(file, msgspec.Raw)
    read(tail)
    file.write_text("one\n")
    assert read(tail) == (Change.ANEW, ["one"])
    beside.write_text("uno\ndos\ntres\n")  # longer, and another file
    os.replace(beside, file)
    assert read(tail) == (Change.ANEW, ["uno", "dos", "tres"])
    file.unlink()
    assert read(tail) == (Change.ANEW, [])
    assert read(tail) == (Change.NOTHING, [])


def test_a_huge_line_is_left_out_and_costs_no_memory_beyond_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(tail_module, "CHUNK_BYTES", 64)
    monkeypatch.setattr(tail_module, "LINE_BYTES", 100)
    file = tmp_path / "x.jsonl"
    file.write_text("one\n" + 1000 * "x")
    tail = Tail(file, msgspec.Raw)
    assert read(tail) == (Change.MORE, ["one"])
    with file.open("a") as out:
        out.write("xx\nthree\n")
    assert read(tail) == (Change.MORE, ["three"])
    assert (tail.too_long, tail.number) == (2, 3)


def test_a_pipe_or_a_folder_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # to open one waits for a writer
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder", "nothing"):
        assert read(Tail(tmp_path / name, msgspec.Raw)) == (Change.NOTHING, [])
        assert read_small(tmp_path / name, 100) is None


def test_the_end_of_a_long_file_begins_with_a_whole_line(tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text("".join(f"line {n:02d}\n" for n in range(50)))
    tail = Tail(file, msgspec.Raw)
    tail.look()
    tail.start_near_end(20)
    assert [line for _, line in tail.lines()] == [b"line 48", b"line 49"]


class Numbered(msgspec.Struct):
    n: int


def test_lines_are_decoded_and_what_cannot_be_is_told_with_its_number(tmp_path, monkeypatch):
    monkeypatch.setattr(tail_module, "LINE_BYTES", 50)
    file = tmp_path / "x.jsonl"
    file.write_text('{"n": 1}\nno JSON\n{"n": "one"}\n' + 60 * "x" + '\n{"n": 5}\n{"n"')
    tail, damaged = Tail(file, Numbered), []
    tail.look()
    found = list(tail.read_placed(lambda error: damaged.append((tail.number, str(error)))))
    assert [(line.n, file.read_bytes()[slice(*at)]) for at, line in found] == [
        (1, b'{"n": 1}\n'),
        (5, b'{"n": 5}\n'),
    ]
    assert [number for number, _ in damaged] == [2, 3, 4]
    assert "longer than 50 bytes" in damaged[-1][1]
    assert tail.rest == b'{"n"'
    assert [line.n for line in newest(file, Numbered, 20)] == [5]
