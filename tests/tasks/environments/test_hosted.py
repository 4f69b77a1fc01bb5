"""Environments in processes apart: two kinds, what they say and pay, and what bounds them."""

import asyncio
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import msgspec
import pytest

from nouns import completion
from potluck.episode import EnvironmentFailed, Step, ToolCall, Turn, digest_of, turns_in
from potluck.tasks.base import TaskError, environment_of
from potluck.tasks.environments import hosted
from potluck.tasks.environments.host import Host, Process, Spec
from potluck.tasks.environments.task import GameOptions
from potluck.types import Episode, Observation

LEAVES = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x50000000))"
GAMES = Path(__file__).parent / "games.py"


@pytest.fixture
def apart():
    """Tasks of a class in games.py, played in processes apart; these end with the test."""
    tasks = []

    def make(name, kind="game", **options):
        options = {"problems": 8, "validation_problems": 2, **options}
        tasks.append(GameOptions(**{kind: f"{GAMES}:{name}"}, **options).make())
        return tasks[-1]

    yield make
    for task in tasks:
        environment_of(task).close()


@pytest.fixture
def made(here, apart):
    """The same, played here."""
    return apart


def first(task, i=0):
    return task.problem(f"game/train/{i}")


def says(task, *texts, problem=None):
    """What an environment says to each turn, played again."""
    episode = task.environment.replay(problem or first(task), [Turn(text) for text in texts])
    return [" ".join(o.content for o in observed) for observed in episode.observations]


def all_answers(play, count):
    """Answers to ``count`` turns, however long they take."""
    answers = {}
    while len(answers) < count:
        answers |= dict(play.answered(60))
    return answers


def played(task, text):
    """What an environment says to one turn, played for the first time."""
    play = task.environment.open()
    play.begin(0, first(task))
    play.act(0, Turn(text))
    (said,) = all_answers(play, 1).values()
    play.finish(0)
    play.close()
    return said


def call(tool, **arguments):
    return ToolCall(tool, arguments)


def test_a_game_is_played_and_replayed_alike(made):
    options = {"parameters": {"start": 3}, "question": "Count.", "system_prompt": "Be brief."}
    task, turns = made("Count", **options), [Turn("a"), Turn("x")]
    problem = first(task)
    assert (problem.question, problem.system) == ("Count.\n\nfrom 3", "Be brief.")
    play = task.environment.open()
    play.begin(5, problem)
    for turn in turns:
        play.act(5, turn)
        (said,) = all_answers(play, 1).values()
    assert said == Step((Observation("x5"),), done=True)
    written = play.finish(5)
    play.close()
    assert (written.reward, written.done, len(written.observations)) == (2.0, True, 2)
    assert task.environment.replay(problem, turns) is written
    fresh = made("Count", **options)
    assert fresh.environment.replay(problem, turns) == written
    assert fresh.digest == task.digest
    # Turns behind the end are not taken.
    episode = task.environment.replay(problem, turns[::-1])
    assert (len(episode.observations), episode.done, episode.reward) == (1, False, 1.0)
    with pytest.raises(EnvironmentFailed, match="reset says another thing than the first time"):
        fresh.environment.replay(replace(problem, question="Count.\n\nfrom 4"), [Turn("a")])


