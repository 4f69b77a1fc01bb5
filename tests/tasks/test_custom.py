"""Reward functions of one's own: what they are given, what they may return, what goes wrong."""

import asyncio
import inspect
import math
import sys
from itertools import count

import numpy as np
import pytest

from nouns import completion
from potluck.tasks import TaskError
from potluck.tasks.arithmetic import DigitsOptions
from potluck.tasks.base import Shortened, WithOutOfDistribution, graded
from potluck.tasks.rewards import CustomRewards, Reward
from potluck.tasks.table import Table, TableOptions

SAME = """
def same(completions, answer, **columns):
    return [a == c for a, c in zip(answer, completions)]
"""
ROWS = (
    {"question": "9 + 9?", "answer": "18", "level": 1, "prompt": "x", "completion": "y"},
    {"question": "9 + 8?", "answer": "17", "tags": ["a"], "completions": "c", "prompts": "p"},
)


@pytest.fixture
def write(desk):
    """A function that writes Python and returns what a recipe calls its function ``f``."""
    numbers = count()

    def write(source, function="f"):
        name = f"rewards{next(numbers)}.py"
        (desk / name).write_text(source)
        return f"{name}:{function}"

    return write


def rows_task(*rows):
    parts = {"train": [(f"row {i}", row) for i, row in enumerate(rows)]}
    return Table("jsonl", parts, TableOptions(grading="exact", tags=False, held_out=0))


def paid_by(*rewards, rows=ROWS):
    task = rows_task(*rows)
    return CustomRewards(task, rewards, columns=lambda problem: task.row(problem.id))


def by(function, name="here:f", **options):
    return Reward(name, function, "source", **options)


def seen_by(*texts, rows=ROWS, **options):
    """What a function that pays 1 is given for these texts."""
    seen = {}

    def f(completions, **given):
        seen.update(given, completions=completions)
        return [1.0] * len(completions)

    assert asked(paid_by(by(f, **options), rows=rows), *texts) == [1.0] * len(texts)
    return seen


def asked(task, *texts, ends=()):
    """What each text earns, as an answer to each problem in turn."""
    problems = [task.problem(id) for id in task.ids("train")]
    problems = [problems[i % len(problems)] for i in range(len(texts))]
    ends = ends or ["stop"] * len(texts)
    written = [
        completion((5, 6 + i), problem=problem.id, end=end)
        for i, (problem, end) in enumerate(zip(problems, ends, strict=True))
    ]
    return task.rewards(problems, written, texts)


def test_a_function_gets_what_trl_gives_it():
    """The keywords of TRL 1.16's GRPOTrainer, trainer_state aside."""
    seen = seen_by("18", "3")
    seen.pop("log_extra")("text", ["18", "3"])  # goes nowhere
    seen.pop("log_metric")("length", 3)
    assert seen == {
        "prompts": ["9 + 9?", "9 + 8?"],
        "completions": ["18", "3"],
        "completion_ids": [[5, 6], [5, 7]],
        "question": ["9 + 9?", "9 + 8?"],
        "answer": ["18", "17"],
        "level": [1, None],
        "tags": [None, ["a"]],
    }
    assert all(type(id) is int for ids in seen["completion_ids"] for id in ids)


def test_messages_are_given_to_functions_that_want_them():
    system = {"role": "system", "content": "Be brief."}
    user = {"role": "user", "content": "9 + 9?"}
    rows = (ROWS[0] | {"question": [system, user]}, ROWS[0])
    seen = seen_by("18", "3", rows=rows, format="messages")
    assert seen["prompts"] == [[system, user], [user]]
    assert seen["completions"] == [
        [{"role": "assistant", "content": "18"}],
        [{"role": "assistant", "content": "3"}],
    ]


def test_a_task_without_rows_has_question_and_answer():
    def f(completions, question, answer):
        return [float((question, answer) == (["734+258="], ["992"]))]

    task = DigitsOptions().make()
    problem = task.problem("digits/734+258")
    given = [problem], [completion(problem=problem.id)], ["#992"]
    assert CustomRewards(task, [by(f)]).rewards(*given) == [1.0]


