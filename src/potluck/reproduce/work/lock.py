"""A file that only one process works on: who dies lets go of it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def locked(path: Path) -> Iterator[IO[str] | None]:
    """The file, ours alone until this process ends; None: it is another one's."""
    while True:
        with open(path, "r+", encoding="utf-8", opener=_made) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
                return
            # Who held it before us may have removed it since we opened it.
            if _is_at(file, path):
                yield file
                return


def _made(path: str, flags: int) -> int:
    """Mode "a+" would make it too, but could only write at its end."""
    return os.open(path, flags | os.O_CREAT, 0o666)


def _is_at(file: IO[str], path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False
