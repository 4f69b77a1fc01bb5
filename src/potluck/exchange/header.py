"""What stands before the tokens of a message: who wrote them, how, and for which problems.

One MessagePack array, and in it four columns with a number for each completion. A column that
counts (problem, index, length) is written as four planes, the low bytes of all numbers first,
so that it compresses to little more than what it says.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, get_args

import msgspec
import numpy as np
from msgspec import Meta

from potluck.exchange.base import WireError
from potluck.exchange.message import (
    BEYOND,
    FINGERPRINT_BYTES,
    PROMPT_DIGEST_BYTES,
    TEXT_CHARACTERS,
    Limits,
    Message,
    Origin,
)
from potluck.exchange.planes import join, split
from potluck.types import NODE_NAME, End

ENDS = get_args(End)
HEADER_BYTES = 1 << 22
"""Of the largest header, compressed or not."""
TOKEN_BYTES = 8
"""Of a token where nothing is compressed: its id and its log-probability."""

_Text = Annotated[str, Meta(max_length=TEXT_CHARACTERS)]
_Whole = Annotated[int, Meta(ge=0, lt=BEYOND)]


class Header(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    run: _Text
    round: _Whole
    sender: _Text
    model: bytes
    tokenizer: bytes
    task: bytes
    temperature: float
    top_k: _Whole
    top_p: float
    id_bits: Annotated[int, Meta(ge=1, le=31)]
    """Every id is below 2^id_bits; ids have as many planes as that takes bytes."""
    problems: msgspec.Raw
    """A list of texts. Read by itself, when it is known how many there may be."""
    digests: bytes
    """8 for each problem."""
    ends: bytes
    """Of each completion: 0 (stop) or 1 (length)."""
    problem_at: bytes
    """Of each completion, its problem's position in the list."""
    indices: bytes
    lengths: bytes

    @classmethod
    def of(cls, message: Message, id_bits: int) -> "Header":
        """What stands before ``message``'s tokens. Unchecked: ``require_sound`` does that.

        Raises:
            ValueError: it cannot be written at all.
        """
        origin, completions = message.origin, message.completions
        at = {id: position for position, id in enumerate(message.prompts)}
        for text in (message.run, *at):
            if len(text) > TEXT_CHARACTERS:
                raise ValueError(
                    f"{text[:32]!r}... has {len(text)} characters; a run or problem id has at "
                    f"most {TEXT_CHARACTERS}"
                )
        for id, digest in message.prompts.items():
            if len(digest) != PROMPT_DIGEST_BYTES:
                raise ValueError(f"the prompt digest of {id!r} has {len(digest)} bytes, expected 8")
        for c in completions:
            if c.problem_id not in at:
                raise ValueError(f"a completion of {c.problem_id!r}, which has no prompt digest")
        if unused := at.keys() - {c.problem_id for c in completions}:
            raise ValueError(f"a prompt digest of {min(unused)!r}, which has no completion")
        numbers = (message.round, origin.top_k, *(c.index for c in completions))
        if not 0 <= min(numbers) <= max(numbers) < BEYOND:
            raise ValueError(f"a round, top_k or index is not within 0 and {BEYOND - 1}")
        return cls(
            message.run, message.round, message.sender,
            origin.model, origin.tokenizer, origin.task,
            origin.temperature, origin.top_k, origin.top_p,
            id_bits,
            msgspec.Raw(msgspec.msgpack.encode(list(at))),
            b"".join(message.prompts.values()),
            bytes(ENDS.index(c.end) for c in completions),
            _column(at[c.problem_id] for c in completions),
            _column(c.index for c in completions),
            _column(len(c.token_T) for c in completions),
        )  # fmt: skip

    @property
    def origin(self) -> Origin:
        made_with = self.temperature, self.top_k, self.top_p
        return Origin(self.model, self.tokenizer, self.task, *made_with)


@dataclass(frozen=True, slots=True)
class Rows:
    """What a header says of each of B completions, and of the problems they answer."""

    prompts: dict[str, bytes]
    problems: list[str]
    problem_B: np.ndarray
    index_B: np.ndarray
    end_B: np.ndarray
    length_B: np.ndarray


def read_header(data: bytes | memoryview) -> Header:
    """
    Raises:
        WireError: it is no array of this shape.
    """
    try:
        return msgspec.msgpack.decode(data, type=Header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"header is not readable: {error}") from error


