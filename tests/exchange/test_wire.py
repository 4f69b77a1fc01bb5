"""Wire format, versions 2 to 4: what goes out comes back; what is not ours is refused politely."""

import struct
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pytest
import zstandard

import fuzz
from faults import soak_wire
from faults.soak_wire import TIGHT, most_memory, soak
from fuzz import CODECS, assembled, blocks_of, claiming, windowed
from nouns import completion, origin, prompt_digest, terms, text_only
from potluck.exchange import Limits, Message, WireError, decode, encode
from potluck.exchange.wire.message import HEADER_BYTES, TextHeader
from potluck.types import Completion


def of(*written, **changes):
    """A message of ``written``, with whatever else it needs."""
    prompts = {c.problem_id: prompt_digest(c.problem_id) for c in written}
    sender = written[0].author if written else "north"
    return replace(Message("r", 0, sender, origin(), prompts, tuple(written)), **changes)


PRINT = terms().provenance.tokenizer


def tokens_and_text(tokens=(5,), logprobs=(-0.5,), text="five", **more):
    """A completion with the ids of its author's tokenizer, and a text or none."""
    return replace(completion(tokens, logprobs, **more), text=text, tokenizer=PRINT)


def for_all(*written, round=3, **changes):
    """A message for other tokenizers, of version 3; of completions without tokens, no tokenizer."""
    has_ids = any(len(c.token_T) for c in written)
    return terms(tokenizer=b"t" if has_ids else b"", **changes).message(round, written)


GOLDEN = Path(__file__).parents[1] / "golden"
THREE = of(
    completion((151644, 10, 151645), (-0.5, -2.25, -0.0078125), problem="gsm8k/train/17"),
    completion((9,), (0,), problem="gsm8k/train/17", index=11, end="length"),
    completion((9, 300), (-200, -0.25), problem="gsm8k/train/4"),
    run="first",
    round=3,
    provenance=origin(temperature=0.7, top_k=40, top_p=0.95),
)
"""Every number in it is a multiple of compact's step, or one of its escapes."""


def without_logp(message):
    return replace(message, completions=tuple(replace(c, logp_T=None) for c in message.completions))


TEXTS = "So 2+3=5.", None, "日本 🙂\n"
THREE_TEXTS = for_all(
    *(replace(c, text=t, tokenizer=PRINT) for c, t in zip(THREE.completions, TEXTS, strict=True)),
    run="first",
    temperature=0.7,
    top_k=40,
    top_p=0.95,
)
ONLY_TEXTS = for_all(
    text_only("So 2+3=5.", problem="gsm8k/train/17"),
    text_only("", problem="gsm8k/train/17", index=11),
    text_only("日本 🙂\n", problem="gsm8k/train/4", end="length"),
    run="first",
)
NUMBERS = {"raw": 0, "exact": 1, "compact": 2, "raw-ids": 3, "exact-ids": 4}
"""Of the codecs; with "-ids" a message has no log-probabilities."""
GOLDENS = {
    f"v{version}-{name}": (without_logp(three) if "-ids" in name else three, name)
    for version, three in ((2, THREE), (3, THREE_TEXTS))
    for name in NUMBERS
} | {f"v3-{codec}-texts": (ONLY_TEXTS, f"{codec}-ids") for codec in ("raw", "exact")}
"""Messages by file, each with the name of its codec."""

FIELDS = TextHeader.__struct_fields__
ONE = of(completion((5,), (-0.5,)))
TEXT = for_all(text_only("5é"))
"""A text of three bytes."""
TWO = for_all(text_only("5é"), text_only("日", index=1))
BOTH = for_all(tokens_and_text(text="5é"))
BODY = {
    "raw": (struct.pack("<I", 5), struct.pack("<f", -0.5)),
    "exact": (b"\5", b"\1", b"\0", b"\0", b"\x7e"),
    "compact": (b"\5", b"\0", b"\1", b""),
    "raw-ids": (struct.pack("<I", 5),),
    "exact-ids": (b"\5",),
}


def written(message, name):
    """The bytes of ``message`` in the codec ``name``, one of NUMBERS."""
    alone = without_logp(message) if "-ids" in name else message
    return encode(alone, codec=name.removesuffix("-ids"))


