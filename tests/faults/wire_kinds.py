"""Kinds of hostile messages, for ``soak_wire.py``: each a function of a generator to bytes.

``fuzz.py`` breaks sound messages at random places. These are written on purpose: values at and
beyond each limit, claims that are false, and a signature that is right over contents that are not.
Fields of a header are changed by their names, so one that is added to it needs no change here.
"""

import dataclasses
from functools import cache

import msgspec
import numpy as np
import zstandard
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Raw
from msgspec.structs import replace

from fuzz import (
    KEY,
    START,
    after_signing,
    assembled,
    before_compression,
    blocks_of,
    claiming,
    damaged,
    header_of,
    message,
    windowed,
)
from nouns import completion, episode, terms, text_only
from potluck.exchange import Key, Round, encode, encode_round
from potluck.exchange.keys.keys import SIGNATURE_BYTES, SIGNED
from potluck.exchange.protocol.signed import (
    HELLO,
    STATUS,
    WHAT,
    Offer,
    encode_announcement,
    encode_answer,
    encode_status,
)
from potluck.exchange.wire import byte_planes
from potluck.reports.status import AuthorStatus, StatusLine

OTHER = Key(Ed25519PrivateKey.from_private_bytes(b"o" * 32))
SEAL_BYTES = len(SIGNED) + SIGNATURE_BYTES
ROUND, ID_BITS = 7, 6
CHALLENGE = b"of sixteen bytes"
WHOLE = (0, -1, 1, 2**16, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1e-45, 0.5, -0.5, -3.4e38, 3.4e38, float("nan"), float("inf"), -float("inf"))
IDS = (0, 48, 49, 50, 51, 63, 64, 255, 256, 2**16, 2**31 - 1, 2**31, 2**32 - 1)
TEXTS = (
    *("", "North", "n" * 32, "n" * 33, "..", "../north", "a/b", "\0", "\n", "ü", "\u202e"),
    *("north\x1b[31m", "<script>", "p" * 256, "p" * 257, "p" * 100_000, "\U0001f600" * 64),
)


def sound(generator, codec="exact"):
    """(start, header, blocks) of a sound message."""
    start, blocks = blocks_of(encode(message(generator), codec=codec))
    return start, header_of(start, blocks[0]), blocks


def sealed(start, head, blocks, **changes):
    """A message with a header of these changes, properly compressed and signed."""
    packed = msgspec.msgpack.encode(replace(head, **changes))
    return KEY.sign(b"batch", assembled(start, [packed, *blocks]))


def with_header(generator, **changes):
    start, header, blocks = sound(generator)
    return sealed(start, header, blocks[1:], **changes)


def column_of(numbers):
    return b"".join(byte_planes.split_planes(np.array(numbers, np.uint32), 4))


def fields_beyond(generator):
    """A number at its bound or beyond, a bad name, or a fingerprint of another size."""
    prints = [generator.randbytes(size) for size in (0, 15, 17, 70_000)]
    field, odd = generator.choice([
        *((name, (*WHOLE, *FLOATS)) for name in ("round", "top_k", "temperature", "top_p")),
        *((name, TEXTS) for name in ("run", "sender")),
        *((name, prints) for name in ("model", "tokenizer", "task")),
    ])  # fmt: skip
    return with_header(generator, **{field: generator.choice(odd)})


def problems(generator):
    """Ids of problems that are too long or come twice, and digests that do not fit."""
    texts = [generator.choice(TEXTS) for _ in range(generator.randrange(8))]
    digests = generator.randbytes(8 * generator.choice([len(texts), 0, 1, 1000, 70_000]))
    return with_header(generator, problems=Raw(msgspec.msgpack.encode(texts)), digests=digests)


def duplicates(generator):
    """Rows that come twice, or that claim lengths and places which cannot be."""
    start, header, blocks = sound(generator)
    count = len(header.ends)
    columns = {}
    for name in generator.sample(["problem_at", "indices", "lengths"], 2):
        column = [generator.choice([0, 1, 2**16, 2**31, 2**32 - 1])] * count
        columns[name] = column_of(column)
    return sealed(start, header, blocks[1:], **columns)


