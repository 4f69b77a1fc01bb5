"""A reward that fails in a later round: what was learned is saved, and the run goes on as if it had
not failed."""

import json
import subprocess
import sys

import pytest

REWARD = """
from pathlib import Path

calls = 0

def judged(completions, **columns):
    global calls
    calls += 1
    marker = Path({marker!r})
    if calls > {good_calls} and not marker.exists():
        marker.touch()
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


def potluck(folder, *words):
    command = [sys.executable, "-P", "-m", "potluck", "run", *words, "--trust-code"]
    return subprocess.run(
        [*command, "--one-process", "--out", "out"], cwd=folder, capture_output=True, text=True
    )


def learned(folder, node):
    lines = (folder / "out" / node / "metrics.jsonl").read_text().splitlines()
    unlike = ("seconds", "size_bytes", "heard", "time_s")
    return [{k: v for k, v in json.loads(line).items() if k not in unlike} for line in lines]


def prepared(folder, good_calls):
    folder.mkdir()
    (folder / "case.toml").write_text(RECIPE)
    marker = str(folder / "failed")
    code = REWARD.format(marker=marker, good_calls=good_calls)
    (folder / "case_reward.py").write_text(code)
    return folder


# Calls of two nodes one after the other, so that each of them fails once.
@pytest.mark.parametrize("good_calls", [10, 11])
def test_a_run_whose_reward_failed_goes_on_as_if_it_had_not(tmp_path, good_calls):
    failing = prepared(tmp_path / "failing", good_calls)
    ended = potluck(failing, "case.toml")
    assert ended.returncode == 2, ended.stderr
    said = ended.stderr.strip().splitlines()
    assert "the judge is down" in said[-3]
    assert said[-2].startswith("potluck: saved after ")
    assert said[-1].endswith("--resume --trust-code")

    saved = [
        [each.name for each in (failing / "out" / node / "checkpoints").iterdir()] for node in "ab"
    ]
    assert saved[0] == saved[1] != []

    resumed = potluck(failing, "out/recipe.json", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    whole = prepared(tmp_path / "whole", 10**6)
    assert potluck(whole, "case.toml").returncode == 0
    for node in "ab":
        assert learned(failing, node) == learned(whole, node)
