"""Which answers are right in a whole run: what it tells, what its folder holds, what evaluates it.

The task's own grading pays a bit of a hash, so that models that know nothing are often right."""

import json
from types import SimpleNamespace

import pytest

import potluck
import tiny
from launch.runs import crash, lines
from potluck.config import ConfigError
from potluck.evaluation.compare import evaluate_models
from potluck.evaluation.request import EvaluationRequest
from potluck.reports.answers import answer_of
from potluck.reports.runs import read_run
from potluck.tasks.base import best_constant
from potluck.types import Problem

MANY = ("rounds=2", "task.reward=hash", "evaluation.problems=9", "group_size=8")


def brief(completions, **columns):
    return [-len(text) / 50 for text in completions]


def has_b(completions, **columns):
    return [float("b" in text) for text in completions]


@pytest.fixture(scope="module")
def recipe(tiny_models):
    return lambda *overrides: tiny.recipe(tiny_models, *MANY, *overrides)


@pytest.fixture(scope="module")
def run(recipe, tmp_path_factory):
    """A run of a penalty beside the task's own grading."""
    folder = tmp_path_factory.mktemp("penalty") / "run"
    rewards = ["task", (brief, 0.1)]
    result = potluck.run(recipe(), folder, rewards=rewards, display=None)
    return SimpleNamespace(folder=folder, result=result)


def evaluated(folder, node="small", **more):
    asked = EvaluationRequest(str(folder / node), recipe=folder, trust_code=True, **more)
    return evaluate_models(asked, progress=lambda *_: None)["splits"][0]


def measures(split):
    return {each["measure"]: each["A"]["value"] for each in split["measures"]}


def test_accuracy_is_the_share_of_right_ones_and_validation_the_mean_reward(run):
    for node in ("large", "small"):
        last = lines(run.folder, node, "evaluation")[-1]
        assert run.result.validation[node] == last["validation"]
        assert run.result.accuracy[node] == last["rewards"]["task"]
        assert last["partial"] is True
    assert any(run.result.accuracy.values())
    assert run.result.validation != run.result.accuracy


def test_a_round_notes_which_functions_paid_nothing_but_0_and_1(run):
    for line in lines(run.folder, "small"):
        assert {name: its["binary"] for name, its in line["rewards"].items()} == {
            "task": True,
            "brief": False,
        }
        assert line["partial"] is True


def test_an_evaluation_of_the_run_goes_by_the_same_function(run):
    split = evaluated(run.folder, k=2, samples=4)
    found = measures(split)
    assert split["right"] == "task"
    assert found["accuracy"] == run.result.accuracy["small"] == found["reward/task"]
    assert found["greedy"] == pytest.approx(run.result.validation["small"])
    rows = split["per_problem"]
    assert 0 < sum(row["A"]["samples_right"] for row in rows) == 4 * 9 * found["pass@1"]
    both = evaluated(run.folder, against=str(run.folder / "large"))
    assert sum(both["greedy_right"].values()) == 9
    wrong = sum(each["count"] for each in split["earned_nothing"]["A"])
    assert wrong == round(9 * (1 - found["accuracy"]))


def test_a_control_counts_the_answers_that_the_function_pays(run):
    found = answer_of(run.folder, run.folder, "small", "own-part", 2)
    assert found.passed[0] == found.passed[1] > 0


@pytest.mark.parametrize("right", ["", "has_b"])
def test_a_right_answer_that_a_penalty_cost_all_earned_is_not_called_wrong(recipe, tmp_path, right):
    """The penalty of 2 leaves no completion with a reward above 0."""
    config = recipe("rounds=1", f"evaluation.right={right!r}", "group_size=16")
    rewards = [has_b, (brief_or_not, 2.0)]
    potluck.run(config, tmp_path / "run", rewards=rewards, display=None)
    (line,) = lines(tmp_path / "run", "small")
    own = [
        each
        for each in lines(tmp_path / "run", "small", "completions")
        if each["author"] == "small"
    ]
    assert max(each["reward"] for each in own) <= 0
    right_ones = sum(each["reward/has_b"] == 1 and each["end"] == "stop" for each in own)
    assert right_ones
    assert sum(line["own_earned_nothing"].values()) == len(own) - right_ones


def brief_or_not(completions, **columns):
    return [-1.0 - len(text) / 50 for text in completions]


