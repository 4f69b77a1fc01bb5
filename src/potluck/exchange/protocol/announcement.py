"""Announcements: the rounds that a node has ready, and how they look as bytes.

    announcement = Key.sign("announcement", one MessagePack array
                            [version, run, node, public key, session, task, clock_s, offers]
                            or, from a node of release 0.2.0, with [write_s, learn_s] behind them)
    offers       = for each round, one after another: round, size_bytes (u32, little-endian) and
                   the first 16 bytes of the SHA-256 of the seal in front of the batch
    answer       = Key.sign("hello", challenge + announcement)

It is signed, so that nobody makes a reader fetch, or count as a fault, what the node never said;
and it says all of it again each time, so that a lost one repairs itself. A recorded one is signed
as well: the answer to a random challenge proves which ``session`` of a node is the present one.
"""

import hashlib
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import msgspec

from potluck.exchange.base import WireError
from potluck.exchange.keys.keys import SIGNATURE_BYTES, SIGNED, Key, verify, without_signature

ANNOUNCEMENT_VERSION = 2
MAX_ANNOUNCEMENT_BYTES = 2048
MAX_OFFERS = 64
"""Most rounds in one announcement."""
DIGEST_BYTES = 16
SESSION_BYTES = CHALLENGE_BYTES = 16
WHAT, HELLO = b"announcement", b"hello"

_OFFER = struct.Struct(f"<II{DIGEST_BYTES}s")


