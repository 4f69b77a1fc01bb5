"""The environments of other libraries: with each library, where it is installed, and without."""

import importlib
import random
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest import mock

import pytest

from potluck.episode import ToolCall, Turn
from potluck.tasks.environments.check import check
from potluck.tasks.environments.host import Spec, ToolsInstance

FOLDER = Path(__file__).parents[2] / "examples" / "environments"
CLASSES = {
    "grid_world_env": ("openenv_local", ("GridWorld",)),
    "gymnasium": ("gymnasium_toys", ("FrozenLake", "Taxi", "CliffWalking", "Blackjack")),
    "textarena": ("textarena_games", ("FrozenLake", "Game2048", "Mastermind")),
    "reasoning_gym": ("reasoning_gym_tries", ("ChainSum",)),
    "skyrl_gym": ("skyrl_environment", ("Double",)),
}


@pytest.fixture
def library(monkeypatch):
    """A function that puts a stand-in of a library where Python finds it."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def put(name, **contents):
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)

    return put


@pytest.mark.parametrize("library", CLASSES)
def test_each_is_replayed_where_its_library_is_installed(library):
    pytest.importorskip(library, reason=f"{library} is not installed; README.md names the versions")
    kind, (file, names) = "environment" if library == "grid_world_env" else "game", CLASSES[library]
    for name in names:
        found = check(Spec(kind, f"{FOLDER / file}.py:{name}"), (20.0, 4 << 30))
        assert (found.grade, found.warnings) == ("replay", ()), name


def test_a_toy_of_gymnasium_is_told_words_and_shows_where_one_stands(library):
    world = mock.Mock()
    world.reset.return_value = 0, {}
    world.render.side_effect = [f"  (Down)\n\x1b[41m{at}\x1b[0mF" for at in (0, 2, 3)]
    world.step.side_effect = [(2, 0.5, False, False, {}), (3, 0.5, True, False, {})]
    library("gymnasium", make=lambda name, **options: world)
    toy = importlib.import_module("gymnasium_toys").Taxi()
    begun = toy.reset(seed=7)
    assert begun.startswith("(Down)\n[0]F\nAnswer with one of: south, north")
    world.reset.assert_called_once_with(seed=7)
    assert toy.step("I go East") == ("(Down)\n[2]F", 0.5, False)
    assert toy.step("what?") == (begun.partition("F\n")[2], 0.0, False)
    assert toy.step("north")[1:] == (0.5, True)
    assert world.step.call_args_list == [mock.call(2), mock.call(1)]


def test_a_game_of_textarena_pays_at_its_end(library):
    made = mock.Mock()
    made.get_observation.side_effect = [(0, "begun"), (0, "heard")]
    made.step.side_effect = [(False, {}), (True, {})]
    made.close.return_value = {0: 0.75}, {}
    library("textarena", make=lambda name: made)
    game = importlib.import_module("textarena_games").Sokoban()
    assert game.reset(seed=3) == "begun"
    made.reset.assert_called_once_with(num_players=1, seed=3)
    assert game.step("[up]") == ("heard", 0.0, False)
    assert game.step("[end]") == ("", 0.75, True)


def test_a_text_environment_of_skyrl_answers_behind_the_question(library):
    base = type("BaseTextEnv", (), {"turns": 0})
    library("skyrl_gym")
    library("skyrl_gym.envs")
    library("skyrl_gym.envs.base_text_env", BaseTextEnv=base, BaseTextEnvStepOutput=dict)
    double = importlib.import_module("skyrl_environment").Double()
    number = random.Random(1).randrange(10)
    assert double.reset(seed=1, question="Double it.") == f"What is 2 x {number}?"
    assert double.step("no") == ("A number, please.", 0.0, False)
    assert double.step(str(2 * number)) == ("", 1.0, True)


def test_a_problem_of_reasoning_gym_is_tried_again(library):
    data = mock.MagicMock()
    data.__getitem__.return_value = {"question": "1 + 1?", "answer": "2"}
    data.score_answer = lambda answer, entry: 1.0 if answer == entry["answer"] else 0.1
    library("reasoning_gym", create_dataset=lambda name, size, seed, **parameters: data)
    tries = importlib.import_module("reasoning_gym_tries").ChainSum()
    assert tries.reset(seed=1 << 40) == "1 + 1?"
    assert tries.step("3") == ("That is wrong. Try again.", 0.0, False)
    assert tries.step(" 2 ") == ("", 1.0, True)
    tries.reset(seed=0)
    assert [tries.step("3")[2] for _ in range(3)] == [False, False, True]


def test_a_world_of_openenv_is_asked_by_a_tool_and_pays_what_its_observations_say(library):
    class World:
        at = 0

        def reset(self):
            return self.seen(0.0)

        def step(self, action):
            self.at += {"RIGHT": 1, "LEFT": -1}[action["action"]]
            return self.seen(1.0 if self.at == 2 else -0.25)

        def seen(self, reward):
            done = self.at == 2
            return SimpleNamespace(x=0, y=self.at, message="go on", reward=reward, done=done)

    library("grid_world_env")
    library("grid_world_env.server")
    library("grid_world_env.models", GridWorldAction=dict)
    library("grid_world_env.server.grid_world_environment", GridWorldEnvironment=World)
    toy = importlib.import_module("openenv_local").GridWorld
    world = ToolsInstance(toy, 100)
    ((schema,), pays) = world.about()
    assert (schema["function"]["name"], pays) == ("move", True)
    right, back = (Turn("", (ToolCall("move", {"direction": to}),)) for to in ("RIGHT", "back"))
    for _ in range(2):  # one that is reset begins anew
        said, steps = world.play({"number": 3}, 7, [right, back, right, right])
        assert said == "[0, 0] go on"
        heard = [observation.content for (observation,), _ in steps]
        assert heard[::2] == ["[0, 1] go on", "[0, 2] go on"]
        assert [text[:8] for text in heard[1::2]] == ["{'error'"] * 2
        assert world.finish() == (0.75, 4, 2)