def framed(
    changed=None, body=None, *, codec="raw", version=None, pack=zstandard.compress, message=ONE
):
    """A message with other fields in its header, or other blocks, properly compressed."""
    start, (head, *blocks) = blocks_of(written(message, codec))
    header = msgspec.msgpack.decode(head)
    for name, value in (changed or {}).items():
        header[FIELDS.index(name)] = value
    if version:
        start = start[:4] + bytes([version]) + start[5:]
    blocks = [msgspec.msgpack.encode(header), *(blocks if body is None else body)]
    return assembled(start, blocks, pack=pack, stored={4} if codec == "compact" else set())


def one(changed=None, body=None, **more):
    return framed(changed, body, message=TEXT, **more)


def two(*texts, sizes=None):
    """Two texts of these bytes; ``sizes`` as claimed, or as they are."""
    sizes = [1 + len(text) for text in texts] if sizes is None else sizes
    return framed({"text_sizes": column(*sizes)}, [b"".join(texts)], message=TWO)


def both(changed=None, body=None, **more):
    return framed(changed, body, message=BOTH, **more)


def column(*numbers):
    return np.uint32(numbers).view(np.uint8).reshape(-1, 4).T.tobytes()


def rows(*rows):
    """Columns of a header: [problem, index, end, length] of each completion."""
    problem, index, end, length = zip(*rows, strict=True) if rows else ((), (), (), ())
    columns = {"problem_at": problem, "indices": index, "lengths": length}
    return {"ends": bytes(end)} | {name: column(*numbers) for name, numbers in columns.items()}


# What goes out comes back.


EXTREMES = of(
    completion((0, 2**31 - 1, 1), (0.0, -0.0, -1e-45), problem="\U0001f642" * 256),
    completion((255, 256, 2**16), (-3.4e38, -(2**-149), -0.5), problem="", index=2**31 - 1),
    run="\U0001f642" * 256, round=2**31 - 1, sender="north",
    provenance=origin(temperature=1.7e308, top_k=2**31 - 1, top_p=-5e-324),
)  # fmt: skip


@pytest.mark.parametrize("codec", ["raw", "exact"])
def test_round_trip_to_the_bit(codec):
    """Of messages with ids, texts, both, and episodes of these."""
    for sent in (EXTREMES, of(), *(fuzz.message(Random(seed)) for seed in range(150))):
        for each in (sent, without_logp(sent)):
            got = decode(encode(each, codec=codec))
            assert got == each
            for one, other in zip(got.completions, each.completions, strict=True):
                if other.logp_T is not None:
                    assert one.logp_T.tobytes() == other.logp_T.tobytes()


def test_without_log_probabilities_compact_is_exact_and_no_byte_is_theirs():
    alone = without_logp(THREE)
    assert encode(alone, codec="compact") == encode(alone, codec="exact")
    for codec in ("raw", "exact"):
        _, blocks = blocks_of(encode(alone, codec=codec))
        ids = 1 if codec == "raw" else 3
        assert blocks == blocks_of(encode(THREE, codec=codec))[1][: 1 + ids]


def test_compact_errs_by_half_a_step_at_most_wherever_a_number_lies():
    generator = np.random.default_rng(0)
    near = np.arange(0, 200, 2**-10, dtype=np.float32)
    logp_T = -np.concatenate([near, 10 ** generator.uniform(-30, 38, 5000), [127.999, 128, 3.4e38]])
    logp_T = logp_T.astype(np.float32)
    sent = of(completion(np.zeros(len(logp_T)), logp_T))
    (got,) = decode(encode(sent, codec="compact")).completions
    error_T = np.abs(got.logp_T.astype(float) - logp_T)
    assert error_T.max() == 2**-10
    assert (error_T[logp_T < -128] == 0).all()


@pytest.mark.parametrize("codec", CODECS)
def test_the_frame_of_these_tests_is_the_real_one(codec):
    assert decode(framed(body=BODY[codec], codec=codec)) == ONE
    assert decode(two("5é".encode(), "日".encode())) == TWO
    assert decode(two(b"5\xc3\xa9\xe6\x97", b"\xa5", sizes=[4, 4])) == TWO


@pytest.mark.parametrize("largest, planes", [(0, 1), (255, 1), (256, 2), (2**16, 3), (2**24, 4)])
def test_ids_have_no_more_planes_than_the_largest_needs(largest, planes):
    for codec, others in (("exact", 4), ("compact", 3)):
        _, (header, *body) = blocks_of(encode(of(completion((largest,), (-1,))), codec=codec))
        assert len(body) == planes + others
        assert msgspec.msgpack.decode(header)[9] == max(1, largest.bit_length())


