"""The script that makes the base models of the tiny families."""

import importlib
import random
import sys
import tomllib
from pathlib import Path

import pytest
import torch

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # it sets this, if nobody has
    threads = torch.get_num_threads()
    yield importlib.import_module("make_experiment_models")
    torch.set_num_threads(threads)


def test_it_makes_the_models_that_the_recipes_name(script):
    named = set()
    for recipe in (REPOSITORY / "experiments" / "tiny").glob("*.toml"):
        nodes = tomllib.loads(recipe.read_text())["node"].values()
        named |= {Path(node["model"]).name for node in nodes}
    assert set(script.BASES) == named


@pytest.mark.parametrize("name", ["digits-small", "chain-small-terse"])
def test_a_model_is_made_whole_and_the_same_each_time(script, tmp_path, monkeypatch, name):
    whole = script.BASES[name]
    tiny = script.Base(16, 1, whole.notation, steps=2, other_share=0.5)
    monkeypatch.setitem(script.BASES, name, tiny)
    made = []
    for place in ("once", "again"):
        monkeypatch.setattr(sys, "argv", ["script", str(tmp_path / place), "--only", name])
        script.main()
        assert [path.name for path in (tmp_path / place).iterdir()] == [name]
        made.append((tmp_path / place / name / "model.safetensors").read_bytes())
    assert made[0] == made[1]
    assert (tmp_path / "once" / name / "tokenizer.json").is_file()


def test_a_chain_out_of_distribution_is_as_long_as_the_recipe_says(script):
    recipe = tomllib.loads((REPOSITORY / "experiments" / "tiny" / "chain.toml").read_text())
    family = script.FAMILIES["chain"]()
    drawn = family.draw_other(random.Random(0)).removeprefix("chain/")
    numbers = sum(not sign.isdigit() for sign in drawn) + 1
    assert numbers == recipe["task"]["other_terms"]
    first = family.task.ids("train")[0]
    assert sum(not s.isdigit() for s in first.removeprefix("chain/")) + 1 == recipe["task"]["terms"]
