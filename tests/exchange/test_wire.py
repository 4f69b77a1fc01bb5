"""Wire format: what goes out comes back; what is not ours is refused politely."""

import struct
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nouns import completion
from potluck.exchange import Message, WireError, decode, encode
from potluck.exchange.wire import MAX_MESSAGE_BYTES, MAX_TOKENS, read_from

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
small = st.integers(0, 2**31 - 1)
pairs = st.tuples(small, st.floats(-(2.0**100), 0, width=32))
completions = st.builds(
    lambda pairs, **rest: completion([t for t, _ in pairs], [p for _, p in pairs], **rest),
    st.lists(pairs, min_size=1, max_size=20),
    problem=names,
    author=names,
    index=small,
    end=st.sampled_from(["stop", "length"]),
)


def messages(min_size=0, max_size=5):
    once = st.lists(
        completions,
        min_size=min_size,
        max_size=max_size,
        unique_by=lambda c: (c.problem_id, c.author, c.index),
    )
    return st.builds(Message, names, small, names, once.map(tuple))


GOLDEN = Path(__file__).parents[1] / "golden" / "two_completions.ptlk"
TWO = Message(
    "first",
    3,
    "north",
    (
        completion((151644, 10, 151645), (-0.5, -2.25, -0.0078125), problem="gsm8k/train/17"),
        completion((9,), (0,), problem="gsm8k/train/17", author="south", index=11, end="length"),
    ),
)
HEADER = {
    "run": "r",
    "round": 0,
    "sender": "north",
    "problems": ["p"],
    "authors": ["north"],
    "rows": [[0, 0, 0, 0, 1]],
}
BODY = struct.pack("<if", 5, -0.5)


def framed(header, body=BODY, *, version=1, codec=0, size=None):
    """A message whose frame is right, whatever its header is."""
    raw = header if isinstance(header, bytes) else msgspec.msgpack.encode(header)
    size = len(raw) if size is None else size
    return struct.pack("<4sBBI", b"PTLK", version, codec, size) + raw + body


# What goes out comes back.


@given(messages())
def test_round_trip(sent):
    assert decode(encode(sent)) == sent


def test_the_frame_of_these_tests_is_the_real_one():
    assert decode(framed(HEADER)) == Message("r", 0, "north", (completion((5,), (-0.5,)),))


def test_nothing_at_all_can_be_said():
    silent = Message("r", 0, "north", ())
    assert decode(encode(silent)) == silent


def test_minus_zero_and_the_smallest_number_come_back_to_the_bit():
    logp_T = np.float32([-0.0, -1e-45, np.finfo(np.float32).min])
    (got,) = decode(encode(Message("r", 0, "n", (completion((1, 2, 3), logp_T),)))).completions
    assert got.logp_T.tobytes() == logp_T.tobytes()


def test_bytes_on_the_wire_do_not_change_by_accident():
    """A deliberate change: a new VERSION, a new name for GOLDEN, and
    ``PYTHONPATH=src:tests python tests/exchange/test_wire.py``, which writes it.
    """
    assert encode(TWO) == GOLDEN.read_bytes()
    assert decode(GOLDEN.read_bytes()) == TWO


def test_a_message_can_be_read_with_the_docstring_in_hand():
    """``wire.py`` says how; here is a reader that knows nothing else."""
    data = GOLDEN.read_bytes()
    magic, version, codec, n = struct.unpack_from("<4sBBI", data)
    header, body = msgspec.msgpack.decode(data[10 : 10 + n]), data[10 + n :]
    assert (magic, version, codec) == (b"PTLK", 1, 0)
    assert header == {
        "run": "first",
        "round": 3,
        "sender": "north",
        "problems": ["gsm8k/train/17"],
        "authors": ["north", "south"],
        "rows": [[0, 0, 0, 0, 3], [0, 1, 11, 1, 1]],
    }
    assert struct.unpack("<4i4f", body) == (151644, 10, 151645, 9, -0.5, -2.25, -0.0078125, 0.0)


def test_a_token_costs_8_bytes():
    """The paper's claim (section 1). The header is paid once per completion."""
    long, longer = (completion(np.full(n, 7), np.full(n, -0.5)) for n in (1000, 1001))
    sizes = [len(encode(Message("r", 0, "north", (c,)))) for c in (long, longer)]
    assert sizes[1] - sizes[0] == 8


def test_a_completion_costs_about_6_bytes():
    written = tuple(completion((1,), index=i) for i in range(25))
    sizes = [len(encode(Message("r", 0, "north", written[:n]))) - 8 * n for n in (15, 25)]
    assert sizes[1] - sizes[0] <= 10 * 6 + 2


