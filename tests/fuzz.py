"""Messages that somebody broke, on purpose: bytes for a reader to survive.

``after_signing`` damages sealed bytes, as a line or a forger does. ``before_compression`` changes
a message, then compresses and signs it properly, as a hostile peer does.
"""

import struct
from dataclasses import replace

import msgspec
import numpy as np
import zstandard
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from nouns import completion, terms, text_only
from potluck.exchange import Key, encode
from potluck.exchange.wire.codec import HEADERS

CODECS = ("raw", "exact", "compact")
RAW = (0, 3)
"""Its numbers on the wire; 3 is that without log-probabilities."""
START = struct.Struct("<4sBB")
SIZE = struct.Struct("<I")
PIECES = ("5", "the answer ", "é", "日本", "🙂", "\u202e", "\0", "<|im_end|>", "\\frac{1}{2}", "")
KEY = Key(Ed25519PrivateKey.from_private_bytes(b"the key of these tests, 32 bytes"))
"""The same in each process: a message is made again from its seed, signature and all."""


def message(generator, *, completions=6, tokens=20, vocabulary=50):
    """A sound one, small; half have texts, one in eight is at a reader's limit, or beyond."""
    if generator.random() < 0.125:
        completions, tokens = 20, 1200
    written = []
    for at in range(generator.randint(0, completions)):
        count = generator.randint(1, tokens)
        # What repeats compresses well: a few bytes that claim many.
        size = min(count, 20)
        token_T = [generator.randrange(vocabulary) for _ in range(size)]
        logp_T = [
            -generator.expovariate(1) if generator.random() < 0.7 else -200.5 for _ in range(size)
        ]
        end = generator.choice(["stop", "length"])
        ids, logps = (token_T * count)[:count], (logp_T * count)[:count]
        written.append(completion(ids, logps, problem=f"digits/{at % 3}+1=", index=at, end=end))
    if generator.random() < 0.3:
        written = [replace(c, logp_T=None) for c in written]
    agreed, kind = terms(), generator.randrange(4)
    if kind == 0:
        agreed, plain = terms(tokenizer=b""), written
        written = [
            text_only(_text(generator, tokens), problem=c.problem_id, index=c.index, end=c.end)
            for c in plain
        ]
    elif kind == 1:
        agreed = terms(tokenizer=generator.choice([b"t", b"another"]))
        names = {"tokenizer": agreed.provenance.tokenizer}
        for at, c in enumerate(written):
            text = _text(generator, tokens) if generator.random() < 0.8 else None
            written[at] = replace(c, text=text, **names)
    if generator.random() < 0.4:
        written = [_episode(generator, c) for c in written]
    return agreed.message(generator.randrange(100), tuple(written))


def _episode(generator, completion):
    """The same as an episode; its text is any, as no reader of messages looks into it."""
    count = len(completion.token_T)
    turns, cuts = (0,) * generator.randint(1, 9), generator.sample(range(1, 1200), 8)
    if count:
        edges = [0, *sorted(cut for cut in cuts if cut < count), count]
        turns = tuple(np.diff(edges).tolist())
    observed = generator.randbytes(2 * (len(turns) - 1))
    end = generator.choice(["stop", "length", "turns", "room"])
    return replace(completion, turns=turns, observed=observed, end=end)


