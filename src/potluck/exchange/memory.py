"""The exchange of nodes in one process and one thread: all send, then all collect. It passes
through the wire format, so that these nodes learn from the same numbers as those on a network."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from potluck.exchange.base import (
    Delivery,
    PeerStatus,
    Reason,
    Round,
    Status,
    Traffic,
    Waiting,
    WireError,
    assemble_round,
    silent,
)
from potluck.exchange.transport import Agreement
from potluck.exchange.wire.byte_planes import Codec
from potluck.exchange.wire.codec import decode, encode
from potluck.reports.status import StatusLine
from potluck.types import Completion

KEPT_ROUNDS = 4
"""Rounds for which the hub keeps what was sent, and a member waits for what is late."""


class MemoryHub:
    """The connection between the nodes; ``hub.member(name)`` is one node's end of it."""

    def __init__(
        self,
        agreements: Mapping[str, Agreement],
        *,
        codec: Codec = "exact",
        max_staleness: int = 1,
        received: Mapping[str, Mapping[tuple[str, int], bytes]] = MappingProxyType({}),
    ) -> None:
        """``received``: batches that each node had before a restart, by author and round."""
        self._agreements, self._codec = dict(sorted(agreements.items())), codec
        self._max_staleness, self._received = max_staleness, received
        self._sent: dict[tuple[int, str], bytes] = {}
        for node, had in received.items():
            own = {key: data for key, data in had.items() if key[0] == node}
            self._sent |= {(round, node): data for (_, round), data in own.items()}
        self._lines: dict[str, StatusLine] = {}

    def member(self, name: str) -> "_Member":
        if name not in self._agreements:
            raise ValueError(f"{name!r} is not on this hub; it has {', '.join(self._agreements)}")
        return _Member(self, self._agreements[name])

    def deliver(self, round: int, author: str, message: bytes) -> None:
        """Store what ``send`` sends; a test hands in worse bytes."""
        self._sent.setdefault((round, author), message)
        for key in [key for key in self._sent if key[0] <= round - KEPT_ROUNDS]:
            del self._sent[key]


class _Member:
    def __init__(self, hub: MemoryHub, agreement: Agreement) -> None:
        self._hub, self._agreement = hub, agreement
        self._owed: list[tuple[int, str]] = []
        self._taken = set(hub._received.get(agreement.node, {}))
        self._sent_tokens = 0
        self._rounds: dict[str, set[int]] = {name: set() for name in hub._agreements}
        self._refused: dict[tuple[int, str], Reason] = {}

    def send(self, round: int, batch: Sequence[Completion]) -> None:
        message = self._agreement.message(round, tuple(batch))
        self._hub.deliver(round, self._agreement.node, encode(message, codec=self._hub._codec))
        self._sent_tokens = sum(len(c.token_T) for c in batch)

    def collect(self, round: int, *, deadline_s: float, waiting: Waiting = silent) -> Round:
        # No waiting: in one thread, nobody can send meanwhile.
        came, missing = self._read((round, name) for name in self._hub._agreements)
        late, owed = self._read(self._owed)
        self._owed = [key for key in owed + missing if key[0] > round - KEPT_ROUNDS]
        batches = [(key[0], self._hub._sent[key], made) for key, made in (came | late).items()]
        return self._assemble(round, batches, [name for _, name in missing])

    def take(self) -> tuple[Delivery, ...]:
        sent, me = self._hub._sent, self._agreement.node
        newest = {author: round for round, author in sorted(sent)}
        wanted = [
            (round, author)
            for round, author in sorted(sent, reverse=True)
            if author != me and (author, round) not in self._taken
            if round >= newest[author] - self._hub._max_staleness
        ]
        came, _ = self._read(wanted)
        self._taken |= {(author, round) for round, author in wanted}
        return tuple(Delivery(name, at, sent[at, name], made) for (at, name), made in came.items())

    def finish(self, round: int, taken: Sequence[Delivery]) -> Round:
        own, missing = self._read([(round, self._agreement.node)])
        batches = [(key[0], self._hub._sent[key], made) for key, made in own.items()]
        batches += [(each.round, each.message, each.completions) for each in taken]
        newest = {author: then for then, author in sorted(self._hub._sent)}
        finished = self._assemble(round, batches, [name for _, name in missing])
        return replace(finished, newest=newest)

    def _assemble(
        self,
        round: int,
        batches: Sequence[tuple[int, bytes, tuple[Completion, ...]]],
        missing: Sequence[str],
    ) -> Round:
        own = self._hub._sent.get((round, self._agreement.node), b"")
        received_bytes = sum(len(data) for _, data, _ in batches) - len(own)
        traffic = Traffic(len(own), self._sent_tokens, received_bytes)
        return assemble_round(round, batches, missing, traffic)

    def gather(self, wait_s: float, waiting: Waiting = silent) -> tuple[str, ...]:
        return ()

    def peers_round(self) -> int:
        return 0  # nodes that share a process go round by round together

    def tell(self, line: StatusLine) -> None:
        self._agreement.require_own(line)
        self._hub._lines[line.node] = line

    def status(self) -> Status:
        peers = {}
        for name in self._rounds.keys() - {self._agreement.node}:
            rounds = frozenset(self._rounds[name])
            refused = Counter(why for (_, author), why in self._refused.items() if author == name)
            newest = max(rounds, default=None)
            line = self._hub._lines.get(name)
            peers[name] = PeerStatus(True, None, rounds, newest, refused=refused, line=line)
        return Status(peers)

    def close(self) -> None: ...

    def _read(
        self, wanted: Iterable[tuple[int, str]]
    ) -> tuple[dict[tuple[int, str], tuple[Completion, ...]], list[tuple[int, str]]]:
        """Return (completions by (round, author), the (round, author) of which there are none)."""
        came, missing = {}, []
        for round, author in wanted:
            data = self._hub._sent.get((round, author))
            try:
                message = decode(data or b"", self._agreement.limits)
                came[round, author] = self._agreement.accept(author, round, message)
                self._rounds[author].add(round)
            except WireError as error:
                missing.append((round, author))
                if data is not None:
                    self._refused[round, author] = error.reason
        return came, missing
