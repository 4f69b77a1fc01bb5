"""The body of a message: ids, and log-probabilities if any, as blocks of bytes, in three codecs.

    raw       ids as u32, log-probabilities as f32: two blocks, nothing compressed
    exact     planes of ids, then 4 planes of log-probabilities; each a zstd frame in a block
    compact   planes of ids, then 2 planes of fixed point, then what does not fit, as f32

A plane has one byte of every number, so its bytes are of one kind: one table of frequencies for
all planes together costs 1 to 10 % more. ``docs/wire.md`` has every byte and the measurements.
"""

import struct
from collections.abc import Sequence
from typing import Literal

import numpy as np
import zstandard

from potluck.exchange.base import WireError

Codec = Literal["exact", "compact", "raw"]
Buffer = bytes | memoryview

LEVEL = 1
"""Level of zstd. Measured, 3 to 9 are slower and no smaller but for batches of a few kilobytes."""
WINDOW_BYTES = 1 << 23
"""Largest window of a frame: what zstd's specification asks every reader to support."""
STEP = 2.0**-9
"""Step of compact, nats. Half of it is the largest error: 2^-10 = 0.00098. Exact in float32."""
ESCAPE = 0xFFFF
"""Mark in place of a fixed-point number that did not fit: the next float32 of the last block."""
_SIZE = struct.Struct("<I")


def block(data: Buffer) -> bytes:
    return _SIZE.pack(len(data)) + data


class Blocks:
    def __init__(self, data: memoryview) -> None:
        self._rest = data

    def take(self, what: str) -> memoryview:
        if len(self._rest) < _SIZE.size:
            raise WireError(f"message ends before {what}")
        (size,) = _SIZE.unpack_from(self._rest)
        rest = self._rest[_SIZE.size :]
        if size > len(rest):
            left = f"{len(rest)} are left of the message"
            raise WireError(f"{what}: {size} bytes claimed, but {left}")
        self._rest = rest[size:]
        return rest[:size]

    def require_end(self) -> None:
        if len(self._rest):
            raise WireError(f"{len(self._rest)} bytes follow the end of the message")


def squeezed(*parts: Buffer) -> list[bytes]:
    """Compress each part to one zstd frame that holds its content's size."""
    packer = zstandard.ZstdCompressor(level=LEVEL)  # not shared: it is for one thread
    return [packer.compress(part) for part in parts]


def expanded(frame: Buffer, what: str, *, at_most: int) -> bytes:
    """Decompress one zstd frame of at most ``at_most`` bytes of content. Its claims are read first:
    python-zstandard sets aside what a frame declares, whatever ``max_output_size`` says."""
    try:
        claims = zstandard.get_frame_parameters(frame)
        size, window = claims.content_size, claims.window_size
        if size == zstandard.CONTENTSIZE_UNKNOWN:
            raise WireError(f"{what}: a zstd frame that does not say its content's size")
        if size > at_most or window > WINDOW_BYTES:
            raise WireError(
                f"{what}: {size} bytes claimed, in a window of {window}; at most {at_most} and "
                f"{WINDOW_BYTES} are taken",
                "too large",
            )
        unpacker = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES)
        # It also sees to it that the content has the size that was claimed.
        return unpacker.decompress(frame, allow_extra_data=False)
    except (zstandard.ZstdError, MemoryError) as error:
        raise WireError(f"{what}: no zstd frame: {error}") from error


def split_planes(number_X: np.ndarray, planes: int) -> list[bytes]:
    """Split uint32 numbers into planes of their lowest bytes, the low one first."""
    byte_X4 = number_X.astype("<u4", copy=False).view(np.uint8).reshape(-1, 4)
    return [byte_X4[:, at].tobytes() for at in range(planes)]


def merge_planes(planes: Sequence[Buffer], count: int) -> np.ndarray:
    byte_X4 = np.zeros((count, 4), np.uint8)
    for at, plane in enumerate(planes):
        byte_X4[:, at] = np.frombuffer(plane, np.uint8)
    return byte_X4.view("<u4").reshape(-1).astype(np.uint32, copy=False)


def write_body(
    codec: Codec, id_bits: int, token_X: np.ndarray, logp_X: np.ndarray | None
) -> list[bytes]:
    """Return the body's blocks: ids (uint32, each below 2^id_bits), then any log-probabilities."""
    if not len(token_X):
        return []
    if codec == "raw":
        ids = block(token_X.astype("<u4").tobytes())
        return [ids] if logp_X is None else [ids, block(logp_X.astype("<f4").tobytes())]
    packed = split_planes(token_X, _planes_of(id_bits))
    if logp_X is None:
        return [block(frame) for frame in squeezed(*packed)]
    if codec == "exact":
        bits_X = logp_X.view(np.uint32)
        # The sign, nearly always that of a number below zero, goes last: then the exponent
        # is a plane of its own, and the lowest byte has 128 values instead of 256.
        packed += split_planes(bits_X << np.uint32(1) | bits_X >> np.uint32(31), 4)
        return [block(frame) for frame in squeezed(*packed)]
    # At most 2^16 steps, so that no float32 overflows.
    step_X = np.rint(np.minimum(-logp_X, ESCAPE * STEP) / np.float32(STEP)).astype(np.uint32)
    rest = logp_X[step_X == ESCAPE].astype("<f4").tobytes()
    return [*(block(frame) for frame in squeezed(*packed, *split_planes(step_X, 2))), block(rest)]


def read_ids(codec: Codec, id_bits: int, blocks: Blocks, count: int) -> np.ndarray:
    """Return uint32 ids of ``count`` tokens; values are unchecked."""
    if not count:
        return np.zeros(0, np.uint32)
    if codec == "raw":
        token_X = np.frombuffer(contents("raw", blocks, "ids", 4 * count), "<u4")
        return token_X.astype(np.uint32, copy=False)
    return _read_planes(blocks, "ids", _planes_of(id_bits), count)


def read_logp(codec: Codec, blocks: Blocks, count: int) -> np.ndarray:
    """Return float32 log-probabilities of ``count`` tokens; values are unchecked."""
    if not count:
        return np.zeros(0, np.float32)
    if codec == "raw":
        logp_X = np.frombuffer(contents("raw", blocks, "log-probabilities", 4 * count), "<f4")
        return logp_X.astype(np.float32, copy=False)
    if codec == "exact":
        turned_X = _read_planes(blocks, "log-probabilities", 4, count)
        bits_X = turned_X >> np.uint32(1)
        turned_X <<= np.uint32(31)
        bits_X |= turned_X
        return bits_X.view(np.float32)
    step_X = _read_planes(blocks, "log-probabilities", 2, count)
    escaped_X = step_X == ESCAPE
    logp_X = 0 - step_X.astype(np.float32) * np.float32(STEP)  # 0 - 0 is 0, and no -0
    rest = contents("raw", blocks, "escapes", 4 * int(escaped_X.sum()))
    logp_X[escaped_X] = np.frombuffer(rest, "<f4")
    return logp_X


def _planes_of(bits: int) -> int:
    return (bits + 7) // 8


def _read_planes(blocks: Blocks, what: str, planes: int, count: int) -> np.ndarray:
    return merge_planes([contents("exact", blocks, what, count) for _ in range(planes)], count)


def contents(codec: Codec, blocks: Blocks, what: str, size: int) -> Buffer:
    """Return what is in the next block, which must have ``size`` bytes, in "raw" or packed."""
    data: Buffer = blocks.take(what)
    if codec != "raw":
        data = expanded(data, what, at_most=size)
    if len(data) != size:
        raise WireError(f"{what}: {len(data)} bytes where {size} are expected")
    return data
