"""An evaluation that is stopped: what was done by then is told, and kept."""

import json
import os
import signal

import pytest

import tiny
from potluck.evaluation import compare
from potluck.evaluation.compare import evaluate_models
from potluck.evaluation.request import EvaluationRequest

FEW = (
    *("task.reward=hash", "evaluation.problems=3", "evaluation.out_of_distribution=2"),
    *("evaluation.max_new_tokens=4", "threads=1"),
)
SPLITS = ("validation", "out-of-distribution")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return [tiny.save(folder / name, seed) for seed, name in enumerate(("one", "other"))]


def stopped_at(models, *step):
    """What is found by two models that are stopped when they begin this step."""
    one, other = models
    told = []
    request = EvaluationRequest(
        str(one), against=str(other), task="digits", k=2, overrides=FEW, split="both"
    )
    return evaluate_models(
        request,
        progress=lambda *at: told.append(at[:2]),
        stops=lambda: told[-1] == step,
    )


def parts_of(found):
    """The models and measures of each split."""
    return {
        split["split"]: (
            "".join(split["earned_nothing"]),
            [measure["measure"] for measure in split["measures"]],
        )
        for split in found["splits"]
    }


ALL = ["greedy", "pass@1", "pass@2"]


@pytest.mark.parametrize(
    "step, parts",
    [
        (("A validation", "greedy"), {}),
        (("A validation", "samples"), {"validation": ("A", ["greedy"])}),
        (("A out-of-distribution", "greedy"), {"validation": ("A", ALL)}),
        (("B validation", "greedy"), dict.fromkeys(SPLITS, ("A", ALL))),
        (
            ("B validation", "samples"),
            {SPLITS[0]: ("AB", ["greedy"]), SPLITS[1]: ("A", ALL)},
        ),
        (
            ("B out-of-distribution", "greedy"),
            {SPLITS[0]: ("AB", ALL), SPLITS[1]: ("A", ALL)},
        ),
    ],
)
def test_what_was_done_when_it_was_stopped_is_found(models, step, parts):
    found = stopped_at(models, *step)
    assert found["partial"] is True
    assert parts_of(found) == parts
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_what_a_finished_model_had_is_what_it_has_when_nothing_stops(models):
    whole, part = stopped_at(models), stopped_at(models, "B validation", "greedy")
    assert whole["partial"] is False
    for both, alone in zip(whole["splits"], part["splits"], strict=True):
        for measure, its in zip(both["measures"], alone["measures"], strict=True):
            assert measure["A"] == its["A"]
        rows = [(row["id"], row["A"]) for row in both["per_problem"]]
        assert rows == [(row["id"], row["A"]) for row in alone["per_problem"]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", ["B validation", "A validation"])
def test_a_command_that_is_stopped_prints_and_writes_what_it_has(
    models, potluck_says, monkeypatch, tmp_path, number, step
):
    real = compare.evaluate_models

    def evaluated(request, *, progress, say, stops):
        def tell(*at):
            progress(*at)
            if at[0] == step:
                os.kill(os.getpid(), number)

        return real(request, progress=tell, say=say, stops=stops)

    monkeypatch.setattr(compare, "evaluate_models", evaluated)
    words = [word for key in FEW for word in ("--set", key)]
    one, other = models
    file = tmp_path / "found.json"
    code, said, complaint = potluck_says(
        "evaluate", one, "--against", other, "--task", "digits", "--json", file, *words
    )
    assert code == 130
    assert "potluck: stopped; an evaluation begins anew each time" in complaint
    is_kept = step == "B validation"
    assert file.exists() == is_kept
    assert ("partial: it was stopped" in said) == is_kept
    if is_kept:
        assert json.loads(file.read_text())["partial"] is True
        assert "greedy" in said
