"""Version 3 of the wire format: completions as texts, with the ids of a tokenizer or without."""

import struct
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from faults.soak_wire import most_memory
from fuzz import CODECS, assembled, blocks_of, claiming
from nouns import completion, prompt_digest, terms, text_only
from potluck.exchange import Limits, WireError, decode, encode
from potluck.exchange.wire.message import TextHeader

PRINT = terms().provenance.tokenizer


def tokens_and_text(tokens=(5,), logprobs=(-0.5,), text="five", **more):
    """A completion with the ids of its author's tokenizer, and a text or none."""
    return replace(completion(tokens, logprobs, **more), text=text, tokenizer=PRINT)


def of(*written, round=3, **changes):
    """The message of an author; one whose completions have no tokens has no tokenizer."""
    has_ids = any(len(c.token_T) for c in written)
    return terms(tokenizer=b"t" if has_ids else b"", **changes).message(round, written)


def without_logp(message):
    return replace(message, completions=tuple(replace(c, logp_T=None) for c in message.completions))


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
places = st.lists(st.tuples(names, st.integers(0, 2**31 - 1)), max_size=5, unique=True)
pairs = st.tuples(st.integers(0, 2**31 - 1), st.floats(-(2.0**100), 0, width=32))


@st.composite
def messages_of_ids_and_texts(draw):
    written = []
    for problem, index in draw(places):
        tokens, logps = zip(*draw(st.lists(pairs, min_size=1, max_size=8)), strict=True)
        text, end = draw(st.none() | texts), draw(st.sampled_from(["stop", "length"]))
        more = {"problem": f"p{problem}", "index": index, "end": end}
        written.append(tokens_and_text(tokens, logps, text, **more))
    return of(*written)


@st.composite
def messages_of_texts(draw):
    return of(*(text_only(draw(texts), problem=f"p{p}", index=at) for p, at in draw(places)))


THREE = of(
    tokens_and_text(
        (151644, 10, 151645), (-0.5, -2.25, -0.0078125), "So 2+3=5.", problem="gsm8k/train/17"
    ),
    tokens_and_text((9,), (0,), None, problem="gsm8k/train/17", index=11, end="length"),
    tokens_and_text((9, 300), (-200, -0.25), "日本 🙂\n", problem="gsm8k/train/4"),
    run="first",
    temperature=0.7,
    top_k=40,
    top_p=0.95,
)
ONLY = of(
    text_only("So 2+3=5.", problem="gsm8k/train/17"),
    text_only("", problem="gsm8k/train/17", index=11),
    text_only("日本 🙂\n", problem="gsm8k/train/4", end="length"),
    run="first",
)
GOLDEN = Path(__file__).parents[1] / "golden"
GOLDENS = {
    "raw": (THREE, "raw", 0),
    "exact": (THREE, "exact", 1),
    "compact": (THREE, "compact", 2),
    "raw-ids": (without_logp(THREE), "raw", 3),
    "exact-ids": (without_logp(THREE), "exact", 4),
    "raw-texts": (ONLY, "raw", 3),
    "exact-texts": (ONLY, "exact", 4),
}
"""Messages, the codec that each is written with, and the codec's number on the wire."""


# What goes out comes back.


@pytest.mark.parametrize("codec", ["raw", "exact"])
@given(messages_of_ids_and_texts())
def test_ids_and_texts_come_back_to_the_bit(codec, sent):
    got = decode(encode(sent, codec=codec))
    assert got == sent
    for one, other in zip(got.completions, sent.completions, strict=True):
        assert one.logp_T.tobytes() == other.logp_T.tobytes()


@pytest.mark.parametrize("codec", CODECS)
@given(messages_of_ids_and_texts())
def test_without_log_probabilities_too(codec, sent):
    alone = without_logp(sent)
    assert decode(encode(alone, codec=codec)) == alone


@pytest.mark.parametrize("codec", CODECS)
@given(messages_of_texts())
def test_texts_of_an_author_without_a_tokenizer_come_back(codec, sent):
    assert decode(encode(sent, codec=codec)) == sent