# What is not ours is refused.


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_raise_wire_error(noise):
    for message in (noise, b"PTLK" + noise, b"PTLK\x01\0" + noise, framed(noise, b"")):
        with suppress(WireError):
            decode(message)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | names
    | st.binary(max_size=8)
    | st.builds(msgspec.msgpack.Ext, st.integers(-128, 127), st.binary(max_size=12)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


@given(
    st.one_of(
        anything,
        st.fixed_dictionaries({}, optional=dict.fromkeys(HEADER, anything)).map(
            lambda changed: HEADER | changed
        ),
        st.lists(
            st.lists(st.integers(-1, 3) | anything, min_size=4, max_size=6), max_size=3
        ).map(lambda rows: HEADER | {"rows": rows}),
    ),
    st.binary(max_size=32) | st.just(BODY),
)  # fmt: skip
def test_any_header_in_the_right_frame_decodes_or_raises_wire_error(header, body):
    with suppress(WireError):
        decode(framed(header, body))


@given(messages(min_size=1, max_size=3), st.data())
def test_a_message_cut_short_is_refused(sent, data):
    message = encode(sent)
    with pytest.raises(WireError):
        decode(message[: data.draw(st.integers(0, len(message) - 1))])


@given(messages(), st.binary(min_size=1, max_size=20))
def test_a_message_with_something_behind_it_is_refused(sent, more):
    with pytest.raises(WireError):
        decode(encode(sent) + more)


@given(messages(min_size=1, max_size=3), st.data())
def test_a_message_with_a_damaged_byte_decodes_or_raises_wire_error(sent, data):
    message = bytearray(encode(sent))
    message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    with suppress(WireError):
        decode(bytes(message))


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7F800001, 0x7F800000, 0xFF800000, 0x3F000000, 1])
def test_no_nan_infinity_or_positive_number_comes_in_as_a_log_probability(bits):
    with pytest.raises(WireError, match=r"logp_T\[0\] = .*; expected a finite number <= 0"):
        decode(framed(HEADER, BODY[:4] + struct.pack("<I", bits)))


NESTED = b"\x91" * 100_000 + b"\xc0"


WRONG = [
    (b"", "message ends at byte 0, within its first 10"),
    (b"PTLK\x01\0\0\0\0", "message ends at byte 9"),
    (b"FTW2" + bytes(6), "starts with b'FTW2', expected b'PTLK'"),
    (framed(HEADER, version=2), "has version 2, codec 0; this Potluck reads version 1, codec 0"),
    (framed(HEADER, codec=1), "has version 1, codec 1"),
    (framed(HEADER, size=2**32 - 1), "header claims 4294967295 bytes; .* came"),
    (framed(b""), "header is not readable"),
    (framed(b"\xc1"), "header is not readable"),
    (framed([]), "header is not readable: Expected `object`, got `array`"),
    (framed(HEADER | {"more": 1}), "header is not readable: .*unknown field `more`"),
    (framed({**HEADER, "run": b"r"}), r"header is not readable: .*`\$.run`"),
    (framed({**HEADER, "run": "r" * 257}), r"length <= 256 - at `\$.run`"),
    (framed({**HEADER, "sender": "s" * 257}), r"length <= 256 - at `\$.sender`"),
    (framed({**HEADER, "problems": ["p" * 257]}), r"length <= 256 - at `\$.problems"),
    (framed({**HEADER, "round": -1}), r"Expected `int` >= 0 - at `\$.round`"),
    (framed({**HEADER, "round": 2**31}), r"Expected `int` <= 2147483647 - at `\$.round`"),
    (framed({**HEADER, "round": 0.0}), r"`\$.round`"),
    (framed({k: v for k, v in HEADER.items() if k != "rows"}), "missing required field `rows`"),
    (framed({**HEADER, "rows": [[0, 0, 0, 0]]}), "`array` of length 5, got 4"),
    (framed({**HEADER, "rows": [[0, 0, 0, 0, -1]]}), "Expected `int` >= 0"),
    (framed({**HEADER, "rows": [[1, 0, 0, 0, 1]]}), "points beyond the lists it refers to"),
    (framed({**HEADER, "rows": [[0, 1, 0, 0, 1]]}), "points beyond the lists it refers to"),
    (framed({**HEADER, "rows": [[0, 0, 0, 2, 1]]}), "points beyond the lists it refers to"),
    (framed({**HEADER, "rows": [[0, 0, 0, 0, 2]]}), "2 tokens take 16 bytes, but 8 came"),
    (framed({**HEADER, "rows": [[0, 0, 0, 0, 0]]}), "0 tokens take 0 bytes, but 8 came"),
    (framed({**HEADER, "rows": [[0, 0, 0, 0, 0]]}, b""), "no tokens"),
    (framed({**HEADER, "rows": []}), "0 tokens take 0 bytes, but 8 came"),
    (framed({**HEADER, "rows": [[0, 0, 0, 0, MAX_TOKENS + 1]]}), "claims 1048577 tokens; at"),
    (framed({**HEADER, "rows": [[0, 0, 0, 0, 1]] * 2}, 2 * BODY[:4] + 2 * BODY[4:]), "twice"),
    (framed(HEADER, struct.pack("<if", -1, -0.5)), r"token_T\[0\] = -1; expected an id >= 0"),
    (framed(b"\x81\xa4rows" + NESTED), "header is not readable"),
    (framed(NESTED), "header is not readable"),
    (framed(b"\x81\xa1x" + NESTED), "header is not readable"),
    (framed(b"\x81\xa3run\xa1\xff"), "header is not readable"),
]  # fmt: skip


