"""Messages that somebody broke, on purpose: bytes for a reader to survive.

``after_signing`` damages sealed bytes, as a line or a forger does. ``before_compression`` changes
what is in a message, then compresses and signs it properly, as a peer does who means harm: then
it is not the signature nor zstd that refuses it.
"""

import struct
from random import Random

import msgspec
import numpy as np
import zstandard

from nouns import completion, origin, prompt_digest
from potluck.exchange import Key, Message, encode

CODECS = ("raw", "exact", "compact")
START = struct.Struct("<4sBB")
SIZE = struct.Struct("<I")
KEY = Key.new()


def message(dice, *, completions=6, tokens=20, vocabulary=50):
    """A sound one, small; one in eight has as many tokens as a reader may take, or more."""
    if dice.random() < 0.125:
        completions, tokens = 20, 1200
    written = []
    for at in range(dice.randint(0, completions)):
        count = dice.randint(1, tokens)
        # What repeats compresses well: a few bytes that claim many.
        size = min(count, 20)
        token_T = [dice.randrange(vocabulary) for _ in range(size)]
        logp_T = [-dice.expovariate(1) if dice.random() < 0.7 else -200.5 for _ in range(size)]
        written.append(
            completion(
                (token_T * count)[:count],
                (logp_T * count)[:count],
                problem=f"digits/{at % 3}+1=",
                index=at,
                end=dice.choice(["stop", "length"]),
            )
        )
    prompts = {c.problem_id: prompt_digest(c.problem_id) for c in written}
    return Message("run", dice.randrange(100), "north", origin(), prompts, tuple(written))


def blocks_of(data):
    """(start, the blocks behind it, unpacked) of a sound message."""
    start, at, blocks = data[: START.size], START.size, []
    raw = start[5] == 0
    while at < len(data):
        (size,) = SIZE.unpack_from(data, at)
        block = data[at + 4 : at + 4 + size]
        plain = raw or not block.startswith(zstandard.FRAME_HEADER)
        blocks.append(block if plain else zstandard.decompress(block))
        at += 4 + size
    return start, blocks


def assembled(start, blocks, *, pack=zstandard.compress, stored=()):
    """The inverse of ``blocks_of``; ``stored`` are the blocks that are not compressed."""
    raw = start[5] == 0
    packed = [b if raw or at in stored else pack(b) for at, b in enumerate(blocks)]
    return start + b"".join(SIZE.pack(len(b)) + b for b in packed)


def after_signing(dice):
    """Sealed bytes in which something happened to the bytes."""
    sealed = KEY.seal(b"batch", encode(message(dice), codec=dice.choice(CODECS)))
    for _ in range(dice.choice([1, 1, 1, 2, 5])):
        sealed = damaged(dice, sealed)
    return sealed


def before_compression(dice):
    """A properly compressed, framed and signed message whose contents are not right."""
    codec = dice.choice(CODECS)
    start, blocks = blocks_of(encode(message(dice), codec=codec))
    stored = {len(blocks) - 1} if codec == "compact" and len(blocks) > 1 else set()
    kind = dice.choice(["header", "header", "column", "column", "body", "body", "frame", "blocks"])
    if kind in ("header", "column") or (kind == "body" and len(blocks) == 1):
        blocks[0] = _header(dice, blocks[0], column=kind == "column")
    elif kind == "body":
        at = dice.randrange(1, len(blocks))
        blocks[at] = (
            _numbers(dice, blocks[at]) if dice.random() < 0.6 else damaged(dice, blocks[at])
        )
    elif kind == "blocks":
        blocks = _shuffled(dice, blocks)
    pack = _strange_pack(dice) if kind == "frame" else zstandard.compress
    return KEY.seal(b"batch", assembled(start, blocks, pack=pack, stored=stored))


