import json
import sys

import pytest

from nouns import completion
from potluck.builder.task import make_task, require_problems
from potluck.config import ConfigError, from_tree
from potluck.tasks import TaskError
from potluck.tasks.arithmetic import DigitsOptions
from potluck.tasks.base import WithOutOfDistribution
from potluck.tasks.math500 import SYSTEM_PROMPT, Math500Options
from potluck.tasks.rewards import HashReward
from stand_in_datasets import stand_in

ROWS = [
    {"problem": "What is half of $1$?", "answer": r"\frac{1}{2}", "level": 1},
    {"problem": "Simplify $\\sqrt{8}$.", "answer": r" 2\sqrt{2} "},
    {"problem": "How many dollars are two dollars?", "answer": "2"},
]
BAD_LINES = {
    "not json": ("What is 9 + 9?", "which is not JSON; expected {\"problem\""),
    "no problem": ('{"question": "9?", "answer": "18"}', "without the key 'problem'"),
    "no answer": ('{"problem": "9?"}', "without the key 'answer'"),
    "an empty answer": ('{"problem": "9?", "answer": " "}', "empty 'answer'; expected the right"),
    "a number": ('{"problem": "9?", "answer": 18}', "has 18 as 'answer'; expected a text"),
    "an escape": ('{"problem": "9?", "answer": "\\u001b[2J"}', "of its 'answer'; expected print"),
}  # fmt: skip


@pytest.fixture
def write(tmp_path):
    def write(*rows):
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (tmp_path / "test.jsonl").write_text("\n".join(lines))
        return str(tmp_path)

    return write


def tagged(answer):
    return f"<think>x</think><answer>{answer}</answer>"


def graded(task, id, *texts, end="stop"):
    completions = [completion((i + 1,), problem=id, end=end) for i in range(len(texts))]
    return task.rewards([task.problem(id)] * len(texts), completions, texts)


def test_all_of_it_is_out_of_distribution(write):
    task = Math500Options(path=write(*ROWS)).make()
    assert task.ids("out-of-distribution") == ["math500/0", "math500/1", "math500/2"]
    assert not task.ids("train")
    assert not task.ids("validation")
    problem = task.problem("math500/1")
    assert (problem.question, problem.answer) == (ROWS[1]["problem"], r"2\sqrt{2}")


def test_the_real_problems_and_their_digest_are_the_same_for_ever(math500_path):
    task = Math500Options(path=math500_path, system_prompt="p").make()
    assert len(task.ids("out-of-distribution")) == 500
    assert task.problem("math500/0").answer == r"\left( 3, \frac{\pi}{2} \right)"
    assert task.problem("math500/499").answer == r"106^\circ"
    assert task.digest == "1a1c2a16f1f04c57b20d35fe224136e29a7cf2fbf4ef36f4f5479f04baf8dd50"


def test_right_is_the_format_and_the_answer_together(write):
    task = Math500Options(path=write(*ROWS)).make()
    texts = [
        tagged(a) for a in (r"2\sqrt{2}", r"\boxed{\sqrt{2}\cdot 2}", r"3\sqrt{2}", "2.828427", "")
    ]
    assert graded(task, "math500/1", *texts) == [1, 1, 0, 0, 0]
    outside = (r"2\sqrt{2}", r"\boxed{2\sqrt{2}}", tagged(r"2\sqrt{2}") + ".")
    assert graded(task, "math500/1", *outside) == [0, 0, 0]


def test_the_recipe_may_ask_for_the_grading_of_math_verify_alone(write):
    options = {"name": "math500", "path": write(*ROWS)}
    tables = {"name": "a", "node": {"a": {"model": "m"}}}
    ours, plain = (
        make_task(from_tree({"task": options | {"grading": grading}, **tables}))
        for grading in ("math", "math-verify")
    )
    texts = [tagged(a) for a in ("0.5", "1-0.5", "2")] + [r"\frac{1}{2}"]
    assert graded(ours, "math500/0", *texts) == [1, 0, 0, 0]
    assert graded(plain, "math500/0", *texts) == [1, 1, 0, 0]
    assert ours.digest == make_task(from_tree({"task": options, **tables})).digest != plain.digest


