"""The maze and the calculator: games that ship with the package."""

import copy
import random
from dataclasses import replace

import pytest

import potluck
from nouns import completion
from potluck.episode import ToolCall, Turn, played, text_of
from potluck.launch.in_process import run
from potluck.tasks import TaskError
from potluck.tasks.base import graded, overlaps
from potluck.tasks.games.calculator import CalculatorOptions
from potluck.tasks.games.maze import SPARE, Maze, MazeOptions
from solutions import calculator_solution

ROW = {"size": 4, "held_out": False}
pytestmark = pytest.mark.usefixtures("few")
kinds = pytest.mark.parametrize("kind", ["keys", "portals"])
FEW = {"problems": 20, "validation_problems": 5}


def written_as(problem, text, **fields):
    return replace(completion(problem=problem.id, **fields), text=text)


def begun(kind, number, **row):
    game = Maze()
    return game, game.reset(kind=kind, number=number, **ROW | row)


def fewest_turns(game):
    """Try everything that can be said, a turn at a time, by playing and nothing else."""
    games, states, turns = {game.state: game}, {game.state}, 0
    while games:
        turns += 1
        after = {}
        for game in games.values():
            for letter in Maze.actions:
                then = copy.deepcopy(game)
                then.turns_left = 99
                _, reward, done = then.step(letter)
                if done:
                    assert reward == 1
                    return turns
                if then.state not in states:
                    states.add(then.state)
                    after[then.state] = then
        games = after
    raise AssertionError("there is no way")


@kinds
def test_the_shortest_way_leads_out_and_there_is_no_shorter_one(kind):
    lengths = set()
    for number in range(16):
        game, _ = begun(kind, number)
        way, spare = game.plan.shortest(game.state), game.turns_left
        assert fewest_turns(copy.deepcopy(game)) == len(way) == spare - SPARE
        for left, letter in enumerate(way, start=1 - len(way)):
            assert game.step(letter)[1:] == (float(left == 0), left == 0)
        lengths.add(len(way))
        assert way.count("k" if kind == "keys" else "o") == 1
    assert {4, 5, 6, 7} <= lengths <= {4, 5, 6, 7, 8}


@kinds
def test_luck_alone_hardly_ever_finds_the_way_and_no_game_is_longer_than_twelve_turns(kind):
    luck, paid, longest = random.Random(0), 0.0, 0
    for number in range(80):
        (game, _), turns, done = begun(kind, number), 0, False
        while not done:
            _, reward, done = game.step(luck.choice(Maze.actions))
            turns += 1
        paid += reward
        longest = max(longest, turns)
    assert longest == 12
    assert paid < 4


def test_what_is_seen_says_where_one_stands_and_what_can_be_done():
    game, said = begun("keys", 3)
    for letter in Maze.actions:
        after = copy.deepcopy(game)
        seen, reward, done = after.step(letter)
        assert (seen != said.partition("@")[2]) == (letter in said.partition("@")[2])
        assert (reward, done) == (0.0, False)
    for nonsense in ("", "nn", "N", "north", "\0", "n" * 10_000):
        assert copy.deepcopy(game).step(nonsense)[0] == said.partition("@")[2]


def test_the_exit_stays_shut_without_the_key():
    for number in range(50):
        game, _ = begun("keys", number)
        way = game.plan.shortest(game.state)
        passed = [game.step(letter) for letter in way.replace("k", "")]
        assert not any(done for _, _, done in passed)
        assert game.state.cell == game.plan.exit


def questions(split="train", **options):
    task = MazeOptions(**FEW, **options).make()
    return [task.problem(id).question for id in task.ids(split)], task.digest


def test_each_option_of_the_maze_changes_it(here):
    usual, digest = questions()
    assert {said[0] for said in usual} == {"k", "o"}
    assert {said[0] for said in questions(kind="keys")[0]} == {"k"}
    assert {said[0] for said in questions("out-of-distribution", other_kind="portals")[0]} == {"o"}
    assert "4" not in "".join(usual)
    for split, key in (("train", "size"), ("out-of-distribution", "other_size")):
        larger, its = questions(split, **{key: 9})
        assert "8" in "".join(larger)
        assert its != digest
    with pytest.raises(TaskError, match="size = other_size = 4"):
        MazeOptions(other_size=4).make()


