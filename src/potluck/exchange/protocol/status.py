"""Status lines: what a node tells people of itself, as bytes.

    status line = Key.sign("status", one MessagePack array [version, public key, session, line])
    line        = one MessagePack map: fields of ``StatusLine``, by name

Nothing is decided by a line, so it is verified only when somebody looks, a bounded number in each
second. Pure: no thread, no network; the caller passes the time.
"""

import math
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from potluck.exchange.base import WireError
from potluck.exchange.keys.keys import Key
from potluck.exchange.protocol.peers import announcement_pause_s
from potluck.exchange.protocol.signed import Kind
from potluck.reports.status import LINE_BYTES, MOST_AUTHORS, AuthorStatus, StatusLine
from potluck.types import NODE_NAME

STATUS_VERSION = 1
STATUS = b"status"
TEXT_BYTES = 120
"""Most bytes of each text of a line that is sent; what is longer is cut."""
MOST_COUNT = 2**53 - 1
"""Largest count: a browser reads no larger number exactly."""
LATEST_S = 1e11
"""Latest time of a line, seconds since 1970."""
PAUSE_S = 5.0
"""Fewest seconds between two lines of a node."""


class SignedStatus(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A status line as it travels."""

    version: int
    public: bytes
    """Key that it is signed with."""
    session: bytes
    """Session of the node, as in its announcements."""
    line: StatusLine

    @property
    def run(self) -> str:
        return self.line.run

    @property
    def node(self) -> str:
        return self.line.node

    @property
    def clock_s(self) -> float:
        return self.line.time_s


_Part = TypeVar("_Part", StatusLine, AuthorStatus)


def status_pause_s(nodes: int) -> float:
    """Return the fewest seconds between two lines of each of ``nodes``."""
    return max(PAUSE_S, announcement_pause_s(nodes))


def encode_status(line: StatusLine, key: Key, *, session: bytes) -> bytes:
    """Return the signed line, ``LINE_BYTES`` at most: texts are cut, numbers that are not finite
    are left out, and so are authors beyond the limit, those of fewest completions first."""
    order = sorted(line.authors, key=lambda name: (-line.authors[name].completions, name))
    texts = {name: _cut(getattr(line, name)) for name in ("version", "model", "phase")}
    whole = replace(_finite(line), **texts)
    for count in range(min(len(order), MOST_AUTHORS), -1, -1):
        authors = {name: _finite(line.authors[name]) for name in order[:count]}
        fields = STATUS_VERSION, key.public, session, replace(whole, authors=authors)
        data = key.sign(STATUS, msgspec.msgpack.encode(SignedStatus(*fields)))
        if len(data) <= LINE_BYTES:
            break
    return data


def _require_sense(status: SignedStatus) -> None:
    line = status.line
    if not 0 <= line.time_s <= LATEST_S:
        raise WireError(f"a status line of time {line.time_s}; expected 0 to {LATEST_S:g}")
    if len(line.authors) > MOST_AUTHORS:
        raise WireError(f"a status line has {len(line.authors)} authors, not {MOST_AUTHORS}")
    if bad := [name for name in line.authors if not NODE_NAME.fullmatch(name)]:
        raise WireError(f"{bad[0]!r} is no name of a node; expected {NODE_NAME.pattern}")
    for part in (line, *line.authors.values()):
        for name in part.__struct_fields__:
            value = getattr(part, name)
            if isinstance(value, int) and not 0 <= value <= MOST_COUNT:
                raise WireError(f"a status line says {name} = {value}; 0 to 2^53 expected")
            if isinstance(value, float) and not math.isfinite(value):
                raise WireError(f"a status line says {name} = {value}; a finite number expected")


STATUS_LINES = Kind(STATUS, SignedStatus, STATUS_VERSION, LINE_BYTES, _require_sense)


def _cut(text: str) -> str:
    return text.encode(errors="replace")[:TEXT_BYTES].decode(errors="ignore")


def _finite(part: _Part) -> _Part:
    odd = {
        name: None
        for name in part.__struct_fields__
        if isinstance(value := getattr(part, name), float) and not math.isfinite(value)
    }
    return replace(part, **odd) if odd else part