def test_a_class_of_trl_is_played_as_it_is(made):
    task = made("Counter", "environment", parameters={"start": 3, "goal": 5}, question="Count.")
    problem = first(task)
    assert problem.question == "Count. Now it is 3."
    for name in ("increment", "wait", "which"):
        assert f'"name": "{name}"' in problem.tools
    assert '"step": {"type": "integer", "description": "Number to add."}' in problem.tools
    assert '"name": "get_reward"' not in problem.tools
    assert "hidden" not in problem.tools
    calls = (
        call("wait", word="later"),
        call("increment", step=2),
        call("increment", step=-2),
        call("_hidden"),
        call("increment", stride=1),
    )
    episode = task.environment.replay(problem, [Turn("well", calls), Turn("5")])
    said = [(o.tool, o.content) for o in episode.observations[0]]
    assert said[0] == ("increment", "5")
    assert said[1] == ("increment", "{'error': 'step must be positive'}")
    assert said[2] == ("tool", "{'error': 'Tool _hidden not found.'}")
    assert "unexpected keyword argument 'stride'" in said[3][1]
    assert said[4:] == [("wait", "later")]  # async tools are gathered behind the others
    assert (episode.done, episode.reward) == (True, 1.0)
    assert (episode.calls, episode.errors) == (5, 3)
    assert episode.observations[1] == ()
    with pytest.raises(EnvironmentFailed, match="a turn has 65 tool calls"):
        task.environment.replay(problem, [Turn("", (call("which"),) * 65)])


def test_a_reward_may_be_async_and_an_instance_is_reset_and_not_made_again(made):
    task = made("Late", "environment", parameters={"goal": 5})
    turns = [Turn("", (call("which"),)), Turn("")]
    one, other = (task.environment.replay(first(task, i), turns) for i in range(2))
    assert one.reward == 0.25
    assert one.observations == other.observations


def test_random_numbers_of_one_instance_are_not_those_of_another(made):
    task = made("Dice")
    alone = [says(task, "a", "b", "c", problem=first(task, i)) for i in range(4)]
    assert len({each[0] for each in alone}) == 4
    play = made("Dice").environment.open()
    for i in range(4):
        play.begin(i, first(task, i))
    for at, text in enumerate("abc"):
        for i in range(4):
            play.act(i, Turn(text))
        said = all_answers(play, 4)
        assert [said[i].observations[0].content for i in range(4)] == [each[at] for each in alone]
    play.close()
    other = made("Dice", seed=1)
    assert first(other).question != first(task).question
    assert other.digest != task.digest


def test_a_hostile_episode_is_refused_and_the_next_one_replayed(apart):
    task = apart("Harmful", step_s=0.5, memory_gib=1)
    problem = first(task)
    for text, said in {
        "hang": "took more than 1 s or 1 GiB",
        "allocate": "took more than 1 s or 1 GiB",
        "exit": "ended its process",
        "nan": "a reward is nan; expected a finite number",
        "None": r"step returned None; expected \(text, reward, done\)",
    }.items():
        with pytest.raises(EnvironmentFailed, match=said):
            task.environment.replay(problem, [Turn("a"), Turn(text)])
        next_one = [Turn(f"after {text.upper()}"), Turn("x")]
        assert task.environment.replay(problem, next_one).reward == 2.0
    # What a game raises or prints is what it says at most.
    assert says(task, "raise", "a") == ["{'error': 'no such move'}", "a1"]
    (printed,) = says(task, "print")
    assert len(printed) == 4096
    assert printed.endswith("x [cut]")
    with pytest.raises(EnvironmentFailed, match="an episode has 100000 turns; at most 16"):
        says(task, *["a"] * 100_000)


@pytest.mark.parametrize(
    ("levels", "is_read"), [(60, True), (66, False), (980, False), (10**5, False)]
)
def test_arguments_that_cannot_be_written_again_are_not_read(made, levels, is_read):
    nested = "[" * levels + "]" * levels
    turns = turns_in(f'[["",[["which",{{"a":{nested}}}]]]]')
    assert (turns is not None) == is_read
    if turns:
        task = made("Counter", "environment", parameters={"goal": 5})
        assert task.environment.replay(first(task), turns).errors == 1