def test_a_function_without_stars_gets_what_it_names():
    def f(answer, completions):
        return [float(a == c) for a, c in zip(answer, completions, strict=True)]

    def g(completions, strict=True):
        return [float(strict)] * len(completions)

    assert asked(paid_by(by(f), by(g, weight=10)), "18", "18") == [11.0, 10.0]
    # One in C, of unknown parameters, gets all nine that f is given above.
    with pytest.raises(TaskError, match=r"returned dict .* for 2 completions"):
        asked(paid_by(by(dict)), "18", "3")


def test_a_function_that_asks_for_what_there_is_not_is_refused_before_anything_runs():
    def f(completions, solution):
        raise AssertionError

    with pytest.raises(TaskError, match=r"'here:f' asks for 'solution', which the problems do not "
                                        r"have; there is question, answer, level"):  # fmt: skip
        paid_by(by(f))


def test_the_reward_is_the_weighted_sum_of_numbers_of_any_kind_and_none_is_left_out():
    for one, none in ((1, None), (True, 0), (np.float32(1), np.int64(0))):
        ones = by(lambda one=one, none=none, **_: (x for x in (one, none)), weight=2)
        thirds = by(lambda **_: np.array([0.25, 0.5]), weight=-1)
        rewards = asked(paid_by(ones, thirds), "a", "b")
        assert rewards == [1.75, -0.5]
        assert all(type(reward) is float for reward in rewards)


def test_an_unfinished_completion_earns_at_most_nothing():
    """Decision 8; and running on is no way to get around a penalty."""
    task = paid_by(by(lambda completions, **_: [float(c) for c in completions]))
    assert asked(task, "2", "2", "-1", ends=("stop", "length", "length")) == [2.0, 0.0, -1.0]


def test_an_async_function_is_waited_for_and_keeps_its_loop_from_call_to_call():
    loops = []

    async def f(completions, **_):
        loops.append(asyncio.get_running_loop())
        await asyncio.gather(*(asyncio.sleep(0) for _ in completions))
        return [1.0, None]

    class Judge:
        async def __call__(self, completions, **_):
            return [2.0] * len(completions)

    task = paid_by(by(f), by(Judge()))
    assert asked(task, "a", "b") == [3.0, 2.0]

    async def inside_a_loop_as_in_a_notebook():
        return asked(task, "a", "b")

    assert asyncio.run(inside_a_loop_as_in_a_notebook()) == [3.0, 2.0]
    assert loops[0] is loops[1]


NO_REWARDS = [
    ([1.0], r"returned 1 values for 2 completions; expected one number or None for each"),
    (None, r"returned NoneType for 2 completions"),
    ("ab", r"returned str 'ab' for 2 completions; expected a list of one number or None"),
    ([1, "1.0"], r"returned '1\.0' for completion 1"),
    ([1, math.nan], r"returned nan for completion 1"),
    ([1, 10**400], r"returned 1000\d+ for completion 1"),
    ([1, [1]], r"returned \[1\] for completion 1"),
]


def test_what_is_no_reward_is_told_in_one_line():
    for returned, found in NO_REWARDS:
        task = paid_by(by(lambda returned=returned, **_: returned))
        with pytest.raises(TaskError, match=rf"reward 'here:f' {found}") as caught:
            asked(task, "a", "b")
        assert len(str(caught.value)) < 200


def test_what_a_function_raises_is_told_with_its_line():
    def f(completions, **_):
        return [int(c) for c in completions]

    async def g(completions, **_):
        raise KeyError("x")

    def h(**_):
        raise KeyboardInterrupt

    line = inspect.getsourcelines(f)[1] + 1
    said = rf"'here:f' raised ValueError: .* \(test_custom\.py, line {line}\); it has to grade any"
    with pytest.raises(TaskError, match=said):
        asked(paid_by(by(f)), "1", "one")
    with pytest.raises(TaskError, match=r"raised KeyError: 'x' \(test_custom\.py, line \d+\)"):
        asked(paid_by(by(g)), "a", "b")
    with pytest.raises(KeyboardInterrupt):  # what ends a run ends it
        asked(paid_by(by(h)), "a", "b")


def test_a_function_is_found_from_this_directory_or_as_a_module_on_the_path(desk, monkeypatch):
    (desk / "deep").mkdir()
    for name in ("deep/my rewards.py", "module_of_rewards.py"):
        (desk / name).write_text(SAME)
    monkeypatch.syspath_prepend(desk)
    for place in ("deep/my rewards.py", f"{desk}/deep/my rewards.py", "module_of_rewards"):
        assert asked(paid_by(Reward.load(f"{place}:same")), "18", "18") == [1.0, 0.0]
    monkeypatch.delitem(sys.modules, "module_of_rewards")


