"""Tasks with an environment: their problems, what an episode earns, and consent to a class."""

import json
import shutil
from dataclasses import replace

import msgspec
import pytest

from nouns import completion
from potluck.builder.task import code_of, make_task
from potluck.config import ConfigError, from_tree
from potluck.episode import EnvironmentFailed, ToolCall, Turn, acted, text_of
from potluck.tasks.arithmetic import DigitsOptions
from potluck.tasks.base import DerivedTask, TaskError, environment_of, graded
from potluck.tasks.rewards import HashReward
from tasks.environments.test_hosted import GAMES, apart, first, made, says

__all__ = ["apart", "made"]


def episode(problem, *turns, end="stop"):
    ends = (end, (2,) * len(turns), bytes(2 * len(turns) - 2))
    one = completion((1, 2) * len(turns), problem=problem.id)
    return replace(one, end=ends[0], turns=ends[1], observed=ends[2], text=text_of(turns))


def earned(task, problem, *turns, end="stop"):
    one = episode(problem, *turns, end=end)
    said = "\n".join(turn.content for turn in turns)
    went = environment_of(task).replay(problem, acted(turns, end), one)
    return graded(task, [problem], [one], [said], [went])[0][0]


@pytest.fixture
def recipe(here, tmp_path):
    """A run on a table, with whatever [task] is to have beside it."""
    rows = [{"question": f"{i}+1=", "answer": str(i + 1), "goal": i} for i in range(20)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def read(reward=(), **task):
        table = {"name": "jsonl", "path": str(tmp_path / "rows.jsonl"), "tags": False, **task}
        node = {"a": {"model": "digits-small"}}
        return from_tree({"name": "r", "rounds": 1, "task": table, "node": node, "reward": reward})

    return read


def test_an_episode_earns_what_this_nodes_own_environment_pays(made):
    task = made("Count")
    problem = first(task)
    assert earned(task, problem, Turn("a"), Turn("x")) == 2.0
    assert earned(task, problem, Turn("a"), end="turns") == 1.0
    assert earned(task, problem, Turn("a"), Turn("x"), end="length") == 0.0  # the cut one is unsaid
    assert earned(task, problem, Turn("a"), end="room") == 0.0
    with pytest.raises(TaskError, match=r"comes without its episode; play it in task.environment"):
        task.rewards([problem], [completion(problem=problem.id)], [""])
    assert environment_of(HashReward(task)) is task.environment
    assert environment_of(DerivedTask(task, "")) is task.environment


def test_every_option_changes_what_is_said_and_the_digest(made):
    plain = made("Count")
    for option, value in {
        "max_turns": 1, "observation_bytes": 64, "step_s": 1.0, "memory_gib": 1.0, "seed": 1,
        "problems": 9, "validation_problems": 3, "question": "Q", "system_prompt": "S",
        "parameters": {"start": 1}, "other_parameters": {"start": 2},
    }.items():  # fmt: skip
        assert made("Count", **{option: value}).digest != plain.digest, option
    with pytest.raises(EnvironmentFailed, match="2 turns; at most 1"):
        says(made("Count", max_turns=1), "a", "b")
    assert says(made("Count", observation_bytes=64), "é" * 70) == ["é" * 29 + " [cut]"]
    sized = made("Count", problems=3, validation_problems=2, other_parameters={"start": 2})
    assert list(sized.ids("train")) == [f"game/train/{i}" for i in range(3)]
    assert list(sized.ids("validation")) == ["game/validation/0", "game/validation/1"]
    assert sized.problem("game/out-of-distribution/1").question == "from 2"
    assert first(made("Count", parameters={"start": 1})).question == "from 1"
    numbers = [sized.base.row(id)["number"] for split in ("validation", "train")
               for id in sized.ids(split)]  # fmt: skip
    assert len({*numbers}) == 5
    assert not plain.ids("out-of-distribution")


def test_a_file_may_lie_anywhere_on_another_node(made, tmp_path, recipe):
    shutil.copy(GAMES, tmp_path)
    here, there = (recipe(game=f"{folder}/games.py:Count") for folder in (GAMES.parent, tmp_path))
    assert make_task(here, trust_code=True).digest == make_task(there, trust_code=True).digest


def test_rows_reach_reset_and_reward_functions(recipe, tmp_path):
    (tmp_path / "pay.py").write_text(
        "def pay(completions, goal, **rest):\n"
        "    return [g + len(c) for g, c in zip(goal, completions)]"
    )
    pay, own = {"function": f"{tmp_path}/pay.py:pay"}, {"function": "task", "weight": 100.0}
    run = recipe([pay, own], environment=f"{GAMES}:Counter")
    task = make_task(run, trust_code=True)
    problem = task.problem("jsonl/train/3")
    assert problem.question == "3+1="
    turns = Turn("abc", (ToolCall("increment", {"step": 3}),)), Turn("d")
    assert earned(task, problem, *turns) == 3 + 5 + 100
    assert earned(task, problem, *turns, end="turns") == 3 + 5 + 100
    assert earned(task, problem, *turns, Turn("e"), end="length") == 0.0
    environment_of(task).close()


def test_a_reward_function_may_read_all_messages(recipe, tmp_path):
    (tmp_path / "pay.py").write_text(
        "seen = []\ndef pay(completions, **rest):\n"
        "    return [float(len(c) > 3 and c[1] == {'role': 'tool', 'content': '3'}\n"
        "        and c[0]['tool_calls'][0]['function']['arguments'] == {'step': 3}\n"
        "        and c[3]['content'] == 'd') for c in completions]"
    )
    pay = {"function": f"{tmp_path}/pay.py:pay", "format": "messages"}
    task = make_task(recipe([pay], environment=f"{GAMES}:Counter"), trust_code=True)
    add = Turn("", (ToolCall("increment", {"step": 3}), ToolCall("which", {})))
    assert earned(task, task.problem("jsonl/train/3"), add, Turn("d")) == 1.0


def test_without_get_reward_the_answer_in_the_last_turn_is_graded(recipe, made):
    task = make_task(recipe(environment=f"{GAMES}:Calculator"), trust_code=True)
    problem = task.problem("jsonl/train/3")
    added = Turn("so", (ToolCall("add", {"left": 3, "right": 1}),))
    assert earned(task, problem, added, Turn("4")) == 1.0
    assert earned(task, problem, added, Turn("5")) == 0.0
    assert earned(task, problem, added, Turn("4"), end="turns") == 0.0
    environment_of(task).close()
    numbers = made("Calculator", "environment")
    with pytest.raises(TaskError, match="has no get_reward; give it one"):
        earned(numbers, first(numbers), Turn("4"))


def test_a_class_runs_only_where_it_is_trusted(recipe, tmp_path):
    for key in ("game", "environment"):
        (tmp_path / f"{key}.py").write_text("open(__file__ + '.ran', 'w').close()")
        run = recipe(**{key: f"{tmp_path}/{key}.py:Game"})
        assert code_of(run) == [(f"[task] {key}", f"{tmp_path}/{key}.py:Game")]
        with pytest.raises(ConfigError, match=rf"runs code, \[task\] {key} .*--trust-code"):
            make_task(run)
        assert not (tmp_path / f"{key}.py.ran").exists()
        with pytest.raises(TaskError, match="'Game' is not there"):
            make_task(run, trust_code=True)
        assert (tmp_path / f"{key}.py.ran").exists()


def test_stop_texts_are_refused_where_turns_end_by_a_token(recipe):
    run = recipe(environment=f"{GAMES}:Calculator")
    stopped = msgspec.structs.replace(
        run, sampling=msgspec.structs.replace(run.sampling, stop_texts=("\n",))
    )
    with pytest.raises(ConfigError, match=r"stop_texts is .* the task has an environment"):
        make_task(stopped, trust_code=True)
    make_task(run, trust_code=True)


def test_an_environment_has_no_table_out_of_distribution_beside_it(recipe):
    run = recipe(game=f"{GAMES}:Count")
    run = msgspec.structs.replace(run, out_of_distribution=DigitsOptions())
    with pytest.raises(TaskError, match=r"\[out_of_distribution\] with an environment"):
        make_task(run, trust_code=True)