@pytest.mark.parametrize("name", GOLDENS)
def test_bytes_on_the_wire_do_not_change_by_accident(name):
    """A deliberate change: a new VERSION, new names in ``golden/``, and
    ``PYTHONPATH=src:tests python tests/exchange/test_wire.py``, which writes them.

    Another release of zstd may pack the same bytes differently, so they are compared unpacked.
    """
    golden, (message, codec) = (GOLDEN / f"{name}.ptlk").read_bytes(), GOLDENS[name]
    assert decode(golden) == message
    assert blocks_of(written(message, codec)) == blocks_of(golden)


@pytest.mark.parametrize("name", GOLDENS)
def test_a_message_can_be_read_with_the_page_in_hand(name):
    """docs/wire.md says how; here is a reader that knows nothing else."""
    data, codec = (GOLDEN / f"{name}.ptlk").read_bytes(), GOLDENS[name][1]
    has_texts, has_ids = name.startswith("v3"), "-texts" not in name
    assert struct.unpack_from("<4sBB", data) == (b"PTLK", 2 + has_texts, NUMBERS[codec])
    blocks, at = [], 6
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        blocks.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    if "raw" not in codec:
        escapes = len(blocks) - 1 - has_texts if codec == "compact" else None
        blocks = [b if i == escapes else zstandard.decompress(b) for i, b in enumerate(blocks)]
    head = msgspec.msgpack.decode(blocks.pop(0))
    assert head[:4] == ["first", 3, "north", b"m" + b"." * 15]
    assert head[5] == b"k" + b"." * 15
    assert head[10] == ["gsm8k/train/17", "gsm8k/train/4"]
    assert head[13] == bytes([0, 0, 1] + 9 * [0])
    assert head[14] == bytes([0, 11, 0] + 9 * [0])
    digests = [prompt_digest(id) for id in head[10]]
    if has_texts:
        read_texts(head, blocks.pop(), digests, has_ids)
    if not has_ids:
        assert (head[4], head[9], head[11], head[15]) == (b"", 1, b"", bytes(12))
        assert not blocks
        return
    assert (head[4], head[6:10]) == (b"t" + b"." * 15, [0.7, 40, 0.95, 18])
    assert (head[11], head[12]) == (b"".join(digests), bytes([0, 1, 0]))
    assert head[15] == bytes([3, 1, 2] + 9 * [0])
    read_numbers(codec, blocks)


def read_texts(head, text, digests, has_ids):
    assert len(head) == 18
    assert head[16] == b"".join(digest[::-1] for digest in digests)
    # 1 + the bytes of a text, and 0 where there is none: here none is longer than 254.
    assert head[17][3:] == bytes(9)
    cut, at = [], 0
    for size in head[17][:3]:
        cut.append(text[at : at + size - 1].decode() if size else None)
        at += max(0, size - 1)
    assert at == len(text)
    assert cut == ["So 2+3=5.", None if has_ids else "", "日本 🙂\n"]


def read_numbers(codec, blocks):
    ids, logps = (151644, 10, 151645, 9, 9, 300), (-0.5, -2.25, -0.0078125, 0.0, -200.0, -0.25)
    if "raw" in codec:
        packed = struct.pack("<6I", *ids), struct.pack("<6f", *logps)
        assert blocks == list(packed[: 1 if codec == "raw-ids" else 2])
        return
    planes, rest = blocks[:3], blocks[3:]
    assert tuple(a + 256 * b + 65536 * c for a, b, c in zip(*planes, strict=True)) == ids
    if codec == "exact-ids":
        assert not rest
    elif codec == "exact":
        turned = [int.from_bytes(four, "little") for four in zip(*rest, strict=True)]
        bits = [number >> 1 | (number & 1) << 31 for number in turned]
        assert struct.unpack("<6f", struct.pack("<6I", *bits)) == logps
    else:
        steps = [a + 256 * b for a, b in zip(*rest[:2], strict=True)]
        escapes = iter(struct.unpack("<f", rest[2]))
        assert tuple(next(escapes) if q == 65535 else -q / 512 for q in steps) == logps


