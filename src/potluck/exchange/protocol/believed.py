"""Which small signed messages are believed where no question is asked, with a bounded number of
signatures verified in each second. Pure: the caller passes the time, in seconds of a clock that
never goes back.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Generic

from potluck.exchange.base import Reason, WireError
from potluck.exchange.keys.keys import verify
from potluck.exchange.protocol.signed import AnySigned, Kind, Payload

VERIFIED_PER_S = 200
"""Most messages of a kind that a reader verifies in a second, in all."""
WRONG_PER_S = 10
"""Most of them under one name whose signature is wrong."""
QUIET_S = 30.0
"""Seconds without a message of a node's session after which one of another session, which nobody
has confirmed, may be of an earlier time: the node was started again, and its clock set back."""


class Believed(Generic[AnySigned]):
    """Newest message of each node of ``run`` that was believed, and counts of those refused. The
    caller decides which names it looks at, and so how many there can be."""

    def __init__(
        self, run: str, kind: Kind[AnySigned], *, most_per_s: int = VERIFIED_PER_S
    ) -> None:
        self._run, self._most_per_s = run, most_per_s
        self._kind: Kind[AnySigned] = kind
        self._verified, self._counted_since_s = 0, float("-inf")
        self._wrong: Counter[str] = Counter()
        self.newest: dict[str, AnySigned] = {}
        self.heard_s: dict[str, float] = {}
        """Times at which they were believed."""
        self.refused: dict[str, Counter[Reason]] = {}

    def hear(
        self,
        name: str,
        payloads: Sequence[Payload],
        now_s: float,
        *,
        public: bytes = b"",
        session: bytes = b"",
    ) -> bool:
        """Look at ``payloads`` under ``name``, oldest first; return whether one of them is
        believed: the newest that is signed by the key ``public`` (empty: by the one in it), of
        ``session`` (empty: of any), and later than the last one, as two relays deliver twice."""
        if now_s - self._counted_since_s >= 1:
            self._wrong.clear()
            self._verified, self._counted_since_s = 0, now_s
        for payload in reversed(payloads):
            try:
                message = self._kind.read(payload, run=self._run, node=name)
                if public and message.public != public:
                    raise WireError(f"a message under {name!r} is not by its key", "forged")
                if session and message.session != session:
                    continue
                if not self._is_later(name, message, now_s, confirmed=bool(session)):
                    continue
                if self._wrong[name] >= WRONG_PER_S:
                    continue
                if self._verified >= self._most_per_s:
                    return False
                self._verified += 1
                self._wrong[name] += 1
                verify(self._kind.label, bytes(payload), message.public)
                self._wrong[name] -= 1
            except WireError as error:
                self.refuse(name, error.reason)
                continue
            self.newest[name], self.heard_s[name] = message, now_s
            return True
        return False

    def refuse(self, name: str, reason: Reason, count: int = 1) -> None:
        self.refused.setdefault(name, Counter())[reason] += count

    def forget(self, name: str) -> None:
        for each in (self.newest, self.heard_s, self.refused):
            each.pop(name, None)

    def _is_later(self, name: str, message: AnySigned, now_s: float, *, confirmed: bool) -> bool:
        last = self.newest.get(name)
        if last is None or message.clock_s > last.clock_s:
            return True
        is_quiet = now_s - self.heard_s[name] > QUIET_S
        return message.session != last.session and (confirmed or is_quiet)