def test_an_episode_that_hangs_holds_up_no_other_and_those_beside_it_are_played_again(apart):
    task = apart("Harmful", step_s=1)
    play = task.environment.open()
    beside = 4 * 3  # in the same process as 0, however many there are
    for episode in (0, 1, beside):
        play.begin(episode, first(task, episode % 8))
        play.act(episode, Turn("a"))
    assert len(all_answers(play, 3)) == 3
    play.act(0, Turn("hang"))
    play.act(1, Turn("b"))
    answers = dict(play.answered(0.4))  # while 0 hangs, for a second at least
    assert 0 not in answers
    play.act(beside, Turn("b"))
    while len(answers) < 3:
        answers |= dict(play.answered(60))
    assert "took more than 1 s" in str(answers[0])
    assert answers[beside] == Step((Observation("b2"),), done=False)
    with pytest.raises(EnvironmentFailed):
        play.finish(0)
    assert play.finish(1).reward == play.finish(beside).reward == 2.0
    play.close()


def test_a_play_that_is_closed_waits_for_no_step(apart):
    task = apart("Harmful", step_s=1000)
    play = task.environment.open()
    play.begin(0, first(task))
    play.act(0, Turn("sleep"))
    play.close()
    assert says(task, "x") == ["x1"]


def test_an_environment_that_is_nobody_elses_pays_for_what_was_played_here_alone(made):
    task = made("Count")
    task.environment.grade = "own"
    played(task, "x")
    assert says(task, "x") == ["x1"]
    with pytest.raises(EnvironmentFailed, match="no such episode is remembered here"):
        says(task, "a", "x")


def test_of_two_episodes_of_the_same_turns_each_is_found_by_its_place_and_what_it_was_told(made):
    task, turns = made("Count"), [Turn("x"), Turn("x")]
    task.environment.grade = "own"
    places = [(author, index) for author in ("north", "south") for index in range(2)]
    told = [(*place, (Observation(said),)) for place in places for said in ("one", "two")]
    for reward, (author, index, said) in enumerate(told):
        episode = Episode((said, said), True, float(reward))
        task.environment.remember(first(task), turns, episode, author, index)
    for reward, (author, index, said) in enumerate(told):
        one = completion((5, 6), problem=first(task).id, author=author, index=index)
        written = replace(one, turns=(1, 1), observed=digest_of(said))
        assert task.environment.replay(first(task), turns, written).reward == reward


def test_what_is_remembered_is_bounded_in_bytes(made, monkeypatch):
    monkeypatch.setattr(hosted, "MOST_KEPT_BYTES", 5_000)
    task = made("Count")
    task.environment.grade = "own"
    long, many = (Observation("a" * 500),), (Observation(""),) * 8
    for at, heard in enumerate([many, long, many, many, long, long, many]):
        for _ in range(2):  # what is remembered twice counts once
            episode = Episode((heard,), True, float(at))
            task.environment.remember(first(task), [Turn(str(at))], episode, "", 0)
    with pytest.raises(EnvironmentFailed, match="no such episode"):
        says(task, "4")
    assert says(task, "5") == ["a" * 500]
    assert says(task, "6") == [" " * 7]


def test_a_failure_is_not_remembered(made, monkeypatch):
    task = made("Count")
    problem = first(task)
    with monkeypatch.context() as patch:
        patch.setattr(Process, "call", mock.Mock(side_effect=EnvironmentFailed("more than 5 s")))
        with pytest.raises(EnvironmentFailed, match="5 s"):
            says(task, "a", problem=problem)
    assert says(task, "a", problem=problem)


