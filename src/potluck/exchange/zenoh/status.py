"""Status lines on the network: this node's own, and those of others if it listens to them.

    <run>/status/<node>       a put, at most once a pause, and only while somebody listens

The thread that announces puts them too; those of others stay in channels until somebody looks. So
neither a watcher nor a flood costs a round more than its bytes.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import zenoh

from potluck.exchange.processes.endpoint import StatusLines
from potluck.exchange.protocol.signed import Payload
from potluck.exchange.protocol.status import status_pause_s
from potluck.exchange.transport import Membership
from potluck.exchange.zenoh.channels import Channels

OTHERS = 512
"""Lines that are kept, until somebody looks, of names that have no channel of their own."""


class StatusChannel(StatusLines):
    """The status lines of one node's session."""

    def __init__(self, session: zenoh.Session, own: Membership, session_id: bytes) -> None:
        super().__init__(own, session_id)
        run = own.agreement.run
        self._due_s = float("-inf")
        self._publisher = session.declare_publisher(
            f"{run}/status/{own.agreement.node}",
            congestion_control=zenoh.CongestionControl.DROP,
            priority=zenoh.Priority.BACKGROUND,
            allowed_destination=zenoh.Locality.REMOTE,
        )
        self._others: Channels | None = None
        if own.watches_status:
            known = own.known_keys.names() - {own.agreement.node}
            self._others = Channels(session, f"{run}/status", known, others=OTHERS)

    def send(self, nodes: int, now_s: float) -> None:
        """Put the newest line, if it is due among ``nodes`` and somebody listens."""
        signed = self.told
        if signed is None or now_s < self._due_s or not is_matched(self._publisher):
            return
        self._due_s = now_s + status_pause_s(nodes)
        self._publisher.put(signed)
        with self._lock:
            if self.told is signed:
                self.told = None

    def _take(self) -> Mapping[str, Sequence[Payload]]:
        return self._others.take() if self._others else {}

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
