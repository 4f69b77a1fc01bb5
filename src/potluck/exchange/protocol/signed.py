"""Small messages that a node signs and repeats: how they are read, and which are believed. And one
kind of them: status lines, which a node tells people of itself. Nothing is decided by a line, so it
is verified only when somebody looks, a bounded number in each second. Pure: the caller passes the
time, in seconds of a clock that never goes back.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from potluck.exchange.base import Reason, WireError, require_at_most, unpacked
from potluck.exchange.keys.keys import KEY_BYTES, SIGNED, Key, verify, without_signature
from potluck.reports.status import LINE_BYTES, MOST_AUTHORS, AuthorStatus, StatusLine
from potluck.types import NODE_NAME

SESSION_BYTES = 16
STATUS_VERSION = 1
STATUS = b"status"
TEXT_BYTES = 120
"""Most bytes of each text of a line that is sent; what is longer is cut."""
MOST_COUNT = 2**53 - 1
"""Largest count: a browser reads no larger number exactly."""
LATEST_S = 1e11
"""Latest time of a line, seconds since 1970."""
VERIFIED_PER_S = 200
"""Most messages of a kind that a reader verifies in a second, in all."""
WRONG_PER_S = 10
"""Most of them under one name whose signature is wrong."""
QUIET_S = 30.0
"""Seconds without a message of a node's session after which one of another session, which nobody
has confirmed, may be of an earlier time: the node was started again, and its clock set back."""


class Payload(Protocol):
    """Bytes on the network, which are copied only if they are few."""

    def __len__(self) -> int: ...

    def __bytes__(self) -> bytes: ...


class Signed(Protocol):
    """A message that says which node of which run wrote it and when, and names the node's key."""

    @property
    def version(self) -> int: ...
    @property
    def run(self) -> str: ...
    @property
    def node(self) -> str: ...
    @property
    def public(self) -> bytes: ...
    @property
    def session(self) -> bytes: ...
    @property
    def clock_s(self) -> float: ...


AnySigned = TypeVar("AnySigned", bound=Signed)


@dataclass(frozen=True, slots=True)
class Kind(Generic[AnySigned]):
    label: bytes
    """Kind of data that its signature covers."""
    form: type[AnySigned]
    version: int
    most_bytes: int
    require_sense: Callable[[AnySigned], None]
    """Function that raises WireError for a field beyond its bounds."""

    def has_form(self, payload: Payload) -> bool:
        """Tell by length and first bytes whether a payload can be one."""
        return len(payload) <= self.most_bytes and bytes(payload).startswith(SIGNED)

    def read(self, payload: Payload, *, run: str, node: str) -> AnySigned:
        """Decode a message under the name of ``node``, before its signature is looked at; raise
        WireError if it is none, or is another node's or another run's."""
        what = self.label.decode()
        came = f"{what}: {len(payload)} bytes came"
        require_at_most(self.most_bytes, len(payload), came)
        if not self.has_form(payload):
            raise WireError(f"{came} without a signature")
        packed = without_signature(bytes(payload))
        try:
            message = unpacked(packed, self.form, f"{what} is")
        except WireError:
            # A short array of MessagePack, and in it first a small number: another release's.
            if len(packed) > 1 and packed[0] >> 4 == 9 and 0 < packed[1] < 128:
                self._require_version(packed[1], node)
            raise
        self._require_version(message.version, node)
        if (message.run, message.node) != (run, node):
            raise WireError(
                f"{what} of {message.node[:64]!r} in run {message.run[:64]!r} came where that of "
                f"{node!r} in run {run!r} was expected",
                "other run" if message.run != run else "forged",
            )
        if (size := len(message.session)) != SESSION_BYTES:
            raise WireError(f"{what} has a session of {size} bytes, not {SESSION_BYTES}")
        if (size := len(message.public)) != KEY_BYTES:
            raise WireError(f"{what} has a key of {size} bytes, not {KEY_BYTES}")
        self.require_sense(message)
        return message

    def _require_version(self, version: int, node: str) -> None:
        if version != self.version:
            raise WireError(
                f"{self.label.decode()} of {node!r} is of version {version}, and this node reads "
                f"version {self.version}; nodes need one version of potluck",
                "other version",
            )


class Believed(Generic[AnySigned]):
    """Newest message of each node of ``run`` that was believed, and counts of those refused. The
    caller decides which names it looks at, and so how many there can be."""

    def __init__(
        self, run: str, kind: Kind[AnySigned], *, most_per_s: int = VERIFIED_PER_S
    ) -> None:
        self._run, self._kind, self._most_per_s = run, kind, most_per_s
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


class SignedStatus(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A status line as it travels."""

    version: int
    public: bytes
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