# Version 3: texts behind what version 2 has.


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "message, version",
    [
        (terms().message(3, (completion(),)), 2),
        (terms().message(3, ()), 2),
        (for_all(), 3),
        (for_all(tokens_and_text(text=None)), 3),
        (for_all(tokens_and_text(text="")), 3),
        (for_all(text_only("")), 3),
        (terms().message(3, (text_only("5"),)), 3),
        (THREE_TEXTS, 3),
    ],
    ids=["ids", "nothing", "nothing of no tokenizer", "ids named", "ids and empty", "empty",
         "texts of one with a tokenizer", "three"],
)  # fmt: skip
def test_a_message_is_of_version_3_if_it_is_for_other_tokenizers(codec, message, version):
    data = encode(message, codec=codec)
    assert data[4] == version
    assert decode(data) == message


def test_a_text_may_have_every_character_but_surrogates():
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    sent = for_all(text_only(text))
    assert decode(encode(sent)) == sent


# What is not ours is refused.


@pytest.mark.parametrize("sent", [THREE, THREE_TEXTS, ONLY_TEXTS], ids=["ids", "both", "texts"])
@pytest.mark.parametrize("codec", CODECS)
def test_a_message_cut_short_or_with_more_behind_it_is_refused(codec, sent):
    message = encode(sent, codec=codec)
    for end in range(len(message)):
        with pytest.raises(WireError):
            decode(message[:end])
    for more in (b"\0", b"\0\0\0\0", message):
        with pytest.raises(WireError, match="follow the end of the message"):
            decode(message + more)


def test_broken_messages_are_refused_and_nothing_else_happens():
    """A few of ``soak_wire.py``'s million, most of them properly compressed and signed."""
    outcome = soak(1100, seed=12, trace=False)
    assert outcome.messages == 1100
    assert outcome.broken == []
    assert outcome.refused.total() > 1500
    # It is not always the signature or zstd: what is behind them is reached.
    for complaint in (
        *("an id is", "completion .. of", "completions claim", ".. completions came"),
        *("an announcement's offers", "an announcement offers round", "a message of round"),
        *("a status line says", "status of"),
        *("the text of completion", "a text of", "texts: ..", "tokens came from"),
    ):
        assert any(words.startswith(complaint) for words in outcome.refused), complaint
    assert outcome.reasons >= {"malformed", "too large", "forged", "other version", "other run"}
    accepted = {kind for kind, became in outcome.kinds if became == "accepted"}
    assert accepted >= {
        *("announcements", "pages", "log_probabilities", "ids", "escapes", "seals", "statuses"),
        "texts",
    }


def test_broken_messages_take_no_more_memory_than_the_limits_allow():
    outcome = soak(150, seed=3)
    assert 20_000 < outcome.peak_bytes <= most_memory(TIGHT)


def test_a_reader_that_raises_something_else_is_found(monkeypatch):
    """The readers are broken here, so that it is known that the soak can fail."""
    monkeypatch.setitem(soak_wire.READERS, "announcement", (lambda data: 1 / 0,))
    broken = soak(100, seed=4, trace=False).broken
    assert {kind for _, kind, _ in broken} == {"announcements"}
    assert broken[0][2] == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7F800001, 0x7F800000, 0xFF800000, 0x3F000000, 1])
def test_no_nan_infinity_or_positive_number_comes_in_as_a_log_probability(bits):
    with pytest.raises(WireError, match=r"logp_T\[0\] = .*; expected a finite number <= 0"):
        decode(framed(body=(BODY["raw"][0], struct.pack("<I", bits))))


@pytest.mark.parametrize("number", [float("nan"), float("-inf"), 0.5])
def test_what_compact_could_not_round_is_checked_as_well(number):
    body = b"\5", b"\xff", b"\xff", struct.pack("<f", number)
    with pytest.raises(WireError, match=r"logp_T\[0\] = .*; expected a finite number <= 0"):
        decode(framed(body=body, codec="compact"))


LONGER = b"\xdc\0\x11" + blocks_of(encode(ONE))[1][0][3:] + b"\0"
NESTED = b"\x91" * 100_000 + b"\xc0"
TWICE = {**rows([0, 7, 0, 1], [0, 7, 1, 1])}
IDS = BODY["raw"]
V2_HEAD = blocks_of(encode(terms().message(3, (completion((5,), (-0.5,)),)), codec="raw"))[1][0]
V3_HEAD = blocks_of(encode(BOTH, codec="raw"))[1][0]
PAIR = (2 * BODY["raw"][0], 2 * BODY["raw"][1])


