"""Status lines: what a node tells people of itself, as bytes; and which of them are believed.

    status line = Key.sign("status", one MessagePack array [version, public key, session, line])
    line        = one MessagePack map: fields of ``StatusLine``, by name

Nothing is decided by a line, so it is verified only when somebody looks, a bounded number in each
second. Pure: no thread, no network; the caller passes the time.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from potluck.exchange.base import Reason, WireError
from potluck.exchange.keys.keys import SIGNED, Key, verify, without_signature
from potluck.exchange.protocol.announcement import SESSION_BYTES, Payload
from potluck.exchange.protocol.peers import announcement_pause_s
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
VERIFIED_PER_S = 200
"""Most messages of a kind that a reader verifies in a second, in all."""
WRONG_PER_S = 10
"""Most of them under one name whose signature is wrong."""
QUIET_S = 30.0
"""Seconds without a line of a node's session after which one of another session, which nobody has
confirmed, may be of an earlier time: the node was started again, and its clock set back."""


class SignedStatus(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A status line as it travels."""

    version: int
    public: bytes
    """Key that it is signed with."""
    session: bytes
    """Session of the node, as in its announcements."""
    line: StatusLine

    @property
    def clock_s(self) -> float:
        return self.line.time_s


_DECODER = msgspec.msgpack.Decoder(SignedStatus)
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


def read_status(payload: Payload, *, run: str, node: str) -> SignedStatus:
    """Return what came under the name of ``node``, before its signature is looked at; raise
    WireError if it is no status line, or is another's or another run's."""
    if len(payload) > LINE_BYTES:
        most = f"at most {LINE_BYTES} are read"
        raise WireError(f"a status line of {len(payload)} bytes; {most}", "too large")
    data = bytes(payload)
    if not data.startswith(SIGNED):
        raise WireError(f"{len(data)} bytes came without a signature")
    try:
        said = _DECODER.decode(without_signature(data))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"a status line is not readable: {error}") from error
    if said.version != STATUS_VERSION:
        what = f"{node!r} tells its status in version {said.version}"
        raise WireError(f"{what}; this node reads version {STATUS_VERSION}", "other version")
    line = said.line
    if (line.run, line.node) != (run, node):
        raise WireError(
            f"a status line of {line.node!r} in run {line.run!r} came where that of {node!r} in "
            f"run {run!r} was expected",
            "other run" if line.run != run else "forged",
        )
    _require_bounded(said)
    return said


class Signed(Protocol):
    """A message that was read, and says who signed it and when."""

    @property
    def public(self) -> bytes: ...

    @property
    def session(self) -> bytes: ...

    @property
    def clock_s(self) -> float: ...


Said = TypeVar("Said", bound=Signed, covariant=True)


class ReadSigned(Protocol[Said]):
    """Reads what came under a node's name, before its signature is looked at; raises WireError."""

    def __call__(self, payload: Payload, *, run: str, node: str) -> Said: ...


class Believed(Generic[Said]):
    """Newest message of each node of ``run`` that was believed, and counts of those refused. The
    caller decides which names it looks at, and so how many there can be."""

    def __init__(
        self, run: str, read: ReadSigned[Said], label: bytes, *, most_per_s: int = VERIFIED_PER_S
    ) -> None:
        self._run, self._read, self._label, self._most_per_s = run, read, label, most_per_s
        self._verified, self._counted_since_s = 0, float("-inf")
        self._wrong: Counter[str] = Counter()
        self.said: dict[str, Said] = {}
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
        """Look at what came under ``name``, oldest first; return whether one of them is believed:
        the newest that is signed by the key ``public`` (empty: by the one in it), of ``session``
        (empty: of any), and later than the last one. What is not later is ignored: two relays
        deliver twice."""
        if now_s - self._counted_since_s >= 1:
            self._wrong.clear()
            self._verified, self._counted_since_s = 0, now_s
        for payload in reversed(payloads):
            try:
                said = self._read(payload, run=self._run, node=name)
                if public and said.public != public:
                    raise WireError(f"what came under {name!r} is not by its key", "forged")
                if (session and said.session != session) or not self._is_later(
                    name, said, now_s, confirmed=bool(session)
                ):
                    continue
                if self._wrong[name] >= WRONG_PER_S:
                    continue
                if self._verified >= self._most_per_s:
                    return False
                self._verified += 1
                self._wrong[name] += 1
                verify(self._label, bytes(payload), said.public)
                self._wrong[name] -= 1
            except WireError as error:
                self.refuse(name, error.reason)
                continue
            self.said[name], self.heard_s[name] = said, now_s
            return True
        return False

    def refuse(self, name: str, reason: Reason, count: int = 1) -> None:
        """Count messages that came under ``name`` and are not believed."""
        self.refused.setdefault(name, Counter())[reason] += count

    def forget(self, name: str) -> None:
        for each in (self.said, self.heard_s, self.refused):
            each.pop(name, None)

    def _is_later(self, name: str, said: Signed, now_s: float, *, confirmed: bool) -> bool:
        last = self.said.get(name)
        if last is None or said.clock_s > last.clock_s:
            return True
        is_quiet = now_s - self.heard_s[name] > QUIET_S
        return said.session != last.session and (confirmed or is_quiet)


def status_lines(run: str) -> Believed[SignedStatus]:
    """Make an empty store of status lines."""
    return Believed(run, read_status, STATUS)


def _require_bounded(said: SignedStatus) -> None:
    line = said.line
    if len(said.session) != SESSION_BYTES:
        raise WireError(f"a status line has no session of {SESSION_BYTES} bytes")
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


def _cut(text: str) -> str:
    return text.encode(errors="replace")[:TEXT_BYTES].decode(errors="ignore")


def _finite(part: _Part) -> _Part:
    """Return the part without numbers that are not finite."""
    odd = {
        name: None
        for name in part.__struct_fields__
        if isinstance(value := getattr(part, name), float) and not math.isfinite(value)
    }
    return replace(part, **odd) if odd else part
