"""A message: one node's batch of a round, and its header, which says how the batch was made.

The header is one MessagePack array, with four columns of a number for each completion, and more for
texts and for episodes. But for ends, columns are four planes, low bytes first: they compress well.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Annotated, Any, ClassVar, get_args

import msgspec
import numpy as np
from msgspec import Meta

from potluck.episode import MOST_TURNS
from potluck.exchange.base import WireError, require_at_most, unpacked
from potluck.exchange.wire.byte_planes import merge_planes, split_planes
from potluck.types import NODE_NAME, OBSERVED_BYTES, SINGLE_ENDS, Completion, End, Sampling

FINGERPRINT_BYTES = 16
NO_TOKENIZER = b""
"""Fingerprint of an author that writes texts only; it needs version 3 or 4."""
PROMPT_DIGEST_BYTES = 8
TEXT_CHARACTERS = 256
"""Longest name of a run, and longest id of a problem."""
BEYOND = 1 << 31
"""Bound of every whole number: each is below it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a reader; a claim beyond one is refused before memory is set aside for it. The
    defaults are also the most that ``encode`` writes."""

    message_bytes: int = 1 << 24
    """Bytes of a message as it came, and of its unpacked tokens, or turns, at 8 bytes each."""
    completions: int = 1 << 16
    tokens: int = 1 << 20
    vocabulary: int = BEYOND
    """Bound of the token ids: each is below it."""
    text_bytes: int = 1 << 24
    """Bytes of one completion as text; those of all together are at most ``message_bytes``."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Conditions under which completions were made. Fingerprints are 16 bytes of a SHA-256."""

    model: bytes
    tokenizer: bytes
    task: bytes
    """Fingerprint of the task, and of how its problems are drawn and shared out."""
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Message:
    """One node's batch of one round: its own completions."""

    run: str
    round: int
    sender: str
    provenance: Provenance
    prompts: Mapping[str, bytes]
    """Digests of prompts' ids (8 bytes; empty without a tokenizer), by problem with completions."""
    completions: tuple[Completion, ...]
    """Completions by ``sender``; all or none have log-probabilities, all or none are episodes."""
    questions: Mapping[str, bytes] = field(default_factory=dict)
    """Digests of the prompts' messages (8 bytes) by problem; none in a message without texts."""

    @property
    def has_texts(self) -> bool:
        """Return whether completions are for readers with other tokenizers too."""
        has_none = self.provenance.tokenizer == NO_TOKENIZER
        return has_none or any(c.text is not None or c.tokenizer for c in self.completions)


ENDS = get_args(End)
HEADER_BYTES = 1 << 22
"""Size of the largest header, compressed or not."""
TOKEN_BYTES = 8
"""Size of an uncompressed token: its id and its log-probability."""

_Text = Annotated[str, Meta(max_length=TEXT_CHARACTERS)]
_Whole = Annotated[int, Meta(ge=0, lt=BEYOND)]