@given(messages_of_ids_and_texts())
def test_compact_rounds_log_probabilities_and_no_text(sent):
    got = decode(encode(sent, codec="compact"))
    assert replace(got, completions=()) == replace(sent, completions=())
    for one, other in zip(got.completions, sent.completions, strict=True):
        assert replace(one, logp_T=other.logp_T) == other
        assert np.abs(one.logp_T.astype(float) - other.logp_T).max() <= 2**-10


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "message, version",
    [
        (terms().message(3, (completion(),)), 2),
        (terms().message(3, ()), 2),
        (of(), 3),
        (of(tokens_and_text(text=None)), 3),
        (of(tokens_and_text(text="")), 3),
        (of(text_only("")), 3),
        (terms().message(3, (text_only("5"),)), 3),
        (THREE, 3),
    ],
    ids=["ids", "nothing", "nothing of no tokenizer", "ids named", "ids and empty", "empty",
         "texts of one with a tokenizer", "three"],
)  # fmt: skip
def test_a_message_is_of_version_3_if_it_is_for_other_tokenizers(codec, message, version):
    written = encode(message, codec=codec)
    assert written[4] == version
    assert decode(written) == message


@pytest.mark.parametrize("codec", CODECS)
def test_texts_stand_behind_what_version_2_has(codec):
    """So a message costs no more than its texts, their sizes and the digests of the messages."""
    plain = tuple(replace(c, text=None, tokenizer=b"") for c in THREE.completions)
    (_, (head, *body)), (_, (text_head, *text_body)) = (
        blocks_of(encode(each, codec=codec))
        for each in (replace(THREE, completions=plain, questions={}), THREE)
    )
    assert text_body == [*body, "So 2+3=5.日本 🙂\n".encode()]
    head, text_head = msgspec.msgpack.decode(head), msgspec.msgpack.decode(text_head)
    assert text_head[:16] == head
    assert len(text_head) == 18


@pytest.mark.parametrize("codec", CODECS)
def test_where_no_text_has_a_byte_there_is_no_block_of_texts(codec):
    for message in (of(tokens_and_text(text=None)), of(tokens_and_text(text=""))):
        plain = terms().message(3, (completion((5,), (-0.5,)),))
        count = len(blocks_of(encode(plain, codec=codec))[1])
        assert len(blocks_of(encode(message, codec=codec))[1]) == count
    assert len(blocks_of(encode(of(text_only("")), codec=codec))[1]) == 1


def test_a_text_may_have_every_character_but_surrogates():
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    sent = of(text_only(text))
    assert decode(encode(sent)) == sent


@pytest.mark.parametrize("name", GOLDENS)
def test_bytes_on_the_wire_do_not_change_by_accident(name):
    """A deliberate change: a new version, new names in ``golden/``, and
    ``PYTHONPATH=src:tests python tests/exchange/test_wire_text.py``, which writes them."""
    message, codec, _ = GOLDENS[name]
    golden = (GOLDEN / f"v3-{name}.ptlk").read_bytes()
    assert decode(golden) == message
    assert blocks_of(encode(message, codec=codec)) == blocks_of(golden)


@pytest.mark.parametrize("name", GOLDENS)
def test_a_message_can_be_read_with_the_page_in_hand(name):
    """docs/wire.md says how; here is a reader that knows nothing else."""
    number = GOLDENS[name][2]
    data = (GOLDEN / f"v3-{name}.ptlk").read_bytes()
    assert struct.unpack_from("<4sBB", data) == (b"PTLK", 3, number)
    blocks, at = [], 6
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        blocks.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    if number not in (0, 3):
        # The last block but one of codec 2, its escapes, is not compressed.
        stored = len(blocks) - 2 if number == 2 else None
        blocks = [b if i == stored else zstandard.decompress(b) for i, b in enumerate(blocks)]
    head, text = msgspec.msgpack.decode(blocks[0]), blocks[-1]
    assert len(head) == 18
    assert head[10] == ["gsm8k/train/17", "gsm8k/train/4"]
    digests = [prompt_digest(id) for id in head[10]]
    assert head[16] == b"".join(digest[::-1] for digest in digests)
    # 1 + the bytes of a text, and 0 where there is none: here none is longer than 254.
    assert head[17][3:] == bytes(9)
    cut, at = [], 0
    for size in head[17][:3]:
        cut.append(text[at : at + size - 1].decode() if size else None)
        at += max(0, size - 1)
    assert at == len(text)
    if name.endswith("texts"):
        assert (head[4], head[9], head[11], head[15]) == (b"", 1, b"", bytes(12))
        assert cut == ["So 2+3=5.", "", "日本 🙂\n"]
        assert len(blocks) == 2
        return
    assert (head[4], head[11]) == (b"t" + b"." * 15, b"".join(digests))
    assert head[15] == bytes([3, 1, 2] + 9 * [0])
    assert cut == ["So 2+3=5.", None, "日本 🙂\n"]
    # Between header and texts stands the body of version 2.
    old = (GOLDEN / f"v2-{name}.ptlk").read_bytes()
    assert blocks[1:-1] == blocks_of(old)[1][1:]


