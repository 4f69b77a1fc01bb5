"""All nodes in one process, phase by phase in one thread: all send, then all collect.

It still passes through the wire format, so that a node in a process of its own and
one that shares it learn from the same numbers.
"""

from collections.abc import Iterable, Sequence

from potluck.exchange.base import Round, WireError, reading_order
from potluck.exchange.wire import Message, encode, read_from
from potluck.types import Completion

KEPT_ROUNDS = 4
"""Rounds for which the hub keeps what was sent, and a member waits for what is late."""


class MemoryHub:
    """The line between the nodes; ``hub.member(name)`` is one node's end of it."""

    def __init__(self, names: Sequence[str], *, run: str = "run") -> None:
        self._names, self._run = tuple(sorted(names)), run
        self._sent: dict[tuple[int, str], bytes] = {}

    def member(self, name: str) -> "_Member":
        if name not in self._names:
            raise ValueError(f"{name!r} is not on this hub; it has {', '.join(self._names)}")
        return _Member(self, name)

    def deliver(self, round: int, author: str, message: bytes) -> None:
        """What ``send`` does with its bytes; a test hands in worse ones."""
        self._sent.setdefault((round, author), message)
        for key in [key for key in self._sent if key[0] <= round - KEPT_ROUNDS]:
            del self._sent[key]


class _Member:
    def __init__(self, hub: MemoryHub, name: str) -> None:
        self._hub, self._name = hub, name
        self._owed: list[tuple[int, str]] = []

    def send(self, round: int, batch: Sequence[Completion]) -> None:
        message = Message(self._hub._run, round, self._name, tuple(batch))
        self._hub.deliver(round, self._name, encode(message))

    def collect(self, round: int, *, deadline_s: float) -> Round:
        # No waiting: in one thread, nobody can send while we do.
        came, missing = self._read((round, name) for name in self._hub._names)
        late, owed = self._read(self._owed)
        self._owed = [key for key in owed + missing if key[0] > round - KEPT_ROUNDS]
        names = tuple(name for _, name in missing)
        return Round(reading_order(came), names, reading_order(late))

    def _read(
        self, wanted: Iterable[tuple[int, str]]
    ) -> tuple[list[Completion], list[tuple[int, str]]]:
        """(the completions that are there, the (round, author) that are not)."""
        came: list[Completion] = []
        missing = []
        for round, author in wanted:
            message = self._hub._sent.get((round, author), b"")
            try:
                came += read_from(author, message, run=self._hub._run, round=round)
            except WireError:
                missing.append((round, author))
        return came, missing
