"""A reward that fails in a later round: what was learned is saved, and the run goes on as if it had
not failed."""

import json
import subprocess
import sys

import pytest

REWARD = """
from contextlib import suppress
from pathlib import Path

calls = 0

def judged(completions, **columns):
    global calls
    calls += 1
    marker = Path({marker!r})
    if calls > {good_calls}:
        with suppress(FileExistsError):
            marker.touch(exist_ok=False)  # by one process alone
            raise ConnectionError("the judge is down")
    return [float(len(text)) for text in completions]
"""
RECIPE = """
name = "case"
rounds = 4
problems_per_round = 2
group_size = 4
threads = 1
task = {name = "digits"}
sampling = {max_new_tokens = 12, max_total_tokens = 64}
evaluation = {problems = 0, out_of_distribution = 0}
node.a = {model = "builtin:digits-small", learning_rate = 1e-3}
node.b = {model = "builtin:digits-small", learning_rate = 1e-3}
reward = [{function = "case_reward.py:judged"}]
"""


def potluck(folder, *words, processes=("--one-process",)):
    command = [sys.executable, "-P", "-m", "potluck", "run", *words, "--trust-code", *processes]
    return subprocess.run(
        [*command, "--out", "out"], cwd=folder, capture_output=True, text=True, check=False
    )


def rounds_saved(folder, node):
    return sorted(each.name for each in (folder / "out" / node / "checkpoints").iterdir())


def lines(folder, node, name):
    text = (folder / "out" / node / f"{name}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def learned(folder, node):
    unlike = ("seconds", "size_bytes", "heard", "time_s")
    metrics = lines(folder, node, "metrics")
    return [{k: v for k, v in line.items() if k not in unlike} for line in metrics]


def prepared(folder, good_calls):
    folder.mkdir()
    (folder / "case.toml").write_text(RECIPE)
    marker = str(folder / "failed")
    code = REWARD.format(marker=marker, good_calls=good_calls)
    (folder / "case_reward.py").write_text(code)
    return folder


# What a first look at the reward calls is counted too: GOOD_CALLS fails while node b grades, or a.
@pytest.mark.parametrize("good_calls", [10, 11])
def test_a_run_whose_reward_failed_goes_on_as_if_it_had_not(tmp_path, good_calls):
    failing = prepared(tmp_path / "failing", good_calls)
    ended = potluck(failing, "case.toml")
    assert ended.returncode == 2, ended.stderr
    said = ended.stderr.strip().splitlines()
    assert "the judge is down" in said[-2]
    assert said[-1].startswith("potluck: saved after ")
    assert ended.stdout.strip().endswith("--resume --trust-code")

    saved = rounds_saved(failing, "a")
    assert saved
    assert rounds_saved(failing, "b") == saved

    resumed = potluck(failing, "out/recipe.json", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    whole = prepared(tmp_path / "whole", 10**6)
    assert potluck(whole, "case.toml").returncode == 0
    for node in "ab":
        assert learned(failing, node) == learned(whole, node)
        # A round that one has graded, and not learned from, is told of once.
        assert lines(failing, node, "completions") == lines(whole, node, "completions")


def test_a_node_with_a_process_of_its_own_is_saved_too(tmp_path):
    failing = prepared(tmp_path / "failing", good_calls=6)
    ended = potluck(failing, "case.toml", processes=())
    assert ended.returncode == 1, ended.stderr  # the other one went on

    (complaint,) = [line for line in ended.stderr.splitlines() if "the judge is down" in line]
    name = complaint.removeprefix("potluck: ")[0]
    (saved,) = rounds_saved(failing, name)
    assert 0 < int(saved) < 4
    assert "to go on from what is saved:" in ended.stdout

    resumed = potluck(failing, "out/recipe.json", "--resume", processes=())
    assert resumed.returncode == 0, resumed.stderr
    assert [line["round"] for line in learned(failing, name)] == [0, 1, 2, 3]


def test_a_failure_in_the_first_round_saves_nothing(tmp_path):
    failing = prepared(tmp_path / "failing", good_calls=2)
    ended = potluck(failing, "case.toml")
    assert ended.returncode == 2, ended.stderr
    assert "the judge is down" in ended.stderr
    assert "saved" not in ended.stderr
    assert not [*failing.glob("out/*/checkpoints/*")]


def test_the_error_of_the_reward_is_told_where_nothing_can_be_saved(tmp_path):
    failing = prepared(tmp_path / "failing", good_calls=6)
    code = (failing / "case_reward.py").read_text()
    in_the_way = "Path('out/b/checkpoints').touch(); raise ConnectionError"
    (failing / "case_reward.py").write_text(code.replace("raise ConnectionError", in_the_way))
    ended = potluck(failing, "case.toml")
    assert ended.returncode == 2, ended.stderr
    said = ended.stderr.strip().splitlines()
    assert "the judge is down" in said[-2]
    assert said[-1].startswith("potluck: not saved since the last checkpoint: ")
    assert "--resume" not in ended.stdout
