"""Wire format, version 4: messages of episodes."""

import struct
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import zstandard

from exchange.test_wire import column, peak_of
from faults import wire_kinds
from faults.soak_wire import TIGHT, most_memory, soak
from fuzz import assembled, blocks_of
from nouns import completion, episode, prompt_digest, terms, text_only
from potluck.exchange import Limits, WireError, decode, encode
from potluck.exchange.wire.message import EpisodeHeader

GOLDEN = Path(__file__).parents[1] / "golden"
PRINT = terms().provenance.tokenizer
TALK = '[["go",[]],["",[["add",{"a":1}]]],["é",[]]]'
ABOUT = {"run": "first", "temperature": 0.7}


def named(*written):
    return tuple(replace(c, tokenizer=PRINT) for c in written)


IDS = (
    episode([7, 2], [300], [9, 8, 2], problem="maze/0", text=TALK, end="room"),
    episode([70_000], problem="maze/0", index=1, end="length"),
    episode([7, 2], [7, 2], problem="maze/1", end="turns"),
)
FIRST = replace(IDS[0], text=None)
TEXTS = (
    replace(text_only(TALK, problem="maze/0"), turns=(0, 0, 0), observed=b"\0\1\2\3"),
    replace(text_only('[["x",[]]]', problem="maze/1"), turns=(0,)),
)
GOLDENS = {
    "v4-raw": (terms(**ABOUT).message(3, named(*IDS)), "raw"),
    "v4-exact": (terms(**ABOUT).message(3, named(*IDS)), "exact"),
    "v4-compact": (terms(**ABOUT).message(3, named(*IDS)), "compact"),
    "v4-exact-ids": (
        terms(**ABOUT).message(3, tuple(replace(c, logp_T=None) for c in named(*IDS))),
        "exact",
    ),
    "v4-raw-one-tokenizer": (
        terms(**ABOUT).message(3, tuple(replace(c, text=None) for c in IDS)),
        "raw",
    ),
    "v4-exact-texts": (terms(tokenizer=b"", **ABOUT).message(3, TEXTS), "exact"),
}


def framed(*written, **changes):
    """A message whose header says something else."""
    start, blocks = blocks_of(encode(terms().message(3, written), codec="raw"))
    header = msgspec.msgpack.decode(blocks[0], type=EpisodeHeader)
    head = msgspec.msgpack.encode(msgspec.structs.replace(header, **changes))
    return assembled(start, [head, *blocks[1:]])


@pytest.mark.parametrize("name", GOLDENS)
def test_bytes_on_the_wire_do_not_change_by_accident(name):
    golden, (message, codec) = (GOLDEN / f"{name}.ptlk").read_bytes(), GOLDENS[name]
    assert golden[4] == 4
    assert decode(golden) == message
    assert blocks_of(encode(message, codec=codec)) == blocks_of(golden)


@pytest.mark.parametrize("name", GOLDENS)
def test_turns_can_be_read_with_the_page_in_hand(name):
    data = (GOLDEN / f"{name}.ptlk").read_bytes()
    (size,) = struct.unpack_from("<I", data, 6)
    head = data[10 : 10 + size]
    head = msgspec.msgpack.decode(head if "raw" in name else zstandard.decompress(head))
    assert len(head) == 21
    digests = [prompt_digest(id)[::-1] for id in ("maze/0", "maze/1")]
    assert head[16] == (b"" if "one-tokenizer" in name else b"".join(digests))
    if "texts" in name:
        assert head[12] == bytes([0, 0])
        assert head[18] == bytes([3, 1] + 6 * [0])
        assert head[19] == bytes(16)
        assert head[20] == bytes([0, 1, 2, 3])
    else:
        assert head[12] == bytes([3, 1, 2])
        assert head[18] == bytes([3, 1, 2] + 9 * [0])
        assert head[19] == bytes([2, 1, 3, 1, 2, 2] + 18 * [0])
        assert head[20] == bytes([0, 1, 2, 3, 0, 1])


def test_a_message_has_episodes_alone_or_none():
    with pytest.raises(ValueError, match=r"no reader takes this: episodes of 0 to 2 turns came"):
        encode(terms().message(3, (IDS[2], completion(problem="maze/0"))))


