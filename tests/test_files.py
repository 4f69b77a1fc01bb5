"""The small things that several rooms need, each by itself."""

import os
import threading

import pytest

from potluck.files import available_cores, derived_seed, one_line, whole_folder, write_atomically


def test_a_reader_never_finds_a_part_of_a_file(tmp_path):
    path, found, done = tmp_path / "a", set(), threading.Event()
    write_atomically(path, b"0" * 2**20)

    def read():
        while not done.is_set():
            found.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for digit in (b"1", b"2", b"3"):
        write_atomically(path, digit * 2**20)
    done.set()
    reader.join()
    assert found <= {digit * 2**20 for digit in (b"0", b"1", b"2", b"3")}
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_a_file_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    path = tmp_path / "a"
    write_atomically(path, b"before")

    def full(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(path, b"after")
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"before"]


def test_a_folder_is_there_when_it_is_whole_without_what_an_earlier_attempt_left(tmp_path):
    (tmp_path / "model.part").mkdir()
    (tmp_path / "model.part" / "old").write_text("o")
    for error in (OSError, KeyboardInterrupt):
        with pytest.raises(error), whole_folder(tmp_path / "model") as beside:  # noqa: PT012
            beside.mkdir()
            raise error
        assert list(tmp_path.iterdir()) == []
    with whole_folder(tmp_path / "model") as beside:
        beside.mkdir()
        (beside / "weights").write_text("w")
        assert not (tmp_path / "model").exists()
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "weights"]


def test_files_of_a_folder_are_for_all_who_may_read_the_folder(tmp_path):
    with whole_folder(tmp_path / "model") as beside:
        (beside / "inner").mkdir(parents=True)
        for file in (beside / "weights", beside / "inner" / "weights"):
            file.touch(mode=0o600)
        beside.chmod(0o750)
    files = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert [oct(path.stat().st_mode & 0o777) for path in files] == ["0o640", "0o640"]


def test_cores_are_those_that_this_process_may_use_or_all(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda who: {2, 5, 7}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert available_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert available_cores() == 64
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_cores() == 1


def test_seeds_are_those_of_earlier_runs():
    # echo -n PURPOSE | sha256sum: its first 8 bytes, without the lowest bit. Runs hang on it.
    assert derived_seed("0/3/south/write") == 0xBFC78D54289CA69C >> 1
    assert derived_seed("7/validation", byteorder="big") == 0x9C9126889D3B0239 >> 1


def test_text_becomes_one_line():
    for text, limit, line in (
        ("one\ntwo\r\n\tthree", 80, "one two three"),
        ("\x1b[31mred\u202e", 80, "[31mred"),
        ("x" * 9, 9, "x" * 9),
        ("x" * 10, 9, "xxxxxx..."),
        ("", 9, ""),
    ):
        assert one_line(text, limit) == line
