"""Reading a file of lines that grows, shrinks, is replaced, or is no file of lines at all."""

import os
from pathlib import Path

from potluck.reports import tail as tail_module
from potluck.reports.tail import Change, Tail, newest, open_regular, read_small

CHANGES = {
    "nothing is there": (None, Change.NOTHING, []),
    "the head of a line": ("1\n2", Change.MORE, [1]),
    "nothing new": ("1\n2", Change.NOTHING, []),
    "its rest, and an empty line": ("1\n20\n\n3\n", Change.MORE, [20, 3]),
    "fewer": ("1\n", Change.ANEW, [1]),
    "another file": ("4\n5\n6\n", Change.ANEW, [4, 5, 6]),
    "gone": (None, Change.ANEW, []),
    "still gone": (None, Change.NOTHING, []),
}


def test_only_whole_new_lines_are_read_and_all_of_a_file_that_is_another_one(tmp_path):
    file, beside = tmp_path / "x.jsonl", tmp_path / "y"
    tail = Tail(file, int)
    for name, (content, *wanted) in CHANGES.items():
        if content is None:
            file.unlink(missing_ok=True)
        elif name == "another file":
            beside.write_text(content)
            os.replace(beside, file)
        else:
            file.write_text(content)
        assert [tail.look(), list(tail.read())] == wanted, name


def test_damaged_lines_are_told_with_their_number(tmp_path):
    file, damaged = tmp_path / "x.jsonl", []
    file.write_text('"one"\nno JSON\n3\n"fünf"\n"six')
    tail = Tail(file, str)
    tail.look()
    assert [*tail.read(lambda _: damaged.append(tail.number))] == ["one", "fünf"]
    assert damaged == [2, 3]
    assert tail.rest == b'"six'


def test_a_line_that_is_too_long_is_damaged_and_is_never_held(tmp_path, monkeypatch):
    monkeypatch.setattr(tail_module, "LINE_BYTES", 50)
    file, damaged, found = tmp_path / "x.jsonl", [], []
    tail = Tail(file, int)
    for more in ("1\n" + 60 * "x", 1000 * "x", "\n2\n" + 60 * "4" + "\n3"):
        with file.open("a") as out:
            out.write(more)
        tail.look()
        found += tail.read(lambda error: damaged.append((tail.number, str(error))))
        assert len(tail.rest) <= 1
    assert (found, tail.rest) == ([1, 2], b"3")
    assert damaged == [(number, "it is longer than 50 bytes") for number in (2, 4)]


def test_a_pipe_that_took_a_files_place_is_no_file(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)  # to open it again waits for nobody
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    assert open_regular(tmp_path / "pipe") is None
    os.close(writer)


def test_a_pipe_or_a_folder_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # to open one waits for a writer
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder", "nothing"):
        tail = Tail(tmp_path / name, int)
        assert (tail.look(), list(tail.read())) == (Change.NOTHING, [])
        assert read_small(tmp_path / name, 100) is None
    (tmp_path / "small").write_bytes(b"four")
    assert [read_small(tmp_path / "small", limit) for limit in (3, 4)] == [None, b"four"]


def test_nothing_is_read_of_a_file_that_was_replaced_after_the_look(tmp_path):
    file, beside = tmp_path / "x.jsonl", tmp_path / "y"
    file.write_text("1\n")
    beside.write_text("2\n")
    tail = Tail(file, int)
    tail.look()
    os.replace(beside, file)
    assert [*tail.read()] == []
    assert (tail.look(), [*tail.read()]) == (Change.ANEW, [2])


def test_the_end_of_a_long_file_begins_with_a_whole_line(tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text("".join(f"{n}\n" for n in range(1000, 1050)))
    assert list(newest(file, int, 12)) == [1048, 1049]
    assert len(list(newest(file, int, 1000))) == 50