def test_only_an_environment_of_grade_own_reaches_the_network(apart, monkeypatch, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        task = apart("Caller")
        if subprocess.run([sys.executable, "-c", LEAVES]).returncode:
            pytest.skip("a process may not leave its network here")
        assert says(task, port) == ["OSError"]
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        (tmp_path / "port").write_text(port)
        assert apart("Client").environment.grade == "own"  # it is made of a connection
        reached = [task.environment.has_network]
        task.environment.grade = "own"
        reached.append(task.environment.has_network)
        assert played(task, port).observations[0].content == "connected"
        task.environment.grade = "replay"
        assert [*reached, task.environment.has_network] == [False, True, False]


def test_a_class_that_cannot_be_used_is_named_in_one_line(made):
    for name, said in {
        "Nothing": "'Nothing' is not there",
        "NoReset": "NoReset has no method reset",
    }.items():
        with pytest.raises(TaskError, match=said) as caught:
            made(name)
        assert "\n" not in str(caught.value)
    with pytest.raises(TaskError, match=r"name one of them"):
        made("Count", environment="a.py:B")
    with pytest.raises(TaskError, match=r"game/train/0 cannot begin: .*KeyError: 'goal'"):
        first(made("Counter", "environment"))


class Counts:
    """A tool of it leaves something to run."""

    def reset(self):
        self.n = 0
        return ""

    async def start(self) -> str:
        """Start counting."""
        self.task = asyncio.get_running_loop().create_task(self._count())
        return "started"

    async def _count(self):
        while True:
            await asyncio.sleep(0)
            self.n += 1

    async def read(self) -> str:
        """Tell the count."""
        return str(self.n)


def test_what_an_episode_leaves_to_run_does_not_run_while_others_are_played(here):
    def read(others):
        host = Host(Spec("environment", "Counts"), Counts, has_network=True)
        call = lambda name: msgspec.to_builtins(Turn("", (ToolCall(name, {}),)))  # noqa: E731
        for key in (0, 1):
            host.answer("play", key, {}, 1, [])
        host.answer("act", 0, call("start"))
        for _ in range(others):
            host.answer("act", 1, call("read"))
        (observed, *_), *_ = host.answer("act", 0, call("read"))
        return observed

    assert read(others=0) == read(others=3)


class Plays:
    def __init__(self):
        self.step = lambda text: ("", 1.0, True)

    reset = Counts.reset


@pytest.mark.parametrize(("factory", "kind"), [(lambda: Plays(), "game"), (Counts, "environment")])
def test_the_kind_of_a_class_is_that_of_the_object_that_it_makes(here, factory, kind):
    assert Host(Spec(None, "any"), factory, has_network=True).answer("about")[0] == kind


def right_answer(task, number):
    one, other = first(task, number).question.split(" * ")
    return Turn(str(int(one) * int(other)))


def test_what_one_authors_turn_leaves_in_its_process_reaches_no_other_author(apart):
    task = apart("Sums", max_turns=3)
    environment = task.environment

    def reward(author, number, *turns):
        written = completion(author=author)
        return environment.replay(first(task, number), turns, written).reward

    leak = [Turn("precision 2"), Turn("1")]
    assert reward("evil", 0, *leak) == 0.0
    # The class's own hole: in the process of the author that did it.
    assert reward("evil", 1, right_answer(task, 1)) == 0.0
    # Of an episode alike it is not taken from memory either.
    assert [reward("third", at, right_answer(task, at)) for at in (1, 2)] == [1.0, 1.0]
    environment.begin_anew("evil")
    assert reward("evil", 3, right_answer(task, 3)) == 1.0
    assert reward("evil", 4, *leak) == 0.0
    another = replace(first(task, 5), question="1 * 1")
    with pytest.raises(EnvironmentFailed, match="another thing"):
        environment.replay(another, [Turn("1")], completion(author="evil"))
    # A failed episode, too, ends its process.
    assert reward("evil", 5, right_answer(task, 5)) == 1.0


def test_at_most_so_many_processes_replay_and_the_one_used_least_lately_ends(apart, monkeypatch):
    monkeypatch.setattr(hosted, "MOST_REPLAYING", 2)
    task = apart("Count")
    for number, author in enumerate(("east", "west", "east", "south")):
        task.environment.replay(first(task, number), [Turn("a")], completion(author=author))
    assert list(task.environment._replaying) == ["east", "south"]


def test_an_episode_that_sleeps_is_cut_off_by_the_clock(apart):
    task = apart("Harmful", step_s=30)
    begun_s = time.monotonic()
    with pytest.raises(EnvironmentFailed):
        task.environment.replay(first(task), [Turn("sleep")], within_s=1.0)
    assert time.monotonic() - begun_s < 15
    assert says(task, "a") == ["a1"]
