"""What a token costs on the line, the seal included: the promises of docs/wire.md."""

import importlib
import sys
from pathlib import Path

import pytest

from potluck.exchange import decode, encode

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


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
def batch(bench):
    return bench.synthetic_batches()["Zipf"]


def test_exact_costs_5_bytes_a_token_and_compact_2_and_a_half(bench, batch):
    for codec, most in bench.TARGET_BYTES.items():
        assert bench.bytes_a_token(batch, codec) <= most


def test_ids_alone_cost_2_bytes_a_token_and_a_third_of_exact(bench, batch):
    cost = bench.bytes_a_token(bench.ids_alone(batch), "exact")
    assert cost <= bench.IDS_ALONE_BYTES
    assert cost < 0.36 * bench.bytes_a_token(batch, "exact")


@pytest.mark.parametrize("codec", ["exact", "compact"])
def test_a_turn_costs_4_bytes_more_than_its_tokens(bench, batch, codec):
    """Two of them are the digest of what was observed."""
    assert 2 < bench.bytes_a_turn(batch, codec) < bench.TURN_BYTES
    assert decode(encode(sent := bench.in_turns(batch), codec="exact")) == sent


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
