"""An observer: sees the nodes of a run and takes no part. It announces nothing, serves nothing and
asks nobody, so the nodes do not know it; but their status lines are sent as long as it listens.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress

import zenoh

from potluck.exchange.protocol.observation import Observation
from potluck.exchange.zenoh.channels import Channels
from potluck.exchange.zenoh.session import Endpoints, open_observer
from potluck.reports.status import PeerLine

SWEEP_S = 0.1
PRESENCES, OTHERS = 4096, 4096
"""Changes of presence, and announcements or lines, that wait for the next sweep."""


@contextmanager
def observe(endpoints: Endpoints, run: str, roster: Mapping[str, bytes]) -> Iterator["Observer"]:
    """Watch ``run`` at ``endpoints``, which need not be there yet. ``roster`` has the key that each
    name must sign with; it may be empty. Raise ExchangeError as ``open_observer``."""
    session = open_observer(endpoints, run=run)
    with closing(session), closing(Observer(session, run, roster)) as observer:
        yield observer


class Observer:
    """The nodes of ``run`` that ``session`` sees. Any thread may ask."""

    def __init__(self, session: zenoh.Session, run: str, roster: Mapping[str, bytes]) -> None:
        self._session, self.roster = session, frozenset(roster)
        self._observation = Observation(run, roster)
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._failure: Exception | None = None
        self._announced = Channels(session, f"{run}/ann", roster, others=OTHERS)
        self._lines = Channels(session, f"{run}/status", roster, others=OTHERS)
        # None of these may be lost: Zenoh waits while the channel is full.
        self._present = session.liveliness().declare_subscriber(
            f"{run}/live/*", zenoh.handlers.FifoChannel(PRESENCES), history=True
        )
        self._presences = self._present.handler
        self._thread = threading.Thread(target=self._watch, name="observe the run", daemon=True)
        self._thread.start()

    def seen(self) -> dict[str, PeerLine]:
        """Return the nodes as they are now, by name; raise the error that ended the watching."""
        if self._failure:
            raise self._failure
        with self._lock:
            return self._observation.seen(time.monotonic(), time.time())

    def refused(self) -> dict[str, int]:
        """Return counts of the messages that were not believed, under whatever name."""
        with self._lock:
            return {str(why): count for why, count in self._observation.refused.items()}

    def is_connected(self) -> bool:
        return bool(self._session.info.peers_zid() or self._session.info.routers_zid())

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        for each in (self._present, self._announced, self._lines):
            each.undeclare()

    def _watch(self) -> None:
        try:
            while not self._closed.wait(SWEEP_S):
                self._sweep(time.monotonic())
        except Exception as error:
            self._failure = error

    def _sweep(self, now_s: float) -> None:
        announced, lines = self._announced.take(), self._lines.take()
        with self._lock:
            with suppress(zenoh.ZError):  # The session was closed.
                while (sample := self._presences.try_recv()) is not None:
                    name = str(sample.key_expr).rpartition("/")[2]
                    self._observation.on_presence(name, sample.kind == zenoh.SampleKind.PUT)
            for name, payloads in announced.items():
                self._observation.hear(name, payloads, now_s)
            for name, payloads in lines.items():
                self._observation.hear_lines(name, payloads, now_s)