def test_the_question_belongs_to_the_grading(write):
    task = Math500Options(path=write(*ROWS)).make()
    assert graded(task, "math500/2", tagged(r"\$2"), tagged("2")) == [1, 1]
    assert graded(task, "math500/0", tagged(r"\$0.50"), tagged("0.50")) == [0, 1]


def test_an_unfinished_completion_earns_nothing_and_costs_no_algebra(write, monkeypatch):
    task = Math500Options(path=write(*ROWS)).make()
    monkeypatch.setattr("potluck.tasks.math.pool.shared_workers", None)
    assert graded(task, "math500/1", tagged(r"\sqrt{2} \cdot 2"), end="length") == [0]
    assert graded(task, "math500/1", tagged(r"2\sqrt{2}"), end="length") == [0]


def test_lists_of_unequal_length_are_refused(write):
    task = Math500Options(path=write(*ROWS)).make()
    problem = task.problem("math500/0")
    assert task.rewards([], [], []) == []
    for problems, completions, texts in ((2, 1, 1), (1, 2, 1), (1, 1, 2)):
        with pytest.raises(ValueError, match="zip"):
            task.rewards([problem] * problems, [completion()] * completions, [""] * texts)


def test_the_built_in_prompt_names_the_tags_and_a_prompt_of_ones_own_replaces_it(write):
    for tag in ("<think>", "</think>", "<answer>", "</answer>"):
        assert tag in SYSTEM_PROMPT
    path = write(*ROWS)
    assert Math500Options(path=path).make().problem("math500/0").system == SYSTEM_PROMPT
    assert (
        Math500Options(path=path, system_prompt="Be brief.").make().problem("math500/0").system
        == "Be brief."
    )


def test_the_digest_changes_with_everything(write):
    def digest(*rows, **options):
        return Math500Options(path=write(*rows), **options).make().digest

    plain = digest(*ROWS)
    assert plain == digest(*ROWS)
    changed = [
        digest(*ROWS[:2]),
        digest(*ROWS[::-1]),
        digest(ROWS[0] | {"answer": "2"}, *ROWS[1:]),
        digest(ROWS[0] | {"problem": "?"}, *ROWS[1:]),
        digest(*ROWS, system_prompt="Be brief."),
    ]
    assert len({plain, *changed}) == 6


@pytest.mark.parametrize("id", ["", "math500", "math500/3", "math500/-1", "gsm8k/test/0"])
def test_an_unknown_id_is_a_task_error_that_shows_how_ids_look(write, id):
    with pytest.raises(TaskError, match=r"its 3 look like 'math500/0'"):
        Math500Options(path=write(*ROWS)).make().problem(id)


@pytest.mark.parametrize("line, message", BAD_LINES.values(), ids=BAD_LINES)
def test_a_line_that_is_no_problem_is_named_with_its_file(write, line, message):
    with pytest.raises(TaskError, match=f"/test.jsonl, line 2 .*{message}") as caught:
        Math500Options(path=write(ROWS[0], line)).make()
    assert str(caught.value).isprintable()


def test_a_folder_or_file_that_is_not_there_and_a_file_without_problems_are_named(tmp_path):
    with pytest.raises(TaskError, match=r"no folder /.*expected one with test\.jsonl of MATH-500"):
        Math500Options(path=str(tmp_path / "nowhere")).make()
    with pytest.raises(TaskError, match=r"cannot read .*/test\.jsonl .*MATH-500 in task\.path"):
        Math500Options(path=str(tmp_path)).make()
    (tmp_path / "test.jsonl").write_text("\n")
    with pytest.raises(TaskError, match=r"holds no problem; expected test\.jsonl of MATH-500"):
        Math500Options(path=str(tmp_path)).make()