WRONG = [
    (b"", "message ends at byte 0, within its first 6"),
    (b"FTW2" + bytes(6), "starts with b'FTW2', expected b'PTLK'"),
    (framed(version=1), "has version 1, and this Potluck reads versions 2, 3 and 4; nodes"),
    (b"PTLK\2\5", "codec 5; this Potluck reads 0 to 4"),
    (b"PTLK\2\0\xff\xff\xff\xff", "header: 4294967295 bytes claimed, but 0 are left"),
    (b"PTLK\2\1\0\0\0\0", "header: no zstd frame"),
    (assembled(b"PTLK\2\0", [b"\x80"]), "header is not readable: Expected `array`, got `object`"),
    (assembled(b"PTLK\2\0", [LONGER]), "length 16, got 17"),
    (assembled(b"PTLK\2\0", [NESTED]), "header is not readable"),
    (assembled(b"PTLK\2\0", [b"\xdc\0\x10\xa1\xff"]), "header is not readable"),
    (framed({"run": "r" * 257}), r"length <= 256 - at `\$\[0\]`"),
    (framed({"round": -1}), r"Expected `int` >= 0 - at `\$\[1\]`"),
    (framed({"round": 2**31}), r"Expected `int` <= 2147483647 - at `\$\[1\]`"),
    (framed({"sender": "North"}), "sender 'North' is no node's name: "),
    (framed({"model": b"m" * 15}), "fingerprint model has 15 bytes, expected 16"),
    (framed({"temperature": float("nan")}), "temperature nan and top_p 1.0 are not both finite"),
    (framed({"id_bits": 0}), r"Expected `int` >= 1 - at `\$\[9\]`"),
    (framed({"id_bits": 2}), "an id is 5; by header and vocabulary, ids are below 4"),
    (framed({"problems": ["p" * 257]}), "problems of 1 completions are not readable: .* <= 256"),
    (framed({"problems": ["p", "q"]}), "problems of 1 completions .* length <= 1"),
    (framed(TWICE | {"problems": ["p", "q"]}, PAIR), "2 problems have 8 bytes of prompt digests"),
    (framed(TWICE | {"problems": ["p"] * 2, "digests": b"d" * 16}, PAIR), "is listed twice"),
    (framed(TWICE | {"problems": ["p", "q"], "digests": b"d" * 16}, PAIR), "all of 2 problems"),
    (framed(rows([1, 0, 0, 1])), "all of 1 problems"),
    (framed(rows(), ()), "problems of 0 completions .* length <= 0"),
    (framed({"indices": b"i" * 5}), "column indices has 5 bytes for 1 completions"),
    (framed(rows([0, 0, 2, 1])), "end 2 is none of stop, length"),
    (framed(rows([0, 2**31, 0, 1])), "index 2147483648 is not below 2147483648"),
    (framed(rows([0, 0, 0, 0]), ()), "claim 0 to 0 tokens; each has 1 to 1048576"),
    (framed(rows([0, 0, 0, 2**20 + 1])), "claim 1048577 to 1048577 tokens"),
    (framed(rows(*[[0, i, 0, 2**20] for i in range(3)])), "3145728 tokens are 25165824 bytes"),
    (framed(rows([0, 0, 0, 2])), "ids: 4 bytes where 8 are expected"),
    (framed(body=[BODY["raw"][0]]), "message ends before log-probabilities"),
    (framed(TWICE, PAIR), "completion 7 of 'p' comes twice"),
    (framed(body=(b"", *BODY["exact"][1:]), codec="exact"), "ids: 0 bytes where 1 are expected"),
    (framed(body=(*BODY["compact"][:3], b"1234"), codec="compact"), "escapes: 4 bytes where 0"),
    (framed(body=(b"\5", b"\xff", b"\xff", b""), codec="compact"), "escapes: 0 bytes where 4"),
    (framed(body=BODY["raw"], codec="raw-ids"), "8 bytes follow the end of the message"),
    (framed(body=(b"\5\5",), codec="exact-ids"), "ids: 2 bytes claimed"),
    # The header of the other version.
    (assembled(b"PTLK\3\0", [V2_HEAD, *IDS]), "of at least length 18, got 16"),
    (assembled(b"PTLK\2\0", [V3_HEAD, *IDS, "5é".encode()]), "length 16, got 18"),
    # Digests.
    (one({"questions": b""}), "1 problems have 0 bytes of question digests"),
    # Tokens and tokenizers.
    (both({"tokenizer": b"", "digests": b""}), "tokens came from an author that tells"),
    (one({"tokenizer": b"t" * 16}), "1 problems have 0 bytes of prompt digests"),
    (one({"text_sizes": column(0)}, []), "completions claim 0 to 0 tokens; each has 1 to 1048576"),
    # Columns.
    (one({"text_sizes": b""}), "column text_sizes has 0 bytes for 1 completions"),
    # Sizes that do not add up.
    (one(body=[]), "message ends before texts"),
    (one({"text_sizes": column(5)}), "texts: 3 bytes where 4 are expected"),
    (one(body=["5é!".encode()], codec="exact"), "texts: 4 bytes claimed, in a window"),
    (one(codec="exact", pack=lambda data: claiming(data, max(4, len(data)))), "texts: 4 bytes"),
    # What is no text.
    (one(body=[b"5\xe6\x97"]), "not UTF-8: .*unexpected end of data"),
    (two("日本".encode(), b"", sizes=[5, 3]), "completion 0 is not UTF-8: .*unexpected end"),
    # Two halves of a pair, each in a text of its own, or together.
    (two(b"\xed\xa0\xbd", b"\xed\xb8\x80"), "text of completion 0 is not UTF-8"),
    # More than is taken.
    (one({"text_sizes": column(2**24 + 2)}), "a text of 16777217 bytes is claimed; at most"),
    (two(b"", b"", sizes=[2**24, 3]), "texts of 16777217 bytes are claimed; at most 16777216 are"),
]  # fmt: skip


