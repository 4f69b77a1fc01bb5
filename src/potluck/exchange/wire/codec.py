"""The wire format, versions 2 to 4: what one node sends of a round; ``docs/wire.md`` has each byte.

    message = b"PTLK"  u8 version  u8 codec  header block  body blocks

``message.py`` has the header, ``byte_planes.py`` the body: the ids of all completions, then their
log-probabilities, then their texts. ``version`` rises when an old reader could not read the new
bytes; a new way to write the body is a new ``codec``. A message is of version 4 if it has episodes,
of 3 if it has texts, and else of 2. It holds no rewards and nothing that an environment said.
"""

import hashlib
import struct
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from potluck.exchange import base
from potluck.exchange.keys.keys import without_signature
from potluck.exchange.wire import byte_planes
from potluck.exchange.wire.byte_planes import Blocks, Codec
from potluck.exchange.wire.message import (
    BEYOND,
    ENDS,
    HEADER_BYTES,
    EpisodeHeader,
    Header,
    Limits,
    Message,
    TextHeader,
    header_of,
    rows_of,
    text_size,
    texts_of,
)
from potluck.types import Completion

MAGIC = b"PTLK"
HEADERS: dict[int, type[Header]] = {h.version: h for h in (Header, TextHeader, EpisodeHeader)}
VERSIONS = "{}, {} and {}".format(*HEADERS)
FORMATS: tuple[tuple[Codec, bool], ...] = (
    ("raw", True), ("exact", True), ("compact", True), ("raw", False), ("exact", False),
)  # fmt: skip
"""Codecs, with log-probabilities or without: their numbers on the wire, from 0."""
START = struct.Struct("<4sBB")
MOST = Limits()
"""Limits of ``encode``, so that a reader that sets none can read what it writes."""


def encode(message: Message, *, codec: Codec = "exact") -> bytes:
    """Return a message as bytes; raise ValueError if a reader with the limits ``MOST`` refuses it.
    ``decode(encode(m)) == m`` bit for bit; "compact" rounds log-probabilities by <= 2^-10 nats.
    Without log-probabilities it is as "exact"."""
    completions = message.completions
    for c in completions:
        if c.author != message.sender:
            raise ValueError(f"{message.sender!r} sends a completion by {c.author!r}, not its own")
    token_X = np.concatenate([np.zeros(0, np.int32), *(c.token_T for c in completions)])
    logps = [c.logp_T for c in completions if c.logp_T is not None]
    has_logp = len(logps) == len(completions)
    if logps and not has_logp:
        what = f"{len(logps)} of {len(completions)} completions have log-probabilities"
        raise ValueError(f"{what}; a message has those of all, or of none")
    logp_X = np.concatenate([np.zeros(0, np.float32), *logps]) if has_logp else None
    id_bits = max(1, int(token_X.max(initial=0)).bit_length())
    made = header_of(message, id_bits)
    header = msgspec.msgpack.encode(made)
    try:
        # A reader's checks of the header, made here: what it would refuse is not sent.
        rows_of(base.unpacked(header, type(made), "header is"), MOST)
    except base.WireError as error:
        raise ValueError(f"no reader takes this: {error}") from error
    (head,) = [header] if codec == "raw" else byte_planes.squeezed(header)
    written: Codec = codec if has_logp or codec == "raw" else "exact"
    number = FORMATS.index((written, has_logp))
    start = START.pack(MAGIC, made.version, number)
    body = byte_planes.write_body(codec, id_bits, token_X.view(np.uint32), logp_X)
    if text := "".join(c.text or "" for c in completions).encode():
        body += map(byte_planes.block, [text] if codec == "raw" else byte_planes.squeezed(text))
    data = b"".join((start, byte_planes.block(head), *body))
    if len(header) > HEADER_BYTES or len(data) > MOST.message_bytes:
        most = f"at most {MOST.message_bytes} and {HEADER_BYTES} are taken"
        size = f"a message of {len(data)} bytes with a header of {len(header)}"
        raise ValueError(f"{size} is too long; {most}")
    return data


