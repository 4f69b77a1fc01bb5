"""The estimate of memory against what torch's allocator was asked for."""

from functools import cache

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from transformers import Gemma3ForCausalLM, Qwen2ForCausalLM

import qwen
from allocations import asked_of_torch
from potluck.builder.memory import (
    HEAP,
    MAPPED_BYTES,
    NO_GAPS,
    TOKENIZER_BYTES,
    TOKENIZERS,
    Prompts,
    bytes_together,
    memory_of,
)
from potluck.config import LoraConfig, NodeConfig, RunConfig, SamplingConfig
from potluck.model import LanguageModel, make_optimizer
from potluck.model.shape import shape_of
from potluck.model.training import add_adapter
from potluck.node.learning.batch import Batch
from potluck.node.learning.learner import Learner
from potluck.rollout.base import EngineSettings, RandomSampler, RolloutRequest
from potluck.rollout.hf import HFEngine
from potluck.tasks.table import JsonlOptions
from potluck.types import Completion, Problem

PROMPT, NEW, ROWS = 24, 40, 8
PARAMETERS = {"0.5B": 0.494e9, "1.5B": 1.54e9, "3B": 3.09e9}
"""As the Qwen2.5 technical report gives them."""


@pytest.fixture
def no_gaps(monkeypatch):
    """Count tensors alone, as ``asked_of_torch`` does."""
    monkeypatch.setattr("potluck.builder.memory.HEAP", NO_GAPS)


class Tokens:
    """A tokenizer whose every prompt is as long as its text says."""

    chat_template, eos_token_id = None, 0

    def __init__(self, vocabulary):
        self.vocabulary = vocabulary

    def get_vocab(self):
        return {str(i): i for i in range(self.vocabulary)}

    def __call__(self, text):
        return {"input_ids": [1] * int(text)}


def set_up(node, kind=Qwen2ForCausalLM, **shape):
    config = kind.config_class(
        **{"max_position_embeddings": 512, "tie_word_embeddings": True, "eos_token_id": 0} | shape
    )
    network = kind._from_config(
        config, attn_implementation="eager" if node.attention == "eager" else "sdpa"
    )
    if node.lora:
        network.to(getattr(torch, node.dtype))
    tokenizer = Tokens(config.vocab_size)
    policy = LanguageModel(network, tokenizer, dtype=getattr(torch, node.dtype))
    policy.stop_ids = frozenset()  # every completion is as long as it may be
    if node.lora:
        add_adapter(
            network, rank=node.lora.r, alpha=1, dropout=0, targets=node.lora.targets, seed=0
        )
    if node.gradient_checkpointing:
        policy.checkpoint_activations()
    run = RunConfig(
        name="memory",
        problems_per_round=2,
        group_size=ROWS // 2,
        sampling=SamplingConfig(max_new_tokens=NEW, max_total_tokens=512),
        node={"a": node},
    )
    memory = memory_of(run, "a", shape_of(config), Prompts(PROMPT, PROMPT), gpu=False)
    return policy, run, memory


