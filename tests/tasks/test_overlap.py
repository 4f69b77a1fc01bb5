"""The same question in two splits is told; the same id in two is a mistake."""

from types import SimpleNamespace

import pytest

from potluck.tasks import TaskError
from potluck.tasks.base import WithOutOfDistribution, normalised, overlaps
from potluck.tasks.benchmarks import Gsm8kOptions
from potluck.tasks.table import JsonlOptions
from potluck.types import Problem


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
    with pytest.raises(TaskError, match="'train/0' is in train and in validation; a problem bel"):
        list(overlaps(task))


def test_gsm8k_has_no_question_of_test_in_train_and_math500_none_of_either(gsm8k_path):
    """Measured on the real files: by text, so paraphrases are not seen."""
    gsm8k = Gsm8kOptions(path=gsm8k_path, validation="test").make()
    math500 = f"{gsm8k_path}/../math500/test.jsonl"
    elsewhere = JsonlOptions(out_of_distribution=math500, question="problem", grading="exact")
    assert len(elsewhere.make().ids("out-of-distribution")) == 500
    assert not list(overlaps(WithOutOfDistribution(gsm8k, elsewhere.make())))