def rows_of(header: Header, limits: Limits) -> Rows:
    """The rows of a header in which everything is as it must be.

    Raises:
        WireError: a field or a column is not, or claims more than ``limits`` allow.
    """
    _require_origin(header)
    count = len(header.ends)
    if count > limits.completions:
        raise WireError(f"{count} completions came; at most {limits.completions} are taken")
    prompts = _prompts(header, at_most=count)
    rows = Rows(
        prompts,
        list(prompts),
        _numbers("problem_at", header.problem_at, count),
        _numbers("indices", header.indices, count),
        np.frombuffer(header.ends, np.uint8),
        _numbers("lengths", header.lengths, count),
    )
    # Each problem has a completion, and no completion has a problem that is not there.
    if not np.array_equal(np.unique(rows.problem_B), np.arange(len(prompts))):
        raise WireError(f"completions do not refer to all of {len(prompts)} problems and no others")
    if not count:
        return rows
    if rows.end_B.max() >= len(ENDS):
        raise WireError(f"end {rows.end_B.max()} is none of {', '.join(ENDS)}")
    if rows.index_B.max() >= BEYOND:
        raise WireError(f"index {rows.index_B.max()} is not below {BEYOND}")
    if not 1 <= rows.length_B.min() <= rows.length_B.max() <= limits.tokens:
        raise WireError(
            f"completions claim {rows.length_B.min()} to {rows.length_B.max()} tokens; each "
            f"has 1 to {limits.tokens}"
        )
    total = int(rows.length_B.sum(dtype=np.uint64))
    if TOKEN_BYTES * total > limits.message_bytes:
        raise WireError(
            f"{total} tokens are {TOKEN_BYTES * total} bytes unpacked; at most "
            f"{limits.message_bytes} are taken"
        )
    _require_each_once(rows)
    return rows


def _require_origin(header: Header) -> None:
    if not NODE_NAME.fullmatch(header.sender):
        raise WireError(f"sender {header.sender!r} is no node's name: {NODE_NAME.pattern}")
    for name in ("model", "tokenizer", "task"):
        if (size := len(getattr(header, name))) != FINGERPRINT_BYTES:
            raise WireError(f"fingerprint {name} has {size} bytes, expected {FINGERPRINT_BYTES}")
    if not (math.isfinite(header.temperature) and math.isfinite(header.top_p)):
        raise WireError(
            f"temperature {header.temperature} and top_p {header.top_p} are not both finite"
        )


def _prompts(header: Header, *, at_most: int) -> dict[str, bytes]:
    try:
        problems = _decoder(at_most).decode(header.problems)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"problems of {at_most} completions are not readable: {error}") from error
    count, size = len(problems), PROMPT_DIGEST_BYTES
    if len(header.digests) != size * count:
        raise WireError(f"{count} problems have {len(header.digests)} bytes of prompt digests")
    digests = [header.digests[at * size : (at + 1) * size] for at in range(count)]
    prompts = dict(zip(problems, digests, strict=True))
    if len(prompts) != count:
        raise WireError("a problem is listed twice")
    return prompts


@lru_cache(maxsize=64)
def _decoder(at_most: int) -> msgspec.msgpack.Decoder[list[str]]:
    """Of a list of texts. It looks at the list's size before it sets memory aside for it."""
    return msgspec.msgpack.Decoder(Annotated[list[_Text], Meta(max_length=at_most)])


def _require_each_once(rows: Rows) -> None:
    both_B = rows.problem_B.astype(np.uint64) << np.uint64(32) | rows.index_B
    one_of_each, times = np.unique(both_B, return_counts=True)
    if len(one_of_each) != len(both_B):
        problem, index = divmod(int(one_of_each[times.argmax()]), 1 << 32)
        raise WireError(f"completion {index} of {rows.problems[problem]!r} comes twice")


def _column(numbers: Iterable[int]) -> bytes:
    return b"".join(split(np.fromiter(numbers, np.uint32), 4))


def _numbers(name: str, column: bytes, count: int) -> np.ndarray:
    if len(column) != 4 * count:
        raise WireError(f"column {name} has {len(column)} bytes for {count} completions")
    return join([column[at * count : (at + 1) * count] for at in range(4)], count)
