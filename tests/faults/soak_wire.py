"""A million hostile messages: nothing leaves the readers but a message or a WireError.

    PYTHONPATH=src:tests python tests/faults/soak_wire.py [--messages 100000] [--first 0] [--seed 0]

``wire_kinds.py`` has the kinds. What is damaged later fails at its signature, so a batch is also
read without one. Message ``n`` depends on the seed and ``n`` alone. So a run can be split, and one
message can be made again (``--first n --messages 1``). A million take 40 minutes of one core.

It says what became of each kind, what left a reader that is no WireError (exit code 1 if anything
did), what was accepted beyond a limit, and the most memory that a message took.
"""

import argparse
import math
import re
import sys
import tracemalloc
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from faults.wire_kinds import CHALLENGE, KINDS, ROUND
from fuzz import KEY
from nouns import terms
from potluck.episode import MOST_TURNS
from potluck.exchange import Limits, WireError, decode, decode_round, encode
from potluck.exchange.keys.keys import BATCH, verify, without_signature
from potluck.exchange.protocol.signed import (
    MAX_OFFERS,
    STATUS,
    WHAT,
    Announcement,
    SignedStatus,
    read_signed,
    split_answer,
)
from potluck.reports.status import MOST_AUTHORS

TIGHT = Limits(message_bytes=1 << 16, completions=16, tokens=1000, vocabulary=50, text_bytes=2000)
KIND_WEIGHTS = {"batch": 16, "announcement": 2, "answer": 1, "page": 2, "status": 2}
"""How often each is drawn."""


def most_memory(limits):
    """Bytes that a reader may hold while it reads one message, by docs/wire.md."""
    text_bytes = min(limits.message_bytes, limits.completions * limits.text_bytes)
    return 4 * limits.message_bytes + 4 * text_bytes + 1024 * limits.completions + (1 << 16)


@dataclass
class Outcome:
    messages: int = 0
    kinds: Counter = field(default_factory=Counter)
    """Messages by the kind's name and what became of them."""
    refused: Counter = field(default_factory=Counter)
    """By the first words of the complaint, without its numbers and names."""
    reasons: set = field(default_factory=set)
    admitted: int = 0
    broken: list = field(default_factory=list)
    """(number, kind, error) where a reader raised no WireError, or accepted more than a limit."""
    peak_bytes: int = 0
    """The most that one batch took while it was read with the limits TIGHT."""


def _read_batch(signed, limits):
    got = decode(signed, limits)
    assert len(got.completions) <= limits.completions, "too many completions"
    for completion in got.completions:
        count, text = len(completion.token_T), completion.text
        assert (text is None) <= count <= limits.tokens, "length"
        assert text is None or len(text.encode()) <= limits.text_bytes, "text"
        below = 2**31 if got.has_texts else limits.vocabulary
        assert not count or 0 <= completion.token_T.min() <= completion.token_T.max() < below, "id"
        if completion.logp_T is not None and count:
            assert all(map(math.isfinite, completion.logp_T)), "log-probability"
            assert completion.logp_T.max() <= 0, "log-probability"
        assert bool(completion.turns) == bool(got.completions[0].turns), "of both kinds"
        assert len(completion.turns) <= MOST_TURNS, "too many turns"
    turns = sum(len(c.turns) for c in got.completions)
    assert 8 * turns <= limits.message_bytes, "too many turns in all"
    return got


def _read_signed(signed):
    got = _read_batch(verify(BATCH, signed, KEY.public), TIGHT)
    terms(got.sender, run=got.run, limits=TIGHT).accept(got.sender, got.round, got)


def _read_tight(signed):
    got = _read_batch(without_signature(signed), TIGHT)
    terms().accept("north", got.round, got)


def _read_and_write_again(signed):
    got = decode(without_signature(signed))
    assert decode(encode(got)) == got, "not what it was"


def _read_announcement(signed):
    """As a node hears it: before its signature, which a flood would cost more, and behind it."""
    got = read_signed(Announcement, signed, run="run", node="north")
    rounds = [offer.round for offer in got.offers()]
    verify(WHAT, signed, got.public)
    assert len(rounds) <= MAX_OFFERS, "too many offers"
    assert rounds == sorted(set(rounds)), "rounds"
    assert max(rounds, default=0) < 2**31, "round"


