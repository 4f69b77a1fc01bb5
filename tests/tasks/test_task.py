"""The contract of all tasks (a new one adds a line to MAKERS), and overlaps of splits."""

import math
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import get_args

import pytest

from nouns import completion
from potluck.tasks import Split, TaskError
from potluck.tasks.arithmetic import SPLIT_SIZES, ChainOptions, DigitsOptions
from potluck.tasks.base import WithOutOfDistribution, digest_of, normalised, overlaps
from potluck.tasks.benchmarks import Gsm8kOptions
from potluck.tasks.games.calculator import CalculatorOptions
from potluck.tasks.named import TASKS
from potluck.tasks.rewards import CustomRewards, HashReward, Reward
from potluck.tasks.table import JsonlOptions, Table
from potluck.types import Problem
from tasks.graded import graded


def table(path, name="jsonl", **rules):
    """The made-up train.jsonl as rows of one's own."""
    chosen = {"path": f"{path}/train.jsonl", "answer_after": "####", "held_out": 40}
    options = JsonlOptions(**chosen, **rules)
    return Table(name, options.parts(), options)


def half_each(task):
    """The task's own grading, in two halves."""
    return CustomRewards(task, [Reward("task", None, "", weight=0.5)] * 2)


@cache
def the_digits():
    """What other tasks are made from; it is itself made anew each time."""
    return DigitsOptions().make()


MAKERS = {
    "digits": lambda path: DigitsOptions().make(),
    "chain": lambda path: ChainOptions().make(),
    "calculator, without turns": lambda path: CalculatorOptions(train_problems=50).chains(),
    "gsm8k": lambda path: Gsm8kOptions(path=path).make(),
    "gsm8k, as the paper": lambda path: Gsm8kOptions(path=path, validation="test").make(),
    "gsm8k, without tags": lambda path: Gsm8kOptions(path=path, tags=False).make(),
    "gsm8k, digits elsewhere": lambda path: WithOutOfDistribution(
        Gsm8kOptions(path=path).make(), the_digits()
    ),
    "hash of digits": lambda path: HashReward(the_digits()),
    "rows, in tags": lambda path: table(path),
    "rows, the whole text": lambda path: table(path, "hub", tags=False, grading="exact"),
    "custom over rows": lambda path: half_each(table(path)),
}
ELSEWHERE = {"math500", "reasoning-gym", "game", "maze"}
"""Tasks that tests of their own try: test_benchmarks.py, test_gym.py, environments/, games/."""
PAYS_UNFINISHED = ("hash of digits",)
TEXTS = (
    "", "#", "18", "<think></think><answer></answer>", "<think></think><answer>NaN</answer>",
    "\0", "\ud800", "9" * 10_000, "<think>" * 10_000, "__import__('os').abort()",
)  # fmt: skip

every_task = pytest.mark.parametrize("name", MAKERS)
every_graded_task = pytest.mark.parametrize("name", sorted(MAKERS.keys() - set(PAYS_UNFINISHED)))