@pytest.mark.parametrize("message, complaint", WRONG, ids=[complaint for _, complaint in WRONG])
def test_what_is_wrong_with_a_message_is_said(message, complaint):
    with pytest.raises(WireError, match=complaint) as caught:
        decode(message)
    large = "claim 1048577", "are 25165824 bytes", ": 2 bytes claimed", "a text of", "texts of"
    large = *large, "in a window"
    other = dict.fromkeys(("has version", "has codec 5"), "other version")
    known = dict.fromkeys(large, "too large") | other
    found = [reason for words, reason in known.items() if words in str(caught.value)]
    assert caught.value.reason == (found[0] if found else "malformed")


@pytest.mark.parametrize(
    "pack, complaint",
    [
        (zstandard.ZstdCompressor(write_content_size=False).compress, "does not say its content's"),
        (lambda data: claiming(data, 2**40), "1099511627776 bytes claimed, in a window"),
        (lambda data: claiming(data, len(data) + 1), "no zstd frame|bytes claimed"),
        (lambda data: windowed(data, 24), r"in a window of 16777216; at most \d+ and 8388608 are"),
        (lambda data: zstandard.compress(data) * 2, "no zstd frame: .*extra|unused"),
        (lambda data: zstandard.compress(data) + b"\0", "no zstd frame: .*extra|unused"),
        (lambda data: zstandard.compress(data)[:-1], "no zstd frame"),
        (lambda data: b"\x50\x2a\x4d\x18" + struct.pack("<I", len(data)) + data, "unpacked|no zst"),
        (lambda data: data, "no zstd frame"),
    ],
    ids=["no size", "too large", "larger", "window", "two", "more", "cut", "skippable", "none"],
)
@pytest.mark.parametrize("where", ["header", "body"])
def test_a_frame_of_zstd_says_its_size_and_is_alone(pack, complaint, where):
    start, blocks = blocks_of(encode(THREE))
    count = iter(range(len(blocks)))
    bad = 0 if where == "header" else 3

    def one(data):
        return pack(data) if next(count) == bad else zstandard.compress(data)

    with pytest.raises(WireError, match=complaint):
        decode(assembled(start, blocks, pack=one))


