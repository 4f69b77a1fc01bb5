"""Announcements: the rounds that a node has ready, and how they look as bytes.

    announcement = Key.sign("announcement", one MessagePack array
                            [version, run, node, public key, clock_s, offers])
    offers       = for each round, one after another: round, size_bytes (u32, little-endian) and
                   the first 16 bytes of the SHA-256 of the seal in front of the batch

It is signed, so that nobody makes a reader fetch, or count as a fault, what the node never said;
and it says all of it again each time, so that a lost one repairs itself.
"""

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from potluck.exchange.base import WireError
from potluck.exchange.keys.keys import SIGNATURE_BYTES, SIGNED, Key, verify, without_signature

ANNOUNCEMENT_VERSION = 1
MAX_ANNOUNCEMENT_BYTES = 2048
MAX_OFFERS = 64
"""Most rounds in one announcement."""
DIGEST_BYTES = 16
WHAT = b"announcement"

_OFFER = struct.Struct(f"<II{DIGEST_BYTES}s")


@dataclass(frozen=True, slots=True)
class Offer:
    """One round's batch, which its author has ready."""

    round: int
    size_bytes: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Announcement:
    """Everything that a node has to offer, said once a second."""

    run: str
    node: str
    public: bytes
    """Key that it is signed with; ``KnownKeys`` knows whether ``node`` may have it."""
    clock_s: float
    """Seconds since 1970 by the clock of ``node``. Nothing depends on it; a person may compare."""
    offers: tuple[Offer, ...]
    """Offers by round, each round once; none before a node's first batch."""


class _Spoken(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: int
    run: str
    node: str
    public: bytes
    clock_s: float
    offers: bytes


def digest_of(signed: bytes) -> bytes:
    """Return the digest by which an offer names its batch: that of the signature, of which only the
    author can make another. So a reader goes through the hundreds of kilobytes once, not twice."""
    return hashlib.sha256(signed[: len(SIGNED) + SIGNATURE_BYTES]).digest()[:DIGEST_BYTES]


def offer_of(round: int, signed: bytes) -> Offer:
    """Return the offer of a sealed batch."""
    return Offer(round, len(signed), digest_of(signed))


def encode_announcement(
    run: str, node: str, key: Key, offers: Iterable[Offer], *, clock_s: float
) -> bytes:
    """Return the sealed announcement of the newest 64 ``offers``."""
    newest = sorted(offers, key=lambda offer: offer.round)[-MAX_OFFERS:]
    packed = b"".join(_OFFER.pack(o.round, o.size_bytes, o.digest) for o in newest)
    spoken = _Spoken(ANNOUNCEMENT_VERSION, run, node, key.public, clock_s, packed)
    return key.sign(WHAT, msgspec.msgpack.encode(spoken))


def decode_announcement(data: bytes, *, run: str, node: str) -> Announcement:
    """Return the announcement that came under the name of ``node``, signed by the key in it; raise
    WireError if it is none, is another's or another run's, or its signature is wrong."""
    if len(data) > MAX_ANNOUNCEMENT_BYTES:
        most = f"at most {MAX_ANNOUNCEMENT_BYTES} are read"
        raise WireError(f"an announcement of {len(data)} bytes; {most}", "too large")
    try:
        spoken = msgspec.msgpack.decode(without_signature(data), type=_Spoken)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"an announcement is not readable: {error}") from error
    verify(WHAT, data, spoken.public)
    if spoken.version != ANNOUNCEMENT_VERSION:
        ours = f"this node reads version {ANNOUNCEMENT_VERSION}; nodes need one version of potluck"
        what = f"{node!r} announces in version {spoken.version}, and {ours}"
        raise WireError(what, "other version")
    if (spoken.run, spoken.node) != (run, node):
        raise WireError(
            f"an announcement of {spoken.node[:64]!r} in run {spoken.run[:64]!r} came where that "
            f"of {node!r} in run {run!r} was expected",
            "other run" if spoken.run != run else "forged",
        )
    return Announcement(run, node, spoken.public, spoken.clock_s, _offers(spoken.offers))


def _offers(packed: bytes) -> tuple[Offer, ...]:
    if len(packed) % _OFFER.size or len(packed) > MAX_OFFERS * _OFFER.size:
        expected = f"expected {_OFFER.size} for each of at most {MAX_OFFERS} rounds"
        raise WireError(f"an announcement's offers take {len(packed)} bytes; {expected}")
    offers = tuple(Offer(*fields) for fields in _OFFER.iter_unpack(packed))
    if any(one.round >= next_.round for one, next_ in pairwise(offers)):
        raise WireError("an announcement's rounds do not go up; each may be there once")
    if offers and offers[-1].round >= 2**31:
        raise WireError(f"an announcement offers round {offers[-1].round}; below 2^31 expected")
    return offers
