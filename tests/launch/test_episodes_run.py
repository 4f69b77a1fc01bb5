"""Runs whose answers are episodes: a game of a user's, in processes of its own, from recipe to
resume."""

import shutil
import signal
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

import tiny
from forked import FORKING, Forked
from launch.runs import Hears, crash, left_by, lines, numbers
from potluck.config import ConfigError
from potluck.evaluation import compare
from potluck.evaluation.compare import evaluate_models, make_task
from potluck.evaluation.request import EvaluationRequest
from potluck.launch import children, nodes
from potluck.launch.in_process import run
from potluck.launch.local_swarm import run_local_swarm
from potluck.node.learning.group import ProcessGroup
from potluck.node.storage.folder import ENVIRONMENT
from potluck.replay.plan import make_plan
from potluck.replay.run import replay
from potluck.rollout.base import RolloutError
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
PACES = {"in step, vertical": ("plan=vertical",), "free": ("pace=free",)}
"""In step and horizontal are nodes in processes of their own, below."""


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
    """The folder of a run. Nobody may write to it."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(recipe(), folder, trust_code=True)
    return folder


@pytest.fixture
def copied(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


def weights(folder):
    return [left_by(folder, name, 3)[2] for name in NODES]


@pytest.mark.parametrize("pace", PACES)
def test_a_run_of_episodes_that_was_killed_ends_with_the_same_bits(recipe, tmp_path, pace):
    config = recipe(*PACES[pace])
    run(config, tmp_path / "whole", trust_code=True)
    crash(config, tmp_path / "run", 1, trust_code=True)
    run(config, tmp_path / "run", resume=True, trust_code=True)
    for name in NODES:
        assert left_by(tmp_path / "run", name, 3) == left_by(tmp_path / "whole", name, 3)


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
        left = [lines(tmp_path / place, name, "completions") for place in ("run", "whole")]
        assert left[0] == left[1]
    assert any(len(line["turns"]) > 2 for line in left[0] if line["author"] == "small")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    assert len({seen["seed"] for seen in server.asked()}) > 12


def test_an_episode_is_one_row_of_several_turns_with_one_reward_by_all_who_play_it(whole):
    written, small = (lines(whole, name, "completions") for name in NODES)
    assert written == small
    assert {each["author"] for each in written} == set(NODES)
    for line in written:
        roles = [each["role"] for each in line["turns"]]
        assert roles[::2] == ["assistant"] * len(roles[::2])
        assert set(roles[1::2]) <= {"user"}
        paid = sum(len(each["content"]) % 3 for each in line["turns"][::2])
        assert line["reward"] == (0 if line["end"] == "length" else paid)
    assert {each["end"] for each in written} == {"stop", "length", "turns"}
    sources = [each["sources"]["small"] for each in lines(whole, "large")]
    assert all(each["turns_mean"] > 1 and not each["replay_refused_share"] for each in sources)


def test_nodes_in_processes_of_their_own_that_are_all_killed_go_on_to_the_same_bits(
    recipe, tmp_path, monkeypatch
):
    """All at one time: a node that hears of the other's end first would go on alone."""
    started, each = [], tmp_path / "each"

    def config(rounds):
        return recipe(f"rounds={rounds}", "checkpoint_every=2", "swarm.gather_s=600")

    def popen(*words, **options):
        started.append(Forked(*words, **options))
        return started[-1]

    class Kills(Hears):
        def round_done(self, node, report):
            if report.round == 3:  # the other one may be killed while it learns from it
                for number in (signal.SIGSTOP, signal.SIGKILL):
                    for process in started:
                        process.send_signal(number)

    monkeypatch.setattr(
        children, "subprocess", SimpleNamespace(**{**vars(FORKING), "Popen": popen})
    )
    # Too long to end by itself, however late the signal comes.
    options = {"display": Kills(), "trust_code": True}
    killed = run_local_swarm(config(1_000), each, resume=False, **options)
    assert killed.codes == dict.fromkeys(NODES, -signal.SIGKILL)
    rounds = max(len(lines(each, name)) for name in NODES) + 3
    ended = run_local_swarm(config(rounds), each, resume=True, display=Hears(), trust_code=True)
    assert ended.codes == dict.fromkeys(NODES, 0), ended.complaints
    run(config(rounds), tmp_path / "one", trust_code=True)
    for name in NODES:
        assert left_by(each, name, rounds) == left_by(tmp_path / "one", name, rounds)