LONG = of(*(completion([7] * 50, [0] * 50, problem=f"p{i}", index=i) for i in range(4)))
LONG_TEXTS = for_all(*(text_only("x" * 50, index=at) for at in range(4)))
LESS = {
    "completions": ((LONG, LONG_TEXTS), Limits(completions=3), "4 completions came; at most 3 are"),
    "tokens": ((LONG,), Limits(tokens=49), "claim 50 to 50 tokens; each has 1 to 49"),
    "vocabulary": ((LONG,), Limits(vocabulary=7), "an id is 7; by header and vocabulary, ids are"),
    "unpacked": ((LONG,), Limits(message_bytes=1599), "1600 bytes unpacked|message has .* 1599"),
    "packed": ((LONG,), Limits(message_bytes=300), "at most 300 are taken|in a window"),
    "a text": ((LONG_TEXTS,), Limits(text_bytes=49), "a text of 50 bytes is claimed; at most 49"),
    "texts": (
        (LONG_TEXTS,),
        Limits(message_bytes=199),
        "texts of 200 bytes are .* 199|message has",
    ),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("less", LESS)
def test_a_reader_may_take_less(name, less):
    sent, limits, complaint = LESS[less]
    for message in sent:
        data, unpacked = written(message, name), 1600 if message is LONG else 200
        enough = {"completions": 4, "tokens": 50, "vocabulary": 8, "text_bytes": 50}
        decode(data, Limits(message_bytes=max(len(data), unpacked), **enough))
        with pytest.raises(WireError, match=complaint) as caught:
            decode(data, limits)
        assert caught.value.reason == ("malformed" if less == "vocabulary" else "too large")


def test_ids_beside_texts_may_be_beyond_the_readers_vocabulary():
    """They may be another tokenizer's; which they are is looked at when they are read."""
    few = Limits(vocabulary=5)
    assert decode(encode(BOTH), few) == BOTH
    with pytest.raises(WireError, match="an id is 5; by header and vocabulary, ids are below 5"):
        decode(encode(terms().message(3, (completion((5,), (-0.5,)),))), few)


def test_a_header_that_unpacks_to_more_than_a_header_may_have_is_refused():
    bomb = zstandard.compress(bytes(HEADER_BYTES + 1))
    assert len(bomb) < 1000
    message = b"PTLK\2\1" + struct.pack("<I", len(bomb)) + bomb
    with pytest.raises(WireError, match=r"4194305 bytes claimed, .*; at most 4194304"):
        decode(message)
    stored = b"PTLK\2\0" + struct.pack("<I", HEADER_BYTES + 1) + bytes(HEADER_BYTES + 1)
    with pytest.raises(WireError, match="header has 4194305 bytes; at most 4194304"):
        decode(stored)


def peak_of(message, limits=None):
    tracemalloc.start()
    try:
        with suppress(WireError):
            decode(message, limits or Limits())
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


CLAIMS = {
    "an array of 2^32 - 1 fields": assembled(b"PTLK\2\0", [b"\xdd\xff\xff\xff\xff"]),
    "a text of 4 GiB": assembled(b"PTLK\2\0", [b"\xdc\0\x10\xdb\xff\xff\xff\xff"]),
    "problems": framed({"problems": ["p"] * 2**20}),
    "tokens": framed(rows(*[[0, i, 0, 2**20] for i in range(1000)])),
    "frame": framed(codec="exact", pack=lambda data: claiming(data, 2**30)),
    "window": framed(codec="exact", pack=lambda data: windowed(data, 30)),
    "plane": framed(rows([0, 0, 0, 2]), codec="exact", pack=lambda data: zstandard.compress(data)),
    "long plane": framed(codec="exact", body=[b"\5" * 2**22, *BODY["exact"][1:]]),
    "ids": framed(codec="exact-ids", pack=lambda data: claiming(data, 2**30)),
    "size": one({"text_sizes": column(2**24 + 1)}),
    "text frame": one(codec="exact", pack=lambda data: claiming(data, 2**30)),
    "short frame": one({"text_sizes": column(2**24)}, [b"x" * 3], codec="exact"),
    "long frame": one({"text_sizes": column(4)}, [bytes(2**22)], codec="exact"),
    "sizes": two(b"", b"", sizes=[2**23, 2**23]),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_no_memory_is_set_aside_for_what_is_only_claimed(claim):
    assert peak_of(CLAIMS[claim]) < 2**20


@pytest.mark.parametrize("problems", [1, 2**12])
def test_each_completion_takes_a_kilobyte_at_most(problems):
    many = [completion((1,), problem=f"{i % problems}", index=i) for i in range(2**12)]
    limits = Limits(message_bytes=1 << 17, completions=2**12)
    message = encode(of(*many))
    assert len(decode(message, limits).completions) == 2**12
    assert peak_of(message, limits) < most_memory(limits)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("character", ["a", "🙂"])
def test_memory_is_a_few_times_what_the_limits_allow(codec, character):
    """The worst text has one character that makes Python keep four bytes for each of the others;
    beside it stand the most tokens that fit, which zstd says in a few hundred bytes."""
    size = (1 << 20) - 3000
    text = character + "a" * (size - len(character.encode()))
    tokens = tokens_and_text(np.zeros(size // 8), np.full(size // 8, -300.0), text)
    for message in (for_all(text_only(text)), for_all(tokens)):
        data = encode(message, codec=codec)
        limits = Limits(message_bytes=max(1 << 20, len(data)), completions=1)
        assert decode(data, limits) == message
        assert peak_of(data, limits) < most_memory(limits)


def test_what_is_decoded_is_locked_and_does_not_hang_on_to_the_message():
    data = bytearray(framed())
    (got,) = decode(data).completions
    data[-8:] = bytes(8)
    assert got == completion((5,), (-0.5,))
    for array in (got.token_T, got.logp_T):
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


# Made at once or one by one.


@pytest.mark.parametrize(
    "wrong", [{"lengths": (4, -1)}, {"logps": (-1, -1)}, {"problems": ("p",)}], ids=str
)
def test_lists_that_do_not_fit_each_other_are_refused(wrong):
    told = {"problems": ("p", "q"), "lengths": (2, 1), "logps": (-0.5, -0.25, -1)} | wrong
    columns = told["problems"], "north", (0, 1), ("stop", "length"), told["lengths"]
    with pytest.raises(ValueError, match="do not fit"):
        Completion.cut(*columns, np.int32([1, 2, 3]), np.float32(told["logps"]))


# What cannot be said.


@pytest.mark.parametrize(
    "message, complaint",
    [
        (replace(ONE, run="r" * 257), "no reader takes this: header is not readable"),
        (replace(ONE, sender="south"), "'south' sends a completion by 'north', not its own"),
        (of(completion(index=2**31)), "index 2147483648 is not below 2147483648"),
        (replace(ONE, provenance=origin(model=b"m" * 17)), "fingerprint model has 17 bytes"),
        (replace(ONE, prompts={"p": b"1234567"}), "1 problems have 7 bytes of prompt digests"),
        (of(completion(), completion()), "completion 0 of 'p' comes twice"),
        (replace(ONE, run="\ud800"), "surrogates not allowed"),
        (replace(BOTH, completions=(replace(BOTH.completions[0], tokenizer=b""),)),
         "a completion of 'p' names tokenizer none; each of this message names 742e"),
        (replace(TEXT, completions=(replace(TEXT.completions[0], tokenizer=PRINT),)),
         "names tokenizer 742e.*; each of this message names none"),
        (for_all(tokens_and_text(), replace(tokens_and_text(index=1), logp_T=None)),
         "1 of 2 completions have log-probabilities; a message has those of all, or of none"),
        # A node's own message leaves such texts out.
        (replace(for_all(text_only("5")), completions=(text_only("x" * (2**24 + 1)),)),
         "a text of 16777217 bytes is claimed; at most 16777216"),
        (
            replace(
                for_all(text_only("5")),
                completions=tuple(text_only("x" * 2**23, index=at) for at in range(3)),
            ),
            "no reader takes this: texts of 25165824 bytes are claimed; at most 16777216",
        ),
    ],
)  # fmt: skip
def test_what_no_reader_takes_is_not_sent(message, complaint):
    with pytest.raises(ValueError, match=complaint):
        encode(message)


def test_a_completion_may_have_a_million_tokens_and_not_one_more():
    tokens = np.zeros(2**20 + 1)
    with pytest.raises(ValueError, match="claim 1048577 to 1048577 tokens; each has 1 to 1048576"):
        encode(of(completion(tokens, tokens)))
    whole = of(completion(tokens[1:], tokens[1:]))
    assert decode(encode(whole)) == whole


def test_half_a_surrogate_pair_is_in_no_completion():
    with pytest.raises(ValueError, match="half a surrogate pair"):
        text_only("5\ud83d")


def test_a_message_that_is_too_long_is_not_sent():
    zeros = np.zeros(2**20)
    two = of(completion(zeros, zeros), completion(zeros, zeros, index=1))
    assert len(encode(two)) < 2000  # 16 MiB unpacked, to the byte
    with pytest.raises(ValueError, match=r"a message of 16777.* too long; at most 16777216"):
        encode(two, codec="raw")


def test_a_header_that_is_too_long_is_not_sent():
    many = of(*(completion((1,), problem=f"{i}".rjust(256, "x")) for i in range(2**14)))
    with pytest.raises(ValueError, match=r"with a header of 45.* is too long; at most .* 4194304"):
        encode(many)


if __name__ == "__main__":
    for name, (message, codec) in GOLDENS.items():
        (GOLDEN / f"{name}.ptlk").write_bytes(written(message, codec))
