"""Knowledge of an observer about a run's nodes, from what they announce and tell. Pure: no thread,
no network; the caller passes the time, in seconds of a clock that never goes back.

An observer asks nobody, so it cannot tell a node from a recording of it that is newer than all it
has heard. Nothing is decided by what it believes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from potluck.exchange.base import Reason, WireError
from potluck.exchange.keys.keys import verify
from potluck.exchange.protocol.announcement import (
    WHAT,
    Announcement,
    Payload,
    has_form_of_announcement,
    read_announcement,
)
from potluck.exchange.protocol.peers import NOBODY
from potluck.exchange.protocol.status import QUIET_S, StatusLines
from potluck.reports.status import StatusLine
from potluck.types import NODE_NAME

MOST_NAMES = 4096
VERIFIED_PER_S = 400
"""Most announcements that are verified in a second, in all; 1,000 nodes make 200."""
WRONG_PER_S = 10
"""Most of them under one name whose signature is wrong."""
LOOKED_AT = 8
"""Announcements, and lines, of one name that are looked at of those that came together."""

KnownAs = Literal["signed", "unknown key", "unsigned"]


@dataclass(frozen=True, slots=True)
class Sighting:
    """One node, as an observer sees it."""

    known: KnownAs
    """Signed: by the key in the roster; unknown key: by one that is not there, the first that came
    under the name; unsigned: nothing signed came yet."""
    live: bool
    """True while it is connected. Unsigned, so only a hint."""
    silent_s: float | None
    """Seconds since something newer of it came; None before the first."""
    newest_round: int | None
    """Newest round that it offers."""
    line: StatusLine | None
    refused: Mapping[Reason, int]
    """Messages under its name that were not believed."""


@dataclass(slots=True)
class _Name:
    public: bytes = b""
    said: Announcement | None = None
    heard_at_s: float = float("-inf")
    newest_round: int | None = None
    refused: Counter[Reason] = field(default_factory=Counter)


class Sightings:
    """The nodes of ``run``. Those of ``roster`` need its keys; others the first of their name."""

    def __init__(self, run: str, roster: Mapping[str, bytes]) -> None:
        self._run, self._roster = run, dict(roster)
        self._names = {name: _Name() for name in roster}
        self._live: set[str] = set()
        self._lines = StatusLines(run)
        self._wrong: Counter[str] = Counter()
        self._verified, self._counted_since_s = 0, float("-inf")
        self.refused: Counter[Reason] = Counter()
        """Messages that were not believed, under whatever name."""

    def __len__(self) -> int:
        return len(self._names)

    def on_presence(self, name: str, is_live: bool) -> None:
        if not is_live:
            self._live.discard(name)
        elif name in self._names or (
            NODE_NAME.fullmatch(name) and len(self._live) < 2 * MOST_NAMES
        ):
            self._live.add(name)

    def hear(self, name: str, payloads: Sequence[Payload], now_s: float) -> None:
        """Look at announcements that came under ``name``, oldest first."""
        if now_s - self._counted_since_s >= 1:
            self._wrong.clear()
            self._verified, self._counted_since_s = 0, now_s
        if not self._admits(name, len(payloads)):
            return
        known = self._names.get(name, _Name())
        for payload in reversed(payloads[-LOOKED_AT:]):
            if not has_form_of_announcement(payload):
                self._refuse(name, "malformed")
                continue
            try:
                said = read_announcement(payload, run=self._run, node=name)
                self._require_key(name, said.public)
                if not _is_later(said, known, now_s) or self._wrong[name] >= WRONG_PER_S:
                    continue
                if self._verified >= VERIFIED_PER_S:
                    return
                self._verified += 1
                try:
                    verify(WHAT, bytes(payload), said.public)
                    offers = said.offers()
                except WireError:
                    self._wrong[name] += 1
                    raise
            except WireError as error:
                self._refuse(name, error.reason)
                continue
            if one := self._welcome(name, said.public):
                one.said, one.heard_at_s = said, now_s
                one.newest_round = offers[-1].round if offers else None
            return

    def hear_lines(self, name: str, payloads: Sequence[Payload], now_s: float) -> None:
        """Look at status lines that came under ``name``, oldest first."""
        if not self._admits(name, len(payloads)):
            return
        public = self._key(name)
        if self._lines.hear(name, payloads[-LOOKED_AT:], now_s, public=public):
            if one := self._welcome(name, self._lines.heard[name].public):
                one.heard_at_s = now_s
            else:
                self._lines.forget(name)
        for reason, count in self._lines.refused.pop(name, {}).items():
            self._refuse(name, reason, count)

    def seen(self, now_s: float) -> dict[str, Sighting]:
        """Return each node of the roster, and each other that has signed something."""
        found = {}
        for name, one in self._names.items():
            heard, its = one.heard_at_s > float("-inf"), self._lines.heard.get(name)
            known: KnownAs = "signed" if name in self._roster else "unknown key"
            found[name] = Sighting(
                known if heard else "unsigned",
                name in self._live,
                now_s - one.heard_at_s if heard else None,
                one.newest_round,
                its.line if its else None,
                dict(one.refused),
            )
        return found

    def _admits(self, name: str, count: int) -> bool:
        if not NODE_NAME.fullmatch(name):
            self._refuse(NOBODY, "unknown sender", count)
            return False
        return True

    def _key(self, name: str) -> bytes:
        one = self._names.get(name)
        return self._roster.get(name) or (one.public if one else b"")

    def _require_key(self, name: str, offered: bytes) -> None:
        if (known := self._key(name)) and offered != known:
            raise WireError(f"what came under {name!r} is not by its key", "forged")

    def _welcome(self, name: str, public: bytes) -> _Name | None:
        """Return the state of a name, remembering it from now on; None: it is one too many."""
        if name not in self._names and len(self._names) >= MOST_NAMES and not self._make_room():
            self._refuse(NOBODY, "unknown sender")
            return None
        one = self._names.setdefault(name, _Name())
        one.public = public
        return one

    def _make_room(self) -> bool:
        """Forget the name that was silent for longest of those that are gone and in no roster."""
        gone = [
            (one.heard_at_s, name)
            for name, one in self._names.items()
            if name not in self._live and name not in self._roster
        ]
        if gone:
            _, name = min(gone)
            del self._names[name]
            self._lines.forget(name)
        return bool(gone)

    def _refuse(self, name: str, reason: Reason, count: int = 1) -> None:
        self.refused[reason] += count
        if one := self._names.get(name):
            one.refused[reason] += count


def _is_later(said: Announcement, known: _Name, now_s: float) -> bool:
    last = known.said
    if last is None or said.clock_s > last.clock_s:
        return True
    return said.session != last.session and now_s - known.heard_at_s > QUIET_S
