"""What is said of one model, or of two, from answers that are made by hand."""

import pytest

from potluck.evaluation.grade import ModelScores, ProblemScores
from potluck.evaluation.grade import summary as summary_of
from potluck.right import RightRule

NAMED = RightRule.of([("task", 1.0)], "task")
"""The reward decides, whatever its values are."""


def summary(scores, k, *, rule=NAMED, binary=None):
    return summary_of(scores, k, rule=rule, binary=binary or {})


def answers(name, rewards, unfinished=0, *, ends="", **functions):
    """Answers to a problem; ``functions``: numbers by name, in place of the task's own grading."""
    rewards = tuple(rewards)
    return ProblemScores(
        name,
        rewards,
        unfinished,
        ends=tuple(ends.split()) or ("stop",) * len(rewards),
        by_function=functions or {"task": rewards},
    )


def sheet(greedy, sampled=(), *, names="pqrstuvw", unfinished=0):
    """``greedy``: a reward a problem; ``sampled``: a tuple of rewards a problem."""
    names = names[: len(greedy)]
    return ModelScores(
        tuple(answers(n, (r,), unfinished) for n, r in zip(names, greedy, strict=True)),
        tuple(answers(n, r) for n, r in zip(names, sampled, strict=bool(sampled))),
    )


def measure(found, name):
    (one,) = (m for m in found["measures"] if m["measure"] == name)
    return one


def test_one_model_has_a_greedy_accuracy_and_nothing_to_compare():
    found = summary({"A": sheet([1.0, 0.0, 1.0, 1.0], unfinished=1)}, k=0)
    (greedy,) = found["measures"]
    assert greedy["measure"] == "greedy"
    # Wilson, 3 of 4: .3006 to .9544.
    assert [round(number, 4) for number in greedy["A"].values()] == [0.75, 0.3006, 0.9544]
    assert set(greedy) == {"measure", "A"}
    assert "greedy_right" not in found
    assert found["unfinished"] == {"A": 4}
    assert (found["problems"], found["binary"]) == (4, True)


def test_pass_at_k_is_the_mean_over_problems_and_pass_at_1_stands_beside_it():
    # 1 of 4 right: pass@1 1/4, pass@3 1 - C(3,3)/C(4,3) = 3/4. 2 of 4: 1/2, and 1. None: 0, 0.
    samples = [(0.0, 1.0, 0.0, 0.0), (1.0, 1.0, 0.0, 0.0), (0.0,) * 4]
    found = summary({"A": sheet([0.0, 0.0, 1.0], samples)}, k=3)
    assert [m["measure"] for m in found["measures"]] == ["greedy", "pass@1", "pass@3"]
    assert measure(found, "pass@1")["A"]["value"] == 0.25
    assert measure(found, "pass@3")["A"]["value"] == pytest.approx(1.75 / 3)


def test_the_better_one_is_the_one_whose_interval_leaves_zero_and_the_sign_is_a_less_b():
    better, worse = sheet([1.0] * 8, [(1.0, 1.0)] * 8), sheet([0.0] * 8, [(1.0, 1.0)] * 8)
    found = summary({"A": better, "B": worse}, k=2)
    greedy = measure(found, "greedy")
    assert (greedy["better"], greedy["difference"]["value"]) == ("A", 1)
    assert 0 < greedy["difference"]["low"] < greedy["difference"]["high"] == 1  # no more is there
    assert measure(found, "pass@2")["better"] is None
    slightly = sheet([1.0] + [0.0] * 7, [(1.0, 1.0)] * 8)
    a_little = measure(summary({"A": slightly, "B": worse}, k=2), "greedy")
    assert (a_little["difference"]["value"], a_little["better"]) == (1 / 8, None)
    mirrored = measure(summary({"A": worse, "B": better}, k=2), "greedy")
    assert mirrored["better"] == "B"
    assert mirrored["difference"]["low"] == -1


def test_agreement_is_counted_problem_by_problem():
    a = sheet([1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    b = sheet([1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    assert summary({"A": a, "B": b}, k=0)["greedy_right"] == {
        "both": 1, "only_a": 5, "only_b": 1, "neither": 1,
    }  # fmt: skip


def test_every_problem_is_told_of_by_its_id():
    a, b = sheet([1.0, 0.5], [(1.0, 0.2), (0.0, 0.0)]), sheet([0.0, 0.0], [(1.0, 1.0), (0.0, 1.0)])
    first, second = summary({"A": a, "B": b}, k=1)["per_problem"]
    assert first == {
        "id": "p",
        "A": {"greedy_right": True, "greedy_reward": 1.0,
              "samples_right": 1, "sample_rewards": [1.0, 0.2]},
        "B": {"greedy_right": False, "greedy_reward": 0.0,
              "samples_right": 2, "sample_rewards": [1.0, 1.0]},
    }  # fmt: skip
    assert (second["id"], second["A"]["greedy_reward"]) == ("q", 0.5)


def test_rewards_in_parts_are_averaged_but_right_is_only_the_whole_reward():
    parts = summary({"A": sheet([0.9, 0.7 + 0.2 + 0.1])}, k=0)  # .9999999999999999
    assert measure(parts, "greedy")["A"]["value"] == pytest.approx(0.95)
    assert [p["A"]["greedy_right"] for p in parts["per_problem"]] == [False, True]
    assert parts["binary"] is False
    assert summary({"A": sheet([0.0], [(0.5,)])}, k=1)["binary"] is False


def test_rewards_on_any_scale_have_an_interval_on_theirs():
    found = summary({"A": sheet([3.0, -1.0]), "B": sheet([0.0, 0.0])}, k=0)
    greedy = measure(found, "greedy")
    # s^2 = 8: 1 +- 1.96 sqrt(8 / 2); nothing is cut off at 1.
    assert greedy["A"]["value"] == 1
    assert greedy["A"]["high"] == pytest.approx(4.92, abs=0.001)
    assert greedy["difference"]["high"] > 1
    alone = measure(summary({"A": sheet([3.0])}, k=0), "greedy")
    assert alone["A"] == {"value": 3.0, "low": None, "high": None}


@pytest.mark.parametrize("names", ["qp", "px"])
def test_models_that_answered_other_problems_are_not_compared(names):
    with pytest.raises(ValueError, match="2 lists of problems"):
        summary({"A": sheet([1.0, 0.0]), "B": sheet([1.0, 0.0], names=names)}, k=0)