def _text(generator, tokens):
    pieces = generator.choices(PIECES, k=generator.choice([0, 1, 2, 5]))
    return "".join(pieces) * generator.choice([1, 1, tokens // 4])


def blocks_of(data):
    """(start, the blocks behind it, unpacked) of a sound message."""
    return parts_of(data)[:2]


def header_of(start, head):
    """The header of a sound message, by its version."""
    return msgspec.msgpack.decode(head, type=HEADERS[start[4]])


def parts_of(data):
    """The same, and the places of the blocks that are not compressed."""
    start, at, blocks, stored = data[: START.size], START.size, [], set()
    raw = start[5] in RAW
    while at < len(data):
        (size,) = SIZE.unpack_from(data, at)
        block = data[at + 4 : at + 4 + size]
        if plain := raw or not block.startswith(zstandard.FRAME_HEADER):
            stored.add(len(blocks))
        blocks.append(block if plain else zstandard.decompress(block))
        at += 4 + size
    return start, blocks, stored


def assembled(start, blocks, *, pack=zstandard.compress, stored=()):
    """The inverse of ``blocks_of``; ``stored`` are the blocks that are not compressed."""
    raw = start[5] in RAW
    packed = [b if raw or at in stored else pack(b) for at, b in enumerate(blocks)]
    return start + b"".join(SIZE.pack(len(b)) + b for b in packed)


def after_signing(generator):
    """Sealed bytes in which something happened to the bytes."""
    signed = KEY.sign(b"batch", encode(message(generator), codec=generator.choice(CODECS)))
    for _ in range(generator.choice([1, 1, 1, 2, 5])):
        signed = damaged(generator, signed)
    return signed


def before_compression(generator):
    """A properly compressed, framed and signed message whose contents are not right."""
    start, blocks, stored = parts_of(encode(message(generator), codec=generator.choice(CODECS)))
    kind = generator.choice([*("header", "column", "body") * 2, "frame", "blocks"])
    if kind in ("header", "column") or (kind == "body" and len(blocks) == 1):
        blocks[0] = _header(generator, blocks[0], column=kind == "column")
    elif kind == "body":
        at = generator.randrange(1, len(blocks))
        change = _numbers if generator.random() < 0.6 else damaged
        blocks[at] = change(generator, blocks[at])
    elif kind == "blocks":
        blocks = _shuffled(generator, blocks)
    pack = _strange_pack(generator) if kind == "frame" else zstandard.compress
    return KEY.sign(b"batch", assembled(start, blocks, pack=pack, stored=stored))


def damaged(generator, data):
    """Bytes changed, lost, repeated, added; sizes and counts made extreme."""
    data, at = bytearray(data), generator.randrange(len(data) + 1)
    match generator.randrange(7):
        case 0 if at < len(data):
            data[at] ^= 1 << generator.randrange(8)
        case 1 if at < len(data):
            data[at] = generator.choice([0, 1, 0x7F, 0x80, 0xFF, generator.randrange(256)])
        case 2:
            del data[at : at + generator.choice([1, 4, 50])]
        case 3:
            data[at:at] = generator.randbytes(generator.choice([1, 4, 50]))
        case 4:
            data[at:at] = data[at : at + generator.randrange(1, 40)]
        case 5:
            data[at : at + 4] = SIZE.pack(generator.choice([0, 1, 2**16, 2**31 - 1, 2**32 - 1]))
        case _:
            del data[at:]
    return bytes(data)


def _header(generator, data, *, column):
    """The header with a field that is not what it was; ``column``: one from the digests on."""
    fields = msgspec.msgpack.decode(data)
    if column:
        at = generator.randrange(11, len(fields))
        fields[at] = generator.choice((damaged, _numbers))(generator, fields[at])
        if generator.random() < 0.2:  # one row more or less, in every column
            for i in range(12, len(fields)):
                fields[i] = fields[i][:-1] if generator.random() < 0.5 else fields[i] + b"\0"
        return msgspec.msgpack.encode(fields)
    at = generator.randrange(len(fields))
    match generator.randrange(8):
        case 0:
            fields[at] = _anything(generator)
        case 1:
            del fields[at]
        case 2:
            fields.insert(at, _anything(generator))
        case 3:
            fields[at] = fields[generator.randrange(len(fields))]
        case 4:
            fields[9] = generator.randrange(-1, 40)  # id_bits
        case 5:
            fields[10] = [*fields[10], generator.choice(["", "p" * 257, *fields[10]])]
        case 6:
            fields[2] = generator.choice(["", "North", "n" * 33, "..", "\n", "ü"])
        case _:
            return damaged(generator, data)
    return msgspec.msgpack.encode(fields)


def _anything(generator):
    return generator.choice(
        [None, True, -1, 0, 2**31, 2**64 - 1, 1.5, float("nan"), float("inf"), "", "x" * 300, b"",
         b"\0" * 16, b"\xff" * 32, [], [[]], [""] * 70, {}, {"a": 1}, msgspec.msgpack.Ext(5, b"e")]
    )  # fmt: skip


def _numbers(generator, data):
    """Bytes of the same size that are other numbers."""
    own = np.frombuffer(data, np.uint8).copy()
    if len(own):
        where = slice(*sorted(generator.choices(range(len(own) + 1), k=2)))
        own[where] = generator.choice([0, 1, 0x7F, 0x80, 0xFF, generator.randrange(256)])
    return own.tobytes()


def _shuffled(generator, blocks):
    match generator.randrange(4):
        case 0:
            return generator.sample(blocks, len(blocks))
        case 1:
            return blocks[:-1]
        case 2:
            return [*blocks, generator.choice([b"", b"x", *blocks])]
        case _:
            at = generator.randrange(len(blocks))
            return [*blocks[:at], generator.randbytes(generator.randrange(60)), *blocks[at + 1 :]]


def _strange_pack(generator):
    """Frames of zstd that say less, claim more, want more memory, or hold something else."""
    level = generator.choice([1, 9, 19])
    return generator.choice(
        [
            zstandard.ZstdCompressor(write_content_size=False).compress,
            zstandard.ZstdCompressor(write_checksum=True, level=level).compress,
            lambda data: zstandard.compress(data) + zstandard.compress(b"more"),
            lambda data: zstandard.compress(data)[:-1],
            lambda data: claiming(data, generator.choice([0, 1, len(data) + 1, 2**20, 2**40])),
            lambda data: windowed(data, generator.choice([23, 24, 30])),
            lambda data: zstandard.compress(data + bytes(generator.choice([1, 2**16, 2**22]))),
            lambda data: b"\x50\x2a\x4d\x18" + SIZE.pack(len(data)) + data,  # to be skipped
            lambda data: data,
        ]
    )


def claiming(data, size):
    """A frame that says its content has ``size`` bytes."""
    return zstandard.FRAME_HEADER + b"\xe0" + struct.pack("<Q", size) + _stored(data)


def windowed(data, log):
    """A frame that asks for a window of 2^log bytes, and says its content's size."""
    head = bytes([0xC0, (log - 10) << 3]) + struct.pack("<Q", len(data))
    return zstandard.FRAME_HEADER + head + _stored(data)


def _stored(data):
    """The last and only block of a frame, not compressed."""
    return struct.pack("<I", len(data) << 3 | 1)[:3] + data
