"""The habit test in whole runs: plans, paces, trust, and after a crash."""

import pytest

import tiny
from launch.runs import crash, left_by, lines
from potluck.launch.in_process import run
from potluck.objective import habit

LWS = ("objective.method=lws", "rounds=5", "checkpoint_every=2", "evaluation.every=0")
PLANS = {
    "vertical": ("plan=vertical", "objective.trust=nobody"),
    "free": ("plan=horizontal", "pace=free"),
}


@pytest.fixture
def recipe(tiny_models):
    nodes = {name: tiny_models[name] for name in ("large", "small")}
    return lambda *overrides: tiny.recipe(nodes, *LWS, *overrides)


@pytest.fixture
def easy(monkeypatch):
    """A test by which more is a habit: models that were never taught have none."""
    monkeypatch.setattr(habit, "SHARE", 0.2)
    monkeypatch.setattr(habit, "FOREIGN", 0.01)


def left_of(folder, rounds=5):
    return [left_by(folder, node, rounds) for node in ("large", "small")]


def silenced(folder):
    shares = [
        source["silenced_share"] or 0.0
        for node in ("large", "small")
        for line in lines(folder, node)
        for source in line["sources"].values()
    ]
    return sum(shares)


@pytest.mark.parametrize("plan", PLANS)
def test_the_habit_test_takes_less_in_a_run_that_goes_on_after_a_crash_to_the_bit(
    easy, tmp_path, recipe, plan
):
    on = recipe(*PLANS[plan])
    run(on, tmp_path / "on")
    assert silenced(tmp_path / "on") > 0
    crash(on, tmp_path / "cut", 3)
    run(on, tmp_path / "cut", resume=True)
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


def test_the_habit_test_can_be_left_out(easy, tmp_path, recipe):
    for test in ("true", "false"):
        run(recipe("plan=horizontal", f"objective.habit_test={test}", "rounds=3"), tmp_path / test)
    assert left_of(tmp_path / "true", rounds=3) != left_of(tmp_path / "false", rounds=3)
    assert silenced(tmp_path / "false") == 0
