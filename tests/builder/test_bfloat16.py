"""What bfloat16 costs on this machine's processor, or would save. Nothing is timed here but that
something is measured: the tests say how fast it is."""

import io
import math

import pytest
import torch
from rich.console import Console

import potluck
import tiny
from displays import Listener
from potluck import STARTING_RECIPE
from potluck.builder import bfloat16
from potluck.builder.bfloat16 import (
    advice_on_bfloat16,
    doubts_on_bfloat16,
    doubts_on_evaluation,
    times_as_long,
)
from potluck.builder.plan import check
from potluck.evaluation.compare import evaluate_models
from potluck.evaluation.request import EvaluationRequest
from potluck.launch.in_process import run

LEARNS, WRITES = "node.large.dtype=bfloat16", "node.large.sampling_dtype=bfloat16"
TWO = ("node.small.device=cpu", "node.large.device=cpu")
VLLM = "node.large.engine={name='vllm', url='http://127.0.0.1:8000', model='m'}"
TINKER = (
    "node.large={model='m', lora={}, engine={name='tinker', url='http://127.0.0.1:1', "
    "tokenizer='builtin:digits-small'}}",
    "objective.weight=likelihood",
)


@pytest.fixture
def processor(monkeypatch):
    """A function that says how many times as long bfloat16 takes; it returns what was asked."""

    def takes(**times):
        asked = []

        def told(phase):
            asked.append(phase)
            return times[phase]

        monkeypatch.setattr(bfloat16, "times_as_long", told)
        return asked

    return takes


def recipe(*overrides):
    return potluck.load(STARTING_RECIPE, [*TWO, *overrides])


def doubts(*overrides):
    return list(doubts_on_bfloat16(recipe(*overrides)))


def advice(*overrides):
    return list(advice_on_bfloat16(recipe(*overrides)))


def test_where_bfloat16_is_slower_the_nodes_that_compute_in_it_are_told_by_the_key(processor):
    processor(learning=16.4, writing=4.04)
    learning = (
        'large: dtype = "bfloat16": matrix products of learning take this processor 16 times as '
        'long as in float32; set dtype = "float32"'
    )
    writing = (
        'large: sampling_dtype = "bfloat16": matrix products of writing take this processor 4.0 '
        'times as long as in float32; set sampling_dtype = "float32"'
    )
    assert doubts(LEARNS) == [learning]
    assert doubts(WRITES) == [writing]
    assert doubts(LEARNS, WRITES) == [learning, writing]
    (both,) = doubts(LEARNS, "node.small.dtype=bfloat16")
    assert both == learning.replace("large:", "small, large:")
    assert doubts() == []
    assert advice() == advice(WRITES) == []


def test_where_bfloat16_is_faster_the_nodes_that_write_in_float32_are_told(processor):
    processor(learning=0.2, writing=1 / 1.8)
    (line,) = advice()
    assert line.startswith('small, large: sampling_dtype = "bfloat16" would be faster: ')
    assert "writing take this processor 1.8 times as long in float32. It rounds log-prob" in line
    (line,) = advice(WRITES, LEARNS)
    assert line.startswith("small: sampling_dtype")
    assert advice(WRITES, "node.small.sampling_dtype=bfloat16") == []
    assert doubts(LEARNS, WRITES) == []


@pytest.mark.parametrize("times", [None, 1.29, 1.0, 1 / 1.29])
def test_nothing_is_told_where_the_formats_are_about_as_fast_or_nobody_knows(processor, times):
    processor(learning=times, writing=times)
    assert doubts(LEARNS, WRITES) == advice() == advice(LEARNS) == []
    assert list(doubts_on_evaluation("bfloat16", "cpu")) == []


@pytest.mark.parametrize("times", [16.0, 0.1])
def test_of_gpus_nothing_is_told_or_measured(processor, monkeypatch, times):
    asked = processor(learning=times, writing=times)
    both = [
        f"node.{name}.device={device}" for name, device in (("small", "auto"), ("large", "cuda:1"))
    ]
    monkeypatch.setattr(bfloat16, "auto_device", lambda: "cuda")
    assert doubts(LEARNS, WRITES, *both) == advice(*both) == []
    assert list(doubts_on_evaluation("bfloat16", "auto")) == []
    assert asked == []
    # The same nodes where there is none.
    monkeypatch.setattr(bfloat16, "auto_device", lambda: "cpu")
    found = [*doubts("node.small.dtype=bfloat16", *both), *advice(*both)]
    assert [line.partition(":")[0] for line in found] == ["small"]


@pytest.mark.parametrize("times", [16.0, 0.1])
def test_of_what_a_server_writes_or_trains_nothing_is_told(processor, times):
    processor(learning=times, writing=times)
    assert [line for line in advice(VLLM) if "large" in line] == []
    assert advice(*TINKER, "node.small.device=cuda") == doubts(*TINKER) == []
    # A node with a vLLM server learns here all the same.
    assert [line.partition(" =")[0] for line in doubts(VLLM, LEARNS)] == (
        ["large: dtype"] if times > 1 else []
    )


