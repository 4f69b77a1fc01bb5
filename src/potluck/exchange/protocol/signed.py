"""Small messages that a node signs and repeats; docs/wire.md has each byte. An announcement tells
the rounds that it has ready, all of them each time, so that a lost one repairs itself; an answer,
an announcement and a reader's challenge under one signature. A status line is for people.
"""

import hashlib
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar, Protocol, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from potluck.exchange.base import WireError, require_at_most, unpacked
from potluck.exchange.keys.keys import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    SIGNED,
    Key,
    verify,
    without_signature,
)
from potluck.reports.status import LINE_BYTES, MOST_AUTHORS, AuthorStatus, StatusLine
from potluck.types import NODE_NAME

ANNOUNCEMENT_VERSION, STATUS_VERSION = 2, 1
MAX_ANNOUNCEMENT_BYTES = 2048
MAX_OFFERS = 64
DIGEST_BYTES = 16
SESSION_BYTES, CHALLENGE_BYTES = 16, 16
WHAT, HELLO, STATUS = b"announcement", b"hello", b"status"
TEXT_BYTES = 120
"""Most bytes of each text of a line that is sent; what is longer is cut."""
MOST_COUNT = 2**53 - 1
"""Largest count: a browser reads no larger number exactly."""
LATEST_S = 1e11
"""Latest time of a line, seconds since 1970."""

_OFFER = struct.Struct(f"<II{DIGEST_BYTES}s")
_Public = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
_Session = Annotated[bytes, Meta(min_length=SESSION_BYTES, max_length=SESSION_BYTES)]


@dataclass(frozen=True, slots=True)
class Offer:
    round: int
    size_bytes: int
    digest: bytes


class Announcement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Everything that a node has to offer, said every second or every few."""

    label: ClassVar = WHAT
    """Kind of data that its signature covers."""
    own_version: ClassVar = ANNOUNCEMENT_VERSION
    most_bytes: ClassVar = MAX_ANNOUNCEMENT_BYTES
    version: int
    run: str
    node: str
    public: _Public
    session: _Session
    task: bytes
    clock_s: float
    """Seconds since 1970 when ``node`` joined, and those since then: it never goes back."""
    packed: bytes
    measured: tuple[float, float] | None = None
    """Seconds to write and learn a round alone, from 0.2.0 with ``shares = "speed"``: not used."""

    def offers(self) -> tuple[Offer, ...]:
        """Return the offers by round, each round once; WireError if they are not written so."""
        if len(self.packed) % _OFFER.size or len(self.packed) > MAX_OFFERS * _OFFER.size:
            expected = f"expected {_OFFER.size} for each of at most {MAX_OFFERS} rounds"
            raise WireError(f"an announcement's offers take {len(self.packed)} bytes; {expected}")
        offers = tuple(Offer(*fields) for fields in _OFFER.iter_unpack(self.packed))
        if any(one.round >= next_.round for one, next_ in pairwise(offers)):
            raise WireError("an announcement's rounds do not go up; each may be there once")
        if offers and offers[-1].round >= 2**31:
            raise WireError(f"an announcement offers round {offers[-1].round}; below 2^31 expected")
        return offers

    def require_sense(self) -> None:
        """Raise WireError for a clock that is none, or offers beyond their bounds."""
        if not math.isfinite(self.clock_s):
            raise WireError(f"an announcement has a clock of {self.clock_s}, not a finite one")
        self.offers()


class SignedStatus(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A status line as it travels."""

    label: ClassVar = STATUS
    own_version: ClassVar = STATUS_VERSION
    most_bytes: ClassVar = LINE_BYTES
    version: int
    public: _Public
    session: _Session
    line: StatusLine

    @property
    def run(self) -> str:
        return self.line.run

    @property
    def node(self) -> str:
        return self.line.node

    def require_sense(self) -> None:
        """Raise WireError for a field beyond its bounds."""
        line = self.line
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
                    raise WireError(f"a status line says {name} = {value}; finite number expected")


class Payload(Protocol):
    """Bytes on the network, which are copied only if they are few."""

    def __len__(self) -> int: ...

    def __bytes__(self) -> bytes: ...


_Part = TypeVar("_Part", StatusLine, AuthorStatus)
AnySigned = TypeVar("AnySigned", Announcement, SignedStatus)
"""A message that says which node of which run wrote it, and names the node's key."""