@pytest.fixture(scope="module")
def tasks(made_up_path):
    """Every task, with a tenth of the problems where they are drawn."""
    with pytest.MonkeyPatch.context() as patch:
        for split, size in SPLIT_SIZES.items():
            patch.setitem(SPLIT_SIZES, split, size // 10)
        yield {name: make(made_up_path) for name, make in MAKERS.items()}


def right(problem):
    """A text that is right for every task that we have."""
    if problem.id.startswith(("hub/", "calculator/")):
        return problem.answer
    if problem.id.startswith(("gsm8k/", "jsonl/")):
        return f"<think>...</think><answer>{problem.answer}</answer>"
    return f"#{problem.answer}"


def test_every_task_is_tried_in_this_file_or_elsewhere(tasks):
    """Ids begin with the name of their task."""
    tried = {task.ids("train")[0].partition("/")[0] for task in tasks.values()}
    assert TASKS.keys() - tried == ELSEWHERE


@every_task
def test_a_problem_is_in_one_split_once_and_found_by_its_id_and_whole(tasks, name):
    task = tasks[name]
    ids = [id for split in get_args(Split) for id in task.ids(split)]
    assert len(ids) == len(set(ids))
    assert task.ids("train")
    assert task.ids("validation")
    for id in ids:
        problem = task.problem(id)
        assert problem == task.problem(id)
        assert problem.id == id
        assert problem.question
        assert problem.answer


@every_task
def test_an_unknown_id_is_a_task_error_that_shows_how_ids_look(tasks, name):
    place = tasks[name].ids("train")[0].partition("/")[0]
    for id in ("", "nothing", "gsm8k/train/-1", "digits/1", "chain/1", "\ud800", "x" * 9_999):
        with pytest.raises(TaskError, match=f"look like '{place}/"):
            tasks[name].problem(id)


@every_task
def test_a_task_made_twice_is_the_same_task(tasks, name, made_up_path):
    again = MAKERS[name](made_up_path)
    assert again.digest == tasks[name].digest
    for split in get_args(Split):
        assert list(again.ids(split)) == list(tasks[name].ids(split))


def test_no_two_tasks_have_one_digest(tasks):
    digests = {task.digest for task in tasks.values()}
    assert len(digests) == len(tasks)
    assert all(len(digest) == 64 for digest in digests)


def test_the_digest_tells_rules_order_and_every_field_apart():
    one, two = Problem("a", "b", "c", "d"), Problem("e", "f", "g")
    others = [[one, two], [two, one], [one], [Problem("ab", "", "c", "d"), two]]
    for field in ("id", "question", "answer", "system"):
        others.append([replace(one, **{field: "other"}), two])
    digests = {digest_of("rules", each) for each in others}
    assert len({*digests, digest_of("other", [one, two])}) == len(others) + 1


@every_task
def test_each_completion_earns_one_finite_reward_whatever_it_says(tasks, name):
    rewards = graded(tasks[name], *TEXTS)
    assert len(rewards) == len(TEXTS)
    assert all(isinstance(reward, float) and math.isfinite(reward) for reward in rewards)


@every_graded_task
def test_each_completion_is_graded_by_its_own_problem(tasks, name):
    task = tasks[name]
    problems = [task.problem(id) for id in task.ids("train")[:20]]
    completions = [completion(problem=problem.id) for problem in problems]
    texts = [right(problem) for problem in problems]
    assert task.rewards(problems, completions, texts) == [1.0] * 20
    shifted = task.rewards(problems, completions, [*texts[1:], texts[0]])
    pairs = zip(problems, [*problems[1:], problems[0]], strict=True)
    assert shifted == [float(a.answer == b.answer) for a, b in pairs]


@every_task
def test_an_unfinished_completion_earns_nothing_unless_a_hash_pays(tasks, name):
    text = right(tasks[name].problem(tasks[name].ids("train")[0]))
    assert any(graded(tasks[name], *[text] * 20, end="length")) == (name in PAYS_UNFINISHED)


@every_task
def test_no_completions_earn_no_rewards_and_lists_of_unequal_length_are_refused(tasks, name):
    task = tasks[name]
    assert task.rewards([], [], []) == []
    problem = task.problem(task.ids("train")[0])
    for problems, completions, texts in ((2, 1, 1), (1, 2, 1), (1, 1, 2)):
        with pytest.raises(ValueError, match="zip"):
            task.rewards([problem] * problems, [completion()] * completions, [""] * texts)


def splits(**texts):
    """A task with these questions, each named after its split and its place."""
    problems = {
        f"{split}/{i}": Problem(f"{split}/{i}", text, "1")
        for split, all in texts.items()
        for i, text in enumerate(all)
    }
    names = {"train": "train", "validation": "validation", "out-of-distribution": "other"}
    return SimpleNamespace(
        ids=lambda split: [id for id in problems if id.startswith(names[split])],
        problem=problems.__getitem__,
    )


def test_an_overlap_of_any_two_splits_is_counted_and_its_first_problem_named():
    found = list(overlaps(splits(train=["a"], validation=["b", "a"], other=["a", "b", "c"])))
    other = "out-of-distribution"
    assert found == [
        "overlap: 1 of 2 validation problems is also in train, first validation/1",
        f"overlap: 1 of 3 {other} problems is also in train, first other/0",
        f"overlap: 2 of 3 {other} problems are also in validation, first other/0",
    ]


def test_case_and_space_make_no_other_question_and_a_number_or_sign_does():
    asked = "What is 9 + 9?"
    for same in ("What is\n9 + 9?", "  What  is\t9 +\u00a09? ", asked.upper()):
        assert normalised(same) == normalised(asked)
    for other in ("What is 9 + 8?", "What is 9 - 9?", "What is 99?"):
        assert normalised(other) != normalised(asked)


def test_one_id_in_two_splits_is_an_error():
    task = splits(train=["a"], validation=["b"], other=["c"])
    own = task.ids
    task.ids = lambda split: ["train/0"] if split == "validation" else own(split)
    with pytest.raises(TaskError, match="'train/0' is in train and validation; keep it in one"):
        list(overlaps(task))


def test_gsm8k_has_no_question_of_test_in_train_and_math500_none_of_either(gsm8k_path):
    """Measured on the real files: by text, so paraphrases are not seen."""
    gsm8k = Gsm8kOptions(path=gsm8k_path, validation="test").make()
    math500 = f"{gsm8k_path}/../math500/test.jsonl"
    elsewhere = JsonlOptions(out_of_distribution=math500, question="problem", grading="exact")
    assert len(elsewhere.make().ids("out-of-distribution")) == 500
    assert not list(overlaps(WithOutOfDistribution(gsm8k, elsewhere.make())))
