"""The interface of an author without weights, what its work costs, and the books of one that pays:
never less than what was billed, at whatever instant it ends.

    <run>/<node>/cost.log     one line a booking, on disk before the request is sent, and one once
                              its answer is here: the difference, and the texts
    <run>/<node>/cost.json    the sum of all lines, for readers

So texts are not bought again after a crash. In the next round a line with the sum replaces all.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from operator import add, sub
from pathlib import Path
from typing import Protocol
from zlib import crc32

import msgspec
import numpy as np

from potluck.files import append, write_atomically
from potluck.model.prompt import THOUGHTS
from potluck.model.stop_texts import end_of_stop_text
from potluck.rollout.base import Progress, Requests, RolloutError
from potluck.types import LONE_SURROGATE, Completion, End


@dataclass(frozen=True, slots=True)
class Cost:
    """Amount asked of a paid service; ``booked``: requests of unknown cost, counted at the most."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    booked: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(*map(sub, astuple(self), astuple(other)))


NOTHING = Cost()
NO_TOKENS = np.zeros(0, np.int32)
Ended = tuple[End, str, bytes, tuple[int, ...], bytes]  # fields of a Completion, from ``end`` on


@dataclass(frozen=True, slots=True)
class Written:
    """Texts of one round, in the order of the requests, then by index without gaps."""

    completions: tuple[Completion, ...]  # without tokens
    cost: Cost = NOTHING


class TextEngine(Protocol):
    def write(self, requests: Requests, *, author: str, seed: int, progress: Progress) -> Written:
        """Write up to ``count`` texts for each request; fewer, or none, where it has no more.

        ``seed`` differs from round to round. Raise RolloutError if the service refuses for good;
        what is only unreachable now writes nothing in this round, and is told.
        """


BYTES_A_TOKEN = 16  # most bytes of a text, for each token that it may have; English has 4


def can_be_read(text: str, max_new_tokens: int) -> bool:
    """Tell whether a model may learn to write ``text``: not blank, UTF-8, of bounded length."""
    return (
        len(text) <= (most := BYTES_A_TOKEN * max_new_tokens)
        and not LONE_SURROGATE.search(text)
        and not text.isspace()
        and 0 < len(text.encode()) <= most
    )


def cut_at_stop_text(text: str, end: End, stop_texts: Sequence[str]) -> tuple[str, End]:
    """Cut a text behind the first of ``stop_texts``, which ends it; tell its end then.

    A service that is asked to stop there would leave the stop text out, and a reader would not see
    that it was written.
    """
    # What a template may have opened is no part of what is written.
    opened = re.match(rf"\s*<(?:{THOUGHTS})>\s*", text, re.IGNORECASE)
    begin = opened.end() if opened else 0
    cut = end_of_stop_text(text[begin:], stop_texts)
    return (text, end) if cut is None else (text[: begin + cut], "stop")


Choices = list[tuple[str, End] | None]  # texts of one answer; None for one that is no completion


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