def test_only_what_somebody_wants_to_know_is_measured(processor):
    asked = processor(learning=16.0, writing=4.0)
    doubts()
    assert asked == []
    doubts(LEARNS)
    assert asked == ["learning"]
    advice()
    assert asked == ["learning", "writing"]


def test_the_check_has_the_lines_and_a_plan_for_another_machines_gpu_has_not(processor):
    def told(*overrides, **options):
        file = io.StringIO()
        Console(file=file, width=80).print(check(recipe(*overrides), **options))
        return " ".join(file.getvalue().split())

    processor(learning=16.0, writing=0.5)
    assert 'large: dtype = "bfloat16": matrix products of learning' in (out := told(LEARNS))
    assert 'small, large: sampling_dtype = "bfloat16" would be faster' in out
    assert "matrix products" not in told(LEARNS, gpu="h100")


def test_a_run_begins_with_the_doubt_and_measures_nothing_where_all_is_float32(
    processor, tiny_models, tmp_path
):
    class Says(Listener):
        def __init__(self):
            self.said = []

        def say(self, text):
            self.said.append(text)

    asked, shown = processor(learning=16.0, writing=0.5), Says()
    run(tiny.recipe(tiny_models, *TWO, "rounds=1"), tmp_path / "plain", display=shown)
    assert asked == []
    assert not any("matrix products" in text for text in shown.said)
    run(tiny.recipe(tiny_models, *TWO, LEARNS, "rounds=1"), tmp_path / "run", display=shown)
    (line,) = [text for text in shown.said if "matrix products" in text]
    assert line.startswith('large: dtype = "bfloat16"')


def test_an_evaluation_says_so_before_it_answers(processor, desk, tiny_models):
    processor(writing=4.0)

    def told(dtype):
        said = []
        asked = {"task": "digits", "dtype": dtype, "device": "cpu", "split": "validation"}
        few = ["evaluation.problems=2", "evaluation.max_new_tokens=4"]
        request = EvaluationRequest(tiny_models["small"], overrides=few, **asked)
        evaluate_models(request, progress=lambda *_: said.append("answers"), say=said.append)
        return said

    line = (
        "--dtype bfloat16: matrix products of writing take this processor 4.0 times as long as in "
        "float32; --dtype float32 is faster"
    )
    assert told("bfloat16")[:2] == [line, "answers"]
    assert set(told("float32")) == {"answers"}


# The measurement.


@pytest.mark.parametrize("phase", ["writing", "learning"])
def test_a_processor_is_measured_once_and_no_number_is_drawn(phase):
    before = torch.random.get_rng_state()
    times_as_long.cache_clear()
    times = times_as_long(phase)
    assert 0 < times < math.inf
    assert times_as_long(phase) == times
    assert times_as_long.cache_info().misses == 1
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_fastest_time_of_each_format_counts(monkeypatch):
    """With a clock on which bfloat16 takes 6 s at best, and float32 2."""
    lasts = {torch.float32: iter([9, 2, 3]), torch.bfloat16: iter([60, 7, 6])}
    now = [0.0]

    def product(x, weight, gradient):
        assert (x.dtype, weight.dtype, gradient.dtype) == (x.dtype,) * 3
        now[0] += next(lasts[x.dtype])

    monkeypatch.setattr(bfloat16.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(bfloat16, "ENOUGH_S", 100)
    monkeypatch.setattr(bfloat16, "REPEATS", 3)
    assert bfloat16._measured((product,)) == 3.0


def test_a_slow_processor_is_tried_twice_and_no_more(monkeypatch):
    now, tried = [0.0], []

    def product(x, weight, gradient):
        tried.append(x.dtype)
        now[0] += 1

    monkeypatch.setattr(bfloat16.time, "perf_counter", lambda: now[0])
    assert bfloat16._measured((product,)) == 1.0
    assert len(tried) == 4


@pytest.mark.parametrize("wrong", ["no format", "no clock"])
def test_what_cannot_be_measured_is_not_known_and_no_error(monkeypatch, wrong):
    def refuse(x, weight, gradient):
        raise RuntimeError("\"addmm\" not implemented for 'BFloat16'")

    if wrong == "no format":
        monkeypatch.setitem(bfloat16.PRODUCTS, "writing", (refuse,))
    else:
        monkeypatch.setattr(bfloat16.time, "perf_counter", lambda: 0.0)
    assert times_as_long.__wrapped__("writing") is None


@pytest.mark.parametrize("found", [0.0, math.inf, math.nan])
def test_what_is_no_number_of_times_is_not_told(monkeypatch, found):
    monkeypatch.setattr(bfloat16, "_measured", lambda products: found)
    assert times_as_long.__wrapped__("writing") is None
