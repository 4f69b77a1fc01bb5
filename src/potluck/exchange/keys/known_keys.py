"""The key that each name must sign with: the roster's, or else its first one, which is *pinned*:
written to a file, in the form of a roster, and required from then on. A stranger, which the run
does not count on, is pinned in an open swarm only."""

import logging
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from potluck.exchange.base import WireError
from potluck.exchange.keys.keys import KEY_BYTES, public_text, read_roster, roster_text
from potluck.files import write_atomically
from potluck.types import NODE_NAME

STRANGERS = 64
"""Most strangers that are remembered: names without end must not fill the memory."""

_log = logging.getLogger(__name__)


class KnownKeys:
    """The keys that this node believes. Any thread may ask. Names of ``roster`` and ``members``
    (names that the run counts on) may take part; if ``open``, strangers too. ``pins`` is the file
    of first keys; IdentityError if it cannot be read."""

    def __init__(
        self, roster: Mapping[str, bytes], members: Collection[str], open: bool, pins: Path
    ) -> None:
        self._roster, self._members = dict(roster), frozenset(members)
        self.open, self._file = open, pins
        self._lock = threading.Lock()
        pinned = read_roster(pins) if pins.exists() else {}
        # A roster was written by hand, so it goes before what was only seen.
        own = set(self._roster.values())
        self._pins = {n: k for n, k in pinned.items() if n not in self._roster and k not in own}

    def admit(self, name: str) -> None:
        if not NODE_NAME.fullmatch(name):
            what = f"{name[:64]!r} is no name of a node; expected {NODE_NAME.pattern}"
            raise WireError(what, "unknown sender")
        if not (self.open or name in self._members or name in self._roster):
            raise WireError(
                f"{name!r} is no member and the swarm is closed; add its line to the roster, or "
                f"set [swarm] open = true",
                "unknown sender",
            )

    def names(self) -> frozenset[str]:
        return self._members | self._roster.keys()

    def known(self, name: str) -> bytes | None:
        """Return the key that ``name`` must sign with; None before its first one was pinned."""
        with self._lock:
            return self._roster.get(name) or self._pins.get(name)

    def public_key(self, name: str, offered: bytes) -> bytes:
        """Return ``offered`` if it is the key that ``name`` must sign with; raise WireError if the
        name has another one, or may not take part. Call it after ``verify`` of a message that names
        ``name`` has proven ``offered``: a first key is pinned, and nobody may pin another's."""
        self.admit(name)
        if len(offered) != KEY_BYTES:
            raise WireError(f"{name!r} offers a key of {len(offered)} bytes, not {KEY_BYTES}")
        with self._lock:
            known, source = self._roster.get(name), "the roster has"
            if known is None:
                if name not in self._pins:
                    self._pin(name, offered)
                known, source = self._pins[name], f"{self._file} has, from when it was first seen,"
        if offered != known:
            raise WireError(
                f"{name!r} signs with {public_text(offered)}, but {source} {public_text(known)}; "
                f"if {name!r} really has a new key, change its line there and start again",
                "forged",
            )
        return known

    def _pin(self, name: str, offered: bytes) -> None:
        for other, key in (*self._roster.items(), *self._pins.items()):
            if key == offered:
                raise WireError(
                    f"{name!r} signs with {public_text(offered)}, the key of {other!r}; each node "
                    f"needs a key of its own: potluck keys makes one",
                    "forged",
                )
        strangers = sum(known not in self._members for known in self._pins)
        if name not in self._members and strangers >= STRANGERS:
            raise WireError(
                f"{name!r} is one stranger too many: {strangers} are known already; add it to the "
                f"roster, or remove lines from {self._file} and start again",
                "unknown sender",
            )
        self._pins[name] = offered
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file, roster_text(self._pins).encode())
        except OSError as error:  # The run goes on; the next pin writes all of them again.
            _log.warning(
                "%s cannot be written: %s; a restart forgets the key of %r",
                *(self._file, error.strerror, name),
            )
