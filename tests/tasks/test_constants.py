"""What one answer to every problem earns."""

import json

import pytest

from potluck.builder.task import make_task, notes_on
from potluck.config import from_tree
from potluck.tasks.base import best_constant
from potluck.types import Problem


def problems(*answers):
    return [Problem(str(at), f"{at}?", answer) for at, answer in enumerate(answers)]


@pytest.mark.parametrize("answers, best", [
    (("1", "2", "1 ", "3"), ("1", 0.5)), (("a",), ("a", 1.0)), (("", ""), None), ((), None),
    (("", "", "b"), ("b", 1 / 3)),
])  # fmt: skip
def test_the_commonest_answer_is_found(answers, best):
    assert best_constant(problems(*answers)) == best


def notes(tmp_path, answers, **more):
    rows = [{"question": f"{at}?", "answer": answer} for at, answer in enumerate(answers)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "own.py").write_text(
        "def paid(completions, **columns): return [0.0] * len(completions)"
    )
    task = {"name": "jsonl", "path": str(tmp_path / "rows.jsonl")}
    tree = {"name": "r", "task": task, "node": {"a": {"model": "builtin:digits-small"}}} | more
    config = from_tree(tree)
    return [
        line for line in notes_on(config, make_task(config, trust_code=True)) if "const" in line
    ]


def test_a_constant_that_pays_is_told_of_each_part_and_others_are_not(tmp_path):
    often = ["7"] * 60 + [str(at) for at in range(140)]
    (line,) = notes(tmp_path, often, evaluation={"problems": 0})[:1]
    assert line.startswith("constant: '7', given to every train problem, earns 0.3")
    assert notes(tmp_path, [str(at) for at in range(200)]) == []
    assert notes(tmp_path, ["7"] * 12) == []  # too few to say


def test_of_rewards_of_ones_own_nothing_is_known(tmp_path):
    own = [{"function": f"{tmp_path / 'own.py'}:paid"}]
    assert notes(tmp_path, ["7"] * 200, reward=own) == []