def _read_answer(data):
    _read_announcement(split_answer(data, CHALLENGE))


def _read_status(signed):
    got = read_signed(SignedStatus, signed, run="run", node="north")
    verify(STATUS, signed, got.public)
    assert len(got.line.authors) <= MOST_AUTHORS, "too many authors"
    for part in (got.line, *got.line.authors.values()):
        values = [getattr(part, name) for name in part.__struct_fields__]
        assert all(math.isfinite(v) for v in values if isinstance(v, float)), "number"
        assert all(0 <= v < 2**53 for v in values if isinstance(v, int)), "count"


def _read_page(data):
    got = decode_round(data, run="run", round=ROUND, node="north")
    assert max(got.late, default=0) < 2**31, "round"  # at pace "free" a member may be far ahead


READERS = {
    "batch": (_read_signed, _read_tight, _read_and_write_again),
    "announcement": (_read_announcement,),
    "answer": (_read_answer,),
    "page": (_read_page,),
    "status": (_read_status,),
}
LIMITED = (_read_signed, _read_tight)
"""Readers with the limits TIGHT; what is larger is not fetched, so it takes no reader's memory."""


def soak(messages, seed, *, first=0, trace=True, say=None):
    """Reads the messages from number ``first`` on; nothing that a reader raises leaves this."""
    outcome = Outcome()
    if trace:  # once: with a start for each reading the process grew without end
        tracemalloc.start()
    for number in range(first, first + messages):
        generator = Random(f"{seed}/{number}")
        (claim,) = generator.choices(list(KIND_WEIGHTS), list(KIND_WEIGHTS.values()))
        make = generator.choice(KINDS[claim])
        data = make(generator)
        outcome.messages += 1
        admitted = 0
        for read in READERS[claim]:
            before = _begin(trace)
            try:
                read(data)
            except WireError as error:
                outcome.refused[_kind(str(error))] += 1
                outcome.reasons.add(error.reason)
            except Exception as error:
                outcome.broken.append((number, make.__name__, f"{type(error).__name__}: {error}"))
            else:
                admitted += 1
            if trace and read in LIMITED and len(data) <= TIGHT.message_bytes:
                used = tracemalloc.get_traced_memory()[1] - before
                outcome.peak_bytes = max(outcome.peak_bytes, used)
        outcome.admitted += admitted
        outcome.kinds[make.__name__, "accepted" if admitted else "refused"] += 1
        if say and outcome.messages % 10_000 == 0:
            say(f"{outcome.messages} read, {len(outcome.broken)} broke a reader")
    if trace:
        tracemalloc.stop()
    return outcome


def _begin(trace):
    if not trace:
        return 0
    tracemalloc.reset_peak()
    return tracemalloc.get_traced_memory()[0]


def _kind(complaint):
    words = re.sub(r"'.*?'|b'.*?'|-?\b\d\S*", "..", complaint).split()
    return " ".join(words[:5])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    outcome = soak(
        chosen.messages,
        chosen.seed,
        first=chosen.first,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    bound = most_memory(TIGHT)
    print(f"{outcome.messages} messages from {chosen.first} of seed {chosen.seed}")
    print(f"{outcome.refused.total()} readings refused, {outcome.admitted} accepted")
    print(f"{len(outcome.broken)} broke a reader: {outcome.broken[:5]}")
    print(f"at most {outcome.peak_bytes:,} bytes for one batch; allowed {bound:,}")
    for name in sorted({name for name, _ in outcome.kinds}):
        refused, accepted = (outcome.kinds[name, each] for each in ("refused", "accepted"))
        print(f"  {name:20} {refused:8} refused {accepted:8} accepted by a reader")
    for words, times in outcome.refused.most_common():
        print(f"  {times:8}  {words} ...")
    return 1 if outcome.broken or outcome.peak_bytes > bound else 0


if __name__ == "__main__":
    sys.exit(main())