def with_body(generator, codec, token_X, logp_X, *, id_bits=ID_BITS, rest=None):
    """An unchecked message of one completion with these numbers; ``rest`` is the last block."""
    one = completion([1] * len(token_X), problem="digits/0+1=")
    start, blocks = blocks_of(encode(terms().message(ROUND, (one,)), codec=codec))
    head = msgspec.msgpack.encode(replace(header_of(start, blocks[0]), id_bits=id_bits))
    packed = head if codec == "raw" else zstandard.compress(head)
    body = byte_planes.write_body(codec, id_bits, token_X, logp_X)
    if rest is not None:
        body[-1] = byte_planes.block(rest)
    return KEY.sign(b"batch", b"".join((start, byte_planes.block(packed), *body)))


def sound_numbers(generator):
    count = generator.randint(1, 12)
    return np.full(count, 5, np.uint32), np.full(count, -0.5, np.float32)


def log_probabilities(generator):
    """NaN, an infinity, a number above zero, -0 and the largest numbers there are."""
    token_X, logp_X = sound_numbers(generator)
    logp_X[generator.randrange(len(logp_X))] = generator.choice(FLOATS)
    return with_body(generator, generator.choice(["raw", "exact"]), token_X, logp_X)


def ids(generator):
    """An id at and beyond the vocabulary, with an honest or a false number of bits."""
    token_X, logp_X = sound_numbers(generator)
    id = generator.choice(IDS)
    token_X[generator.randrange(len(token_X))] = id
    bits = generator.choice([ID_BITS, max(1, id.bit_length()), 1, 31, 32])
    return with_body(generator, generator.choice(["raw", "exact"]), token_X, logp_X, id_bits=bits)


def escapes(generator):
    """Numbers beside the fixed point of "compact": too many, too few, and such as cannot be."""
    token_X, logp_X = sound_numbers(generator)
    logp_X[: generator.randrange(len(logp_X) + 1)] = -200.5
    rest = np.array(generator.choices(FLOATS, k=generator.randrange(14)), "<f4").tobytes()
    return with_body(generator, "compact", token_X, logp_X, rest=rest[: generator.randrange(60)])


