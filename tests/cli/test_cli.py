"""The command line: what a user can mend is one line and exit code 2, and costs nothing."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import potluck
from potluck import STARTING_RECIPE

SMALL = Path(potluck.__file__).parent / "models" / "digits-small"
ONE_ROUND = [
    *("rounds=1", "problems_per_round=2", "group_size=2", "threads=1"),
    *("evaluation.problems=2", "evaluation.out_of_distribution=2", "sampling.max_new_tokens=8"),
]
ESCAPE = "\x1b[31mred\x1b]0;title\x07"
ESCAPE_IN_TOML = r'"\u001b[31mred\u001b]0;title\u0007"'


@pytest.fixture(autouse=True)
def no_network(desk, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def recipe(desk):
    path = desk / "first.toml"
    shutil.copy(STARTING_RECIPE, path)
    return path


def sets(overrides):
    return [word for override in overrides for word in ("--set", override)]


def everything_in(folder):
    return {p: p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def parameters_of(model):
    with safe_open(model / "model.safetensors", "numpy") as tensors:
        names = list(tensors.keys())
        return sum(math.prod(tensors.get_slice(name).get_shape()) for name in names)


def with_another_tokenizer(folder):
    """A copy of digits-small in which two tokens have changed places."""
    shutil.copytree(SMALL, folder)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["1"], vocabulary["2"] = vocabulary["2"], vocabulary["1"]
    path.write_text(json.dumps(tokenizer))
    return folder


# Mistakes.

RUN = ["run", "first.toml", "--one-process"]
EVALUATE = ["evaluate", "builtin:digits-small", "--task"]
MISTAKES = {
    "a key that no run has": (
        [*RUN, "--set", "objective.weigth_cap=1"],
        "[objective] has no key 'weigth_cap'; did you mean 'weight_cap'?",
    ),
    "a node that the recipe has not": (
        [*RUN, "--set", "node.smal.weight=2"],
        "no node is named 'smal'; did you mean 'small'?",
    ),
    "an override without =": ([*RUN, "--set", "seed"], "'seed' is not of the form key=value"),
    "a recipe that is not there": (
        ["run", "frist.toml", "--one-process"],
        "there is no recipe frist.toml; `potluck new frist.toml` writes one",
    ),
    "a recipe that is a folder": (["run", "runs"], "cannot read runs: "),
    "a model folder that is not there": (
        [*RUN, "--set", "node.large.model=models/none-here"],
        "'models/none-here'",
    ),
    "an absolute folder that is not there": (
        [*RUN, "--set", "node.large.model=/no/such/folder"],
        "'/no/such/folder'",
    ),
    "a folder without a model": ([*RUN, "--set", "node.large.model=runs"], "'runs'"),
    "a built-in model that is not there": (
        [*RUN, "--set", "node.large.model=builtin:digits-smal"],
        "no built-in model is named 'digits-smal'; there is digits-large, digits-small",
    ),
    "tokenizers that differ": (
        [*RUN, "--set", "node.large.model=other-tokenizer", "--set", "objective={method='tis'}"],
        "differ, so the log-probabilities that one tells of its tokens say nothing of the",
    ),
    "more problems than the task has": (
        [*RUN, "--set", "problems_per_round=20001", "--set", "group_size=2"],
        "problems_per_round is 20001, but the task has 20000 problems to train on; lower it",
    ),
    "a round that no message can hold": (
        [*RUN, "--set", "problems_per_round=20000"],
        "problems_per_round x group_size is 240000; a round has at most 65536 completions",
    ),
    "a prompt without room": (
        [*RUN, "--set", "sampling.max_total_tokens=9"],
        "has 9 tokens, which leaves no room below max_total_tokens = 9",
    ),
    "a data set that is empty": (
        [*RUN, "--set", "task={name='gsm8k',path='empty'}"],
        "empty",
    ),
    "a data set that is not there": (
        [*RUN, "--set", "task={name='gsm8k',path='nowhere'}"],
        "task.path is 'nowhere', but there is no folder",
    ),
    "a task without a difference": (
        [*RUN, "--set", "task.other_width=3"],
        "digits has width = other_width = 3; another width",
    ),
    "a run folder that is there": (
        [*RUN, "--out", "runs/old"],
        "runs/old exists; --resume goes on with that run, --out names another folder",
    ),
    "a run folder that is a file": ([*RUN, "--out", "first.toml"], "first.toml exists; --resume"),
    "nothing to resume": ([*RUN, "--out", "absent", "--resume"], "absent holds no run to resume"),
    "a recipe onto a file": (
        ["new", "first.toml"],
        "first.toml exists; name another file or remove it",
    ),
    "a recipe into a folder that is not there": (["new", "no/such.toml"], "cannot write no/such"),
    "a run that is not there": (["show", "absent"], "there is no run folder absent"),
    "a folder that is no run": (["show", "runs/old"], "runs/old is no run"),
    "a task that is not there": ([*EVALUATE, "digit"], "task.name is 'digit'; did you mean 'digi"),
    "a device that is not there": ([*EVALUATE, "digits", "--device", "abacus"], "abacus"),
    "a demo into a folder in use": (["demo", "--out", "runs"], "runs exists; name another folder"),
    "a terminal escape for a name": (
        [*RUN, "--set", f"node.{ESCAPE}.model=x"],
        r"no node is named '\x1b[31mred\x1b]0;title\x07'",
    ),
    "a terminal escape for a key": (
        [*RUN, "--set", f"objective={{{ESCAPE_IN_TOML}=1}}"],
        r"[objective] has no key '\x1b[31mred\x1b]0;title\x07'",
    ),
    "a terminal escape for a model": (
        [*RUN, "--set", f"node.large.model={ESCAPE_IN_TOML}"],
        r"\x1b[31mred\x1b]0;title\x07",
    ),
    "a terminal escape in a path": (["show", ESCAPE], "there is no run folder [31mred]0;title"),
}


@pytest.mark.parametrize("words, way_out", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line_and_costs_nothing(desk, recipe, potluck_says, words, way_out):
    (desk / "runs/old").mkdir(parents=True)
    (desk / "runs/old/notes").write_text("mine")
    (desk / "empty").mkdir()
    (desk / "empty/train.jsonl").touch()
    (desk / "empty/test.jsonl").touch()
    if any("other-tokenizer" in word for word in words):
        with_another_tokenizer(desk / "other-tokenizer")
    before = everything_in(desk)
    code, out, err = potluck_says(*words)
    assert code == 2
    assert err.startswith("potluck: ")
    assert err.count("\n") == 1
    assert way_out in err
    assert out == ""
    assert "\x1b" not in err
    assert "\x07" not in err
    assert everything_in(desk) == before


@pytest.mark.parametrize("words", [["run"], ["evaluate", "x"], ["frobnicate"], ["run", "--what"]])
def test_a_command_that_is_no_command_ends_with_2_and_points_to_the_help(potluck_says, words):
    code, out, err = potluck_says(*words)
    assert code == 2
    assert out == ""
    assert "--help" in err


def test_the_disk_is_what_a_user_can_mend(recipe, potluck_says, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device", "runs/x")

    monkeypatch.setattr("potluck.cli.training.load", full)
    code, _, err = potluck_says("run", recipe, "--one-process")
    assert code == 2
    assert err == "potluck: [Errno 28] No space left on device: 'runs/x'\n"


def test_a_number_that_is_not_finite_ends_with_1_and_no_traceback(
    recipe, potluck_says, monkeypatch
):
    def broken(*_, **__):
        raise potluck.types.NonFiniteError("the weights are not finite")

    monkeypatch.setattr("potluck.cli.training._run", broken)
    code, _, err = potluck_says("run", recipe, "--one-process")
    assert code == 1
    assert err == "potluck: the weights are not finite\n"


def test_a_long_complaint_is_one_line_too(recipe, potluck_says, monkeypatch):
    def broken(*_, **__):
        raise potluck.types.NonFiniteError("the weights are not finite; " * 10)

    monkeypatch.setattr("potluck.cli.training._run", broken)
    _, _, err = potluck_says("run", recipe, "--one-process")
    assert err.count("\n") == 1


def test_ctrl_c_ends_with_130(recipe, potluck_says, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("potluck.cli.training._run", interrupted)
    code, _, _ = potluck_says("run", recipe, "--one-process")
    assert code == 130


def test_ctrl_c_says_how_to_go_on(recipe, potluck_says, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("potluck.cli.training._run", interrupted)
    _, _, err = potluck_says("run", recipe, "--one-process")
    assert err.startswith("potluck: stopped at once")
    assert err.count("\n") == 1


# What there is to do.


def test_new_then_check_starts_nothing_and_says_what_a_run_would_cost(
    desk, potluck_says, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "120")
    code, out, err = potluck_says("new", "first.toml")
    assert (code, err) == (0, "")
    assert out == "wrote first.toml; next: potluck run first.toml --check\n"
    assert (desk / "first.toml").read_bytes() == STARTING_RECIPE.read_bytes()
    before = everything_in(desk)
    code, out, err = potluck_says("run", "first.toml", "--check")
    assert (code, err) == (0, "")
    assert out.startswith("digits: ")  # in short; the recipe with its defaults is asked for
    assert "weight_cap" not in out
    assert "nothing was started; --json prints the recipe with every default" in out
    assert "train 20,000" in out
    assert "weights" in out
    for name, model in (("small", "digits-small"), ("large", "digits-large")):
        row, _ = (line for line in out.splitlines() if line.startswith(f"│ {name} "))
        assert row.split()[3] == f"{parameters_of(SMALL.parent / model) / 1e6:.2f}M"
    assert everything_in(desk) == before


def test_a_check_prints_the_whole_recipe_as_json_that_runs_as_it_is(desk, recipe, potluck_says):
    code, out, err = potluck_says("run", recipe, "--check", "--json", "--set", "seed=7")
    assert (code, err) == (0, "")
    assert json.loads(out)["objective"]["weight_cap"] == 2.0
    (desk / "whole.json").write_text(out)
    assert potluck_says("run", "whole.json", "--check", "--json") == (0, out, "")
    code, out, err = potluck_says("run", recipe, "--json")
    assert (code, out) == (2, "")
    assert "--json prints a recipe and starts nothing, so it needs --check" in err


def test_a_check_of_one_process_counts_the_memory_of_nodes_that_take_turns(recipe, potluck_says):
    _, apart, _ = potluck_says("run", recipe, "--check")
    _, turns, _ = potluck_says("run", recipe, "--check", "--one-process")
    assert "the peaks added up" in apart
    assert "the states added up, as they take turns" in turns
    assert "the peaks added up" not in turns


def test_a_run_a_look_at_it_and_no_other_recipe_on_top(desk, recipe, potluck_says):
    code, out, err = potluck_says(*RUN, *sets(ONE_ROUND))
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "potluck show runs/digits"
    there = everything_in(desk / "runs/digits")
    for node in ("small", "large"):
        metrics = (desk / "runs/digits" / node / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["round"] for line in metrics] == [0]
        assert (desk / "runs/digits" / node / "checkpoints/000001/model.safetensors").exists()

    code, out, err = potluck_says("show", "runs/digits")
    assert (code, err) == (0, "")
    assert "1 of 1" in out
    assert "small" in out
    assert "large" in out
    assert "LWS" in out

    other = [*ONE_ROUND, "objective.weight_cap=3"]
    code, out, err = potluck_says(*RUN, "--resume", *sets(other))
    assert code == 2
    assert err.count("\n") == 1
    assert "was made with objective.weight_cap = 2.0, but" in err
    assert "now has objective.weight_cap = 3.0;" in err
    code, out, err = potluck_says(*RUN, *sets(ONE_ROUND))
    assert code == 2
    assert "runs/digits exists; --resume goes on with that run" in err
    assert everything_in(desk / "runs/digits") == there

    # What only reports may change.
    code, out, err = potluck_says(
        *RUN, "--resume", *sets([*ONE_ROUND, "objective.alignment_every=5"])
    )
    assert (code, err) == (0, "")


def test_a_model_is_evaluated_by_itself(desk, potluck_says):
    code, out, err = potluck_says(
        *EVALUATE, "digits", "--problems", "2", "--max-new-tokens", "8", "--device", "cpu"
    )
    assert (code, err) == (0, "")
    for split in ("validation", "out-of-distribution"):
        _, _, told = out.partition(f"\n{split}, 2 problems\n")
        _, row, *_ = told.splitlines()
        assert re.fullmatch(r"greedy +(0\.000|0\.500|1\.000) \[0\.\d{3}, [01]\.\d{3}\] *", row)
    assert everything_in(desk) == {}


@pytest.mark.parametrize("key, value", [("name", "{}"), ("sampling.stop", "[{}]")])
def test_a_check_prints_no_terminal_escape_of_a_recipe(recipe, potluck_says, key, value):
    _, out, err = potluck_says(
        "run", recipe, "--check", "--set", f"{key}={value.format(ESCAPE_IN_TOML)}"
    )
    assert "red" in out + err
    assert not {"\x1b", "\x07"} & set(out + err)


def test_a_run_prints_no_terminal_escape_of_a_recipe(recipe, potluck_says):
    hostile = f"name={ESCAPE_IN_TOML}"
    _, out, err = potluck_says(*RUN, *sets([*ONE_ROUND, hostile]))
    assert "\x1b" not in out + err
    assert "\x07" not in out + err


def test_the_help_names_every_command(potluck_says):
    code, out, _ = potluck_says("--help")
    assert code == 0
    for command in ("run", "join", "evaluate", "show", "new", "export", "demo"):
        assert f" {command} " in out
    for command in ("keys", "certificates", "relay", "doctor"):
        assert f" {command} " in out


def test_the_version_is_said(potluck_says):
    assert potluck_says("--version") == (0, f"potluck {potluck.__version__}\n", "")


def test_the_package_is_a_command_too(desk):
    source = str(Path(potluck.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "potluck", "show", "absent"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("potluck: there is no run folder absent")


RARE = {
    "a name that leaves the folder of runs": ["--set", "name=../../elsewhere", "--check"],
    "a run without a name": ["--set", "name=''", "--check"],
    "a name that is no folder": ["--set", r'name="a\u0000b"', "--check"],
    "a name too long for the wire": ["--set", f"name={'x' * 257}", "--check"],
    "a seed below 0": ["--set", "seed=-1", "--check"],
    "a number of 5,000 digits": ["--set", f"seed={'1' * 5000}", "--check"],
    "lists without end": ["--set", f"seed={'[' * 5000}", "--check"],
    "a stop token that no model has": ["--set", "sampling.stop=['<none>']"],
    "a device that no machine has": ["--set", "node.large.device=abacus"],
}


@pytest.mark.parametrize("words", RARE.values(), ids=RARE)
def test_a_rare_mistake_is_one_line_and_costs_nothing_too(desk, recipe, potluck_says, words):
    before = everything_in(desk)
    code, out, err = potluck_says(*RUN, *words)
    assert code == 2
    assert err.count("\n") == 1
    assert out == ""
    assert everything_in(desk) == before


def test_an_export_is_a_model_in_the_format_asked_for(desk, potluck_says):
    code, said, _ = potluck_says("export", "builtin:digits-small", "model", "--dtype", "bfloat16")
    assert (code, said.split()[-2:]) == (0, ["wrote", "model"])
    with safe_open(desk / "model" / "model.safetensors", "pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.bfloat16}  # noqa: SIM118
    assert (desk / "model" / "tokenizer.json").exists()


@pytest.mark.parametrize(
    "words, way_out",
    [
        (("builtin:digits-small", "there"), "there exists; name another folder for the export"),
        (("builtin:digits-tall", "model"), "no built-in model is named 'digits-tall'"),
        (("builtin:digits-small", "model", "--dtype", "int8"), "choose one of float32, bfloat16"),
    ],
)
def test_what_cannot_be_exported_is_said_in_a_line_and_leaves_nothing(
    desk, potluck_says, words, way_out
):
    (desk / "there").mkdir()
    code, _, complaint = potluck_says("export", *words)
    assert (code, complaint.count("\n")) == (2, 1)
    assert way_out in complaint
    assert not (desk / "model").exists()
    assert not list((desk / "there").iterdir())