def test_a_maze_of_one_split_is_not_asked_in_another(here):
    task = MazeOptions(problems=100, validation_problems=50).make()
    assert list(overlaps(task)) == []  # ids alone: an environment's first words are not looked at
    train, held_out = ({task.problem(id).question for id in task.ids(split)}
                       for split in ("train", "validation"))  # fmt: skip
    assert train.isdisjoint(held_out)
    problem = task.problem(task.ids("validation")[0])
    game, said = begun("any", 0, held_out=True)
    assert problem.question == said
    way = game.plan.shortest(game.state)
    right, wrong = (text_of([Turn(move) for move in moves]) for moves in (way, way[::-1]))
    written = [written_as(problem, text) for text in (right, wrong)]
    assert paid(task, problem, *written) == [1.0, 0.0]


def paid(task, problem, *written):
    episodes = [played(task.environment, problem, each) for each in written]
    return graded(task, [problem] * len(written), written, [""] * len(written), episodes)[0]


def turns_of(said):
    """Read what solutions.py writes: every second one is a model's."""
    for text in said[::2]:
        name, _, arguments = text.removesuffix(")").partition("(")
        pairs = (each.split("=") for each in arguments.split(",") if each)
        calls = (ToolCall(name, {key: int(value) for key, value in pairs}),) if arguments else ()
        yield Turn("" if calls else text, calls)


def test_a_chain_that_is_worked_off_with_the_calculator_is_right(here):
    task = CalculatorOptions(terms=4, other_terms=3, train_problems=5).make()
    problem = task.problem(task.ids("train")[0])
    said = calculator_solution(problem.question)
    assert said[-1] == problem.answer == str(eval(problem.question.rstrip("=")))
    turns = list(turns_of(said))
    episode = task.environment.replay(problem, turns)
    heard = [each.content for observations in episode.observations for each in observations]
    assert heard == said[1::2]
    assert (episode.done, episode.calls, episode.errors) == (True, 3, 0)
    others = [[Turn(problem.answer)], [*turns[:-1], Turn(f"{problem.answer} ")], turns[:-1]]
    written = [written_as(problem, text_of(each)) for each in [turns, *others]]
    cut = replace(written[0], turns=(2,), end="turns")
    assert paid(task, problem, *written, cut) == [1.0, 1.0, 0.0, 0.0, 0.0]


def test_each_option_of_the_calculator_changes_it(here):
    task = CalculatorOptions(terms=5, other_terms=6, train_problems=7).make()
    ids = {split: task.ids(split) for split in ("train", "out-of-distribution")}
    assert len(ids["train"]) == 7
    signs = [sum(id.count(sign) for sign in "+-") for its in ids.values() for id in its]
    assert set(signs) == {4, 5}
    totals = [calculator_solution(task.problem(id).question)[1::2] for id in ids["train"]]
    assert all(0 <= int(total) <= 999 for its in totals for total in its)
    with pytest.raises(TaskError, match="terms = other_terms = 3"):
        CalculatorOptions(other_terms=3).make()


@pytest.mark.parametrize("task", ["maze", "calculator"])
def test_the_recipe_of_a_game_trains_the_models_that_ship(task, desk):
    recipe = potluck.STARTING_RECIPE.with_stem(f"recipe-{task}")
    few = ["rounds=1", "problems_per_round=1", "group_size=2", "evaluation.problems=1"]
    few += ["task.problems=20", "task.validation_problems=5"] if task == "maze" else []
    config = potluck.load(recipe, [*few, "evaluation.out_of_distribution=1"])
    run(config, desk / "run")
    for node in config.node:
        assert (desk / "run" / node / "metrics.jsonl").stat().st_size