# What is not ours is refused.


def column(*numbers):
    return np.uint32(numbers).view(np.uint8).reshape(-1, 4).T.tobytes()


FIELDS = TextHeader.__struct_fields__


def framed(changed=None, body=None, *, message, codec="raw", pack=zstandard.compress):
    """A message with fields of its header changed, or other blocks behind it."""
    start, (head, *sound) = blocks_of(encode(message, codec=codec))
    header = msgspec.msgpack.decode(head)
    for name, value in (changed or {}).items():
        header[FIELDS.index(name)] = value
    blocks = [msgspec.msgpack.encode(header), *(sound if body is None else body)]
    return assembled(start, blocks, pack=pack)


ONE = of(text_only("5é"))
"""A text of three bytes."""
TWO = of(text_only("5é"), text_only("日", index=1))
BOTH = of(tokens_and_text(text="5é"))
IDS = struct.pack("<I", 5), struct.pack("<f", -0.5)


def one(changed=None, body=None, **more):
    return framed(changed, body, message=ONE, **more)


def two(*texts, sizes=None):
    """Two texts of these bytes; ``sizes`` as claimed, or as they are."""
    sizes = [1 + len(text) for text in texts] if sizes is None else sizes
    return framed({"text_sizes": column(*sizes)}, [b"".join(texts)], message=TWO)


def both(changed=None, body=None, **more):
    return framed(changed, body, message=BOTH, **more)


V2_HEAD = blocks_of(encode(terms().message(3, (completion((5,), (-0.5,)),)), codec="raw"))[1][0]
V3_HEAD = blocks_of(encode(BOTH, codec="raw"))[1][0]