@pytest.mark.parametrize("message, complaint", WRONG, ids=[complaint for _, complaint in WRONG])
def test_what_is_wrong_with_a_message_is_said(message, complaint):
    with pytest.raises(WireError, match=complaint):
        decode(message)


def test_a_message_over_a_gibibyte_is_refused_unread():
    class Huge(bytes):
        def __len__(self):
            return MAX_MESSAGE_BYTES + 1

    with pytest.raises(WireError, match="has 1073741825 bytes; at most 1073741824 allowed"):
        decode(Huge(framed(HEADER)))


@pytest.mark.parametrize(
    "message",
    [
        framed(b"\x81\xa4rows\xdd\xff\xff\xff\xff"),  # a list that claims 2^32 - 1 rows
        framed(b"\x81\xa8problems\xdd\xff\xff\xff\xff\xa1p"),
        framed(b"\x81\xa3run\xdb\xff\xff\xff\xff"),  # a text of 4 GiB
        framed(b"\xdf\xff\xff\xff\xff"),
        framed({**HEADER, "rows": [[0, 0, i, 0, MAX_TOKENS] for i in range(1000)]}),
        framed(HEADER, size=2**26),
    ],
    ids=["rows", "problems", "text", "map", "tokens", "header"],
)
def test_no_memory_is_set_aside_for_what_is_only_claimed(message):
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            decode(message)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20


def test_what_is_decoded_is_locked_and_does_not_hang_on_to_the_message():
    (got,) = decode(framed(HEADER)).completions
    assert got.token_T.base is None
    assert not got.token_T.flags.writeable
    assert got.logp_T.base is None
    assert not got.logp_T.flags.writeable


@settings(max_examples=30)
@given(messages(min_size=1))
def test_what_decodes_has_every_completion_once(sent):
    """A second one is refused even if it says something else."""
    twice = replace(sent.completions[0], token_T=np.int32([1]), logp_T=np.float32([-1]))
    with pytest.raises(WireError, match="comes twice"):
        decode(encode(replace(sent, completions=(*sent.completions, twice))))


# Who says so, and what cannot be said.


MINE = Message("first", 3, "north", (completion(author="north"),))


def test_a_message_is_read_from_its_sender():
    assert read_from("north", encode(MINE), run="first", round=3) == MINE.completions


@pytest.mark.parametrize(
    "message, complaint",
    [
        (
            replace(MINE, run="second"),
            "for round 3 of 'second' came where 'north''s for round 3 of",
        ),
        (replace(MINE, round=2), "a message of 'north' for round 2 of 'first' came where"),
        (replace(MINE, sender="south"), "a message of 'south' for round 3"),
        (
            replace(MINE, completions=(*MINE.completions, completion(author="south"))),
            "'north' sent a completion that is signed 'south'",
        ),
    ],
)
def test_what_is_of_another_run_round_or_node_is_refused(message, complaint):
    with pytest.raises(WireError, match=complaint):
        read_from("north", encode(message), run="first", round=3)


@pytest.mark.parametrize(
    "message",
    [
        replace(MINE, run="r" * 257),
        replace(MINE, sender="s" * 257),
        replace(MINE, completions=(completion(problem="p" * 257),)),
        replace(MINE, completions=(completion(author="a" * 257),)),
    ],
    ids=["run", "sender", "problem", "author"],
)
def test_a_name_that_is_too_long_is_not_sent(message):
    with pytest.raises(ValueError, match="longer than 256 characters"):
        encode(message)


def test_a_name_may_have_256_characters_of_any_length():
    long = replace(MINE, run="ü" * 256, completions=(completion(problem="語" * 256),))
    assert decode(encode(long)) == long


def test_a_completion_that_is_too_long_is_not_sent():
    tokens = np.zeros(MAX_TOKENS + 1)
    with pytest.raises(ValueError, match="a completion is longer than 1048576 tokens"):
        encode(replace(MINE, completions=(completion(tokens, tokens),)))
    whole = replace(MINE, completions=(completion(tokens[1:], tokens[1:]),))
    assert decode(encode(whole)) == whole


@pytest.mark.parametrize(
    "message",
    [
        replace(MINE, round=-1),
        replace(MINE, round=2**31),
        replace(MINE, completions=(completion(index=2**31),)),
    ],
    ids=["before the first round", "round", "index"],
)
def test_a_number_that_no_reader_accepts_is_not_sent(message):
    with pytest.raises(ValueError):
        encode(message)


if __name__ == "__main__":
    GOLDEN.write_bytes(encode(TWO))
