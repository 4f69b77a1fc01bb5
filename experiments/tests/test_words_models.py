"""The script that draws the base models of the scale words, and the problems they solve."""

import dataclasses
import importlib
import math
import random
import re
import sys
import tomllib
from pathlib import Path

import pytest
import torch

REPOSITORY = Path(__file__).parents[2]
KINDS = ("add", "mul", "mixed")
STYLES = ("prose", "brief", "list")


@pytest.fixture
def words(monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts"))
    return importlib.import_module("word_problems")


@pytest.fixture
def script(words, monkeypatch, tmp_path):
    """Models that learn next to nothing, and few problems, below ``tmp_path``."""
    threads = torch.get_num_threads()
    found = importlib.import_module("make_words_models")
    monkeypatch.setattr(found, "SHARED", tmp_path / "shared")
    monkeypatch.setattr(found, "TAUGHT_FROM", 300)
    monkeypatch.setattr(found, "SAMPLES", 4)
    monkeypatch.setattr(found, "LOWEST", 0.0)
    parts = {part: (5, kinds) for part, (_, kinds) in found.PARTS.items()}
    monkeypatch.setattr(found, "PARTS", parts)
    for name, its in found.PRETRAININGS.items():
        short = dataclasses.replace(its, hidden_size=16, layers=1, steps=3)
        monkeypatch.setitem(found.PRETRAININGS, name, short)
    found.tokenizer.cache_clear()
    yield found
    found.tokenizer.cache_clear()
    torch.set_num_threads(threads)


def made(script, monkeypatch, out, name):
    monkeypatch.setattr(sys, "argv", ["script", str(out), "--only", name])
    script.main()
    return (out / name / "model.safetensors").read_bytes()


def test_every_choice_of_a_writer_is_counted(words):
    """A fair choice of two, of which one has a choice of its own with odds of three to one."""
    expected = {"a": math.log(2), "bc": math.log(2 * 4 / 3), "bd": math.log(2 * 4)}
    found = {}
    for seed in range(40):
        writer = words.Writer(random.Random(seed))
        text = writer.expanded("[a|b[3~c|d]]")
        assert writer.nats == pytest.approx(expected[text])
        found[text] = found.get(text, 0) + 1
    assert found.keys() == expected.keys()
    assert found["bc"] > found["bd"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_step_goes_on_from_the_last_and_its_sum_is_right(words, kind):
    compute = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__floordiv__}
    lot = random.Random(kind)
    for _ in range(300):
        asked = words.problem(lot, kind)
        for step in asked.steps:
            assert compute[step.sign](step.x, step.y) == step.result
        for before, step in zip(asked.steps, asked.steps[1:], strict=False):
            assert step.x == before.result
        assert asked.answer == str(asked.steps[-1].result)
        signs = {"+" if step.sign in "+-" else "*" for step in asked.steps}
        assert signs == {"add": {"+"}, "mul": {"*"}, "mixed": {"+", "*"}}[kind]


@pytest.mark.parametrize("style", STYLES)
def test_a_solution_is_right_and_a_mistake_is_not(words, style):
    lot, wrong = random.Random(style), 0
    for _ in range(200):
        asked = words.problem(lot, lot.choice(KINDS))
        text = words.solution(words.Writer(lot), asked, style)
        assert words.is_right(text, asked.answer)
        spoiled = words.solution(words.Writer(lot), words.mistaken(lot, asked), style)
        wrong += not words.is_right(spoiled, asked.answer)
    assert wrong > 180  # 3 + 3 for 6: a mistake may end where it should


def test_the_reward_of_the_recipes_is_that_of_the_script(words):
    file = importlib.util.spec_from_file_location(
        "rewards", REPOSITORY / "experiments" / "words" / "rewards.py"
    )
    rewards = importlib.util.module_from_spec(file)
    file.loader.exec_module(rewards)
    texts = [" It is so. #### 17 ", " #### 18", "17", "#### 17 apples", " #### 17 #### 17", ""]
    found = rewards.right(completions=texts, answer=["17"] * 6, prompts=texts)
    assert found == [float(words.is_right(text, "17")) for text in texts] == [1.0, *[0.0] * 5]


def test_it_makes_the_models_and_the_problems_that_the_recipes_name(script):
    scale = tomllib.loads((REPOSITORY / "experiments" / "words.toml").read_text())
    named = set()
    for recipe in (REPOSITORY / "experiments" / "words").glob("*.toml"):
        tree = tomllib.loads(recipe.read_text())
        for node in tree["node"].values():
            pattern = Path(node["model"]).name
            named |= {pattern.replace("{index}", str(index)) for index in scale["indices"]}
        parts = {Path(tree["task"][key]) for key in ("path", "validation", "out_of_distribution")}
        assert {part.stem for part in parts} == set(script.PARTS)
        assert {part.parent for part in parts} == {Path("models/words")}
    assert set(script.NAMES) == named


def test_a_lot_is_the_name_s_and_the_same_each_time(script, tmp_path, monkeypatch):
    one, two = "words-style-prose-200", "words-style-prose-201"
    first = made(script, monkeypatch, tmp_path / "once", one)
    assert [path.name for path in (tmp_path / "once").iterdir()] == [one]
    assert made(script, monkeypatch, tmp_path / "again", one) == first
    assert made(script, monkeypatch, tmp_path / "again", two) != first
    assert (tmp_path / "once" / one / "tokenizer.json").is_file()
    questions = [
        re.findall('"question": "([^"]*)"', (script.SHARED / f"{part}.jsonl").read_text())
        for part in script.PARTS
    ]
    assert [len(part) for part in questions] == [5, 5, 5]
    assert len({question for part in questions for question in part}) == 15