WRONG = [
    # The header of the other version.
    (assembled(b"PTLK\3\0", [V2_HEAD, *IDS]), "of at least length 18, got 16"),
    (assembled(b"PTLK\2\0", [V3_HEAD, *IDS, "5é".encode()]), "length 16, got 18"),
    (b"PTLK\4\0" + one()[6:], "has version 4, and this Potluck reads versions 2 and 3; nodes need"),
    (b"PTLK\3\5" + one()[6:], "codec 5; this Potluck reads 0 to 4"),
    # Digests.
    (one({"questions": b""}), "1 problems have 0 bytes of question digests"),
    (one({"questions": b"q" * 16}), "1 problems have 16 bytes of question digests"),
    (one({"digests": b"d" * 8}), "1 problems have 8 bytes of prompt digests"),
    (both({"digests": b""}), "1 problems have 0 bytes of prompt digests"),
    (both({"questions": "q" * 8}), r"header is not readable: .*got `str` - at `\$\[16\]`"),
    # Tokens and tokenizers.
    (both({"tokenizer": b"", "digests": b""}), "tokens came from an author that tells"),
    (one({"lengths": column(1)}, [IDS[0], "5é".encode()]), "tokens came from an author that tells"),
    (one({"tokenizer": b"t" * 15}), "fingerprint tokenizer has 15 bytes, expected 16"),
    (one({"tokenizer": b"t" * 16}), "1 problems have 0 bytes of prompt digests"),
    (one({"model": b""}), "fingerprint model has 0 bytes, expected 16"),
    (one({"text_sizes": column(0)}, []), "completions claim 0 to 0 tokens; each has 1 to 1048576"),
    (both({"lengths": column(0), "text_sizes": column(0)}, []), "claim 0 to 0 tokens"),
    (both(body=(b"\xff" * 4, IDS[1], "5é".encode())), "an id is 4294967295; "),
    (both({"id_bits": 2}), "an id is 5; by header and vocabulary, ids are below 4"),
    # Columns.
    (one({"text_sizes": b""}), "column text_sizes has 0 bytes for 1 completions"),
    (one({"text_sizes": b"\4" * 5}), "column text_sizes has 5 bytes for 1 completions"),
    (one({"text_sizes": 4}), r"header is not readable: .*got `int` - at `\$\[17\]`"),
    # Sizes that do not add up.
    (one(body=[]), "message ends before texts"),
    (both(body=IDS), "message ends before texts"),
    (one(body=[b""]), "texts: 0 bytes where 3 are expected"),
    (one(body=["5é!".encode()]), "texts: 4 bytes where 3 are expected"),
    (one(body=["5é".encode(), b""]), "4 bytes follow the end of the message"),
    (one({"text_sizes": column(1)}), "7 bytes follow the end of the message"),
    (one({"text_sizes": column(1)}, [b""]), "4 bytes follow the end of the message"),
    (one({"text_sizes": column(5)}), "texts: 3 bytes where 4 are expected"),
    (one(body=["5é!".encode()], codec="exact"), "texts: 4 bytes claimed, in a window"),
    (one(body=[b"5"], codec="exact"), "texts: 1 bytes where 3 are expected"),
    (one({"text_sizes": column(1)}, [b""], codec="exact"), "13 bytes follow the end"),
    (one()[:-1], "texts: 3 bytes claimed, but 2 are left"),
    (one(codec="exact", pack=lambda data: claiming(data, max(4, len(data)))), "texts: 4 bytes"),
    # What is no text.
    (one(body=[b"\xed\xa0\x80"]), "text of completion 0 is not UTF-8: .* byte 0xed in position 0"),
    (one(body=[b"\xed\xbf\xbf"]), "text of completion 0 is not UTF-8"),
    (one(body=[b"5\xc0\xaf"]), "text of completion 0 is not UTF-8: .* byte 0xc0 in position 1"),
    (one(body=[b"5\xe6\x97"]), "not UTF-8: .*unexpected end of data"),
    (one(body=[b"\xff\xfe5"]), "not UTF-8"),
    (two(b"ok", b"\x80"), "text of completion 1 is not UTF-8: .* byte 0x80 in position 0"),
    (two(b"\xf4\x90\x80\x80", b""), "text of completion 0 is not UTF-8"),
    (two("日本".encode(), b"", sizes=[5, 3]), "completion 0 is not UTF-8: .*unexpected end"),
    # Two halves of a pair, each in a text of its own, or together.
    (two(b"\xed\xa0\xbd", b"\xed\xb8\x80"), "text of completion 0 is not UTF-8"),
    (two(b"\xed\xa0\xbd\xed\xb8\x80", b""), "text of completion 0 is not UTF-8"),
    # More than is taken.
    (one({"text_sizes": column(2**24 + 2)}), "a text of 16777217 bytes is claimed; at most"),
    (one({"text_sizes": column(2**32 - 1)}), "a text of 4294967294 bytes is claimed"),
    (two(b"", b"", sizes=[2**24, 3]), "texts of 16777217 bytes are claimed; at most 16777216 are"),
]  # fmt: skip


@pytest.mark.parametrize("message, complaint", WRONG, ids=[complaint for _, complaint in WRONG])
def test_what_is_wrong_with_a_message_is_said(message, complaint):
    with pytest.raises(WireError, match=complaint) as caught:
        decode(message)
    said = str(caught.value)
    large = "a text of" in said or "texts of" in said or "in a window" in said
    other = "has version" in said or "codec 5" in said
    expected = "too large" if large else "other version" if other else "malformed"
    assert caught.value.reason == expected


def test_the_frame_of_these_tests_is_the_real_one():
    for codec in ("raw", "exact"):
        assert decode(one(codec=codec)) == ONE
        assert decode(both(codec=codec)) == BOTH
    assert decode(two("5é".encode(), "日".encode())) == TWO
    assert decode(two(b"5\xc3\xa9\xe6\x97", b"\xa5", sizes=[4, 4])) == TWO