def learning(policy, run, author="a"):
    """``author`` wrote every second completion."""
    node = run.node["a"]
    optimizer = make_optimizer(policy, node.optimizer, node.adam)
    learner = Learner(
        "a", policy, run.objective, optimizer, 1.0, 1.0,
        node.micro_batch_tokens,
    )  # fmt: skip
    tokens, logp = np.arange(NEW, dtype=np.int32), np.full(NEW, -1, np.float32)
    authors = ["a", author] * (ROWS // 2)
    completions = tuple(
        Completion("p", by, i, tokens, logp, "length") for i, by in enumerate(authors)
    )
    prompts = tuple(np.full(PROMPT, at // (ROWS // 2), np.int32) for at in range(ROWS))
    batch = Batch(
        completions, prompts, (tokens,) * ROWS, ((),) * ROWS,
        torch.full((ROWS, NEW), -1.0),
        torch.tensor([1.0, -1.0 if author == "a" else 1.0] * (ROWS // 2)),
        torch.ones(ROWS, NEW, dtype=torch.bool),
        torch.ones(ROWS, dtype=torch.int64),
        torch.tensor([by == "a" for by in authors]), torch.zeros(ROWS), torch.zeros(ROWS),
        ("",) * ROWS, torch.zeros(ROWS, dtype=torch.bool),
        authors.count("a"), authors.count("a") * NEW,
    )  # fmt: skip
    learner.learn(batch, lambda done, total: None)  # from now on the optimiser has its moments
    return asked_of_torch(lambda: learner.learn(batch, lambda done, total: None))


DEEP = {"vocab_size": 500, "hidden_size": 96, "num_hidden_layers": 6, "num_attention_heads": 6,
        "num_key_value_heads": 1, "intermediate_size": 512}  # fmt: skip
BROAD = {"vocab_size": 10_000, "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128}  # fmt: skip
NODE = NodeConfig(model="-", micro_batch_tokens=ROWS // 2 * (PROMPT + NEW))
LORA = replace(NODE, lora=LoraConfig(r=8))
SETTINGS = {
    "as it is": (DEEP, NODE),
    "recomputed": (DEEP, replace(NODE, gradient_checkpointing=True)),
    "bfloat16": (DEEP, replace(NODE, dtype="bfloat16")),
    "eager": (DEEP, replace(NODE, attention="eager")),
    "adapters, bfloat16": (DEEP, replace(LORA, dtype="bfloat16", gradient_checkpointing=True)),
    "a broad head": (BROAD, NODE),
    "a broad head of its own": (BROAD | {"tie_word_embeddings": False}, NODE),
    "a broad head, frozen": (BROAD, LORA),
}


@pytest.mark.usefixtures("no_gaps")
@pytest.mark.parametrize("name", SETTINGS)
def test_learning_takes_what_was_estimated(name):
    shape, node = SETTINGS[name]
    policy, run, memory = set_up(node, **shape)
    held = sum(p.numel() * p.element_size() for p in policy.network.parameters())
    assert memory.weights == held
    assert 0.94 <= memory.learning / learning(policy, run) <= 1.15


@pytest.mark.usefixtures("no_gaps")
@pytest.mark.parametrize("node", [NODE, replace(NODE, dtype="bfloat16"), LORA])
def test_norms_of_queries_keys_and_of_what_a_part_of_a_layer_returns_are_counted(node):
    # Gemma 3 has six norms in a layer, Qwen2 two.
    policy, run, memory = set_up(node, kind=Gemma3ForCausalLM, **DEEP | {"head_dim": 16})
    assert 0.94 <= memory.learning / learning(policy, run) <= 1.15


@pytest.mark.usefixtures("no_gaps")
def test_an_author_that_is_not_trusted_takes_a_gradient_of_its_own():
    # Two micro-batches of each author's.
    node = replace(NODE, micro_batch_tokens=ROWS // 4 * (PROMPT + NEW))
    policy, run, memory = set_up(node, **DEEP)
    both = replace(run, node={"a": node, "b": node})
    wary = replace(both, objective=replace(run.objective, trust="nobody"))
    opened = replace(both, swarm=replace(run.swarm, open=True))
    sizes = shape_of(policy.network.config), Prompts(PROMPT, PROMPT)
    estimated, same = (memory_of(each, "a", *sizes, gpu=False) for each in (wary, opened))
    trained = sum(p.numel() for p in policy.network.parameters())
    assert estimated.learning == same.learning == memory.learning + 4 * trained
    assert 0.94 <= estimated.learning / learning(policy, wary, author="b") <= 1.15


@pytest.mark.usefixtures("no_gaps")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_learning_takes_what_was_estimated_where_logits_come_in_chunks(dtype, monkeypatch):
    monkeypatch.setattr("potluck.model.policy.LOGITS_AT_ONCE", 2**18)
    policy, run, memory = set_up(replace(NODE, dtype=dtype), **BROAD)
    assert 0.94 <= memory.learning / learning(policy, run) <= 1.2


@pytest.mark.usefixtures("no_gaps")
@pytest.mark.parametrize("shape", [DEEP, BROAD], ids=["deep", "broad"])
def test_writing_takes_what_was_estimated(shape):
    policy, _, memory = set_up(NODE, **shape)
    engine = HFEngine(policy, EngineSettings(NEW, 512))
    # Of two lengths, so there is a mask and grouped heads are spread out.
    requests = [RolloutRequest(Problem(str(i), str(PROMPT - i), ""), ROWS // 2) for i in range(2)]
    draw = RandomSampler(torch.Generator().manual_seed(0))

    def write():
        engine.generate(requests, draw, author="a", progress=lambda done, total: None)

    assert 0.94 <= memory.writing / asked_of_torch(write) <= 1.1


@pytest.mark.parametrize("size", PARAMETERS)
def test_a_shape_has_the_published_number_of_weights(size):
    found = shape_of(qwen.config(size)).parameters
    assert found == pytest.approx(PARAMETERS[size], rel=0.005)


@cache
def middle():
    return shape_of(qwen.config("1.5B"))


def memory_with(config=None, **changes):
    node = replace(NodeConfig(model="-"), **changes)
    run = config or RunConfig(name="x", node={"a": node})
    return memory_of(run, "a", middle(), Prompts(100, 200))


def test_state_is_counted_by_hand():
    many = middle().parameters
    assert memory_with().state == 12 * many
    assert memory_with(optimizer="adamw-8bit").state == 6 * many
    # Queries have 1,536 outputs, values 256, in each of 28 layers.
    adapters = 28 * 128 * (1536 + 1536 + 1536 + 256)
    lora = memory_with(lora=LoraConfig(r=128), dtype="bfloat16")
    assert lora.state == 2 * many + 12 * adapters


def test_a_bfloat16_copy_to_write_is_counted_where_the_formats_differ():
    many = middle().parameters
    lora = {"lora": LoraConfig(), "dtype": "bfloat16", "sampling_dtype": "bfloat16"}
    same, full = memory_with(**lora), memory_with(sampling_dtype="bfloat16")
    assert full.writing - same.writing == 2 * many


def test_every_setting_that_spares_memory_spares_it_where_it_should():
    plain = memory_with()
    for change, part in [
        ({"gradient_checkpointing": True}, "learning"),
        ({"micro_batch_tokens": 1024}, "learning"),
        ({"lora": LoraConfig()}, "learning"),
        ({"sampling_rows": 16}, "writing"),
        ({"sampling_rows": 16}, "evaluating"),
        ({"optimizer": "adamw-8bit"}, "moments"),
    ]:
        assert getattr(memory_with(**change), part) < getattr(plain, part), change


def test_an_episode_may_fill_all_the_room_that_the_recipe_gives():
    node = {"a": NodeConfig(model="-", micro_batch_tokens=1)}  # a row at a time
    sampling = SamplingConfig(max_new_tokens=100, max_total_tokens=2000)

    def with_task(task):
        return memory_with(RunConfig(name="x", node=node, sampling=sampling, task=task))

    plain = with_task(JsonlOptions(path="problems.jsonl"))
    played = with_task(JsonlOptions(path="problems.jsonl", game="game.py:Game"))
    assert played.learning > plain.learning
    assert played.writing > plain.writing
    assert plain == memory_with(RunConfig(name="x", node=node, sampling=sampling))


def on(config=None, *, gpu, **changes):
    node = replace(NodeConfig(model="-"), **changes)
    return memory_of(
        RunConfig(name="x", node={"a": node}), "a", middle(), Prompts(100, 200), gpu=gpu
    )


def test_a_cpu_holds_tokenizers_and_a_gpu_does_not():
    assert on(gpu=True).tokenizers == 0
    assert on(gpu=False).tokenizers == TOKENIZERS * TOKENIZER_BYTES * 151_936
    assert on(gpu=False).state - on(gpu=True).state == on(gpu=False).tokenizers


def test_gaps_lie_between_small_tensors_of_a_cpu():
    # A row at a time: 8,960 x 4 bytes x 712 tokens are less than what is mapped.
    with_gaps = on(gpu=False, micro_batch_tokens=1)
    assert MAPPED_BYTES > 4 * 8960 * 712
    layers = 28 * 712 * (4 * (6 * 1536 + 2 * 1536 + 2 * 256 + 4 * 8960) + 4 * 12)
    assert HEAP.scatter == 1.5
    assert with_gaps.learning > layers * HEAP.scatter


def test_a_process_of_one_node_also_holds_a_tokenizer_of_each_other_one():
    node = on(gpu=False)
    apart = bytes_together([node, node, node], apart=True, overhead=0)
    assert apart == 3 * node.peak + 3 * 2 * TOKENIZER_BYTES * 151_936
    on_gpu = on(gpu=True)
    assert bytes_together([on_gpu, on_gpu], apart=True, overhead=0) == 2 * on_gpu.peak
