"""The habit test and weights of one's own in whole runs: plans, paces, trust, and after a crash."""

from pathlib import Path

import pytest

import tiny
from launch.runs import crash, left_by, lines
from potluck.builder.objective import load_weight
from potluck.builder.plan import plan_cost
from potluck.config import ConfigError
from potluck.launch.in_process import run
from potluck.objective import habit
from potluck.tasks import TaskError
from potluck.types import RunFolderError

LWS = ("objective.method=lws", "rounds=5", "checkpoint_every=2", "evaluation.every=0")
PLANS = {
    "vertical": ("plan=vertical", "objective.trust=nobody"),
    "free": ("plan=horizontal", "pace=free"),
}
OWN = """\
import torch
from potluck.objective.weights import row_weight

heard = []


def of_the_whole(rows, options):
    heard.append(len(rows.texts))
    return torch.where(rows.own_B, 1.0, 1 / len(rows.texts))


@row_weight
def of_a_row(rows, options):
    return torch.where(rows.own_B, 1.0, 0.5)


def one_number(rows, options):
    return torch.tensor(1.0)


def endless(rows, options):
    return rows.likelihood_B / 0.0


def breaks(rows, options):
    return rows.no_such_thing


zahl = 3
"""


@pytest.fixture
def recipe(tiny_models):
    nodes = {name: tiny_models[name] for name in ("large", "small")}
    return lambda *overrides: tiny.recipe(nodes, *LWS, *overrides)


@pytest.fixture
def easy(monkeypatch):
    """A test by which more is a habit: models that were never taught have none."""
    monkeypatch.setattr(habit, "SHARE", 0.2)
    monkeypatch.setattr(habit, "FOREIGN", 0.01)


@pytest.fixture
def own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("weights.py").write_text(OWN)
    return tmp_path


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


@pytest.mark.parametrize("name", ["of_the_whole", "of_a_row"])
def test_a_weight_of_ones_own_decides_what_is_taken(own, recipe, name):
    config = recipe(f"objective.weight=weights.py:{name}", "objective.habit_test=false")
    run(config, own / "run", trust_code=True)
    taken = [
        source["success_weight"]
        for line in lines(own / "run", "small")
        for author, source in line["sources"].items()
        if author == "large" and source["success_weight"] is not None
    ]
    rows = lines(own / "run", "small")[0]["completions"]
    assert taken
    assert taken == pytest.approx([1 / rows if name == "of_the_whole" else 0.5] * len(taken))


@pytest.mark.parametrize(
    "name, error, message",
    [
        ("breaks", ConfigError, r"raised AttributeError: .* \(weights.py, line 26\)$"),
        ("one_number", ConfigError, r"returned a Tensor of shape \[\]; expected a tensor of one"),
        ("endless", ConfigError, "is .*inf.* for two ordinary rows"),
        ("zahl", TaskError, r"^\[objective\] weight 'weights.py:zahl': 'zahl' is no function"),
    ],
)
def test_a_weight_that_is_none_is_told_before_a_model_is_loaded(recipe, own, name, error, message):
    config = recipe(f"objective.weight=weights.py:{name}")
    for tried in (
        lambda: load_weight(config, trust_code=True),
        lambda: run(config, own / "run", trust_code=True),
        lambda: plan_cost(config, trust_code=True),
    ):
        with pytest.raises(error, match=message):
            tried()
    assert not (own / "run" / "small").exists()


def test_a_weight_is_code_and_its_file_belongs_to_the_run(recipe, own):
    config = recipe("objective.weight=weights.py:of_a_row", "rounds=2")
    with pytest.raises(ConfigError, match=r"runs code, \[objective\] weight 'weights.py:of_a_row'"):
        run(config, own / "run")
    run(config, own / "run", trust_code=True)
    Path("weights.py").write_text(OWN + "\n# changed\n")
    more = recipe("objective.weight=weights.py:of_a_row", "rounds=3")
    with pytest.raises(RunFolderError, match=r"weight of digest .*: its file has changed; put"):
        run(more, own / "run", resume=True, trust_code=True)


@pytest.mark.parametrize("name", ["typical", "task", ".py:f", ""])
def test_a_weight_that_there_is_not_is_refused(recipe, name):
    with pytest.raises(ConfigError, match=r"\[objective\] weight is .*typicality.*FILE.py:NAME"):
        recipe(f"objective.weight='{name}'")