class Header(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The header of version 2; ``docs/wire.md`` has each field."""

    version: ClassVar[int] = 2
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
    problems: msgspec.Raw
    """A list of texts. Read by itself, when it is known how many there may be."""
    digests: bytes
    ends: bytes
    problem_at: bytes
    indices: bytes
    lengths: bytes

    @property
    def provenance(self) -> Provenance:
        sampling = Sampling(self.temperature, self.top_k, self.top_p)
        return Provenance(self.model, self.tokenizer, self.task, sampling)


class TextHeader(Header, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The header of version 3: some completions have a text."""

    version: ClassVar[int] = 3
    questions: bytes
    text_sizes: bytes


class EpisodeHeader(TextHeader, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The header of version 4: each completion is an episode."""

    version: ClassVar[int] = 4
    turn_counts: bytes
    turn_lengths: bytes
    observed: bytes


def header_of(message: Message, id_bits: int) -> Header:
    """Return the header of ``message``; ``rows_of`` checks it, as it does a peer's. Raise
    ValueError for what no reader can see: tokens of another tokenizer than the header's."""
    provenance, completions = message.provenance, message.completions
    sampling = provenance.sampling
    at = {id: position for position, id in enumerate(message.prompts)}
    # A reader gives all completions one tokenizer: that of the header, if there are tokens.
    names_it = message.has_texts and any(len(c.token_T) for c in completions)
    tokenizer = provenance.tokenizer if names_it else b""
    for c in completions:
        if c.tokenizer != tokenizer:
            found = f"{c.problem_id!r} names tokenizer {c.tokenizer.hex() or 'none'}"
            expected = f"each of this message names {tokenizer.hex() or 'none'}"
            raise ValueError(f"a completion of {found}; {expected}")
    fields = (
        message.run, message.round, message.sender,
        provenance.model, provenance.tokenizer, provenance.task,
        sampling.temperature, sampling.top_k, sampling.top_p,
        id_bits,
        msgspec.Raw(msgspec.msgpack.encode(list(at))),
        b"".join(message.prompts.values()),
        bytes(ENDS.index(c.end) for c in completions),
        _column(at[c.problem_id] for c in completions),
        _column(c.index for c in completions),
        _column(len(c.token_T) for c in completions),
    )  # fmt: skip
    has_episodes = any(c.turns for c in completions)
    if not (message.has_texts or has_episodes):
        return Header(*fields)
    sizes = _column(0 if c.text is None else 1 + len(c.text.encode()) for c in completions)
    questions = b"".join(message.questions[id] for id in at) if message.has_texts else b""
    if not has_episodes:
        return TextHeader(*fields, questions, sizes)
    counts = _column(len(c.turns) for c in completions)
    lengths = _column(chain.from_iterable(c.turns for c in completions))
    observed = b"".join(c.observed for c in completions)
    return EpisodeHeader(*fields, questions, sizes, counts, lengths, observed)


@dataclass(frozen=True, slots=True)
class Rows:
    """The columns of a header, a number for each of B completions, and the problems they answer."""

    prompts: dict[str, bytes]
    questions: dict[str, bytes]
    problem_B: np.ndarray
    index_B: np.ndarray
    end_B: np.ndarray
    length_B: np.ndarray
    text_B: np.ndarray
    """1 + the bytes of each text; 0: there is none."""
    episodes: list[tuple[tuple[int, ...], bytes]]
    """Turns and digests of each episode; empty if completions are none."""


def rows_of(header: Header, limits: Limits) -> Rows:
    """Return the rows of a header; raise WireError for a wrong field, or one beyond ``limits``."""
    _require_provenance(header)
    count = len(header.ends)
    require_at_most(limits.completions, count, f"{count} completions came")
    prompts = _prompts(header, at_most=count)
    questions, sizes = {}, bytes(4 * count)
    if isinstance(header, TextHeader):
        sizes = header.text_sizes
        if header.questions or not isinstance(header, EpisodeHeader):
            questions = _digests_of(list(prompts), header.questions, "question")
    length_B = _numbers("lengths", header.lengths, count)
    rows = Rows(
        prompts,
        questions,
        _numbers("problem_at", header.problem_at, count),
        _numbers("indices", header.indices, count),
        np.frombuffer(header.ends, np.uint8),
        length_B,
        _numbers("text_sizes", sizes, count),
        _episodes(header, length_B, limits) if isinstance(header, EpisodeHeader) else [],
    )
    # Each problem has a completion, and no completion has a problem that is not there.
    if not np.array_equal(np.unique(rows.problem_B), np.arange(len(prompts))):
        raise WireError(f"completions do not refer to all of {len(prompts)} problems and no others")
    if not count:
        return rows
    ends = ENDS if rows.episodes else ENDS[: len(SINGLE_ENDS)]
    if rows.end_B.max() >= len(ends):
        raise WireError(f"end {rows.end_B.max()} is none of {', '.join(ends)}")
    if rows.index_B.max() >= BEYOND:
        raise WireError(f"index {rows.index_B.max()} is not below {BEYOND}")
    is_empty_B = (rows.length_B == 0) & (rows.text_B == 0)
    if (longest := rows.length_B.max()) > limits.tokens or is_empty_B.any():
        shortest = rows.length_B.min()
        what = f"completions claim {shortest} to {longest} tokens; each has 1 to {limits.tokens}"
        raise WireError(what, "too large" if longest > limits.tokens else "malformed")
    largest = int(rows.text_B.max()) - 1
    require_at_most(limits.text_bytes, largest, f"a text of {largest} bytes is claimed")
    if rows.length_B.any() and header.tokenizer == NO_TOKENIZER:
        raise WireError("tokens came from an author that tells no tokenizer")
    if rows.text_B.any() and not rows.questions:
        raise WireError("texts came without digests of the messages that they answer")
    size = text_size(rows)
    require_at_most(limits.message_bytes, size, f"texts of {size} bytes are claimed")
    total = int(rows.length_B.sum(dtype=np.uint64))
    size = TOKEN_BYTES * total
    require_at_most(limits.message_bytes, size, f"{total} tokens are {size} bytes unpacked")
    both_B = rows.problem_B.astype(np.uint64) << np.uint64(32) | rows.index_B
    one_of_each, times = np.unique(both_B, return_counts=True)
    if len(one_of_each) != count:
        problem, index = divmod(int(one_of_each[times.argmax()]), 1 << 32)
        raise WireError(f"completion {index} of {list(prompts)[problem]!r} comes twice")
    return rows


def _episodes(
    header: EpisodeHeader, length_B: np.ndarray, limits: Limits
) -> list[tuple[tuple[int, ...], bytes]]:
    """Return turns and digests of each completion; raise WireError for what does not fit."""
    count_B = _numbers("turn_counts", header.turn_counts, len(length_B))
    most = int(count_B.max(initial=0))
    if most > MOST_TURNS or not count_B.all():
        turns = f"{count_B.min()} to {most}"
        what = f"episodes of {turns} turns came; each of a message has 1 to {MOST_TURNS}"
        raise WireError(what, "too large" if most > MOST_TURNS else "malformed")
    total = int(count_B.sum())
    require_at_most(limits.message_bytes // TOKEN_BYTES, total, f"{total} turns came")
    if len(header.observed) != (expected := OBSERVED_BYTES * (total - len(count_B))):
        raise WireError(f"{len(header.observed)} bytes were observed where {expected} are expected")
    turn_X = _numbers("turn_lengths", header.turn_lengths, total, "turns")
    first_B = np.cumsum(count_B, dtype=np.int64) - count_B
    if total and not np.array_equal(np.add.reduceat(turn_X, first_B, dtype=np.uint64), length_B):
        raise WireError("the turns of a completion have more or fewer tokens than it has")
    lengths, observed, episodes = iter(turn_X.tolist()), memoryview(header.observed), []
    for count in count_B.tolist():
        size = OBSERVED_BYTES * (count - 1)
        episodes.append((tuple(islice(lengths, count)), bytes(observed[:size])))
        observed = observed[size:]
    return episodes


def text_size(rows: Rows) -> int:
    return int(np.maximum(rows.text_B.astype(np.int64) - 1, 0).sum())


def texts_of(rows: Rows, data: memoryview) -> list[str | None]:
    """Return the texts of all rows, cut from ``data``; raise WireError if one is not UTF-8."""
    texts: list[str | None] = []
    at = 0
    for place, size in enumerate(rows.text_B.tolist()):
        end = at + max(size - 1, 0)
        try:
            texts.append(str(data[at:end], "utf-8") if size else None)
        except UnicodeDecodeError as error:
            raise WireError(f"the text of completion {place} is not UTF-8: {error}") from error
        at = end
    return texts


def _require_provenance(header: Header) -> None:
    if not NODE_NAME.fullmatch(header.sender):
        raise WireError(f"sender {header.sender!r} is no node's name: {NODE_NAME.pattern}")
    has_none = isinstance(header, TextHeader) and header.tokenizer == NO_TOKENIZER
    for name in ("model", "task") if has_none else ("model", "tokenizer", "task"):
        if (size := len(getattr(header, name))) != FINGERPRINT_BYTES:
            raise WireError(f"fingerprint {name} has {size} bytes, expected {FINGERPRINT_BYTES}")
    temperature, top_p = header.temperature, header.top_p
    if not (math.isfinite(temperature) and math.isfinite(top_p)):
        raise WireError(f"temperature {temperature} and top_p {top_p} are not both finite")


def _prompts(header: Header, *, at_most: int) -> dict[str, bytes]:
    form: Any = Annotated[list[_Text], Meta(max_length=at_most)]  # before memory is set aside
    problems: list[str] = unpacked(header.problems, form, f"problems of {at_most} completions are")
    if len(set(problems)) != len(problems):
        raise WireError("a problem is listed twice")
    size = 0 if header.tokenizer == NO_TOKENIZER else PROMPT_DIGEST_BYTES
    return _digests_of(problems, header.digests, "prompt", size)


def _digests_of(
    problems: Sequence[str], digests: bytes, what: str, size: int = PROMPT_DIGEST_BYTES
) -> dict[str, bytes]:
    count = len(problems)
    if len(digests) != size * count:
        raise WireError(f"{count} problems have {len(digests)} bytes of {what} digests")
    return {id: digests[at * size : (at + 1) * size] for at, id in enumerate(problems)}


def _column(numbers: Iterable[int]) -> bytes:
    return b"".join(split_planes(np.fromiter(numbers, np.uint32), 4))


def _numbers(name: str, column: bytes, count: int, what: str = "completions") -> np.ndarray:
    if len(column) != 4 * count:
        raise WireError(f"column {name} has {len(column)} bytes for {count} {what}")
    return merge_planes([column[at * count : (at + 1) * count] for at in range(4)], count)
