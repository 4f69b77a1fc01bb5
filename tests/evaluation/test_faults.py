"""Why an answer earned nothing: cut, empty, in the wrong form, or wrong."""

import json
from dataclasses import replace

import numpy as np
import pytest

import tiny
from potluck.builder.task import make_task
from potluck.config import from_tree
from potluck.evaluation.compare import evaluate_models
from potluck.evaluation.request import EvaluationRequest
from potluck.tasks.faults import KINDS, commonest_answer, fault_of
from potluck.types import Completion


def task_of(tmp_path, **options):
    rows = [{"question": f"{i}+2=", "answer": str(i + 2)} for i in range(9)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return {"name": "jsonl", "path": str(tmp_path / "rows.jsonl")} | options


def made(task, **more):
    tree = {"name": "r", "task": task, "node": {"a": {"model": "builtin:digits-small"}}} | more
    return make_task(from_tree(tree), trust_code=True)


def kind(task, text, end="stop"):
    token_T = np.array([1], np.int32)
    problem = task.problem(task.ids("train")[0])
    return fault_of(task, problem, Completion(problem.id, "a", 0, token_T, None, end), text).kind


TAGGED = "<think>so</think><answer>{}</answer>"
CASES = [
    ({"tags": True}, TAGGED.format("5"), "wrong"),
    ({"tags": True}, "5", "form"),
    ({"tags": True}, TAGGED.format("five"), "form"),
    ({"tags": True}, TAGGED.format("5") + " done", "form"),
    ({"tags": True}, "<answer>5</answer>", "form"),
    ({"tags": True, "grading": "exact"}, TAGGED.format("five"), "wrong"),
    ({"tags": True}, TAGGED.format(r"\boxed{5}"), "wrong"),
    ({"tags": True}, TAGGED.format("**5**"), "wrong"),
    ({"tags": False}, "5", "wrong"),
    ({"tags": False}, "The answer is 5", "form"),
    ({"tags": False, "grading": "exact"}, "The answer is 5", "wrong"),
    ({"tags": False, "last_answer": "number"}, "The answer is 5", "wrong"),
    ({"tags": False, "last_answer": "number"}, "The answer is five", "form"),
    ({"tags": False, "last_answer": "box"}, r"It is \boxed{5}", "wrong"),
    ({"tags": False, "last_answer": "box"}, "It is 5", "form"),
    ({"tags": False}, "  \n", "empty"),
    ({"tags": True}, "", "empty"),
]


@pytest.mark.parametrize("options, text, expected", CASES)
def test_the_kind_of_a_fault(tmp_path, options, text, expected):
    task = made(task_of(tmp_path, **options))
    assert kind(task, text) == expected
    assert kind(task, text, end="length") == "cut"


def test_tasks_without_a_form_and_rewards_of_ones_own_know_the_other_kinds(tmp_path):
    digits = made({"name": "digits"})
    assert [kind(digits, text) for text in ("", "what?")] == ["empty", "wrong"]
    (tmp_path / "own.py").write_text(
        "def none(completions, **columns): return [0.0] * len(completions)"
    )
    own = {"function": f"{tmp_path / 'own.py'}:none"}
    tagged = task_of(tmp_path, tags=True)
    assert kind(made(tagged, reward=[own]), "5") == "wrong"
    assert kind(made(tagged, reward=[own, {"function": "task"}]), "5") == "form"


def test_an_evaluation_counts_each_kind_and_keeps_examples(tmp_path):
    model = tiny.save(tmp_path / "model")
    task = task_of(tmp_path, tags=False)
    recipe = tmp_path / "case.json"
    recipe.write_text(
        json.dumps(
            {
                "name": "r",
                "task": task,
                "sampling": {"max_new_tokens": 4, "max_total_tokens": 60},
                "node": {"a": {"model": model}},
            }
        )
    )
    request = EvaluationRequest(model, recipe=recipe, split="validation", shown=2)
    (split,) = evaluate_models(request, progress=lambda *step: None)["splits"]
    faults = split["earned_nothing"]["A"]
    wrong = split["problems"] - sum(row["A"]["greedy_right"] for row in split["per_problem"])
    assert sum(fault["count"] for fault in faults) == wrong > 0
    for fault in faults:
        assert fault["kind"] in KINDS
        assert len(fault["examples"]) == min(2, fault["count"])
        for example in fault["examples"]:
            asked = example["id"].rpartition("/")[2]
            assert example["expected"] == str(int(asked) + 2)


@pytest.mark.parametrize("choice", [True, False])
def test_an_evaluation_has_what_one_answer_earns_and_what_a_guess_does(tmp_path, choice):
    model = tiny.save(tmp_path / "model")
    rows = [{"question": f"{i}+0=", "some": ["0", "1", "2", "3"], "answer": "0"} for i in range(9)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = {"name": "jsonl", "path": str(tmp_path / "rows.jsonl"), "tags": False}
    more = {"grading": "choice", "options": "some", "answer_as": "index", "system_prompt": "-"}
    node = {"a": {"model": model}}
    sampling = {"max_new_tokens": 4, "max_total_tokens": 200}
    recipe = tmp_path / "case.json"
    task |= more if choice else {}
    tree = {"name": "r", "task": task, "sampling": sampling, "node": node}
    recipe.write_text(json.dumps(tree))
    request = EvaluationRequest(model, recipe=recipe, split="validation")
    (split,) = evaluate_models(request, progress=lambda *step: None)["splits"]
    told = {"answer": "A", "share": 1.0, "guess": 0.25}
    assert split["constant"] == (told if choice else {"answer": "0", "share": 1.0, "guess": None})


@pytest.mark.parametrize("texts, found", [
    (["5", "5", " 5 ", "6"], ("5", 0.75, 1 / 3)), (["", " "], None),
    (["a", "b", "b"], ("b", 2 / 3, 0)),
])  # fmt: skip
def test_the_commonest_answer_of_a_model(tmp_path, texts, found):
    task = made(task_of(tmp_path, tags=False))
    problems = [task.problem(id) for id in task.ids("train")[:3]]
    golds = [replace(p, answer=gold) for p, gold in zip(problems, ("5", "7", "8"), strict=True)]
    asked = (golds * 2)[: len(texts)]
    told = commonest_answer(task, asked, texts)
    assert told == found


def test_of_one_problem_and_of_tasks_without_answers_no_constant_is_told(tmp_path):
    task = made(task_of(tmp_path, tags=False))
    one = task.problem(task.ids("train")[0])
    assert commonest_answer(task, [one, one], ["5", "5"]) is None
    digits = made({"name": "digits"})
    two = [digits.problem(id) for id in digits.ids("train")[:2]]
    assert commonest_answer(digits, two, ["5", "5"]) is None


@pytest.mark.parametrize("words, most", [([], 1), (["--show", 0], 0), (["--show", 3], 3)])
def test_the_command_shows_as_many_examples_as_are_asked_for(tmp_path, potluck_says, words, most):
    file = tmp_path / "found.json"
    asked = ("evaluate", "builtin:digits-small", "--task", "digits", "--problems", 12)
    few = ("--split", "validation", "--max-new-tokens", 4, "--json", file)
    code, said, _ = potluck_says(*asked, *few, *words)
    assert code == 0
    (split,) = json.loads(file.read_text())["splits"]
    (cut,) = split["earned_nothing"]["A"]
    assert (cut["kind"], cut["count"], len(cut["examples"])) == ("cut", 12, most)
    assert said.count("  cut: digits/") == most
