"""Whole files, and small functions that several rooms need: cores, seeds, one line of text."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal


def write_atomically(path: Path, data: bytes) -> None:
    """Write the whole file or none of it, even if the machine stops."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield where to make a folder, which becomes ``path`` at the end; an error leaves neither.
    ``path`` must not exist at the end."""
    beside = path.with_name(f"{path.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        yield beside
        beside.rename(path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def available_cores() -> int:
    """Return the number of cores that this process may use, which a container may limit."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def derived_seed(purpose: str, *, byteorder: Literal["little", "big"] = "little") -> int:
    """Return 63 bits of the SHA-256 of ``purpose``, which names one use: "0/3/south/write".

    >>> derived_seed("0/3/south/write")
    6909584687103890254
    """
    return int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], byteorder) >> 1


def one_line(text: str, limit: int = 2000) -> str:
    """Return ``text`` on one line of at most ``limit`` characters, all of them printable.

    >>> one_line("no space\\n  left\\x1b[31m", 15)
    'no space lef...'
    """
    # Cut before anything else: a text of many megabytes costs no more than its head.
    printable = "".join(c if c.isprintable() else " " for c in text[: 2 * limit])
    line = " ".join(printable.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."
