"""The demo: which runs it makes, what it makes of them, and what it says when one breaks."""

import io
import json
import subprocess
import sys

import pytest
from rich.console import Console

from potluck.config import from_tree
from potluck.demo import run as demo_module
from potluck.demo.run import DemoError, cells, demo, summarise


def console():
    return Console(file=io.StringIO(), width=100)


def test_it_compares_each_model_alone_with_both_together_by_either_method():
    plan = {cell.name: from_tree(cell.recipe) for cell in cells(rounds=None, seed=3)}
    assert set(plan) == {"alone-columns", "alone-terse", "together-nois", "together-f-tis"}
    assert list(plan["alone-terse"].node) == ["terse"]
    naive, fair = plan["together-nois"].objective, plan["together-f-tis"].objective
    assert (naive.importance, naive.filter) == ("none", False)
    assert (fair.importance, fair.filter) == ("truncated", True)
    for run in plan.values():
        # Whatever else differs would be compared as well.
        assert (run.seed, run.threads, run.rounds) == (3, 1, plan["together-nois"].rounds)
        assert run.sampling == naive_run(plan).sampling
        assert run.task == naive_run(plan).task
        assert run.evaluation == naive_run(plan).evaluation
        for name, node in run.node.items():
            assert node == naive_run(plan).node[name]


def naive_run(plan):
    return plan["together-nois"]


def test_rounds_can_be_fewer():
    assert {cell.recipe["rounds"] for cell in cells(rounds=2, seed=0)} == {2}


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(DemoError, match="exists; name another folder with --out"):
        demo(tmp_path, rounds=1, seed=0, console=console())
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_a_run_that_breaks_down_is_named_with_its_last_words(tmp_path, monkeypatch):
    started = []

    def start(cell, folder):
        code = "import sys; print('first\\n\\x1b[31mno disk left'); sys.exit(3)"
        with (folder / f"{cell.name}.log").open("wb") as log:
            started.append(subprocess.Popen([sys.executable, "-c", code], stdout=log))
        return started[-1]

    monkeypatch.setattr(demo_module, "_start", start)
    with pytest.raises(DemoError, match=r"ended with exit code 3: \[31mno disk left \(all: .*log"):
        demo(tmp_path / "demo", rounds=1, seed=0, console=console())
    assert all(process.poll() is not None for process in started)


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
            metrics = [{"round": r, "filtered_share": r / 2} for r in range(2)]
            written = [
                {"round": 1, "problem": "digits/1+2", "author": node, "index": n, "reward": reward,
                 "end": "stop", "text": f"#{n}"}
                for n, reward in enumerate((0.0, 1.0, 1.0))
            ]  # fmt: skip
            for name, rows in (
                ("evaluation", evaluations), ("metrics", metrics), ("completions", written)
            ):  # fmt: skip
                text = "".join(json.dumps(row) + "\n" for row in rows)
                (folder / node / f"{name}.jsonl").write_text(text)
        (folder / "recipe.json").write_text(json.dumps(cell.recipe))
    summary = summarise(plan, tmp_path, seconds=12.34)
    at = {cell.name: i / 10 for i, cell in enumerate(plan)}
    assert summary["nodes"] == {
        node: {
            "alone": [0.0, at[f"alone-{node}"]],
            "nois": [0.0, at["together-nois"]],
            "f-tis": [0.0, at["together-f-tis"]],
        }
        for node in ("columns", "terse")
    }
    assert (summary["eval_rounds"], summary["seconds"], summary["seed"]) == ([0, 2], 12.3, 0)
    assert summary["filtered_share"]["columns"]["nois"] == 0.25
    assert summary["out_of_distribution"]["terse"]["alone"] == 0.25
    assert [s["reward"] for s in summary["samples"]["columns"]] == [1.0, 0.0]


def test_each_run_of_the_demo_is_one_process_so_its_numbers_are_the_same(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(
        "potluck.demo.run.subprocess.Popen", lambda words, **_: called.append([*map(str, words)])
    )
    (cell, *_) = cells(rounds=1, seed=0)
    demo_module._start(cell, tmp_path)
    assert called[0][1:5] == ["-m", "potluck", "run", "--one-process"]