def test_a_pair_of_surrogates_is_no_way_to_write_a_character():
    assert decode(two("😀".encode(), b"")).completions[0].text == "😀"


@pytest.mark.parametrize(
    "limits, complaint",
    [
        (Limits(text_bytes=49), "a text of 50 bytes is claimed; at most 49 are taken"),
        (Limits(text_bytes=0), "a text of 50 bytes is claimed; at most 0 are taken"),
        (Limits(completions=3), "4 completions came; at most 3 are taken"),
        (Limits(message_bytes=199), "texts of 200 bytes are claimed; .* 199|message has"),
    ],
)
@pytest.mark.parametrize("codec", CODECS)
def test_a_reader_may_take_less(codec, limits, complaint):
    message = of(*(text_only("x" * 50, index=at) for at in range(4)))
    data = encode(message, codec=codec)
    enough = Limits(message_bytes=max(200, len(data)), completions=4, text_bytes=50)
    assert decode(data, enough) == message
    with pytest.raises(WireError, match=complaint) as caught:
        decode(data, limits)
    assert caught.value.reason == "too large"


def test_a_reader_that_takes_no_texts_takes_ids_that_name_their_tokenizer():
    for text in (None, ""):
        message = of(tokens_and_text(text=text))
        assert decode(encode(message), Limits(text_bytes=0)) == message


def test_ids_beside_texts_may_be_beyond_the_readers_vocabulary():
    """They may be another tokenizer's; which they are is looked at when they are read."""
    few = Limits(vocabulary=5)
    assert decode(encode(BOTH), few) == BOTH
    with pytest.raises(WireError, match="an id is 5; by header and vocabulary, ids are below 5"):
        decode(encode(terms().message(3, (completion((5,), (-0.5,)),))), few)


@pytest.mark.parametrize("message", [THREE, ONLY], ids=["ids and texts", "texts"])
@pytest.mark.parametrize("codec", CODECS)
def test_a_message_cut_short_or_with_more_behind_it_is_refused(codec, message):
    data = encode(message, codec=codec)
    for end in range(len(data)):
        with pytest.raises(WireError):
            decode(data[:end])
    for more in (b"\0", b"\0\0\0\0", data):
        with pytest.raises(WireError, match="follow the end of the message"):
            decode(data + more)


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_raise_wire_error(noise):
    starts = [b"PTLK\3" + bytes([number]) for number in range(6)]
    sound = encode(THREE, codec="raw"), one(body=[noise]), both(body=[*IDS, noise])
    for data in (*(start + noise for start in starts), *sound[1:], sound[0] + noise):
        with suppress(WireError):
            decode(data)


@settings(max_examples=60)
@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            ("tokenizer", "digests", "ends", "lengths", "questions", "text_sizes"),
            st.binary(max_size=20) | texts | st.integers(-1, 2**32),
        ),
    ),
    st.sampled_from([ONE, TWO, BOTH, THREE]),
    st.sampled_from(["raw", "exact"]),
)
def test_any_header_in_the_right_frame_decodes_or_raises_wire_error(changed, message, codec):
    with suppress(WireError):
        got = decode(framed(changed, message=message, codec=codec))
        assert decode(encode(got)) == got


# Memory.


