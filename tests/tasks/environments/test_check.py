"""The grade of an environment: what does not repeat is found, and its first difference told."""

import pytest

from potluck.episode import EnvironmentFailed
from potluck.tasks.environments import check as checking
from potluck.tasks.environments.check import AGAIN, check, difference, probes
from potluck.tasks.environments.host import Spec
from potluck.tasks.games.calculator import CalculatorOptions
from potluck.tasks.games.maze import MazeOptions

LIMITS = 5.0, 2 << 30
GAMES = """
import random, time
import numpy as np

class Walk:
    "A path of six places, of which the seed makes one the goal."
    actions = ["left", "right"]
    def reset(self, seed):
        self.at, self.goal, self.turn = 3, seed % 6, 0
        return "walk"
    def step(self, text):
        self.turn += 1
        self.at += (text == "right") - (text == "left")
        won = self.at == self.goal
        return f"{self.at}{self.more()}", float(won), won or self.turn == 6
    def more(self):
        return ""

class Clock(Walk):
    def more(self): return f" at {time.time():.0f}"
class Zone(Walk):
    def more(self): return str(time.timezone)
class Hashed(Walk):
    def more(self): return f" {set('abcdef')}"
class Shared(Walk):
    steps = 0
    def more(self):
        Shared.steps += 1
        return f" {Shared.steps}"
class Global(Walk):
    def more(self): return f" {random.random()} {np.random.rand()}"
class Unseeded(Walk):
    def reset(self): return Walk.reset(self, 5)
class Honest(Unseeded):
    seeded = False
class Deaf(Walk):
    def step(self, text): return f"What is {text}? {self.goal}", 0.0, False
class Broken(Walk):
    def reset(self): raise OSError("no such file")

class Sum:
    def reset(self, start=0, **row): self.total = start
    def add(self, number: int) -> int:
        '''Add a number.

        Args:
            number: the number
        '''
        self.total += number
        return self.total
"""
A_SECOND, HASH, ORDER = AGAIN


@pytest.fixture(scope="module")
def checked(once):
    """A function that checks one of GAMES."""
    file = once("games-to-check", lambda folder: (folder / "games.py").write_text(GAMES))

    def made(name, kind="game", **given):
        return check(Spec(kind, f"{file}/games.py:{name}"), LIMITS, **given)

    return made


@pytest.fixture
def hurried(monkeypatch, here):
    """Wait for no clock, and start no process."""
    monkeypatch.setattr(checking, "A_SECOND_S", 0.0)


@pytest.mark.parametrize(
    ("name", "how"), [("Clock", A_SECOND), ("Zone", HASH), ("Hashed", HASH), ("Shared", ORDER)]
)
def test_an_environment_that_does_not_repeat_is_of_grade_own(checked, monkeypatch, name, how):
    monkeypatch.setattr(checking, "AGAIN", {how: AGAIN[how]})  # each is found in a way of its own
    if name != "Clock":
        monkeypatch.setattr(checking, "A_SECOND_S", 0.0)
    found = checked(name)
    assert found.grade == "own"
    (why,) = found.why
    assert why.startswith(f"{how}: to turn 1")


def test_global_random_numbers_repeat_as_each_episode_has_its_own(checked, hurried):
    found = checked("Global", kind=None)
    assert (found.kind, found.grade, found.warnings) == ("game", "replay", ())
    assert "other seeds make other episodes" in found.why
    assert "rewards: 0 to 1" in found.why


def test_seeds_and_turns_that_change_nothing_are_warned_of(checked, hurried):
    for name, given, found in (
        ("Unseeded", {}, "seeds change nothing"), ("Honest", {}, ""), ("Deaf", {}, "--action"),
        ("Walk", {"actions": ["up", "down"]}, "--action"),
    ):  # fmt: skip
        warnings = checked(name, **given).warnings
        assert len(warnings) == bool(found)
        assert found in "".join(warnings)


def test_tools_are_called_by_their_schemas_and_without_a_reward_the_text_is_paid(checked, hurried):
    rows = [{"start": 1}, {"start": 2}]
    found = checked("Sum", kind=None, rows=rows)
    assert (found.kind, found.grade, found.warnings) == ("environment", "transcript", ())
    assert "other rows make other episodes" in found.why


def test_what_cannot_be_played_is_an_error(checked, hurried):
    with pytest.raises(EnvironmentFailed, match="no such file"):
        checked("Broken")


def test_arguments_are_made_of_types_and_of_the_values_that_a_schema_names():
    properties = {"where": {"type": "string", "enum": ["n", "s"]}, "far": {"type": "integer"}}
    tool = {"function": {"name": "go", "parameters": {"properties": properties}}}
    calls = [turn.calls[0] for turn in probes([tool])]
    assert {call.name for call in calls} == {"go"}
    assert {call.arguments["where"] for call in calls} == {"n", "s"}
    assert all(type(call.arguments["far"]) is int for call in calls)
    assert all(turn.content for turn in probes([]))


@pytest.mark.parametrize(
    ("first", "then", "words"),
    [
        (("it said", "x"), ("it said", "x"), ""),
        (("it said", "x"), ("it said", "x (done)"), "it said 'x (done)', first 'x'"),
        (("it said", "a" * 500 + "b"), ("it said", "a" * 500 + "c"), "aac', first 'aa"),
        (("it paid", "0"), ("the error was", "E"), "the error was 'E', first it paid '0'"),
    ],
)
def test_the_first_difference_says_where_and_what(first, then, words):
    found = difference([first], [then])
    assert words in found
    assert bool(words) == bool(found)


def test_what_ships_repeats_whatever_the_hash_seed_and_the_calculator_pays_by_the_text(
    monkeypatch, request
):
    monkeypatch.setattr(checking, "A_SECOND_S", 0.0)
    monkeypatch.setattr(checking, "AGAIN", {HASH: AGAIN[HASH]})

    def graded(options):
        task = options.make()
        task.environment.check(task.ids("train")[:2])
        task.environment.close()
        return task.environment.found.grade, task.environment.found.warnings

    assert graded(MazeOptions()) == ("replay", ())
    request.getfixturevalue("here")
    assert graded(CalculatorOptions()) == ("transcript", ())
