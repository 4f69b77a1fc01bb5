"""A hundred thousand broken messages: nothing leaves the reader but a message or a WireError.

    PYTHONPATH=src:tests python tests/faults/soak_wire.py [--messages 100000] [--seed 0]

Every other one was broken before it was compressed and signed. What is damaged later fails at
its signature, so it is also read without one. Says what became of them, and the most memory that
one of them took.
"""

import argparse
import re
import resource
import sys
import time
import tracemalloc
from collections import Counter
from dataclasses import dataclass, field

from fuzz import KEY, broken_messages
from potluck.exchange import Limits, WireError, decode, encode
from potluck.exchange.keys.keys import verify, without_signature

TIGHT = Limits(message_bytes=1 << 16, completions=16, tokens=1000, vocabulary=50)


def most_memory(limits):
    """Bytes that a reader may hold while it reads one message, by docs/wire.md."""
    return 4 * limits.message_bytes + 1024 * limits.completions + (1 << 16)


@dataclass
class Outcome:
    messages: int = 0
    refused: Counter = field(default_factory=Counter)
    """By the first words of the complaint, without its numbers and names."""
    reasons: set = field(default_factory=set)
    admitted: int = 0
    peak_bytes: int = 0
    """The most that one message took while it was read."""


def soak(messages, seed, *, trace=True, say=None):
    """Reads broken messages; whatever else than a WireError leaves the reader leaves this too."""
    outcome = Outcome()
    public = KEY.public
    readers = (
        lambda signed: decode(verify(b"batch", signed, public), TIGHT),
        lambda signed: decode(without_signature(signed), TIGHT),
        lambda signed: decode(without_signature(signed)),
    )
    if trace:
        tracemalloc.start()
    try:
        for signed in broken_messages(seed, messages):
            outcome.messages += 1
            for read in readers:
                before = _begin(trace)
                try:
                    got = read(signed)
                except WireError as error:
                    outcome.refused[_kind(str(error))] += 1
                    outcome.reasons.add(error.reason)
                else:
                    outcome.admitted += 1
                    assert decode(encode(got)) == got
                if trace and read is not readers[2]:
                    used = tracemalloc.get_traced_memory()[1] - before
                    outcome.peak_bytes = max(outcome.peak_bytes, used)
            if say and outcome.messages % 10_000 == 0:
                say(f"{outcome.messages} read")
    finally:
        if trace:
            tracemalloc.stop()
    return outcome


def _kind(complaint):
    words = re.sub(r"'.*?'|b'.*?'|-?\b\d\S*", "..", complaint).split()
    return " ".join(words[:5])


def _begin(trace):
    if not trace:
        return 0
    tracemalloc.reset_peak()
    return tracemalloc.get_traced_memory()[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    start = time.perf_counter()
    rss_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = soak(chosen.messages, chosen.seed, say=lambda line: print(line, file=sys.stderr))
    rss_after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    bound = most_memory(TIGHT)
    print(f"{outcome.messages} messages in {time.perf_counter() - start:.0f} s, each read 3 times")
    print(f"{outcome.refused.total()} refused, {outcome.admitted} still or again sound")
    print(
        f"at most {outcome.peak_bytes:,} bytes for one message with limits of "
        f"{TIGHT.message_bytes:,}; allowed {bound:,}"
    )
    print(f"resident set: {rss_before / 1024:.0f} MiB before, {rss_after / 1024:.0f} MiB at most")
    for words, times in outcome.refused.most_common():
        print(f"  {times:8}  {words} ...")
    return 0 if outcome.peak_bytes <= bound else 1


if __name__ == "__main__":
    sys.exit(main())
