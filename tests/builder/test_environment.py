"""The grade of a recipe's environment: found once, kept in the run's folder, and told."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

import dialects
import tiny
from potluck.builder.plan import check
from potluck.builder.task import keep_grade, make_task, notes_on_environment
from potluck.config import as_config
from potluck.model import ModelError
from potluck.node.storage.folder import has_no_round, is_taken
from potluck.tasks.environments import hosted
from potluck.tasks.environments.check import Checked

GAME = """
import time
class Ticks:
    def reset(self, seed): return f"from {seed}"
    def step(self, text): return f"{time.time()}", 1.0, False
"""
RECIPE = {
    "name": "ticks",
    "task": {"name": "game", "game": "ticks.py:Ticks", "problems": 8, "validation_problems": 2},
    "problems_per_round": 2,
    "sampling": {"max_new_tokens": 8},
    "node": {"one": {"model": "builtin:digits-small"}},
}


@pytest.fixture
def config(desk):
    (desk / "ticks.py").write_text(GAME)
    return as_config(RECIPE)


@pytest.fixture
def played(monkeypatch):
    """The environments that were played to grade them."""
    played = []

    def checked(spec, limits, rows):
        played.append(spec.name)
        return Checked("game", "own", ("to turn 1 it said so",), ("a doubt",))

    monkeypatch.setattr(hosted, "check", checked)
    return played


def graded(config, folder):
    said = []
    task = make_task(config, trust_code=True, run=folder, say=said.append)
    return task, said


def test_a_plan_tells_the_grade_and_plays_nothing_that_is_not_trusted(config, capsys):
    file = io.StringIO()
    Console(file=file, width=500).print(check(config, trust_code=True))
    assert "ticks.py:Ticks: grade 'own': it does not repeat, so others' episodes" in (
        text := file.getvalue()
    )
    assert "to turn 1, '1', it said" in text
    Console(file=(file := io.StringIO()), width=500).print(check(config))
    assert "would run Ticks in" in file.getvalue()
    assert "the problems: what begins them is code" in file.getvalue()


def test_a_run_s_folder_remembers_the_grade_until_the_file_changes(config, played, desk):
    task, said = graded(config, desk)
    assert task.environment.grade == "own"
    assert ["several times over" in line for line in said] == [True]
    first, doubt = notes_on_environment(task)
    assert (first.endswith(": to turn 1 it said so"), doubt) == (True, "a doubt")
    keep_grade(task, desk)
    again, said = graded(config, desk)
    assert (again.environment.grade, said, len(played)) == ("own", [], 1)
    assert notes_on_environment(again) == notes_on_environment(task)
    graded(config, None)
    assert len(played) == 2
    (desk / "environment.json").write_bytes(b"{")
    graded(config, desk)
    assert len(played) == 3
    keep_grade(task, desk)
    (desk / "ticks.py").write_text(GAME + "\n")
    graded(config, desk)
    assert len(played) == 4
    (place := desk / "run" / "one").mkdir(parents=True)
    keep_grade(task, place)
    assert not is_taken(place.parent)  # it is in the way of no other start
    keep_grade(task, place.parent)
    (place.parent / "recipe.json").write_text(json.dumps({"node": {"one": {}}}))
    assert has_no_round(place.parent)


def test_an_environment_of_the_package_is_not_played_before(played):
    task = {"name": "maze", "problems": 8, "validation_problems": 2}
    config = as_config(RECIPE | {"task": task})
    assert graded(config, None)[0].environment.grade == "replay"
    assert played == []


def test_a_model_that_takes_no_turns_is_refused_by_the_check_where_there_are_some(tmp_path):
    place = Path(tiny.save(tmp_path / "model"))
    for name, key, value in (
        ("tokenizer_config", "chat_template", "{{ tools }}" + dialects.GEMMA),
        ("config", "max_position_embeddings", 4096),
    ):
        file = place / f"{name}.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    tree = RECIPE | {"node": {"one": {"model": str(place)}}}
    check(as_config(tree | {"task": {"name": "digits"}}))
    with pytest.raises(ModelError, match="writes no tool calls that can be read"):
        check(as_config(tree | {"task": {"name": "calculator", "train_problems": 8}}))
