"""Everything that a recipe chooses by name promises the same; every recipe that ships is read."""

from pathlib import Path
from typing import get_args

import pytest

import potluck
from potluck.config.run import AnyEngine
from potluck.model.loading import locate
from potluck.rollout.options import EngineOptions, HFOptions, TextOptions, VllmOptions
from potluck.tasks.named import TASKS

ENGINES = {str(options.__struct_config__.tag): options for options in get_args(AnyEngine)}
RECIPES = sorted((Path(__file__).parents[2] / "recipes").rglob("*.toml"))
VLLM = VllmOptions(url="http://x", model="x", tolerance=0.5)


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_does_what_an_engine_must(name):
    verbs = ["build", "log_probability_tolerance"]
    base = EngineOptions
    if not ENGINES[name].has_weights:
        verbs, base = ["open"], TextOptions
    if ENGINES[name].trains:
        verbs = ["reads", "uses"]
    for verb in verbs:
        assert getattr(ENGINES[name], verb) is not getattr(base, verb)


def test_engines_tell_whether_they_have_weights_their_memory_and_tolerance():
    assert {name for name in ENGINES if not ENGINES[name].has_weights} == {"openai", "file"}
    for elsewhere in (VLLM, ENGINES["file"](path="x")):
        assert elsewhere.bytes_needed(None) == 0
    assert VLLM.log_probability_tolerance("float32") == 0.5
    tolerance = HFOptions().log_probability_tolerance
    assert tolerance("float32") < tolerance("bfloat16")


def test_the_hub_is_named_by_a_task_that_reads_it():
    options = {
        "gsm8k": {"path": "here"},
        "math500": {"path": "here"},
        "hub": {"dataset": "a/b"},
        "reasoning-gym": {"dataset": "gcd"},
    }
    with_path = {name: TASKS[name](**options.get(name, {})).hub_name for name in TASKS}
    assert {name for name, hub in with_path.items() if hub} == {"hub"}
    assert TASKS["gsm8k"]().hub_name == "openai/gsm8k"
    assert TASKS["math500"]().hub_name == "HuggingFaceH4/MATH-500"


@pytest.mark.parametrize("path", [*RECIPES, potluck.STARTING_RECIPE], ids=lambda path: path.name)
def test_a_recipe_that_ships_is_read_and_its_built_in_models_are_there(path):
    config = potluck.load(path)
    for node in config.node.values():
        if node.model.startswith("builtin:"):
            assert (Path(locate(node.model)) / "model.safetensors").exists()
