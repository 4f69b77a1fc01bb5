"""Whole files and their sums, and small functions that several rooms need: hosts, seeds, a line."""

import errno
import hashlib
import ipaddress
import json
import os
import platform
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal

JOINED = "join.json"
"""In a node's folder: the recipe that it joined with, its own key and addresses included."""
LOCAL_SWARM = "_swarm"
"""In a run's folder: what its nodes on this machine need to meet. No node can have this name."""
REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room there"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "give this user access to it"),
    errno.EROFS: "mount it writable again",
    errno.EFBIG: "raise the limit of a file's size (ulimit -f)",
    errno.EIO: "check the disk",
}
"""Ways out for the user where a file cannot be read or written, by the number of the error."""
OF_WRITES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
"""Errors that a read never has."""
SUMS = "SHA256SUMS"
"""In a folder that is written once: the SHA-256 of its files, as ``sha256sum -c`` reads it."""
SUM = "SHA-256"
"""In a JSON object: the SHA-256 of the rest. No node has capitals in its name."""
DRIVERS = {"/dev/nvidiactl": "an NVIDIA GPU", "/dev/kfd": "an AMD GPU"}
"""Files that the drivers of accelerators make."""
INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories that steer a display instead of showing on it (or show nothing)."""
DRAWN = {"\n": "⏎", "\r": "⏎", "\r\n": "⏎", "\t": " "}


def both_ends(text: str, limit: int) -> str:
    """Shorten ``text`` to ``limit`` characters, with what matters most of a long one: its end,
    where a question stands behind its examples and an answer behind its reasons.

    >>> both_ends("examples, then the question", 18)
    'examp … e question'
    """
    if len(text) <= limit:
        return text
    gap = " … "
    head = (limit - len(gap)) // 3
    return text[:head] + gap + text[head + len(gap) - limit :]


def printable(text: str, limit: int = 200) -> str:
    """Put ``text``, of a model or a peer, on one line of at most ``limit`` characters, without what
    could steer a terminal, hide a part or turn the reading order. Markup (of rich, of HTML) stays:
    the place that shows the text escapes it.

    >>> printable("4+8=12\\n\\x1b[31mred"), printable("abcdef", limit=4)
    ('4+8=12⏎[31mred', 'abc…')
    """
    kept: list[str] = []
    # It stops at the limit: a text of many megabytes costs no more than its head.
    for piece in re.finditer(r"\r\n|.", text, re.DOTALL):
        character = piece.group()
        if character in DRAWN or unicodedata.category(character) not in INVISIBLE:
            kept.append(DRAWN.get(character, character))
        if len(kept) > limit:
            return "".join(kept[: limit - 1]) + "…"
    return "".join(kept)


def remedy(error: Exception) -> str:
    """Say what to do about a file that cannot be read or written; "" if that is not known."""
    # A library in Rust (safetensors) has the number of the system's error in its text alone.
    in_text = re.search(r"os error (\d+)", str(error))
    number = int(in_text[1]) if in_text else getattr(error, "errno", None)
    return REMEDIES.get(number, "") if number else ""


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Give an OSError the name of the file: one of a write has none."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename is None:
            error.filename = str(path)
        raise


def write_atomically(path: Path, data: bytes, *, synced: bool = True) -> None:
    """Write the whole file or none of it, even if the machine stops; not ``synced``, without
    waiting for the disk: it may be lost then."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with _named(path), beside.open("wb") as file:
            file.write(data)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def append(path: Path, data: bytes) -> None:
    """Write ``data`` behind the end of a file; one that cannot take all of it stays as it was."""
    with _named(path), path.open("ab", buffering=0) as file:
        start, rest = file.tell(), memoryview(data)
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            file.truncate(start)
            raise


def sum_of(file: Path) -> str:
    """Compute the SHA-256 of a file; "" if it is not there."""
    if not file.is_file():
        return ""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_sums(folder: Path) -> None:
    """Note the SHA-256 of each file in ``folder`` but pages, which may be written again."""
    files = sorted(each for each in folder.rglob("*") if each.is_file() and each.suffix != ".md")
    lines = [f"{sum_of(each)}  {each.relative_to(folder).as_posix()}\n" for each in files]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def unlike_its_sum(folder: Path, *, but: str | None = None) -> Path | None:
    """Find a file that is not what ``write_sums`` noted, of all but one; nothing was in 0.2.0."""
    file = folder / SUMS
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    noted = (line.partition("  ") for line in text.splitlines())
    wrong = (n for total, _, n in noted if n != but and total != (sum_of(folder / n) or "gone"))
    return next((folder / name for name in wrong), None)


def sealed(tree: Mapping[str, Any]) -> bytes:
    """Return ``tree`` as JSON, with a sum by which ``unsealed`` finds that it was changed."""
    total = hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**tree, SUM: total}, indent=2) + "\n").encode()


def unsealed(data: bytes) -> Any:
    """Read JSON; raise ValueError (or RecursionError) if it is damaged, or its sum not its own."""
    tree = json.loads(data)
    total = tree.pop(SUM, None) if isinstance(tree, dict) else None
    if total is not None and json.loads(sealed(tree))[SUM] != total:
        raise ValueError(f"its {SUM} is not that of the rest; a change by hand leaves it out")
    return tree


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield where to make what becomes ``path``, not there yet; an error leaves neither. Whoever
    may read the folder may read its files: safetensors writes weights for their owner alone."""
    beside = path.with_name(f"{path.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        yield beside
        # The folder was made under the user's umask.
        readable = beside.stat().st_mode & 0o666
        for file in beside.rglob("*"):
            if file.is_file():
                file.chmod(readable)
        beside.rename(path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def is_of_no_reader(error: OSError) -> bool:
    """Tell whether a stream could not be written as nobody reads it: a pipe, or a terminal."""
    return error.errno in (errno.EPIPE, errno.EIO)


def write_nowhere(stream: IO[str]) -> None:
    """Lose what is still written to a stream whose reader has gone: it would fail once more."""
    with suppress(OSError):  # a stream in memory has no descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def available_cores() -> int:
    """Count the cores that this process may use, which a container may limit."""
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def seen_accelerator() -> str:
    """Say in words what accelerator this machine seems to have, by its driver; empty: none."""
    if (sys.platform, platform.machine()) == ("darwin", "arm64"):
        return "a Mac's GPU"
    return next((what for file, what in DRIVERS.items() if Path(file).exists()), "")


def is_loopback(host: str) -> bool:
    """Tell if only this machine reaches the address.

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def derived_seed(purpose: str, *, byteorder: Literal["little", "big"] = "little") -> int:
    """Take 63 bits of the SHA-256 of ``purpose``, which names one use: "0/3/south/write"."""
    return int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], byteorder) >> 1


def one_line(text: str, limit: int = 2000) -> str:
    """Put ``text`` on one line of at most ``limit`` characters, all of them printable."""
    # Cut before anything else: a text of many megabytes costs no more than its head.
    printable = "".join(c if c.isprintable() else " " for c in text[: 2 * limit])
    line = " ".join(printable.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."
