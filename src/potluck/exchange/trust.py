"""Which key a name must sign with: the roster's, or else the first that was seen.

A name's first key is *pinned*: written to a file, in the form of a roster, and asked for ever
after. A name that the run does not count on (a stranger) gets this only in an open swarm.
"""

import logging
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from potluck.exchange.base import WireError
from potluck.exchange.identity import (
    KEY_BYTES,
    public_text,
    read_roster,
    replace_file,
    roster_text,
)
from potluck.types import NODE_NAME

STRANGERS = 64
"""Strangers that are remembered; what a name costs here must have an end."""

_log = logging.getLogger(__name__)


class Trust:
    """Whom this node believes to be who. Any thread may ask.

    Args:
        roster: of each name that is bound to a key, that key. Whoever is in it may take part.
        members: names that the run counts on.
        open: whether other names may take part, strangers.
        pins: the file of first keys.

    Raises:
        IdentityError: ``pins`` is there and cannot be read.
    """

    def __init__(
        self, roster: Mapping[str, bytes], members: Collection[str], open: bool, pins: Path
    ) -> None:
        self._roster, self._members = dict(roster), frozenset(members)
        self._open, self._file = open, pins
        self._lock = threading.Lock()
        pinned = read_roster(pins) if pins.exists() else {}
        # A roster was written by hand, so it goes before what was only seen.
        own = set(self._roster.values())
        self._pins = {n: k for n, k in pinned.items() if n not in self._roster and k not in own}

    def is_member(self, name: str) -> bool:
        """Whether the run counts on ``name``: others are strangers."""
        return name in self._members

    def public_key(self, name: str, offered: bytes) -> bytes:
        """The key that ``name`` must sign with, which is ``offered`` or nothing.

        Call it when ``offered`` has proven itself, that is after ``unseal`` of a message that
        names ``name``: a first key is pinned, and nobody may pin a key that is another's.

        Raises:
            WireError: it has another key, or may not take part; says what to do.
        """
        if not NODE_NAME.fullmatch(name):
            raise WireError(f"{name[:64]!r} is no name of a node; expected {NODE_NAME.pattern}")
        if len(offered) != KEY_BYTES:
            raise WireError(f"{name!r} offers a key of {len(offered)} bytes, not {KEY_BYTES}")
        if not (self._open or name in self._members or name in self._roster):
            raise WireError(
                f"{name!r} is no member and the swarm is closed; add its line to the roster, or "
                f"set [swarm] open = true"
            )
        with self._lock:
            if name in self._roster:
                return self._same(name, offered, self._roster[name], "the roster has")
            if name not in self._pins:
                self._pin(name, offered)
            seen = f"{self._file} has, from when it was first seen,"
            return self._same(name, offered, self._pins[name], seen)

    def _same(self, name: str, offered: bytes, known: bytes, source: str) -> bytes:
        if offered != known:
            raise WireError(
                f"{name!r} signs with {public_text(offered)}, but {source} {public_text(known)}; "
                f"if {name!r} really has a new key, change its line there and start again"
            )
        return known

    def _pin(self, name: str, offered: bytes) -> None:
        for other, key in (*self._roster.items(), *self._pins.items()):
            if key == offered:
                raise WireError(
                    f"{name!r} signs with {public_text(offered)}, the key of {other!r}; each node "
                    f"needs a key of its own: potluck keys makes one"
                )
        strangers = sum(known not in self._members for known in self._pins)
        if name not in self._members and strangers >= STRANGERS:
            raise WireError(
                f"{name!r} is one stranger too many: {strangers} are known already; add it to the "
                f"roster, or remove lines from {self._file} and start again"
            )
        self._pins[name] = offered
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._file, roster_text(self._pins))
        except OSError as error:  # The run goes on; the next pin writes all of them again.
            _log.warning(
                "%s cannot be written: %s; a restart forgets the key of %r",
                *(self._file, error.strerror, name),
            )