class Payload(Protocol):
    """Bytes on the network, which are copied only if they are few."""

    def __len__(self) -> int: ...

    def __bytes__(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Offer:
    """One round's batch, which its author has ready."""

    round: int
    size_bytes: int
    digest: bytes


class Announcement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Everything that a node has to offer, said every second or every few."""

    version: int
    run: str
    node: str
    public: bytes
    """Key that it is signed with; ``KnownKeys`` knows whether ``node`` may have it."""
    session: bytes
    """Random bytes that ``node`` drew when it joined."""
    task: bytes
    """Digest of what the nodes of a run agree on (``Provenance.task``)."""
    clock_s: float
    """Seconds since 1970 when ``node`` joined, and those since then: it never goes back."""
    packed: bytes
    """Offers as they are written."""
    measured: tuple[float, float] | None = None
    """Seconds in which a node of release 0.2.0 with ``shares = "speed"`` would write a round alone,
    and learn from one: read, and not used."""

    def offers(self) -> tuple[Offer, ...]:
        """Return the offers by round, each round once; none before a node's first batch. Raise
        WireError if they are not written so."""
        if len(self.packed) % _OFFER.size or len(self.packed) > MAX_OFFERS * _OFFER.size:
            expected = f"expected {_OFFER.size} for each of at most {MAX_OFFERS} rounds"
            raise WireError(f"an announcement's offers take {len(self.packed)} bytes; {expected}")
        offers = tuple(Offer(*fields) for fields in _OFFER.iter_unpack(self.packed))
        if any(one.round >= next_.round for one, next_ in pairwise(offers)):
            raise WireError("an announcement's rounds do not go up; each may be there once")
        if offers and offers[-1].round >= 2**31:
            raise WireError(f"an announcement offers round {offers[-1].round}; below 2^31 expected")
        return offers


_DECODER = msgspec.msgpack.Decoder(Announcement)


def digest_of(signed: bytes) -> bytes:
    """Return the digest by which an offer names its batch: that of the signature, of which only the
    author can make another. So a reader goes through the hundreds of kilobytes once, not twice."""
    return hashlib.sha256(signed[: len(SIGNED) + SIGNATURE_BYTES]).digest()[:DIGEST_BYTES]


def offer_of(round: int, signed: bytes) -> Offer:
    """Return the offer of a sealed batch."""
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
    said = [ANNOUNCEMENT_VERSION, run, node, key.public, session, task, clock_s, packed]
    return key.sign(WHAT, msgspec.msgpack.encode(said))


def has_form_of_announcement(payload: Payload) -> bool:
    """Return whether a payload has the length and the first bytes of an announcement."""
    return len(payload) <= MAX_ANNOUNCEMENT_BYTES and bytes(payload).startswith(SIGNED)


def read_announcement(payload: Payload, *, run: str, node: str) -> Announcement:
    """Return what an announcement under the name of ``node`` says, before its signature is looked
    at; raise WireError if it is none, or is another's or another run's."""
    if len(payload) > MAX_ANNOUNCEMENT_BYTES:
        most = f"at most {MAX_ANNOUNCEMENT_BYTES} are read"
        raise WireError(f"an announcement of {len(payload)} bytes; {most}", "too large")
    data = bytes(payload)
    if not data.startswith(SIGNED):
        raise WireError(f"{len(data)} bytes came without a signature")
    packed = without_signature(data)
    try:
        said = _DECODER.decode(packed)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        # A short array of MessagePack, and in it first a small number: another release's.
        if len(packed) > 1 and packed[0] >> 4 == 9 and 0 < packed[1] < 128:
            _require_version(packed[1], node)
        raise WireError(f"an announcement is not readable: {error}") from error
    _require_version(said.version, node)
    if (said.run, said.node) != (run, node):
        raise WireError(
            f"an announcement of {said.node[:64]!r} in run {said.run[:64]!r} came where that "
            f"of {node!r} in run {run!r} was expected",
            "other run" if said.run != run else "forged",
        )
    if len(said.session) != SESSION_BYTES or not math.isfinite(said.clock_s):
        raise WireError("an announcement has no session of 16 bytes, or no finite clock")
    write_s, learn_s = said.measured or (1.0, 0.0)
    if not (0.01 <= write_s <= 1e6 and 0 <= learn_s <= 1e6):
        raise WireError(
            f"an announcement tells a speed of {write_s} s to write and {learn_s} s to learn; "
            f"expected 0.01 or 0 to 1e+06 s"
        )
    return said


def decode_announcement(data: bytes, *, run: str, node: str) -> Announcement:
    """Return the announcement that came under the name of ``node``, signed by the key in it; raise
    WireError if its signature is wrong, or as ``read_announcement`` and ``offers``."""
    said = read_announcement(data, run=run, node=node)
    verify(WHAT, data, said.public)
    said.offers()
    return said


def encode_answer(key: Key, challenge: bytes, announcement: bytes) -> bytes:
    """Return the answer to a challenge: proof that ``announcement`` is of a node that is there."""
    return key.sign(HELLO, challenge + announcement)


def has_form_of_answer(payload: Payload, challenge: bytes, public: bytes) -> bool:
    """Return whether an answer has the length and the parts of one to this ``challenge`` by the key
    ``public``, which may be empty: any; what has not is not worth a verification, nor a word."""
    at = len(SIGNED) + SIGNATURE_BYTES
    if not at < len(payload) - at - len(challenge) <= MAX_ANNOUNCEMENT_BYTES:
        return False
    answer = bytes(payload)
    return answer.startswith(SIGNED) and answer.startswith(challenge, at) and public in answer


def split_answer(payload: Payload, challenge: bytes) -> bytes:
    """Return the announcement in an answer, before any signature is looked at; raise WireError if
    the answer is none to this ``challenge``."""
    long = len(payload) > 2 * MAX_ANNOUNCEMENT_BYTES
    answer = b"" if long else without_signature(bytes(payload))
    if not answer.startswith(challenge):
        raise WireError(f"{len(payload)} bytes came that do not answer the challenge", "forged")
    return answer[len(challenge) :]


def _require_version(version: int, node: str) -> None:
    if version != ANNOUNCEMENT_VERSION:
        ours = f"this node reads version {ANNOUNCEMENT_VERSION}; nodes need one version of potluck"
        what = f"{node!r} announces in version {version}, and {ours}"
        raise WireError(what, "other version")
