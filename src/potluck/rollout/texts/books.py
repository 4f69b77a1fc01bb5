"""The books of an author that pays: never less than what was billed, at whatever instant it ends.

    <run>/<node>/cost.log     one line a booking, on disk before the request is sent, and one once
                              its answer is here: the difference, and the texts
    <run>/<node>/cost.json    the sum of all lines, for readers

So texts are not bought again after a crash. In the next round one line with the sum takes the place
of all.
"""

import os
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import msgspec

from potluck.files import append, write_atomically
from potluck.rollout.base import RolloutError
from potluck.rollout.texts.base import NOTHING, Cost
from potluck.types import End

Choices = list[tuple[str, End] | None]
"""Texts of one answer; None for one that is no completion."""


class Booking(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line: an amount to add, below 0 where an answer cost less than was booked; ``request`` is
    the round's seed and the digest of what ``choices`` answer, empty without an answer."""

    cost: Cost = NOTHING
    request: str = ""
    choices: Choices = []


class Books:
    """The books of one author, in its node's folder; ``spent`` is the cost of all starts."""

    def __init__(self, folder: Path, notify: Callable[[str], None]) -> None:
        self._file, self._sum = folder / "cost.log", folder / "cost.json"
        try:
            self._lines = self._read(notify)
        except ValueError as error:
            file = self._file if self._file.exists() else self._sum
            way_out = "put back a copy, or delete it and lower the budget"
            raise RolloutError(f"{file} is damaged ({error}); {way_out}") from None
        self.spent = sum((line.cost for line in self._lines), start=NOTHING)

    def _read(self, notify: Callable[[str], None]) -> list[Booking]:
        data = self._file.read_bytes() if self._file.exists() else b""
        whole, _, torn = data.rpartition(b"\n")
        if torn:
            notify(f"the last line of {self._file} is cut off, as by a crash: it is left out")
        if not whole and self._sum.exists():  # of release 0.2.0
            return [Booking(msgspec.json.decode(self._sum.read_bytes(), type=Cost))]
        lines = [line.partition(b" ") for line in whole.splitlines()]
        if any(crc32(line) != int(check, 16) for check, _, line in lines):
            raise ValueError("the checksum of a line is another")
        return [msgspec.json.decode(line, type=Booking) for _, _, line in lines]

    def begin(self, seed: int) -> dict[str, Choices]:
        """Forget the texts of other rounds; return this one's, by the digest of their request."""
        kept = [line for line in self._lines if line.request.startswith(f"{seed}/")]
        self._lines = [msgspec.structs.replace(line, cost=NOTHING) for line in kept]
        write_atomically(self._file, b"".join(map(_line, [Booking(self.spent), *self._lines])))
        return {line.request: line.choices for line in kept}

    def add(self, booking: Booking) -> None:
        """Add a line, for good when this returns."""
        append(self._file, _line(booking))
        with self._file.open("rb") as file:
            os.fsync(file.fileno())
        self.spent += booking.cost
        self._lines.append(booking)
        write_atomically(self._sum, msgspec.json.encode(self.spent), synced=False)


def _line(booking: Booking) -> bytes:
    data = msgspec.json.encode(booking)
    return b"%08x %b\n" % (crc32(data), data)