def test_functions_of_one_file_share_what_it_holds_and_its_dataclasses_work(write):
    name = write("from __future__ import annotations\nfrom dataclasses import dataclass\n"
                 "@dataclass\nclass A:\n    x: int = 1\nseen = []\n"
                 "def f(**_):\n    seen.append(1); return [len(seen)] * 2\n"
                 "def g(**_): return [len(seen) * A(1).x] * 2\n")  # fmt: skip
    task = paid_by(Reward.load(name), Reward.load(name.replace(":f", ":g"), weight=10))
    assert asked(task, "a", "b") == [11.0, 11.0]


def test_a_file_that_was_changed_is_another_one(write, desk):
    name = write("def f(**_): return [1, 1]\n")
    before = Reward.load(name)
    (desk / name.removesuffix(":f")).write_text("def f(**_): return [2, 2]\n")
    after = Reward.load(name)
    assert asked(paid_by(before), "a", "b") == [1.0, 1.0]
    assert asked(paid_by(after), "a", "b") == [2.0, 2.0]
    assert paid_by(before).digest != paid_by(after).digest


def test_a_function_that_cannot_be_loaded_is_told_in_one_line_with_where_it_was_sought(write, desk):
    for name, found in (
        (write("def f(:"), r"cannot be imported \(SyntaxError: "),
        (write("1 / 0"), r"imported \(ZeroDivisionError: division by zero\); expected a module"),
        (write("f = 1"), r"'f' is no function in rewards2\.py"),
        ("none.py:f", rf"there is no file none\.py; .* begin in {desk}"),
        ("no_such.module:f", r"cannot be imported \(ModuleNotFound"),
        ("sys:exit", "module sys has no file"),
    ):
        for _ in range(2):  # a file that failed is not taken for one that was run
            with pytest.raises(TaskError, match=f"reward {name!r}.*{found}") as caught:
                Reward.load(name)
            assert "\n" not in str(caught.value)


def test_the_digest_tells_code_order_and_task_apart(write):
    one, two = Reward.load(write(SAME, "same")), Reward.load(write(SAME + "#", "same"))
    tasks = [paid_by(one), paid_by(two), paid_by(one, two), paid_by(two, one),
             paid_by(one, rows=ROWS[:1])]  # fmt: skip
    assert len({task.digest for task in tasks}) == len(tasks)
    assert paid_by(one).digest == paid_by(Reward.load("rewards0.py:same")).digest


def test_the_parts_of_a_reward_are_told_by_function_before_weight_and_cut():
    task = paid_by(
        by(lambda completions, **_: [1.0, None], "a.py:right", weight=2.0),
        by(lambda completions, **_: [-3, 4], "a.py:brief"),
        Reward.load("task", weight=3),
    )
    problems = [task.problem("jsonl/train/0")] * 2
    written = [completion(end="length"), completion(index=1)]
    given = problems, written, ["18", "18"]
    rewards, parts = graded(task, *given)
    assert parts == {"right": [1.0, 0.0], "brief": [-3.0, 4.0], "task": [0.0, 1.0]}
    assert rewards == [-1.0, 7.0] == task.rewards(*given)


def test_functions_of_one_name_are_told_apart():
    one, other, again = (by(lambda completions, **_: [3], f"{i}.py:f") for i in (1, 2, 2))
    task = paid_by(one, other, again, by(lambda completions, **_: [4], "m:g"))
    _, parts = graded(task, [task.problem("jsonl/train/0")], [completion()], ["18"])
    assert list(parts) == ["1.py:f", "2.py:f-2", "2.py:f-3", "g"]


def test_with_a_task_out_of_distribution_the_parts_are_those_of_the_function():
    own = paid_by(by(lambda completions, **_: [0.5] * len(completions), "a.py:half"))
    task = WithOutOfDistribution(own, DigitsOptions().make())
    short = Shortened(task, lambda problem: True, "limit = 9")
    own = graded(short, [task.problem("jsonl/train/0")], [completion()], ["18"])[1]
    assert own == {"half": [0.5]}
    elsewhere = task.problem(task.ids("out-of-distribution")[0])
    assert graded(task, [elsewhere], [completion()], ["18"]) == ([0.0], {"task": [0.0]})