NOT_UTF8 = (
    *(b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xff", b"\x80"),
    *("🙂".encode()[:3], "é".encode()[:1], b"ok\xe6\x97", b"\xef\xbb"),
)
SIZES = (0, 1, 2, 2000, 2001, 2002, 2**16, 2**20, 2**24, 2**31, 2**32 - 1)


def texts(generator):
    """Texts that are not UTF-8, cut within a character, too long, too many, or not there; digests
    that do not fit; tokens of no tokenizer. The claimed sizes are true in half of them."""
    count = generator.randint(1, 6)
    made = [generator.choice([b"", b"5", "日本".encode()]) for _ in range(count)]
    if generator.random() < 0.5:
        made[generator.randrange(count)] = generator.choice(NOT_UTF8)
    if generator.random() < 0.2:
        made[0] = generator.choice(["a", "é", "🙂"]).encode() * generator.choice(
            [500, 2**14, 2**16]
        )
    written = [text_only("", problem=f"digits/{at % 3}+1=", index=at) for at in range(count)]
    sound = terms(tokenizer=b"").message(ROUND, tuple(written))
    start, blocks = blocks_of(encode(sound, codec=generator.choice(["raw", "exact"])))
    sizes = [1 + len(each) for each in made]
    if generator.random() < 0.5:
        sizes[generator.randrange(count)] = generator.choice(SIZES)
    changes = {"text_sizes": column_of(sizes)}
    match generator.randrange(8):
        case 0:
            changes["text_sizes"] = damaged(generator, column_of(sizes))
        case 1:
            changes["questions"] = generator.randbytes(8 * generator.choice([0, 1, 3, 1000]))
        case 2:
            changes["digests"] = generator.randbytes(8 * generator.choice([1, 3, 1000]))
        case 3:
            changes["tokenizer"] = generator.randbytes(generator.choice([1, 15, 16, 17, 1000]))
        case 4:
            changes["lengths"] = generator.choice([b"\1" + bytes(4 * count - 1), b"\1" * count])
    body = generator.choice(
        [[b"".join(made)]] * 8 + [[], [b"", b"".join(made)], [b"".join(made)] * 2]
    )
    return sealed(start, header_of(start, blocks[0]), body, **changes)


def turns(generator):
    """Episodes with more turns than there may be or are, of other lengths, or without digests."""
    count = generator.randint(1, 6)
    written = tuple(episode([5], [6, 7], index=at, end="turns") for at in range(count))
    start, blocks = blocks_of(encode(terms().message(ROUND, written)))
    numbers = [2] * count, [1, 2] * count, [3] * count
    most = generator.choice([1, 4096, 4097, 2**13, 2**16, 2**20, 2**31, 2**32 - 1])
    for at in generator.sample(range(3), generator.randint(0, 2)):
        numbers[at][generator.randrange(count)] = generator.choice([0, 1, 2, 3, 4, most])
    total = sum(numbers[0])
    if total < 2**18 and generator.random() < 0.5:
        numbers = numbers[0], (numbers[1] * total)[:total], numbers[2]
    columns = zip(("turn_counts", "turn_lengths", "lengths"), map(column_of, numbers), strict=True)
    size = generator.choice([2 * count, 2 * (total - count) % 2**18, 0, 1, 2**16])
    header = header_of(start, blocks[0])
    return sealed(start, header, blocks[1:], observed=bytes(size), **dict(columns))


@cache
def bomb(size):
    return zstandard.compress(bytes(size))


def bombs(generator):
    """Frames of zstd that grow to megabytes, or that claim what they do not hold."""
    start, _, blocks = sound(generator)
    at, size = generator.randrange(len(blocks)), generator.choice([2**16, 2**20, 2**22, 2**24])
    frames = [zstandard.compress(block) for block in blocks]
    match generator.randrange(4):
        case 0:
            frames[at] = bomb(size)
        case 1:
            frames[at] += bomb(size)
        case 2:
            frames[at] = claiming(blocks[at], generator.choice([0, size, 2**40, 2**63]))
        case _:
            frames[at] = windowed(blocks[at], generator.choice([10, 23, 24, 31]))
    return KEY.sign(b"batch", start + b"".join(map(byte_planes.block, frames)))


def msgpack(generator):
    """MessagePack that is 100,000 deep, or says that it holds billions of things."""
    claim = generator.choice([b"\xdd", b"\xdb", b"\xc6", b"\xdf", b"\xc9"])
    return generator.choice([
        b"\x91" * 100_000 + b"\xc0", b"\x81\xc0" * 50_000 + b"\xc0", b"\x91" * 900 + b"\xc0",
        claim + b"\xff\xff\xff\xff", b"\xdc\xff\xff" + b"\xc0" * generator.randrange(90), b"\xc1",
        b"\xdc\x00" + generator.choice([b"\x10", b"\x12"]) + claim + b"\x7f\xff\xff\xff"
        + generator.randbytes(40),
    ])  # fmt: skip


def nested(generator):
    """The same in place of a header, or of its list of problems."""
    start, header, blocks = sound(generator)
    wild = msgpack(generator)
    if generator.random() < 0.5:
        wild = msgspec.msgpack.encode(replace(header, problems=Raw(wild)))
    return KEY.sign(b"batch", assembled(start, [wild, *blocks[1:]]))


def starts(generator):
    """Another magic, version or codec, and blocks that go beyond the end."""
    signed = bytearray(KEY.sign(b"batch", encode(message(generator))))
    at = SEAL_BYTES + generator.randrange(START.size + 4)
    signed[at] = generator.choice([0, 1, 2, 3, 4, 5, 0x7F, 0x80, 0xFF])
    return bytes(signed)


def resealed(generator, what, data):
    """``data`` under a seal of another key or kind, none, two, or one that is damaged."""
    sealed = KEY.sign(what, data)
    return generator.choice([
        lambda: OTHER.sign(what, data), lambda: KEY.sign(b"other", data), lambda: data,
        lambda: KEY.sign(what, sealed), lambda: sealed[: generator.randrange(80)],
        lambda: sealed[:4] + bytes(64) + data, lambda: SIGNED + data,
        lambda: sealed[:36] + b"\xff" * 32 + data, lambda: sealed,
    ])()  # fmt: skip


def seals(generator):
    return resealed(generator, b"batch", encode(message(generator)))


def spoiled(generator, what, signed):
    """A signed message that is damaged, resealed, or something else under its seal; or None."""
    return generator.choice([
        lambda: damaged(generator, signed),
        lambda: resealed(generator, what, signed[SEAL_BYTES:]),
        lambda: KEY.sign(what, msgpack(generator)),
        *[lambda: None] * 3,
    ])()  # fmt: skip


def sound_announcement(generator):
    drawn = generator.sample(range(100), generator.randrange(5))
    offers = [Offer(round, generator.randrange(2**32), generator.randbytes(16)) for round in drawn]
    session, task = generator.randbytes(16), generator.randbytes(16)
    about = {"session": session, "task": task, "clock_s": 1.0}
    said = encode_announcement("run", "north", KEY, offers, **about)
    if generator.random() < 0.5:
        return said
    speed = 10 ** generator.uniform(-2, 6), 0.0  # as release 0.2.0 told
    return KEY.sign(
        WHAT, msgspec.msgpack.encode([*msgspec.msgpack.decode(said[SEAL_BYTES:]), speed])
    )


def announcements(generator):
    """Properly signed, with contents that are not right; or right ones that were damaged."""
    signed = sound_announcement(generator)
    if spoilt := spoiled(generator, WHAT, signed):
        return spoilt
    fields = msgspec.msgpack.decode(signed[SEAL_BYTES:])
    at, kind = generator.randrange(len(fields)), generator.randrange(3)
    if kind == 0:
        fields[at] = generator.choice([*WHOLE[:10], *FLOATS, *TEXTS, b"", b"k" * 32, None, [], {}])
    elif kind == 1:  # offers that are cut, repeated, out of order, or of rounds beyond 2^31
        fields[7] = generator.choice([
            damaged(generator, fields[7]), fields[7] * 2, b"\xff" * 24, bytes(24 * 65),
            bytes(24 * 64), generator.randbytes(24 * generator.randrange(70)),
        ])  # fmt: skip
    else:
        fields = generator.choice([fields[:at], [*fields, None], fields[::-1]])
    return KEY.sign(WHAT, msgspec.msgpack.encode(fields))


def answers(generator):
    """Answers to a challenge: to another one, damaged, or with an announcement that is."""
    challenge = generator.choice([CHALLENGE, bytes(16), CHALLENGE[:8], b"", CHALLENGE * 2])
    inner = generator.choice([sound_announcement, announcements])(generator)
    answer = encode_answer(KEY, challenge, inner)
    return generator.choice([
        lambda: damaged(generator, answer), lambda: answer,
        lambda: resealed(generator, HELLO, CHALLENGE + inner),
    ])()  # fmt: skip


def sound_status(generator):
    names = generator.sample(["east", "north", "south", "n" * 32], generator.randrange(5))
    authors = {name: AuthorStatus(generator.randrange(99), generator.random()) for name in names}
    line = StatusLine(node="north", run="run", time_s=1.0, round=3, model="m", authors=authors)
    return encode_status(line, KEY, session=generator.randbytes(16))


def statuses(generator):
    """Status lines, properly signed, with contents that are not right; or right and damaged."""
    signed = sound_status(generator)
    if spoilt := spoiled(generator, STATUS, signed):
        return spoilt
    fields, kind = msgspec.msgpack.decode(signed[SEAL_BYTES:]), generator.randrange(3)
    odd = generator.choice([*WHOLE, *FLOATS, *TEXTS, b"", None, [], {}, {"a": [1]}])
    line = fields[3]
    if kind == 0:
        line[generator.choice([*line])] = odd
    elif kind == 1:
        author = generator.choice(["north", *TEXTS])
        line["authors"] = {author: [odd if at == generator.randrange(7) else 1 for at in range(7)]}
    else:
        fields[generator.randrange(len(fields))] = odd
    return KEY.sign(STATUS, msgspec.msgpack.encode(fields))


def pages(generator):
    """A round's file that was damaged, or that holds messages which are broken."""
    makers = (after_signing, before_compression, seals, fields_beyond, ids, nested)
    held = tuple(generator.choice(makers)(generator) for _ in range(generator.randrange(3)))
    own = dataclasses.replace(message(generator), round=generator.randrange(ROUND + 2))
    signed = KEY.sign(b"batch", encode(own))
    data = encode_round(ROUND, "north", Round((), ("south",), messages=(signed, *held)))
    match generator.randrange(4):
        case 0:
            return damaged(generator, data)
        case 1:
            return msgpack(generator)
        case 2:
            fields = msgspec.msgpack.decode(data[:-32])  # without the sum
            at = generator.randrange(len(fields))
            fields[at] = generator.choice([*WHOLE[:10], *TEXTS, None, [], [b""], ["x"], {}])
            return msgspec.msgpack.encode(fields)
        case _:
            return data


KINDS = {
    "batch": (
        *(after_signing, before_compression, fields_beyond, fields_beyond, problems, duplicates),
        *(log_probabilities, ids, escapes, texts, turns, bombs, nested, starts, seals),
    ),
    "announcement": (announcements,),
    "answer": (answers,),
    "status": (statuses,),
    "page": (pages,),
}
"""Makers of messages, by what they claim to be."""