def test_other_methods_can_be_tried_on_it(whole, tmp_path):
    plan = make_plan(whole, methods="nois,tis", node="small", rounds=2, out=tmp_path / "out")
    rows = list(replay(plan, say=pytest.fail, trust_code=True))
    assert [row.method for row in rows] == ["nois"] * 2 + ["tis"] * 2
    assert all(-1 <= row.cosine <= 1 for row in rows)


def test_a_node_is_evaluated_by_the_grade_that_its_run_found(copied, tmp_path, monkeypatch):
    tasks, told = [], []
    (file,) = copied.rglob(ENVIRONMENT)
    file.write_text(file.read_text().replace('"replay"', '"own"'))

    def made(config, **grading):
        tasks.append(make_task(config, **grading))
        return tasks[-1]

    monkeypatch.setattr(compare, "make_task", made)
    few = ["evaluation.problems=3"]
    asked = {"split": "validation", "samples": 2, "overrides": few, "trust_code": True}
    elsewhere = tiny.save(tmp_path / "model")
    for request in (
        EvaluationRequest(f"{copied / 'small'}", **asked),
        EvaluationRequest(elsewhere, recipe=copied, **asked),
    ):
        evaluate_models(request, progress=lambda *step: None, say=told.append)
    assert [task.environment.grade for task in tasks] == ["own"] * 2
    assert told == []


def test_a_model_of_the_hub_knows_nothing_of_the_current_folder(copied, monkeypatch):
    """Its id has two parts, as the path of the model here."""
    shown, told = [], []
    tiny.save(copied / "owner" / "model")
    monkeypatch.chdir(copied)
    asked = {"recipe": Path("recipe.json"), "split": "validation", "trust_code": True}
    request = EvaluationRequest("owner/model", overrides=["evaluation.problems=3"], **asked)
    evaluate_models(request, progress=lambda *step: shown.append(step), say=told.append)
    assert [line.partition(": ")[2] for line in told] == [
        "played several times over, to see whether it repeats"
    ]
    assert {what for _, what, _, _ in shown} == {"greedy"}


class Two(ProcessGroup):
    """The first of two processes that are one node, of which the other hears nothing."""

    def broadcast(self, *command):
        pass


def test_two_processes_of_one_node_are_refused_in_a_line_before_anything_is_written(
    recipe, tmp_path, monkeypatch
):
    monkeypatch.setattr(nodes, "process_group", lambda: nullcontext(Two(0, 2)))
    words = r"\[node.large\] is 2 processes, .* environment together; start one process"
    with pytest.raises(ConfigError, match=words) as error:
        run(recipe(), tmp_path / "run", trust_code=True)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.rglob("recipe.json"))


def test_a_server_that_would_write_while_a_node_learns_is_refused_before_it_is_asked(
    recipe, tmp_path
):
    """It is not there; whoever asked it would hear that."""
    server = "node.small.engine={name='vllm',url='http://127.0.0.1:9',model='it',overlap=%s}"
    words = r"\[node.small.engine\] overlap = true, but what plays in an environment .*; drop it"
    with pytest.raises(ConfigError, match=words) as error:
        run(recipe(server % "true"), tmp_path / "run", trust_code=True)
    assert "\n" not in str(error.value)
    with pytest.raises(RolloutError, match=r"127\.0\.0\.1:9"):
        run(recipe(server % "false"), tmp_path / "run", trust_code=True)
    assert not list(tmp_path.rglob("recipe.json"))