def decode(data: bytes, limits: Limits = MOST) -> Message:
    """Return the message that ``encode`` wrote; raise WireError, and nothing else whatever the
    bytes are, if it is no message, or exceeds ``limits``."""
    version, codec, has_logp, blocks = _start(data, limits)
    at_most = min(HEADER_BYTES, limits.message_bytes)
    head: byte_planes.Buffer = blocks.take("header")
    base.require_at_most(at_most, len(head), f"header has {len(head)} bytes")
    if codec != "raw":
        head = byte_planes.expanded(head, "header", at_most=at_most)
    header = base.unpacked(head, HEADERS[version], "header is")
    rows = rows_of(header, limits)
    count = int(rows.length_B.sum())
    token_X = byte_planes.read_ids(codec, header.id_bits, blocks, count)
    logp_X = byte_planes.read_logp(codec, blocks, count) if has_logp else None
    texts: list[str | None] = []
    if isinstance(header, TextHeader):
        size = text_size(rows)
        text = byte_planes.contents(codec, blocks, "texts", size) if size else b""
        texts = texts_of(rows, memoryview(text))
    blocks.require_end()
    # Ids beside texts may be of another tokenizer.
    below = min(1 << header.id_bits, BEYOND if rows.questions else limits.vocabulary)
    if count and (largest := int(token_X.max())) >= below:
        raise base.WireError(f"an id is {largest}; by header and vocabulary, ids are below {below}")
    problems = list(rows.prompts)
    try:
        completions = Completion.cut(
            [problems[at] for at in rows.problem_B.tolist()],
            header.sender,
            rows.index_B.tolist(),
            [ENDS[end] for end in rows.end_B.tolist()],
            rows.length_B.tolist(),
            token_X.view(np.int32),
            logp_X,
            texts,
            header.tokenizer if rows.questions and count else b"",
            rows.episodes,
        )
    except ValueError as error:
        raise base.WireError(str(error)) from error
    about = header.run, header.round, header.sender, header.provenance
    return Message(*about, rows.prompts, completions, rows.questions)


def _start(data: bytes, limits: Limits) -> tuple[int, Codec, bool, Blocks]:
    base.require_at_most(limits.message_bytes, len(data), f"message has {len(data)} bytes")
    if len(data) < START.size:
        raise base.WireError(f"message ends at byte {len(data)}, within its first {START.size}")
    magic, version, codec = START.unpack_from(data)
    if magic != MAGIC:
        raise base.WireError(f"message starts with {magic!r}, expected {MAGIC!r}")
    if version not in HEADERS:
        ours = f"this Potluck reads versions {VERSIONS}; nodes need the same"
        raise base.WireError(f"message has version {version}, and {ours}", "other version")
    if codec >= len(FORMATS):
        what = f"message has codec {codec}; this Potluck reads 0 to {len(FORMATS) - 1}"
        raise base.WireError(what, "other version")
    return version, *FORMATS[codec], Blocks(memoryview(data)[START.size :])


ROUND_FILE_VERSION = 1


class _RoundFile(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The file of a round, for resumes and replays: the messages that one node learned from."""

    version: int
    round: Annotated[int, Meta(ge=0)]
    node: str
    missing: list[str]
    messages: list[bytes]
    newest: dict[str, int] = {}


def encode_round(round: int, node: str, arrived: base.Round) -> bytes:
    """Serialise a received round for ``decode_round``. Refused messages are not kept."""
    columns = list(arrived.missing), list(arrived.messages), dict(arrived.newest)
    page = msgspec.msgpack.encode(_RoundFile(ROUND_FILE_VERSION, round, node, *columns))
    return page + hashlib.sha256(page).digest()


def batches_of(arrived: base.Round) -> dict[tuple[str, int], bytes]:
    heads = [(decode(without_signature(data)), data) for data in arrived.messages]
    return {(message.sender, message.round): data for message, data in heads}


def decode_round(data: bytes, *, run: str, round: int, node: str) -> base.Round:
    """Return the round in a file; raise WireError if it is damaged, or another round's, node's or
    run's. Signatures are not verified again: the file is the node's own."""
    if hashlib.sha256(data[:-32]).digest() == data[-32:]:  # else of 0.2.0, or no MessagePack
        data = data[:-32]
    page = base.unpacked(data, _RoundFile, f"round {round} of {node!r} is")
    if (page.version, page.round, page.node) != (ROUND_FILE_VERSION, round, node):
        found = f"a page of version {page.version}, round {page.round} and node {page.node!r}"
        ours = f"that of version {ROUND_FILE_VERSION}, round {round} and {node!r}"
        raise base.WireError(f"{found} lies where {ours} belongs", "other round")
    batches = []
    for data in page.messages:
        message = decode(without_signature(data))
        if message.run != run or (message.sender == node and message.round != round):
            what = f"a message of round {message.round} of {message.run!r}"
            reason: base.Reason = "other run" if message.run != run else "other round"
            raise base.WireError(f"{what} lies in round {round} of {run!r}", reason)
        batches.append(base.Delivery(message.sender, message.round, data, message.completions))
    traffic = base.traffic_of(node, batches)
    return base.assemble_round(round, batches, page.missing, traffic, page.newest)
