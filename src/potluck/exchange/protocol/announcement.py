"""Announcements: the rounds that a node has ready; docs/wire.md has each byte. One is signed, so
that nobody makes a reader fetch, or count as a fault, what the node never said; and it says all of
it again each time, so that a lost one repairs itself.
"""

import hashlib
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from potluck.exchange.base import WireError
from potluck.exchange.keys.keys import SIGNATURE_BYTES, SIGNED, Key, verify, without_signature
from potluck.exchange.protocol.signed import Kind, Payload

ANNOUNCEMENT_VERSION = 2
MAX_ANNOUNCEMENT_BYTES = 2048
MAX_OFFERS = 64
DIGEST_BYTES = 16
CHALLENGE_BYTES = 16
WHAT, HELLO = b"announcement", b"hello"

_OFFER = struct.Struct(f"<II{DIGEST_BYTES}s")


@dataclass(frozen=True, slots=True)
class Offer:
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
    measured: tuple[float, float] | None = None
    """Seconds in which a node of release 0.2.0 with ``shares = "speed"`` would write a round alone,
    and learn from one: read, and not used."""

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


def _require_sense(announcement: Announcement) -> None:
    if not math.isfinite(announcement.clock_s):
        raise WireError(f"an announcement has a clock of {announcement.clock_s}, not a finite one")


ANNOUNCEMENTS = Kind(
    WHAT, Announcement, ANNOUNCEMENT_VERSION, MAX_ANNOUNCEMENT_BYTES, _require_sense
)


def decode_announcement(data: bytes, *, run: str, node: str) -> Announcement:
    announcement = ANNOUNCEMENTS.read(data, run=run, node=node)
    verify(WHAT, data, announcement.public)
    announcement.offers()
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
    """Return the announcement in an answer, unverified; raise WireError if that does not answer
    ``challenge``."""
    answer = without_signature(bytes(payload))
    if not answer.startswith(challenge):
        raise WireError(f"{len(payload)} bytes came that do not answer the challenge", "forged")
    return answer[len(challenge) :]
