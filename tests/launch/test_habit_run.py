"""The habit test in a whole run, and after a crash."""

import pytest

import tiny
from launch.runs import crash, left_by, lines
from potluck.launch.in_process import run
from potluck.objective import habit

FREE = ("plan=horizontal", "pace=free", "objective.method=lws")


@pytest.fixture
def recipe(tiny_models):
    nodes = {name: tiny_models[name] for name in ("large", "small")}
    longer = "rounds=5", "checkpoint_every=2"
    return lambda *overrides: tiny.recipe(nodes, *FREE, *longer, *overrides)


@pytest.fixture
def easy(monkeypatch):
    """A test by which more is a habit: models that were never taught have none."""
    monkeypatch.setattr(habit, "SHARE", 0.2)
    monkeypatch.setattr(habit, "FOREIGN", 0.01)


def left_of(folder):
    return [left_by(folder, node, 5) for node in ("large", "small")]


def silenced(folder):
    shares = [
        source["silenced_share"] or 0.0
        for node in ("large", "small")
        for line in lines(folder, node)
        for source in line["sources"].values()
    ]
    return sum(shares)


def test_the_habit_test_takes_less_in_a_run_that_goes_on_after_a_crash_to_the_bit(
    easy, tmp_path, recipe
):
    run(recipe(), tmp_path / "on")
    assert silenced(tmp_path / "on") > 0
    crash(recipe(), tmp_path / "cut", 3)
    run(recipe(), tmp_path / "cut", resume=True)
    assert left_of(tmp_path / "cut") == left_of(tmp_path / "on")
    (told, *_) = (
        source
        for node in ("large", "small")
        for line in lines(tmp_path / "on", node)
        for source in line["sources"].values()
        if source["silenced_share"]
    )
    assert told["tested_habit"]
    assert told["habit_gain"] < told["habit_gain_error"]
    assert told["success_weight"] < 1
    run(recipe("objective.habit_test=false"), tmp_path / "off")
    assert left_of(tmp_path / "off") != left_of(tmp_path / "on")
    assert silenced(tmp_path / "off") == 0
