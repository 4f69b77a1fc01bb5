"""What a token costs on the line, the seal included: the promises of docs/wire.md."""

import importlib
import sys
from pathlib import Path

import pytest

from potluck.exchange import decode, encode

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SHARES = ["digits-small, 4 nodes, horizontal"]


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("wire")
    finally:
        sys.path.remove(str(BENCHMARKS))
        for name in ("wire", "harness"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def batches(bench):
    return bench.synthetic_batches() | bench.written_batches("digits-small")


@pytest.mark.parametrize("name", ["Zipf", *SHARES])
def test_exact_costs_5_bytes_a_token_and_compact_2_and_a_half(bench, batches, name):
    for codec, most in bench.TARGET_BYTES.items():
        assert bench.bytes_a_token(batches[name], codec) <= most


@pytest.mark.parametrize("name", ["Zipf", *SHARES])
def test_ids_alone_cost_2_bytes_a_token_and_a_third_of_exact(bench, batches, name):
    cost = bench.bytes_a_token(bench.ids_alone(batches[name]), "exact")
    assert cost <= bench.IDS_ALONE_BYTES
    assert cost < 0.36 * bench.bytes_a_token(batches[name], "exact")


@pytest.mark.parametrize("codec", ["exact", "compact"])
def test_a_turn_costs_4_bytes_more_than_its_tokens(bench, batches, codec):
    """Two of them are the digest of what was observed."""
    assert 2 < bench.bytes_a_turn(batches["Zipf"], codec) < bench.TURN_BYTES
    assert decode(encode(sent := bench.in_turns(batches["Zipf"]), codec="exact")) == sent


def test_a_text_costs_2_bytes_a_token_beside_its_ids_or_alone(bench):
    """English of 3.7 bytes a token."""
    forms = bench.prose_batches()
    tokens = bench.tokens_of(forms["prose"])
    assert 3 < sum(len(c.text) for c in forms["prose, texts alone"].completions) / tokens < 5
    cost = {name: bench.sealed_size(batch, "exact") / tokens for name, batch in forms.items()}
    assert cost["prose, texts alone"] < 2
    for name in ("prose", "prose, ids alone"):
        both = "prose, ids and texts" + ", no log-probs" * (name != "prose")
        assert 1 < cost[both] - cost[name] < 2
    for batch in forms.values():
        assert decode(encode(batch)) == batch
