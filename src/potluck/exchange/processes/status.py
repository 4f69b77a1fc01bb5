"""Status lines of a node: its own, to be sent, and those of others until somebody looks."""

import threading
from collections.abc import Mapping, Sequence

from potluck.exchange.base import Reason
from potluck.exchange.protocol.peers import NOBODY
from potluck.exchange.protocol.signed import Believed, Payload
from potluck.exchange.protocol.status import STATUS_LINES, encode_status
from potluck.exchange.transport import Membership
from potluck.reports.status import StatusLine


class StatusLines:
    """The status lines that one node tells, and hears."""

    def __init__(self, own: Membership, session_id: bytes) -> None:
        self._own, self._agreement, self._session_id = own, own.agreement, session_id
        self._lock = threading.Lock()
        self._signed: bytes | None = None
        self._heard: dict[str, Sequence[Payload]] = {}
        self._lines = Believed(self._agreement.run, STATUS_LINES)

    def tell(self, line: StatusLine) -> None:
        """Have ``line`` sent with one of the next announcements."""
        self._agreement.require_own(line)
        signed = encode_status(line, self._own.key, session=self._session_id)
        with self._lock:
            self._signed = signed

    def told(self) -> bytes | None:
        with self._lock:
            return self._signed

    def hear(self, name: str, payload: bytes) -> None:
        """Keep what came under ``name`` until somebody looks, if this node listens at all."""
        if self._own.watches_status:
            with self._lock:
                self._heard[name] = [payload]

    def read(
        self, confirmed: Mapping[str, tuple[bytes, bytes]], now_s: float
    ) -> tuple[dict[str, StatusLine], dict[str, dict[Reason, int]]]:
        """Return the newest line of each peer, and the lines refused under each; ``confirmed`` has
        the key and the session of those that may have one. What is there of others is counted."""
        with self._lock:
            known = self._lines.newest.keys() | self._lines.refused.keys()
            for name in known - confirmed.keys() - {NOBODY}:
                self._lines.forget(name)
            for name, payloads in self._take().items():
                if name in confirmed:
                    public, session = confirmed[name]
                    self._lines.hear(name, payloads, now_s, public=public, session=session)
                elif name != self._agreement.node:
                    self._lines.refuse(NOBODY, "unknown sender", len(payloads))
            refused = {name: dict(why) for name, why in self._lines.refused.items()}
            return {name: one.line for name, one in self._lines.newest.items()}, refused

    def _take(self) -> Mapping[str, Sequence[Payload]]:
        heard, self._heard = self._heard, {}
        return heard
