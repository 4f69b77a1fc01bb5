"""Reading a file of lines that another process writes: only what is new, and never an error.

A resumed node writes its files anew without their last rounds: ``look`` tells it, and all lines are
read again. The head of a line that is not yet whole waits for its rest.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from io import BufferedReader
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

Line = TypeVar("Line")
DAMAGED = (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError)
"""Errors of a decoder that mean that the line is damaged."""
LINE_BYTES = 8 << 20
"""Longest line that is read; a longer one is no line of a node."""


class Change(Enum):
    """A file's difference to what was read of it."""

    NOTHING = 0
    MORE = 1
    ANEW = 2
    """It is another file, or a shorter one: what was read of it no longer holds."""


class Tail(Generic[Line]):
    """The whole lines of a file that may grow: ``look`` at it, then ``read`` what is new."""

    def __init__(self, path: Path, kind: type[Line]) -> None:
        self.path = path
        self._decode = msgspec.json.Decoder(kind).decode
        self.number = 0
        """Lines read, those that were left out included."""
        self.rest = b""
        """Head of a last line without its end."""
        self._start = 0
        """Offset of the first line that was not read."""
        self._file: tuple[int, int] | None = None
        """Device and inode."""
        self._size = 0
        self._skips = False
        """True: at ``_start`` is the rest of a line, whose head was too long, or left out."""

    def look(self) -> Change:
        """Tell what happened to the file since ``read`` was last run to its end."""
        file, size = None, 0
        with suppress(OSError):
            now = os.stat(self.path)
            if stat.S_ISREG(now.st_mode):
                file, size = (now.st_dev, now.st_ino), now.st_size
        if file == self._file and size >= self._size:
            return Change.MORE if size > self._size else Change.NOTHING
        was_there = self._file is not None
        self._file, self._start, self._size, self._skips = file, 0, 0, False
        self.number, self.rest = 0, b""
        return Change.ANEW if was_there else Change.MORE

    def start_near_end(self, most: int) -> None:
        """Leave out all but about the last ``most`` bytes; after ``look``, before ``read``."""
        with suppress(OSError):
            size = os.stat(self.path).st_size
            self._start, self._skips = max(0, size - most), size > most

    def read(self, damaged: Callable[[Exception], object] = repr) -> Iterator[Line]:
        """Yield each whole new line, decoded. ``damaged`` is called with the error of a line that
        cannot be; ``number`` is then that line's number in the file."""
        opened = open_regular(self.path)
        if opened is None:
            return
        with opened as file:
            found = os.fstat(file.fileno())
            if (found.st_dev, found.st_ino) != self._file:
                return  # replaced a moment ago: the next look tells
            file.seek(self._start)
            rest = b""
            while text := file.readline(LINE_BYTES):
                is_whole = text.endswith(b"\n")
                if not is_whole and len(text) < LINE_BYTES:
                    rest = text
                    break
                self._start += len(text)
                self.number += is_whole
                skips, self._skips = self._skips, not is_whole
                if not is_whole or not (skips or text.strip()):
                    continue
                try:
                    if skips:
                        raise msgspec.DecodeError(f"it is longer than {LINE_BYTES} bytes")
                    line = self._decode(text)
                except DAMAGED as error:
                    damaged(error)
                else:
                    yield line
            self._size, self.rest = self._start + len(rest), b"" if self._skips else rest


def newest(path: Path, kind: type[Line], most: int) -> Iterator[Line]:
    """Yield the lines in about the last ``most`` bytes of a file; damaged ones are left out."""
    tail = Tail(path, kind)
    tail.look()
    tail.start_near_end(most)
    yield from tail.read()


def open_regular(path: Path) -> BufferedReader | None:
    """Open a file to read it; return None for a folder, a pipe, or what cannot be opened."""
    with suppress(OSError):
        # To open a pipe waits for a writer, and one may take a file's place at any time.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return open(descriptor, "rb")
        os.close(descriptor)
    return None


def read_small(path: Path, limit: int) -> bytes | None:
    """Return the contents of a file of at most ``limit`` bytes; None of anything else."""
    if (opened := open_regular(path)) is None:
        return None
    with opened as file, suppress(OSError):
        data = file.read(limit + 1)
        return data if len(data) <= limit else None
    return None