WRONG = [
    (framed(FIRST, turn_counts=column(0)), "episodes of 0 to 0 turns came; each of a message"),
    (framed(FIRST, turn_counts=column(4097)), "episodes of 4097 to 4097 turns came; .*1 to 4096"),
    (framed(FIRST, turn_counts=b"\3"), "column turn_counts has 1 bytes for 1 completions"),
    (framed(FIRST, turn_counts=column(2)), "4 bytes were observed where 2 are expected"),
    (framed(FIRST, observed=b"abc"), "3 bytes were observed where 4 are expected"),
    (framed(FIRST, turn_lengths=b""), "column turn_lengths has 0 bytes for 3 turns"),
    (framed(FIRST, turn_lengths=column(2, 1, 4)), "have more or fewer tokens than it has"),
    (framed(FIRST, turn_lengths=column(2**32 - 1, 1, 6)), "have more or fewer tokens than"),
    (framed(FIRST, turn_lengths=column(0, 3, 3)), r"turns of \(0, 3, 3\) tokens; .*none empty"),
    (framed(*IDS[1:], turn_lengths=column(2, 1, 2)), "have more or fewer tokens than it has"),
    (framed(FIRST, ends=b"\4"), "end 4 is none of stop, length, turns, room"),
    (framed(*named(IDS[0]), questions=b""), "texts came without digests of the messages"),
    (framed(IDS[2], questions=b"1"), "1 problems have 1 bytes of question digests"),
    (framed(IDS[2], questions=b"", problems=msgspec.Raw(b"\x90"), digests=b"", ends=b"",
            problem_at=b"", indices=b"", lengths=b"", text_sizes=b"", turn_counts=b"",
            turn_lengths=b"", observed=b"1"), "1 bytes were observed where 0 are expected"),
    (b"PTLK\3" + encode(terms().message(3, IDS[2:]))[5:], "not readable: .*length 18, got 21"),
]  # fmt: skip


@pytest.mark.parametrize("message, complaint", WRONG, ids=[complaint for _, complaint in WRONG])
def test_what_is_wrong_with_a_message_is_said(message, complaint):
    with pytest.raises(WireError, match=complaint) as caught:
        decode(message)
    assert caught.value.reason == ("too large" if "4097" in str(caught.value) else "malformed")


def test_ids_of_episodes_for_one_tokenizer_are_below_its_vocabulary():
    data = encode(terms().message(3, IDS[1:2]))
    decode(data, Limits(vocabulary=70_001))
    with pytest.raises(WireError, match="an id is 70000; by header and vocabulary"):
        decode(data, Limits(vocabulary=70_000))
    decode(encode(terms().message(3, named(IDS[1]))), Limits(vocabulary=70_000))


@pytest.mark.parametrize("has_ids", [True, False])
def test_memory_of_turns_is_a_few_times_what_the_limits_allow(has_ids):
    """The most turns that a message may have, which a few hundred bytes say."""
    limits = Limits(message_bytes=1 << 18, completions=8)
    count = limits.message_bytes // 8 // 8
    if has_ids:
        written = [episode(*[[1]] * count, index=at, end="turns") for at in range(8)]
    else:
        one = replace(text_only("x"), turns=(0,) * count, observed=bytes(2 * count - 2))
        written = [replace(one, index=at) for at in range(8)]
    data = encode(terms(tokenizer=b"t" * has_ids).message(3, tuple(written)))
    assert len(decode(data, limits).completions) == 8
    assert peak_of(data, limits) < most_memory(limits)
    with pytest.raises(WireError, match=r"turns came; at most 32767 are|bytes unpacked"):
        decode(data, replace(limits, message_bytes=limits.message_bytes - 1))


def test_no_memory_is_set_aside_for_turns_that_are_only_claimed():
    most = column(*[4096] * 2000)
    many = [episode([1], index=at) for at in range(2000)]
    for changes in ({"turn_counts": most}, {"turn_counts": most, "observed": bytes(2**21)}):
        data = framed(*many, **changes)
        assert peak_of(data, Limits(message_bytes=2**22)) < len(data) + 2**20


def test_broken_episodes_are_refused_and_nothing_else_happens(monkeypatch):
    monkeypatch.setitem(wire_kinds.KINDS, "batch", (wire_kinds.turns,))
    outcome = soak(400, seed=2, trace=False)
    assert outcome.broken == []
    for complaint in ("episodes of", ".. bytes were observed", "column turn_lengths", "the turns"):
        assert any(words.startswith(complaint) for words in outcome.refused), complaint
    assert outcome.kinds["turns", "accepted"] > 20
    assert soak(60, seed=3).peak_bytes <= most_memory(TIGHT)


if __name__ == "__main__":
    for name, (message, codec) in GOLDENS.items():
        (GOLDEN / f"{name}.ptlk").write_bytes(encode(message, codec=codec))
