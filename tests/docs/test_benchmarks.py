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
    for name in ("arithmetic", "harness", "memory", "real_round"):
        sys.modules.pop(name, None)


def shape():
    return importlib.import_module("arithmetic").Shape(
        body=10, body_trained=10, head=6, head_trained=6, attention=3, kept=5
    )


def test_writing_reads_a_prompt_once_and_feeds_every_token_but_the_last():
    writing = importlib.import_module("arithmetic").writing
    # The prompt: 2 positions through the body, one through the head, 1 + 2 pairs of positions.
    prompt = 2 * 2 * 10 + 2 * 6 + 4 * 3 * (1 + 2)
    # Of 3 tokens two are fed, which see 3 and 4 positions; of 1 token none is.
    three = 2 * 2 * (10 + 6) + 4 * 3 * (3 + 4)
    assert writing(shape(), 2, [1]) == prompt
    assert writing(shape(), 2, [3, 1, 3]) == prompt + 2 * three


def test_a_batch_reads_all_weights_once_a_step_and_each_row_what_it_has_written():
    read = importlib.import_module("arithmetic").numbers_read
    # The longest has 3 tokens. After a prompt of 2: 3 and 4 positions for it, 3 for the pair; after
    # a prompt of 4 one token needs none.
    assert read(shape(), [2, 4], [[3, 2], [1]]) == (10 + 6) * 3 + 5 * (3 + 4 + 3)


def test_learning_costs_three_forward_passes_and_checkpointing_a_fourth():
    learning = importlib.import_module("arithmetic").learning
    # 2 read and 3 written: 4 positions through the body, 3 through the head, 1 + 2 + 3 + 4 pairs.
    body, head, attention = 2 * 4 * 10, 2 * 3 * 6, 4 * 3 * 10
    whole = 3 * (body + head + attention)
    plain = learning(shape(), 2, 3, checkpointing=False)
    twice = learning(shape(), 2, 3, checkpointing=True)
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
    scale = real_round.Scale(
        models={
            "small": real_round.qwen(16, 1, 2, 1, 16, 40),
            "large": real_round.qwen(16, 2, 2, 1, 16, 40),
        },
        problems=6,
        group_size=2,
        new_tokens=4,
        prompt=5,
        micro_batch_tokens=32,
        product=16,
    )
    parsed = real_round.parse(["--device", "cpu", "--rounds", "2"])
    phases, ceiling = real_round.measure(scale, parsed)
    names = ["write", "exchange", "grade", "learn"]
    assert [(p.round, p.node, p.name) for p in phases] == [
        (round, node, name) for round in (0, 1) for node in ("small", "large") for name in names
    ]
    assert list(ceiling.flops) == [parsed.dtype]
    for phase in phases:
        assert phase.seconds > 0
        if phase.name in ("write", "learn"):
            used = phase.used
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