def test_the_hub_gives_the_same_task_as_the_file(write, monkeypatch):
    def load_dataset(name, config, *, split):
        assert (name, config, split) == ("HuggingFaceH4/MATH-500", None, "test")
        return ROWS

    monkeypatch.setitem(sys.modules, "datasets", stand_in(load_dataset))
    assert Math500Options().make().digest == Math500Options(path=write(*ROWS)).make().digest


def test_without_the_library_of_the_hub_the_error_names_the_other_way(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(TaskError, match=r"potluck\[data\].*, or download test.jsonl of MATH-500"):
        Math500Options().make()


def test_without_math_verify_the_error_names_the_extra(write, monkeypatch):
    monkeypatch.setattr("potluck.tasks.math.pool.find_spec", lambda name: None)
    with pytest.raises(TaskError, match=r"'math_verify'; pip install 'potluck\[math\]'"):
        Math500Options(path=write(*ROWS)).make()


# In a recipe.


def recipe(**tables):
    return from_tree(
        {"name": "tiny", "node": {"small": {"model": "builtin:digits-small"}}} | tables
    )


def test_a_recipe_names_it_and_every_option_reaches_it(write):
    path = write(*ROWS)
    plain = make_task(recipe(task={"name": "math500", "path": path}))
    assert plain.digest == Math500Options(path=path).make().digest
    brief = recipe(task={"name": "math500", "path": path, "system_prompt": "Be brief."})
    assert (
        make_task(brief).digest
        == Math500Options(path=path, system_prompt="Be brief.").make().digest
    )
    hashed = recipe(task={"name": "math500", "path": path, "reward": "hash"})
    assert make_task(hashed).digest == HashReward(Math500Options(path=path).make()).digest


def test_it_cannot_be_trained_on_and_the_error_says_where_it_belongs(write):
    config = recipe(task={"name": "math500", "path": write(*ROWS)})
    with pytest.raises(ConfigError, match=r"no problems to train on; name it under \[out_of_dis"):
        require_problems(config, make_task(config))


def test_out_of_distribution_another_task_takes_the_place_of_ones_own(write):
    table = {"name": "math500", "path": write(*ROWS)}
    config = recipe(task={"name": "digits"}, out_of_distribution=table)
    task, digits = make_task(config), DigitsOptions().make()
    require_problems(config, task)
    assert task.ids("train") == digits.ids("train")
    assert task.ids("validation") == digits.ids("validation")
    assert list(task.ids("out-of-distribution")) == [f"math500/{i}" for i in range(3)]
    assert len({task.digest, digits.digest, make_task(recipe(task={"name": "digits"})).digest}) == 2
    hashed = recipe(task={"name": "digits"}, out_of_distribution=table | {"reward": "hash"})
    assert make_task(hashed).digest != task.digest


def test_each_problem_is_graded_by_the_rules_of_its_own_task(write):
    task = WithOutOfDistribution(DigitsOptions().make(), Math500Options(path=write(*ROWS)).make())
    asked = ["digits/1+2", "math500/0", "digits/1+2", "math500/0", "math500/1"]
    texts = ["#3", tagged("0.5"), tagged("3"), "#0.5", tagged(r"\sqrt2\cdot 2")]
    problems = [task.problem(id) for id in asked]
    completions = [completion(problem=id) for id in asked]
    assert task.rewards(problems, completions, texts) == [1, 1, 0, 0, 1]


def test_a_task_that_has_nothing_elsewhere_or_shares_problems_is_refused(made_up_path):
    from potluck.tasks.gsm8k import Gsm8kOptions

    with pytest.raises(TaskError, match=r"no out-of-distribution problems; choose .* math500"):
        WithOutOfDistribution(DigitsOptions().make(), Gsm8kOptions(path=made_up_path).make())
    with pytest.raises(TaskError, match=r"has the problem 'digits/\d+\+\d+', which is one of"):
        WithOutOfDistribution(DigitsOptions().make(), DigitsOptions(width=4, other_width=3).make())