def damaged(dice, data):
    """Bytes changed, lost, repeated, added; sizes and counts made extreme."""
    data, at = bytearray(data), dice.randrange(len(data) + 1)
    match dice.randrange(7):
        case 0 if at < len(data):
            data[at] ^= 1 << dice.randrange(8)
        case 1 if at < len(data):
            data[at] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)])
        case 2:
            del data[at : at + dice.choice([1, 4, 50])]
        case 3:
            data[at:at] = dice.randbytes(dice.choice([1, 4, 50]))
        case 4:
            data[at:at] = data[at : at + dice.randrange(1, 40)]
        case 5:
            data[at : at + 4] = struct.pack("<I", dice.choice([0, 1, 2**16, 2**31 - 1, 2**32 - 1]))
        case _:
            del data[at:]
    return bytes(data)


def _header(dice, data, *, column):
    """The header with a field that is not what it was; ``column``: one of the last five."""
    fields = msgspec.msgpack.decode(data)
    if column:
        at = dice.randrange(11, 16)
        fields[at] = (
            damaged(dice, fields[at]) if dice.random() < 0.5 else _numbers(dice, fields[at])
        )
        if dice.random() < 0.2:  # one row more or less, in every column
            for i in range(12, 16):
                fields[i] = fields[i][:-1] if dice.random() < 0.5 else fields[i] + b"\0"
        return msgspec.msgpack.encode(fields)
    at = dice.randrange(len(fields))
    match dice.randrange(8):
        case 0:
            fields[at] = _anything(dice)
        case 1:
            del fields[at]
        case 2:
            fields.insert(at, _anything(dice))
        case 3:
            fields[at] = fields[dice.randrange(len(fields))]
        case 4:
            fields[9] = dice.randrange(-1, 40)  # id_bits
        case 5:
            fields[10] = [*fields[10], dice.choice(["", "p" * 257, *fields[10]])]
        case 6:
            fields[2] = dice.choice(["", "North", "n" * 33, "..", "\n", "ü"])
        case _:
            return damaged(dice, data)
    return msgspec.msgpack.encode(fields)


def _anything(dice):
    return dice.choice(
        [None, True, -1, 0, 2**31, 2**64 - 1, 1.5, float("nan"), float("inf"), "", "x" * 300, b"",
         b"\0" * 16, b"\xff" * 32, [], [[]], [""] * 70, {}, {"a": 1}, msgspec.msgpack.Ext(5, b"e")]
    )  # fmt: skip


def _numbers(dice, data):
    """Bytes of the same size that are other numbers."""
    own = np.frombuffer(data, np.uint8).copy()
    if len(own):
        where = slice(*sorted(dice.choices(range(len(own) + 1), k=2)))
        own[where] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)])
    return own.tobytes()


def _shuffled(dice, blocks):
    match dice.randrange(4):
        case 0:
            return dice.sample(blocks, len(blocks))
        case 1:
            return blocks[:-1]
        case 2:
            return [*blocks, dice.choice([b"", b"x", *blocks])]
        case _:
            at = dice.randrange(len(blocks))
            return [*blocks[:at], dice.randbytes(dice.randrange(60)), *blocks[at + 1 :]]


def _strange_pack(dice):
    """Frames of zstd that say less, claim more, want more memory, or hold something else."""
    return dice.choice(
        [
            zstandard.ZstdCompressor(write_content_size=False).compress,
            zstandard.ZstdCompressor(write_checksum=True, level=dice.choice([1, 9, 19])).compress,
            lambda data: zstandard.compress(data) + zstandard.compress(b"more"),
            lambda data: zstandard.compress(data)[:-1],
            lambda data: claiming(data, dice.choice([0, 1, len(data) + 1, 2**20, 2**40])),
            lambda data: windowed(data, dice.choice([23, 24, 30])),
            lambda data: zstandard.compress(data + bytes(dice.choice([1, 2**16, 2**22]))),
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


def mutants(seed, count):
    """``count`` sealed messages, every other one broken before it was compressed and signed."""
    dice = Random(seed)
    for at in range(count):
        yield before_compression(dice) if at % 2 else after_signing(dice)
