"""Status lines on the network: this node's own, and those of others if it listens to them.

    <run>/status/<node>       a put, at most once a pause, and only while somebody listens

The thread that announces puts them too; those of others stay in channels until somebody looks. So
neither a watcher nor a flood costs a round more than its bytes.
"""

import threading
from collections.abc import Mapping
from contextlib import suppress

import zenoh

from potluck.exchange.base import Reason
from potluck.exchange.protocol.peers import NOBODY
from potluck.exchange.protocol.signed import Believed
from potluck.exchange.protocol.status import STATUS_LINES, encode_status, status_pause_s
from potluck.exchange.transport import Membership
from potluck.exchange.zenoh.channels import Channels
from potluck.reports.status import StatusLine

OTHERS = 512
"""Lines that are kept, until somebody looks, of names that have no channel of their own."""


class StatusChannel:
    """The status lines of one node's session."""

    def __init__(self, session: zenoh.Session, own: Membership, session_id: bytes) -> None:
        self._own, self._agreement, self._session_id = own, own.agreement, session_id
        run = self._agreement.run
        self._lock = threading.Lock()
        self._signed: bytes | None = None
        self._due_s = float("-inf")
        self._lines = Believed(run, STATUS_LINES)
        self._publisher = session.declare_publisher(
            f"{run}/status/{self._agreement.node}",
            congestion_control=zenoh.CongestionControl.DROP,
            priority=zenoh.Priority.BACKGROUND,
            allowed_destination=zenoh.Locality.REMOTE,
        )
        self._others: Channels | None = None
        if own.watches_status:
            known = own.known_keys.names() - {self._agreement.node}
            self._others = Channels(session, f"{run}/status", known, others=OTHERS)

    def tell(self, line: StatusLine) -> None:
        """Have ``line`` sent with one of the next announcements, if somebody listens then."""
        self._agreement.require_own(line)
        signed = encode_status(line, self._own.key, session=self._session_id)
        with self._lock:
            self._signed = signed

    def send(self, nodes: int, now_s: float) -> None:
        """Put the newest line, if it is due among ``nodes`` and somebody listens."""
        with self._lock:
            signed = self._signed
        if signed is None or now_s < self._due_s or not is_matched(self._publisher):
            return
        self._due_s = now_s + status_pause_s(nodes)
        self._publisher.put(signed)
        with self._lock:
            if self._signed is signed:
                self._signed = None

    def read(
        self, confirmed: Mapping[str, tuple[bytes, bytes]], now_s: float
    ) -> tuple[dict[str, StatusLine], dict[str, dict[Reason, int]]]:
        """Return the newest line of each peer, and the lines refused under each; ``confirmed`` has
        the key and the session of those that may have one. What is there of others is counted."""
        with self._lock:
            known = self._lines.newest.keys() | self._lines.refused.keys()
            for name in known - confirmed.keys() - {NOBODY}:
                self._lines.forget(name)
            for name, payloads in (self._others.take() if self._others else {}).items():
                if name in confirmed:
                    public, session = confirmed[name]
                    self._lines.hear(name, payloads, now_s, public=public, session=session)
                elif name != self._agreement.node:
                    self._lines.refuse(NOBODY, "unknown sender", len(payloads))
            refused = {name: dict(why) for name, why in self._lines.refused.items()}
            return {name: one.line for name, one in self._lines.newest.items()}, refused

    def undeclare(self) -> None:
        if self._others:
            self._others.undeclare()
        with suppress(RuntimeError):  # A put that a dead link holds up still borrows it.
            self._publisher.undeclare()


def is_matched(publisher: zenoh.Publisher) -> bool:
    """Return whether somebody listens to what ``publisher`` puts."""
    status: object = publisher.matching_status
    # Zenoh declares a bool, and returns an object that is always true.
    return bool(getattr(status, "matching", status))
