"""Runs of episodes: a game of a user's, in processes of its own, from recipe to resume."""

import shutil
from pathlib import Path

import pytest

import tiny
from launch.runs import crash, left_by, lines, numbers
from potluck.builder.checks import require_processes
from potluck.config import ConfigError
from potluck.evaluation import compare
from potluck.evaluation.compare import evaluate_models, make_task
from potluck.evaluation.request import EvaluationRequest
from potluck.launch.in_process import run
from potluck.node.learning.group import ProcessGroup
from potluck.node.storage.folder import ENVIRONMENT
from potluck.replay.plan import make_plan
from potluck.replay.run import replay
from stand_in_server import stand_in

GAME = """
class Walk:
    # Goes on for two to four turns, by the seed, and pays by the length of what it hears.
    def reset(self, seed, **row):
        self.left = 2 + seed % 3
        return f"{seed % 10}+{seed % 7}="

    def step(self, text):
        self.left -= 1
        return f"{len(text) % 10}=", len(text) % 3, self.left == 0
"""
NODES = ("large", "small")
FREE = "pace=free"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    return {name: tiny.save(place / name, seed) for seed, name in enumerate(NODES)}


@pytest.fixture(scope="module")
def recipe(models, tmp_path_factory):
    """Makes a recipe of the game."""
    game = tmp_path_factory.mktemp("game") / "walk.py"
    game.write_text(GAME)
    task = {"name": "game", "game": f"{game}:Walk", "max_turns": 3, "problems": 40}

    def make(*overrides):
        several = ("rounds=3", "checkpoint_every=1", "problems_per_round=2", "evaluation.every=2")
        room = {"max_new_tokens": 12, "max_total_tokens": 40, "stop": ["=", *"123456"]}
        changes = {"task": task, "sampling": room, "plan": "horizontal"}
        return tiny.recipe(models, *several, *overrides, **changes)

    return make


@pytest.fixture(scope="module")
def whole(recipe, tmp_path_factory):
    """The folder of a run in which each node has its own pace. Nobody may write to it."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(recipe(FREE), folder, trust_code=True)
    return folder


def test_a_run_of_episodes_that_was_killed_ends_with_the_same_bits(recipe, whole, tmp_path):
    """What was not learned from is played again: a new process remembers no episode."""
    crash(recipe(FREE), tmp_path / "run", 1, trust_code=True)
    run(recipe(FREE), tmp_path / "run", resume=True, trust_code=True)
    for name in NODES:
        assert left_by(tmp_path / "run", name, 3) == left_by(whole, name, 3)


def test_episodes_through_a_server_go_on_to_the_same_bits_after_a_kill(
    recipe, served_models, server, tmp_path
):
    served = [f"node.{name}.model={model}" for name, model in served_models.items()]
    engine = "node.small.engine={name='vllm',url='%s',model='tiny'}"
    run(recipe(*served, engine % server.url), tmp_path / "whole", trust_code=True)
    with stand_in(served_models["small"]) as other:
        config = recipe(*served, engine % other.url)
        crash(config, tmp_path / "run", 1, trust_code=True)
        other.network = other.load(served_models["large"])  # whatever it has been told since
        run(config, tmp_path / "run", resume=True, trust_code=True)
    for name in NODES:
        again, whole = (numbers(tmp_path / place, name) for place in ("run", "whole"))
        for line in (again[1], whole[1]):  # its texts had been kept, so no server was measured
            del line["server_apart"], line["server_apart_first"]
        assert again == whole
        left = [left_by(tmp_path / place, name, 3)[1:3] for place in ("run", "whole")]
        assert left[0] == left[1]
    written = lines(tmp_path / "run", "small", "completions")
    assert any(len(line["turns"]) > 2 for line in written if line["author"] == "small")
    assert len({seen["seed"] for seen in server.asked()}) > 12


def test_an_episode_is_one_row_of_several_turns_with_one_reward_by_all_who_play_it(whole):
    written = lines(whole, "small", "completions")
    assert {each["author"] for each in written} == set(NODES)
    for line in written:
        roles = [each["role"] for each in line["turns"]]
        assert roles[::2] == ["assistant"] * len(roles[::2])
        assert set(roles[1::2]) <= {"user"}
        paid = sum(len(each["content"]) % 3 for each in line["turns"][::2])
        assert line["reward"] == (0 if line["end"] in ("length", "room") else paid)
    assert {each["end"] for each in written} == {"stop", "length", "turns", "room"}
    sources = [each["sources"]["large"] for each in lines(whole, "small")]
    assert all(each["turns_mean"] > 1 and not each["replay_refused_share"] for each in sources)


def test_other_methods_can_be_tried_on_it(whole, tmp_path):
    plan = make_plan(whole, methods="nois,tis", node="small", rounds=2, out=tmp_path / "out")
    rows = list(replay(plan, say=pytest.fail, trust_code=True))
    assert [row.method for row in rows] == ["nois"] * 2 + ["tis"] * 2
    assert all(-1 <= row.cosine <= 1 for row in rows)


def test_what_is_evaluated_has_the_grade_that_its_run_found(whole, tmp_path, monkeypatch):
    """A model of the Hub has none: its id has two parts, as a path in the current folder."""
    copied, tasks, told = shutil.copytree(whole, tmp_path / "run"), [], []
    (file,) = copied.rglob(ENVIRONMENT)
    file.write_text(file.read_text().replace('"replay"', '"own"'))
    monkeypatch.chdir(copied)

    class Made(Exception):
        pass

    def made(config, **grading):
        tasks.append(make_task(config, **grading))
        raise Made

    monkeypatch.setattr(compare, "make_task", made)
    asked = {"split": "validation", "trust_code": True}
    for request in (
        EvaluationRequest(f"{copied / 'small'}", **asked),
        EvaluationRequest(tiny.save(tmp_path / "model"), recipe=copied, **asked),
        EvaluationRequest("owner/model", recipe=Path("recipe.json"), **asked),
    ):
        assert told == []
        with pytest.raises(Made):
            evaluate_models(request, progress=lambda *step: None, say=told.append)
    assert [task.environment.grade for task in tasks] == ["own", "own", "replay"]
    assert [line.partition(": ")[2] for line in told] == [
        "played several times over, to see whether it repeats"
    ]


def test_two_processes_of_one_node_cannot_play_together(recipe):
    task = make_task(recipe(), trust_code=True)
    words = r"\[node.large\] is 2 processes, .* environment together; start one process"
    with pytest.raises(ConfigError, match=words):
        require_processes(recipe(), ProcessGroup(0, 2), task)


def test_a_server_that_writes_while_a_node_learns_is_refused_before_it_is_asked(recipe, tmp_path):
    """It is not there; whoever asked it would hear that."""
    server = "node.small.engine={name='vllm',url='http://127.0.0.1:9',model='it',overlap=true}"
    words = r"\[node.small.engine\] overlap = true, but what plays in an environment .*; drop it"
    with pytest.raises(ConfigError, match=words) as error:
        run(recipe(server), tmp_path / "run", trust_code=True)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.rglob("recipe.json"))