def peak_of(data, limits=None):
    tracemalloc.start()
    try:
        with suppress(WireError):
            decode(data, limits or Limits())
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "message",
    [
        one({"text_sizes": column(2**24 + 1)}),
        one(codec="exact", pack=lambda data: claiming(data, 2**30)),
        one({"text_sizes": column(2**24)}, [b"x" * 3], codec="exact"),
        one({"text_sizes": column(4)}, [bytes(2**22)], codec="exact"),
        two(b"", b"", sizes=[2**23, 2**23]),
    ],
    ids=["size", "frame", "short frame", "long frame", "sizes"],
)
def test_no_memory_is_set_aside_for_texts_that_are_only_claimed(message):
    assert peak_of(message) < 2**20


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("character", ["a", "é", "日", "🙂"])
def test_memory_is_a_few_times_what_the_limits_allow(codec, character):
    """The worst text has one character that makes Python keep four bytes for each of the others;
    beside it stand the most tokens that fit."""
    size = (1 << 20) - 3000
    text = character + "a" * (size - len(character.encode()))
    tokens = tokens_and_text(np.zeros(size // 8), np.full(size // 8, -300.0), text)
    for message in (of(text_only(text)), of(tokens)):
        data = encode(message, codec=codec)
        limits = Limits(message_bytes=max(1 << 20, len(data)), completions=1)
        assert decode(data, limits) == message
        assert peak_of(data, limits) < most_memory(limits)


def test_a_node_that_takes_no_texts_has_the_memory_of_version_2():
    assert most_memory(Limits(text_bytes=0)) == 4 * 2**24 + 1024 * 2**16 + 2**16
    half = Limits(completions=1, message_bytes=1000, text_bytes=500)
    assert most_memory(half) == 4 * 1000 + 4 * 500 + 1024 + 2**16


def test_each_text_takes_a_kilobyte_at_most():
    many = of(*(text_only("é" * (i % 3), problem=f"p{i}", index=i) for i in range(2**12)))
    limits = Limits(message_bytes=1 << 17, completions=2**12, text_bytes=8)
    data = encode(many)
    assert decode(data, limits) == many
    assert peak_of(data, limits) < most_memory(limits)


# What cannot be said.


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "message, complaint",
    [
        (
            replace(THREE, questions={}),
            "a message with texts has a question digest of each problem, others none",
        ),
        (replace(ONE, questions={**ONE.questions, "q": b"q" * 8}), "has a question digest of each"),
        (replace(terms().message(3, (completion(),)), questions={"p": b"q" * 8}), "others none"),
        (replace(ONE, questions={"p": b"q" * 7}), "question digest of 'p' has 7 bytes, expected 8"),
        (replace(ONE, prompts={"p": b"d" * 8}), "prompt digest of 'p' has 8 bytes, expected 0"),
        (replace(BOTH, prompts={"p": b""}), "prompt digest of 'p' has 0 bytes, expected 8"),
        (
            replace(ONE, completions=(tokens_and_text(),)),
            "a completion has tokens, but its author no tokenizer",
        ),
        (
            replace(BOTH, completions=(replace(BOTH.completions[0], tokenizer=b""),)),
            "a completion of 'p' names tokenizer none; each of this message names 742e",
        ),
        (
            replace(BOTH, completions=(replace(BOTH.completions[0], tokenizer=b"x"),)),
            "names tokenizer 78; each of this message names 742e",
        ),
        (
            replace(ONE, completions=(replace(ONE.completions[0], tokenizer=PRINT),)),
            "names tokenizer 742e.*; each of this message names none",
        ),
        (
            replace(BOTH, provenance=replace(BOTH.provenance, tokenizer=b"t")),
            "names tokenizer 742e.*; each of this message names 74",
        ),
        (of(text_only("5"), text_only("6")), "completion 0 of 'p' comes twice"),
        (
            of(tokens_and_text(), replace(tokens_and_text(index=1), logp_T=None)),
            "1 of 2 completions have log-probabilities; a message has those of all, or of none",
        ),
        # A node's own message leaves such texts out.
        (
            replace(of(text_only("5")), completions=(text_only("x" * (2**24 + 1)),)),
            "a text of 16777217 bytes is claimed; at most 16777216",
        ),
        (
            replace(
                of(text_only("5")),
                completions=tuple(text_only("x" * 2**23, index=at) for at in range(3)),
            ),
            "no reader takes this: texts of 25165824 bytes are claimed; at most 16777216",
        ),
    ],
)
def test_what_no_reader_takes_is_not_sent(codec, message, complaint):
    with pytest.raises(ValueError, match=complaint):
        encode(message, codec=codec)


@pytest.mark.parametrize("text", ["\ud800", "5\udfff", "\ud83d\ude00"])
def test_half_a_surrogate_pair_is_in_no_completion(text):
    """Nor are two halves, which Python keeps as two characters."""
    with pytest.raises(ValueError, match="half a surrogate pair"):
        text_only(text)


def test_a_completion_needs_tokens_or_a_text():
    with pytest.raises(ValueError, match="no tokens"):
        text_only(None)


if __name__ == "__main__":
    for name, (message, codec, _) in GOLDENS.items():
        (GOLDEN / f"v3-{name}.ptlk").write_bytes(encode(message, codec=codec))