def has_form(form: type[AnySigned], payload: Payload) -> bool:
    """Tell by length and first bytes whether a payload can be one of these messages."""
    return len(payload) <= form.most_bytes and bytes(payload).startswith(SIGNED)


def read_signed(form: type[AnySigned], payload: Payload, *, run: str, node: str) -> AnySigned:
    """Decode a message under the name of ``node``, before its signature is looked at; raise
    WireError if it is none, or is another node's or another run's."""
    what = form.label.decode()
    came = f"{what}: {len(payload)} bytes came"
    require_at_most(form.most_bytes, len(payload), came)
    if not has_form(form, payload):
        raise WireError(f"{came} without a signature")
    packed = without_signature(bytes(payload))

    def require_version(version: int) -> None:
        if version != form.own_version:
            raise WireError(
                f"{what} of {node!r} is of version {version}, and this node reads version "
                f"{form.own_version}; nodes need one version of potluck",
                "other version",
            )

    try:
        message = unpacked(packed, form, f"{what} is")
    except WireError:
        # A short array of MessagePack, and in it first a small number: another release's.
        if len(packed) > 1 and packed[0] >> 4 == 9 and 0 < packed[1] < 128:
            require_version(packed[1])
        raise
    require_version(message.version)
    if (message.run, message.node) != (run, node):
        raise WireError(
            f"{what} of {message.node[:64]!r} in run {message.run[:64]!r} came where that of "
            f"{node!r} in run {run!r} was expected",
            "other run" if message.run != run else "forged",
        )
    message.require_sense()
    return message


def digest_of(signed: bytes) -> bytes:
    """Return the digest by which an offer names its batch: that of the signature, of which only the
    author can make another. So a reader goes through the hundreds of kilobytes once, not twice."""
    return hashlib.sha256(signed[: len(SIGNED) + SIGNATURE_BYTES]).digest()[:DIGEST_BYTES]


def offer_of(round: int, signed: bytes) -> Offer:
    return Offer(round, len(signed), digest_of(signed))


def encode_announcement(
    run: str,
    node: str,
    key: Key,
    offers: Iterable[Offer],
    *,
    session: bytes,
    task: bytes,
    clock_s: float,
) -> bytes:
    """Return the sealed announcement of the newest 64 ``offers``."""
    newest = sorted(offers, key=lambda offer: offer.round)[-MAX_OFFERS:]
    packed = b"".join(_OFFER.pack(o.round, o.size_bytes, o.digest) for o in newest)
    fields = ANNOUNCEMENT_VERSION, run, node, key.public, session, task, clock_s, packed
    return key.sign(WHAT, msgspec.msgpack.encode(fields))


def decode_announcement(data: bytes, *, run: str, node: str) -> Announcement:
    announcement = read_signed(Announcement, data, run=run, node=node)
    verify(WHAT, data, announcement.public)
    return announcement


def encode_answer(key: Key, challenge: bytes, announcement: bytes) -> bytes:
    """Return the answer to a challenge: proof that ``announcement`` is of a node that is there."""
    return key.sign(HELLO, challenge + announcement)


def has_form_of_answer(payload: Payload, challenge: bytes, public: bytes) -> bool:
    """Tell by its length and its parts whether a payload can answer this ``challenge`` with the key
    ``public`` (empty: any key); another is not worth a verification, nor a word."""
    at = len(SIGNED) + SIGNATURE_BYTES
    if not at < len(payload) - at - len(challenge) <= MAX_ANNOUNCEMENT_BYTES:
        return False
    answer = bytes(payload)
    return answer.startswith(SIGNED) and answer.startswith(challenge, at) and public in answer


def split_answer(payload: Payload, challenge: bytes) -> bytes:
    """Return an answer's announcement, unverified; raise WireError for another ``challenge``."""
    answer = without_signature(bytes(payload))
    if not answer.startswith(challenge):
        raise WireError(f"{len(payload)} bytes came that do not answer the challenge", "forged")
    return answer[len(challenge) :]


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


def _cut(text: str) -> str:
    return text.encode(errors="replace")[:TEXT_BYTES].decode(errors="ignore")


def _finite(part: _Part) -> _Part:
    odd = {
        name: None
        for name in part.__struct_fields__
        if isinstance(value := getattr(part, name), float) and not math.isfinite(value)
    }
    return replace(part, **odd) if odd else part