def test_what_one_answer_to_all_problems_would_earn_stands_beside_an_evaluation(
    tiny_models, tmp_path
):
    rows = [{"question": f"{at}+2=", "answer": "7" if at % 2 else str(at)} for at in range(80)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    task = {"name": "jsonl", "path": str(tmp_path / "rows.jsonl"), "tags": False, "held_out": 30}
    sizes = {"evaluation": {"problems": 30}, "sampling": {"max_new_tokens": 4}}
    tree = tiny.recipe(tiny_models, "rounds=1", "problems_per_round=4", task=task, **sizes)
    potluck.run(tree, tmp_path / "run", display=None)
    last = lines(tmp_path / "run", "small", "evaluation")[-1]
    golds = [Problem(str(at), "", row["answer"]) for at, row in enumerate(rows)]
    assert abs(last["constant"] - best_constant(golds).share) < 0.2
    split = evaluated(tmp_path / "run")
    told = split["constant"]
    assert (told["answer"], told["share"]) == ("7", last["constant"])
    potluck.run(tree, tmp_path / "own", rewards=[has_b], display=None)  # nobody knows
    assert "constant" not in lines(tmp_path / "own", "small", "evaluation")[-1]
    assert evaluated(tmp_path / "own")["constant"] is None
    potluck.run(tree, tmp_path / "both", rewards=["task", (brief, 0.1)], display=None)
    assert lines(tmp_path / "both", "small", "evaluation")[-1]["constant"] == last["constant"]


@pytest.mark.parametrize("right, decides", [("", None), ("has_b", "has_b"), ("task", "task")])
def test_of_two_functions_of_0_and_1_the_named_one_decides_and_else_none(
    recipe, tmp_path, right, decides
):
    config = recipe("rounds=1", f"evaluation.right={right!r}")
    result = potluck.run(config, tmp_path / "run", rewards=["task", has_b], display=None)
    split = evaluated(tmp_path / "run", k=1)
    last = lines(tmp_path / "run", "small", "evaluation")[-1]
    assert split["right"] == decides
    assert ("pass@1" in measures(split)) == bool(decides)
    found = answer_of(tmp_path / "run", tmp_path / "run", "small", "own-part", 1)
    assert bool(found.passed) == bool(decides)
    if decides:
        assert result.accuracy["small"] == measures(split)["accuracy"]
        assert result.accuracy["small"] <= last["rewards"][decides]
    else:
        assert result.accuracy == {}
        assert {row["A"]["greedy_right"] for row in split["per_problem"]} == {None}


def test_the_tasks_own_grading_may_decide_where_it_pays_nothing(recipe, tmp_path):
    config = recipe("rounds=1", "evaluation.right='task'")
    plain = potluck.run(recipe("rounds=1"), tmp_path / "plain", rewards=[brief], display=None)
    told = potluck.run(config, tmp_path / "told", rewards=[brief], display=None)
    assert plain.accuracy == {}
    assert set(told.accuracy) == {"large", "small"}
    assert plain.validation == told.validation  # it teaches nothing
    digests = [(tmp_path / name / "task.json").read_text() for name in ("plain", "told")]
    assert digests[0] == digests[1]
    last = lines(tmp_path / "told", "small")[-1]
    assert [*last["rewards"]] == ["brief", "task"]
    assert read_run(tmp_path / "told").nodes[0].last_written[0].paid.keys() == {"brief", "task"}


def test_a_resumed_run_may_name_another_function_and_ends_alike(recipe, run, tmp_path):
    config = recipe()
    config = potluck.from_tree(
        {
            **potluck.as_tree(config),
            "reward": [
                {"function": "task"},
                {"function": f"{__name__}:brief", "weight": 0.1},
            ],
        }
    )
    crash(config, tmp_path / "run", trust_code=True)
    named = potluck.as_tree(config)
    named["evaluation"]["right"] = "brief"
    result = potluck.run(named, tmp_path / "run", resume=True, display=None, trust_code=True)
    assert result.validation == run.result.validation
    assert result.accuracy == {"large": 0.0, "small": 0.0}
    # Named again as it was, in the finished run.
    again = potluck.run(config, tmp_path / "run", resume=True, display=None, trust_code=True)
    assert again.accuracy == run.result.accuracy


def test_a_name_of_no_function_is_refused_before_anything_is_written(recipe, tmp_path):
    config = recipe("evaluation.right='corect'")
    why = r"right is 'corect'; choose one of task, brief.*add it as a \[\[reward\]\]"
    with pytest.raises(ConfigError, match=why):
        potluck.run(config, tmp_path / "run", rewards=["task", brief], display=None)
    assert not (tmp_path / "run").exists()
