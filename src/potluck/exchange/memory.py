"""All nodes in one process, phase by phase in one thread: all send, then all collect.

It still passes through the wire format, so that a node in a process of its own and
one that shares it learn from the same numbers.
"""

from collections.abc import Iterable, Mapping, Sequence

from potluck.exchange.base import Round, Traffic, Waiting, WireError, reading_order, silent
from potluck.exchange.terms import Terms
from potluck.exchange.wire import Codec, decode, encode
from potluck.types import Completion

KEPT_ROUNDS = 4
"""Rounds for which the hub keeps what was sent, and a member waits for what is late."""


class MemoryHub:
    """The line between the nodes; ``hub.member(name)`` is one node's end of it."""

    def __init__(self, terms: Mapping[str, Terms], *, codec: Codec = "exact") -> None:
        self._terms, self._codec = {name: terms[name] for name in sorted(terms)}, codec
        self._sent: dict[tuple[int, str], bytes] = {}

    def member(self, name: str) -> "_Member":
        if name not in self._terms:
            raise ValueError(f"{name!r} is not on this hub; it has {', '.join(self._terms)}")
        return _Member(self, self._terms[name])

    def deliver(self, round: int, author: str, message: bytes) -> None:
        """What ``send`` does with its bytes; a test hands in worse ones."""
        self._sent.setdefault((round, author), message)
        for key in [key for key in self._sent if key[0] <= round - KEPT_ROUNDS]:
            del self._sent[key]


class _Member:
    def __init__(self, hub: MemoryHub, terms: Terms) -> None:
        self._hub, self._terms = hub, terms
        self._owed: list[tuple[int, str]] = []
        self._sent_tokens = 0

    def send(self, round: int, batch: Sequence[Completion]) -> None:
        message = self._terms.message(round, tuple(batch))
        self._hub.deliver(round, self._terms.node, encode(message, codec=self._hub._codec))
        self._sent_tokens = sum(len(c.token_T) for c in batch)

    def collect(self, round: int, *, deadline_s: float, waiting: Waiting = silent) -> Round:
        # No waiting: in one thread, nobody can send while we do.
        came, missing = self._read((round, name) for name in self._hub._terms)
        late, owed = self._read(self._owed)
        self._owed = [key for key in owed + missing if key[0] > round - KEPT_ROUNDS]
        own = self._hub._sent.get((round, self._terms.node), b"")
        messages = [self._hub._sent[key] for key in (*came, *late)]
        by_round: dict[int, list[Completion]] = {}
        for (then, _), completions in late.items():
            by_round.setdefault(then, []).extend(completions)
        return Round(
            reading_order(c for batch in came.values() for c in batch),
            tuple(name for _, name in missing),
            {then: reading_order(by_round[then]) for then in sorted(by_round)},
            tuple(messages),
            Traffic(len(own), self._sent_tokens, sum(map(len, messages)) - len(own)),
        )

    def round_of_others(self) -> int:
        return 0  # who shares a process goes round by round with it

    def close(self) -> None: ...

    def _read(
        self, wanted: Iterable[tuple[int, str]]
    ) -> tuple[dict[tuple[int, str], tuple[Completion, ...]], list[tuple[int, str]]]:
        """(the completions that are there, the (round, author) that are not)."""
        came = {}
        missing = []
        for round, author in wanted:
            data = self._hub._sent.get((round, author), b"")
            try:
                message = decode(data, self._terms.limits)
                came[round, author] = self._terms.admit(author, round, message)
            except WireError:
                missing.append((round, author))
        return came, missing
