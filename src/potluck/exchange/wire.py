"""The wire format, version 1: what one node sends of a round, and what a round's file holds.

    message = b"PTLK"  u8 version  u8 codec  u32 n  header (n bytes of MessagePack)  body
    header  = {run, round, sender, problems, authors, rows}
    rows    = one [problem, author, index, end, length] for each completion: positions in
              the two lists, the completion's index, 0 (stop) or 1 (length), its tokens
    body    = codec 0, "raw": all token ids as i32, then all log-probabilities as f32 (nats)

All little-endian; completions stand one after the other. 8 bytes a token and about 6 a
completion. ``version`` rises when an old reader could not read the new bytes; a new way to
write the body is a new ``codec``. Nodes of different versions fail on the sixth byte, not
on the thousandth.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, get_args

import msgspec
import numpy as np
from msgspec import Meta

from potluck.exchange.base import WireError
from potluck.types import Completion, End

MAGIC = b"PTLK"
VERSION = 1
RAW = 0
ENDS = get_args(End)
START = struct.Struct("<4sBBI")
MAX_MESSAGE_BYTES = 1 << 30
MAX_HEADER_BYTES = 1 << 26
MAX_ROWS = 1 << 16
MAX_TOKENS = 1 << 20
"""A longer completion is refused before any memory is set aside for it."""

Text = Annotated[str, Meta(max_length=256)]
Position = Annotated[int, Meta(ge=0, le=2**31 - 1)]


@dataclass(frozen=True, slots=True)
class Message:
    """One node's word on one round: its own completions, or (in a file) all it has."""

    run: str
    round: int
    sender: str
    completions: tuple[Completion, ...]


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    run: Text
    round: Position
    sender: Text
    problems: list[Text]
    authors: list[Text]
    rows: Annotated[
        list[tuple[Position, Position, Position, Position, Position]], Meta(max_length=MAX_ROWS)
    ]


def encode(message: Message) -> bytes:
    """A message as bytes, exactly: what ``decode`` gives back equals it.

    Raises:
        ValueError: it holds more than the format allows (a text of over 256
            characters, a completion of over 2^20 tokens, over 2^16 completions).
    """
    completions = message.completions
    problems = list(dict.fromkeys(c.problem_id for c in completions))
    authors = list(dict.fromkeys(c.author for c in completions))
    problem_at = {id: at for at, id in enumerate(problems)}
    author_at = {name: at for at, name in enumerate(authors)}
    if any(len(text) > 256 for text in (message.run, message.sender, *problems, *authors)):
        raise ValueError("a run, node or problem id is longer than 256 characters")
    if len(completions) > MAX_ROWS:
        raise ValueError(f"{len(completions)} completions are more than {MAX_ROWS}")
    if any(len(c.token_T) > MAX_TOKENS for c in completions):
        raise ValueError(f"a completion is longer than {MAX_TOKENS} tokens")
    if any(not 0 <= n < 2**31 for n in (message.round, *(c.index for c in completions))):
        raise ValueError("a round or an index is not within 0 and 2^31 - 1")
    rows = [
        (problem_at[c.problem_id], author_at[c.author], c.index, ENDS.index(c.end), len(c.token_T))
        for c in completions
    ]
    header = msgspec.msgpack.encode(
        _Header(message.run, message.round, message.sender, problems, authors, rows)
    )
    data = b"".join(
        (
            START.pack(MAGIC, VERSION, RAW, len(header)),
            header,
            *(c.token_T.astype("<i4").tobytes() for c in completions),
            *(c.logp_T.astype("<f4").tobytes() for c in completions),
        )
    )
    if len(header) > MAX_HEADER_BYTES or len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message of {len(data)} bytes is longer than {MAX_MESSAGE_BYTES}")
    return data


def decode(data: bytes) -> Message:
    """The inverse of ``encode``. Nothing about ``data`` is taken on trust.

    Raises:
        WireError: these are not bytes that ``encode`` can have made. No other
            exception leaves this function, whatever they are.
    """
    header, body = _header(data)
    lengths = [length for *_, length in header.rows]
    if any(length > MAX_TOKENS for length in lengths):
        raise WireError(f"a completion claims {max(lengths)} tokens; at most {MAX_TOKENS} allowed")
    total = sum(lengths)
    if len(body) != 8 * total:
        raise WireError(f"{total} tokens take {8 * total} bytes, but {len(body)} came")
    token_X = np.frombuffer(body, "<i4", total)
    logp_X = np.frombuffer(body, "<f4", total, offset=4 * total)
    completions = []
    at = 0
    for row in header.rows:
        part = slice(at, at + row[-1])
        completions.append(_completion(header, row, token_X[part], logp_X[part]))
        at += row[-1]
    message = Message(header.run, header.round, header.sender, tuple(completions))
    _require_each_once(message)
    return message


def read_from(sender: str, data: bytes, *, run: str, round: int) -> tuple[Completion, ...]:
    """The completions in ``sender``'s message of this round of this run.

    Raises:
        WireError: it is no message, or is another node's, round's or run's.
    """
    message = decode(data)
    if (message.run, message.round, message.sender) != (run, round, sender):
        raise WireError(
            f"a message of {message.sender!r} for round {message.round} of {message.run!r} came "
            f"where {sender!r}'s for round {round} of {run!r} was expected"
        )
    for c in message.completions:
        if c.author != sender:
            raise WireError(f"{sender!r} sent a completion that is signed {c.author!r}")
    return message.completions


def _header(data: bytes) -> tuple[_Header, memoryview]:
    if len(data) > MAX_MESSAGE_BYTES:
        raise WireError(f"message has {len(data)} bytes; at most {MAX_MESSAGE_BYTES} allowed")
    if len(data) < START.size:
        raise WireError(f"message ends at byte {len(data)}, within its first {START.size}")
    magic, version, codec, size = START.unpack_from(data)
    if magic != MAGIC:
        raise WireError(f"message starts with {magic!r}, expected {MAGIC!r}")
    if (version, codec) != (VERSION, RAW):
        raise WireError(
            f"message has version {version}, codec {codec}; this Potluck reads version {VERSION}, "
            f"codec {RAW}"
        )
    if size > min(MAX_HEADER_BYTES, len(data) - START.size):
        raise WireError(f"header claims {size} bytes; {len(data) - START.size} came")
    raw = memoryview(data)[START.size :]
    try:
        return msgspec.msgpack.decode(raw[:size], type=_Header), raw[size:]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"header is not readable: {error}") from error


def _completion(
    header: _Header, row: Sequence[int], token_T: np.ndarray, logp_T: np.ndarray
) -> Completion:
    problem, author, index, end, _ = row
    if problem >= len(header.problems) or author >= len(header.authors) or end >= len(ENDS):
        raise WireError(f"row {list(row)} points beyond the lists it refers to")
    try:
        return Completion(
            header.problems[problem],
            header.authors[author],
            index,
            token_T.astype(np.int32),
            logp_T.astype(np.float32),
            ENDS[end],
        )
    except ValueError as error:
        raise WireError(str(error)) from error


def _require_each_once(message: Message) -> None:
    seen = set()
    for c in message.completions:
        key = (c.problem_id, c.author, c.index)
        if key in seen:
            raise WireError(f"completion {c.index} of {c.problem_id!r} by {c.author!r} comes twice")
        seen.add(key)
