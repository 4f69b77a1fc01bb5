"""What the benchmarks count, and that their pieces run: their numbers are not tested here."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

import tiny

pytestmark = pytest.mark.page

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def found(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for name in ("arithmetic", "harness", "memory", "real_memory", "real_round"):
        sys.modules.pop(name, None)


def test_operations_and_reads_are_counted_by_hand():
    arithmetic = importlib.import_module("arithmetic")
    shape = arithmetic.Shape(
        body=10, body_trained=10, head=6, head_trained=6, attention=3, kept=5
    )  # fmt: skip
    # Writing. The prompt: 2 positions through the body, one through the head, 1 + 2 pairs of
    # positions. Of 3 tokens two are fed, which see 3 and 4 positions; of 1 token none is.
    prompt = 2 * 2 * 10 + 2 * 6 + 4 * 3 * (1 + 2)
    three = 2 * 2 * (10 + 6) + 4 * 3 * (3 + 4)
    assert arithmetic.writing(shape, 2, [1]) == prompt
    assert arithmetic.writing(shape, 2, [3, 1, 3]) == prompt + 2 * three
    # A batch reads all weights once a step, and each row what it has written. The longest has 3
    # tokens. After a prompt of 2: 3 and 4 positions for it, 3 for the pair; after one of 4 none.
    read = arithmetic.numbers_read(shape, [2, 4], [[3, 2], [1]])
    assert read == (10 + 6) * 3 + 5 * (3 + 4 + 3)
    # Learning costs three forward passes, and checkpointing a fourth. 2 read and 3 written: 4
    # positions through the body, 3 through the head, 1 + 2 + 3 + 4 pairs.
    body, head, attention = 2 * 4 * 10, 2 * 3 * 6, 4 * 3 * 10
    whole = 3 * (body + head + attention)
    plain, twice = (arithmetic.learning(shape, 2, 3, checkpointing=on) for on in (False, True))
    assert (plain.model, plain.executed) == (whole, whole + head)
    assert (twice.model, twice.executed) == (whole, whole + head + body + attention)


def test_a_shape_counts_linear_layers_and_a_tied_head_once():
    network = tiny.policy(tie_word_embeddings=True).network
    network.model.layers[0].mlp.up_proj.weight.requires_grad_(False)
    seen = importlib.import_module("arithmetic").shape_of(network)
    # Query and output 16 x 16, key and value 16 x 8, three of 16 x 32 in the MLP.
    layer, head = 2 * 16 * 16 + 2 * 16 * 8 + 3 * 16 * 32, 16 * network.config.vocab_size
    assert (seen.body, seen.body_trained) == (2 * layer, 2 * layer - 16 * 32)
    assert (seen.head, seen.head_trained, seen.attention) == (head, head, 2 * 2 * 8)
    assert seen.kept == 2 * 2 * 8  # of a position: keys and values, two layers, one head of 8


def test_a_round_is_measured():
    real_round = importlib.import_module("real_round")
    models = {n: real_round.qwen(16, at, 2, 1, 16, 40) for at, n in ((1, "small"), (2, "large"))}
    scale = real_round.Scale(
        models=models, problems=6, group_size=2, new_tokens=4, prompt=5, micro_batch_tokens=32,
        product=16,
    )  # fmt: skip
    parsed = real_round.parse(["--device", "cpu", "--rounds", "2"])
    phases, ceiling = real_round.measure(scale, parsed)
    names = ["write", "exchange", "grade", "learn"]
    assert [(p.round, p.node, p.name) for p in phases] == [
        (round, node, name) for round in (0, 1) for node in ("small", "large") for name in names
    ]
    assert list(ceiling.flops) == [parsed.dtype]
    for phase in phases:
        assert phase.seconds > 0
        if used := phase.used:
            assert used.peak_gib >= used.before_gib > 0
            assert used.tokens_per_s == used.tokens / phase.seconds
            share = used.operations / phase.seconds / ceiling.flops[parsed.dtype]
            assert used.share_of_ceiling == share
            assert used.executed_share >= share
        if phase.name == "write":
            assert phase.used.rows == 6
            assert phase.used.memory_share > 0
        if phase.name == "learn":  # of pairs, about half are paid alike and teach nothing
            assert 0 < phase.used.rows < 12
            assert phase.used.memory_share is None
    text = real_round.as_markdown(real_round.report(parsed, phases, ceiling))
    assert "small run on a CPU" in text
    assert text.count("\n| ") == 1 + len(phases)


def test_both_paths_of_the_memory_benchmark_compute_one_gradient(monkeypatch):
    memory = importlib.import_module("memory")
    network = tiny.policy(tie_word_embeddings=True, sharpness=1.0).network
    at_once = 3 * network.config.vocab_size
    monkeypatch.setattr("potluck.model.policy.LOGITS_AT_ONCE", at_once)
    gradients = []
    for path in ("plain", "chunked", "body", "alone"):
        network.zero_grad()
        torch.manual_seed(1)
        memory.prepare(path, network, rows=2, tokens=7)()
        gradients.append([None if p.grad is None else p.grad.clone() for p in network.parameters()])
    plain, chunked, *parts = gradients
    torch.testing.assert_close(chunked, plain)
    assert all(any(g is not None and g.any() for g in each) for each in (plain, *parts))


def test_memory_of_a_node_is_measured_phase_by_phase_beside_its_estimate(tmp_path):
    real_memory = importlib.import_module("real_memory")
    tiny.save(tmp_path / "a")
    setting = real_memory.Setting(
        models=("a",), group_size=4, prompt=30, new_tokens=4, micro_batch_tokens=80, evaluated=2
    )
    rows = list(real_memory.table_of([setting], tmp_path, most_gib=2.0))
    assert [row[4] for row in rows] == ["writing", "learning", "evaluation", "all"]
    for *_, estimate, peak, ratio in rows:  # nearly all of it is the process
        assert 0.3 < float(peak) < 0.8
        assert float(ratio) == pytest.approx(float(estimate) / float(peak), abs=0.02)
    none_fits = list(real_memory.table_of([setting], tmp_path, most_gib=0.1))
    assert [row[-2:] for row in none_fits] == 4 * [("-", "-")]


def test_settings_are_drawn_by_lot():
    real_memory = importlib.import_module("real_memory")
    first, again, other = (real_memory.drawn(5, seed, ["a", "b"]) for seed in (1, 1, 2))
    assert first == again != other
