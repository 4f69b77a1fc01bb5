"""The wire format, version 2: what one node sends of a round.

    message = b"PTLK"  u8 version  u8 codec  header block  body blocks
    block   = u32 size, then as many bytes
    header  = who, which round, made how, of which problems; a row for each completion
    body    = the ids of all completions one after the other, then their log-probabilities

All little-endian. In the codecs "exact" and "compact" a block holds one zstd frame, in "raw"
nothing is compressed. ``header.py`` and ``planes.py`` have the two parts, ``docs/wire.md`` every
byte. ``version`` rises when an old reader could not read the new bytes; a new way to write the
body is a new ``codec``. There are no rewards in it: each node grades for itself.
"""

import struct

import msgspec
import numpy as np

from potluck.exchange.base import WireError
from potluck.exchange.header import ENDS, HEADER_BYTES, Header, Rows, read_header, rows_of
from potluck.exchange.message import (
    FINGERPRINT_BYTES,
    PROMPT_DIGEST_BYTES,
    Limits,
    Message,
    Origin,
)
from potluck.exchange.planes import (
    Blocks,
    Codec,
    block,
    expanded,
    read_body,
    squeezed,
    write_body,
)
from potluck.types import Completion

__all__ = [
    "FINGERPRINT_BYTES",
    "PROMPT_DIGEST_BYTES",
    "VERSION",
    "Codec",
    "Limits",
    "Message",
    "Origin",
    "decode",
    "encode",
]

MAGIC = b"PTLK"
VERSION = 2
CODECS: tuple[Codec, ...] = ("raw", "exact", "compact")
"""By the number that stands for them."""
START = struct.Struct("<4sBB")
MOST = Limits()
"""What ``encode`` keeps to, so that whoever sets no limits can read it."""


def encode(message: Message, *, codec: Codec = "exact") -> bytes:
    """A message as bytes. What ``decode`` makes of them equals it: to the bit, but that
    "compact" keeps each log-probability within 2^-10 nats.

    Raises:
        ValueError: it is none that a reader with ``MOST`` as its limits takes; says why.
    """
    completions = message.completions
    for c in completions:
        if c.author != message.sender:
            raise ValueError(f"{message.sender!r} sends a completion by {c.author!r}, not its own")
    token_X = np.concatenate([np.zeros(0, np.int32), *(c.token_T for c in completions)])
    logp_X = np.concatenate([np.zeros(0, np.float32), *(c.logp_T for c in completions)])
    id_bits = max(1, int(token_X.max(initial=0)).bit_length())
    header = msgspec.msgpack.encode(Header.of(message, id_bits))
    try:
        # Whatever a reader will refuse of the header is refused here, by the same checks.
        rows_of(read_header(header), MOST)
    except WireError as error:
        raise ValueError(f"no reader takes this: {error}") from error
    (head,) = [header] if codec == "raw" else squeezed(header)
    start = START.pack(MAGIC, VERSION, CODECS.index(codec))
    body = write_body(codec, id_bits, token_X.view(np.uint32), logp_X)
    data = b"".join((start, block(head), *body))
    if len(header) > HEADER_BYTES or len(data) > MOST.message_bytes:
        raise ValueError(
            f"a message of {len(data)} bytes with a header of {len(header)} is too long; at most "
            f"{MOST.message_bytes} and {HEADER_BYTES} are taken"
        )
    return data


def decode(data: bytes, limits: Limits = MOST) -> Message:
    """The inverse of ``encode``. Nothing about ``data`` is taken on trust.

    Raises:
        WireError: these are no bytes of a message, or more than ``limits`` allow; says why. No
            other exception leaves this function, whatever they are.
    """
    codec, blocks = _start(data, limits)
    header = _header(codec, blocks, limits)
    rows = rows_of(header, limits)
    count = int(rows.length_B.sum())
    token_X, logp_X = read_body(codec, header.id_bits, blocks, count)
    blocks.require_end()
    below = min(1 << header.id_bits, limits.vocabulary)
    if count and (largest := int(token_X.max())) >= below:
        raise WireError(f"an id is {largest}; by header and vocabulary, ids are below {below}")
    completions = _completions(header.sender, rows, token_X.view(np.int32), logp_X)
    return Message(
        header.run, header.round, header.sender, header.origin, rows.prompts, completions
    )


def _start(data: bytes, limits: Limits) -> tuple[Codec, Blocks]:
    if len(data) > limits.message_bytes:
        raise WireError(f"message has {len(data)} bytes; at most {limits.message_bytes} are taken")
    if len(data) < START.size:
        raise WireError(f"message ends at byte {len(data)}, within its first {START.size}")
    magic, version, codec = START.unpack_from(data)
    if magic != MAGIC:
        raise WireError(f"message starts with {magic!r}, expected {MAGIC!r}")
    if version != VERSION:
        raise WireError(
            f"message has version {version}, and this Potluck reads version {VERSION}; nodes need "
            f"the same version"
        )
    if codec >= len(CODECS):
        raise WireError(f"message has codec {codec}; there are 0 to {len(CODECS) - 1}")
    return CODECS[codec], Blocks(memoryview(data)[START.size :])


def _header(codec: Codec, blocks: Blocks, limits: Limits) -> Header:
    at_most = min(HEADER_BYTES, limits.message_bytes)
    data: bytes | memoryview = blocks.take("header")
    if len(data) > at_most:
        raise WireError(f"header has {len(data)} bytes; at most {at_most} are taken")
    return read_header(data if codec == "raw" else expanded(data, "header", at_most=at_most))


def _completions(
    sender: str, rows: Rows, token_X: np.ndarray, logp_X: np.ndarray
) -> tuple[Completion, ...]:
    try:
        return Completion.cut(
            [rows.problems[at] for at in rows.problem_B.tolist()],
            sender,
            rows.index_B.tolist(),
            [ENDS[end] for end in rows.end_B.tolist()],
            rows.length_B.tolist(),
            token_X,
            logp_X,
        )
    except ValueError as error:
        raise WireError(str(error)) from error
