"""The demo: which runs it makes, what it makes of them, and what it says when one breaks."""

import io
import json

import pytest
from msgspec.structs import replace
from rich.console import Console

import potluck
from potluck.builder.memory import own_completions
from potluck.config import from_tree
from potluck.demo.report import Outcome
from potluck.demo.run import DemoError, cells, demo, summarise
from potluck.objective.methods import method_of


def console():
    return Console(file=io.StringIO(), width=100)


def plan_of(**options):
    return {cell.name: from_tree(cell.recipe) for cell in cells(**options)}


def test_it_compares_each_model_alone_and_with_half_with_both_together_by_our_method():
    plan = plan_of(rounds=None, seed=3)
    together = plan["lws"]
    assert set(plan) == {"lws", "alone-large", "alone-small", "half-large", "half-small"}
    assert {name: node.model for name, node in together.node.items()} == {
        "large": "builtin:digits-large",
        "small": "builtin:digits-small",
    }
    assert (method_of(together.objective), together.plan) == ("lws", "horizontal")
    assert (together.seed, together.threads) == (3, 1)
    for name, run in plan.items():
        if run is not together:
            setting, _, node = name.partition("-")
            half = together.problems_per_round // 2
            problems = {"alone": together.problems_per_round, "half": half}[setting]
            # Whatever else differed would be compared as well.
            nodes = {node: together.node[node]}
            assert run == replace(together, name=name, node=nodes, problems_per_round=problems)


def test_together_a_model_writes_what_it_writes_with_half_of_the_problems():
    plan = plan_of(rounds=None, seed=0)
    for node in plan["lws"].node:
        half = own_completions(plan[f"half-{node}"], node)
        assert own_completions(plan["lws"], node) == half
        assert own_completions(plan[f"alone-{node}"], node) == 2 * half


def test_all_but_the_pair_and_what_only_measures_is_the_starting_recipe():
    start, together = potluck.load(potluck.STARTING_RECIPE), plan_of(rounds=None, seed=0)["lws"]
    same = replace(together, name=start.name, node=start.node)
    assert replace(same, evaluation=start.evaluation) == start
    assert replace(together.evaluation, every=start.evaluation.every) == start.evaluation
    for node, was in zip(together.node.values(), start.node.values(), strict=True):
        assert replace(node, model=was.model) == was


def test_rounds_can_be_fewer():
    assert {cell.recipe["rounds"] for cell in cells(rounds=2, seed=0)} == {2}


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(DemoError, match="exists; name another folder with --out"):
        demo(tmp_path, rounds=1, seed=0, console=console())
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_the_summary_has_every_curve_and_what_explains_it(tmp_path):
    plan = cells(rounds=2, seed=0)
    for i, cell in enumerate(plan):
        folder = tmp_path / cell.name
        for node in cell.nodes:
            (folder / node).mkdir(parents=True)
            evaluations = [
                {"round": 0, "validation": 0.0, "problems": 200},
                {"round": 2, "validation": i / 10, "problems": 200, "out_of_distribution": 0.25},
            ]
            sources = {other: {"completions": 10 * i + (other == node)} for other in cell.nodes}
            metrics = [
                {"round": r, "own_reward_mean": (i + r) / 10, "sources": sources} for r in range(2)
            ]
            for name, rows in (("evaluation", evaluations), ("metrics", metrics)):
                text = "".join(json.dumps(row) + "\n" for row in rows)
                (folder / node / f"{name}.jsonl").write_text(text)
        (folder / "recipe.json").write_text(json.dumps(cell.recipe))
    result = summarise(plan, tmp_path, seconds=12.3)
    at = {cell.name: i for i, cell in enumerate(plan)}
    for node in ("large", "small"):
        for setting in ("alone", "half", "lws"):
            i = at["lws" if setting == "lws" else f"{setting}-{node}"]
            expected = Outcome(2 * (10 * i + 1), (i / 10, (i + 1) / 10), i / 10, 0.25)
            assert result.nodes[node][setting] == expected
    assert list(result.nodes) == ["large", "small"]
    assert (result.rounds, result.seconds, result.seed) == (2, 12.3, 0)
