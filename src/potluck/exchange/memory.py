"""The exchange of nodes in one process and one thread: all send, then all collect. It passes
through the wire format, so that these nodes learn from the same numbers as those on a network."""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from potluck.exchange import base
from potluck.exchange.protocol.rules import InStep, MailboxRule
from potluck.exchange.transport import Agreement
from potluck.exchange.wire.byte_planes import Codec
from potluck.exchange.wire.codec import decode, encode
from potluck.reports.status import PeerLine, StatusLine
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
        rule: MailboxRule = InStep(),  # noqa: B008
        received: Mapping[str, Mapping[tuple[str, int], bytes]] = MappingProxyType({}),
    ) -> None:
        """``received``: batches that each node had before a restart, by author and round."""
        self._agreements, self._codec = dict(sorted(agreements.items())), codec
        self._rule, self._received = rule, received
        self._sent = {
            (round, node): data
            for node, had in received.items()
            for (author, round), data in had.items()
            if author == node
        }
        self._lines: dict[str, StatusLine] = {}

    def member(self, name: str) -> "_Member":
        return _Member(self, self._agreements[name])

    def deliver(self, round: int, author: str, message: bytes) -> None:
        """Store what ``send`` sends; a test hands in worse bytes."""
        self._sent.setdefault((round, author), message)
        for key in [key for key in self._sent if key[0] <= round - KEPT_ROUNDS]:
            del self._sent[key]


class _Member:
    def __init__(self, hub: MemoryHub, agreement: Agreement) -> None:
        self._hub, self._agreement = hub, agreement
        self._settled = set(hub._received.get(agreement.node, {}))
        self._newest: dict[str, int] = {}
        self._refused: dict[tuple[int, str], base.Reason] = {}

    def send(self, round: int, batch: Sequence[Completion]) -> None:
        message = self._agreement.message(round, tuple(batch))
        self._hub.deliver(round, self._agreement.node, encode(message, codec=self._hub._codec))

    def receive(
        self, round: int, *, wait_s: float = 0.0, waiting: base.Waiting = base.silent
    ) -> base.Received:
        # No waiting: in one thread, nobody can send meanwhile.
        sent, me, rule = self._hub._sent, self._agreement.node, self._hub._rule
        newest = {author: then for then, author in sorted(sent)}
        batches = list[base.Delivery]()
        for then, author in sorted(sent):
            is_of_use = rule.takes(then, now=round, newest=newest[author])
            if author != me and is_of_use and (author, then) not in self._settled:
                self._settled.add((author, then))
                batches += self._read(then, author)
        here = {each.author for each in batches if each.round == round} | {me}
        awaited = self._hub._agreements.keys() if rule.in_step else set()
        return base.Received(tuple(batches), tuple(sorted(awaited - here)))

    def finish(self, round: int, received: base.Received) -> base.Round:
        sent, me, in_step = self._hub._sent, self._agreement.node, self._hub._rule.in_step
        own = self._read(round, me)
        batches = [*own, *received.batches]
        missing = received.missing if own else (*received.missing, me)
        if in_step:  # late batches last
            batches.sort(key=lambda each: (each.round != round, each.round, each.author))
        newest = {} if in_step else {author: then for then, author in sorted(sent)}
        return base.assemble_round(round, batches, missing, base.traffic_of(me, batches), newest)

    def gather(self, wait_s: float, waiting: base.Waiting = base.silent) -> tuple[str, ...]:
        return ()

    def tell(self, line: StatusLine) -> None:
        self._hub._lines[line.node] = line

    def status(self) -> base.Status:
        peers = {}
        for name in self._hub._agreements.keys() - {self._agreement.node}:
            refused = Counter[str](why for (_, by), why in self._refused.items() if by == name)
            newest, line = self._newest.get(name), self._hub._lines.get(name)
            peers[name] = PeerLine(live=True, newest_round=newest, refused=refused, line=line)
        return base.Status(peers)  # its round is 0: nodes that share a process skip none

    def close(self) -> None: ...

    def _read(self, round: int, author: str) -> list[base.Delivery]:
        """Return what an author sent for a round: nothing if there is nothing, or it is refused."""
        if (data := self._hub._sent.get((round, author))) is None:
            return []
        try:
            message = decode(data, self._agreement.limits)
            completions = self._agreement.accept(author, round, message)
        except base.WireError as error:
            self._refused[round, author] = error.reason
            return []
        self._newest[author] = max(round, self._newest.get(author, 0))
        return [base.Delivery(author, round, data, completions)]
