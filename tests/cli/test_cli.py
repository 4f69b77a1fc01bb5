"""The command line: what a user can mend is one line and exit code 2, and costs nothing."""

import json
import math
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import potluck
import tiny
from launch.runs import everything_in, sets
from potluck import STARTING_RECIPE
from potluck.cli.models import told_of_type
from potluck.node.storage.export import Exported

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


def parameters_of(model):
    with safe_open(model / "model.safetensors", "numpy") as tensors:
        names = list(tensors.keys())
        return sum(math.prod(tensors.get_slice(name).get_shape()) for name in names)


# Mistakes.

RUN = ["run", "first.toml", "--one-process"]
EVALUATE = ["evaluate", "builtin:digits-small", "--task"]
MISTAKES = [  # words, way out
    ([*RUN, *sets("objective.weigth_cap=1")],
     "[objective] has no key 'weigth_cap'; did you mean 'weight_cap'?"),
    (["run", "frist.toml", "--one-process"],
     "there is no recipe frist.toml; `potluck new frist.toml` writes one"),
    ([*RUN, *sets("node.large.model=models/none-here")], "'models/none-here'"),
    ([*RUN, *sets("node.large.model=builtin:digits-smal")],
     "no built-in model is named 'digits-smal'; there is calculator-large, calculator-small, "),
    ([*RUN, *sets("problems_per_round=20001", "group_size=2")],
     "problems_per_round is 20001, but the task has 20000 problems to train on; lower it"),
    ([*RUN, *sets("problems_per_round=20000")],
     "problems_per_round x group_size is 240000; a round has at most 65536 completions"),
    ([*RUN, *sets("sampling.max_total_tokens=9")],
     "has 9 tokens, which leaves no room below max_total_tokens = 9"),
    ([*RUN, *sets("task={name='gsm8k',path='nowhere'}")],
     "task.path: there is no folder"),
    ([*RUN, "--out", "runs/old"],
     "runs/old exists; --resume goes on with that run, --out names another folder"),
    ([*RUN, "--out", "absent", "--resume"], "absent holds no run to resume"),
    ([*RUN, "--json"], "--json prints a recipe and starts nothing, so it needs --check"),
    ([*RUN, "--gpu", "h100"], "--gpu only plans, so it needs --check"),
    (["new", "first.toml"], "first.toml exists; name another file or remove it"),
    (["new", "no/such.toml"], "cannot write no/such"),
    (["show", "absent"], "there is no run folder absent"),
    (["show", "runs/old"], "runs/old is no run"),
    ([*EVALUATE, "digit"], "task.name is 'digit'; did you mean 'digi"),
    ([*EVALUATE, "digits", "--device", "abacus"], "abacus"),
    (["demo", "--out", "runs"], "runs exists; name another folder"),
    (["export", "builtin:digits-small", "runs"], "runs exists; name another folder for the export"),
    (["export", "builtin:digits-small", "model", "--dtype", "int8"],
     "choose one of auto, float32, bfloat16, float16"),
    # Terminal escapes: for a node, a model, a path.
    ([*RUN, *sets(f"node.{ESCAPE}.model=x")],
     r"no node is named '\x1b[31mred\x1b]0;title\x07'"),
    ([*RUN, *sets(f"node.large.model={ESCAPE_IN_TOML}")], r"\x1b[31mred\x1b]0;title\x07"),
    (["show", ESCAPE], "there is no run folder [31mred]0;title"),
    # Rare ones: any line will do.
    *(([*RUN, *sets(change), "--check"], "") for change in (
        "name=../../elsewhere", "name=''", r'name="a\u0000b"', f"name={'x' * 257}", "seed=-1",
        f"seed={'1' * 5000}", f"seed={'[' * 5000}")),
    ([*RUN, *sets("sampling.stop=['<none>']")], ""),
]  # fmt: skip


@pytest.mark.parametrize("words, way_out", MISTAKES)
def test_a_mistake_is_one_line_and_costs_nothing(desk, recipe, refused, words, way_out):
    (desk / "runs/old").mkdir(parents=True)
    (desk / "runs/old/notes").write_text("mine")
    before = everything_in(desk)
    line = refused(*words)
    assert way_out in line
    assert not {"\x1b", "\x07"} & set(line)
    assert everything_in(desk) == before


BROKEN = "the weights are not finite; " * 10


@pytest.mark.parametrize(
    "place, error, code, said",
    [
        ("load", OSError(28, "No space left on device", "runs/x"), 2, "[Errno 28] No space"),
        ("_run", potluck.types.NonFiniteError(BROKEN), 1, BROKEN.rstrip()),
        ("_run", KeyboardInterrupt(), 130, "stopped at once; --resume"),
    ],
)
def test_what_ends_a_run_is_one_line_and_an_exit_code(
    recipe, potluck_says, monkeypatch, place, error, code, said
):
    def broken(*_, **__):
        raise error

    monkeypatch.setattr(f"potluck.cli.training.{place}", broken)
    ended, _, err = potluck_says("run", recipe, "--one-process")
    assert (ended, err.count("\n")) == (code, 1)
    assert err.startswith(f"potluck: {said}")


def test_ctrl_c_outside_of_a_command_promises_nothing(potluck_says, monkeypatch):
    def ends(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr("potluck.cli.app", ends)
    assert potluck_says("show") == (130, "", "potluck: stopped at once\n")


# What there is to do.


@pytest.mark.parametrize("task", ["digits", "maze", "calculator"])
def test_new_writes_the_recipe_of_a_task(desk, potluck_says, task):
    assert potluck_says("new", "first.toml", "--task", task)[0] == 0
    config = potluck.load(desk / "first.toml")
    assert (config.name, config.task.__struct_config__.tag) == (task, task)
    assert {node.model for node in config.node.values()} == {
        f"builtin:{task}-small", f"builtin:{task}-large"
    }  # fmt: skip


def test_new_then_check_starts_nothing_and_says_what_a_run_costs(desk, potluck_says, monkeypatch):
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


def test_a_check_counts_what_the_controls_cost_and_the_memory_of_nodes_that_take_turns(
    recipe, potluck_says
):
    plain = potluck_says("run", recipe, "--check")[1]
    assert "control" not in plain
    assert "the peaks added up" in plain
    kinds = ("half", "half-problems", "alone", "own-part")
    words = [word for kind in kinds for word in ("--control", kind)]
    _, said, _ = potluck_says("run", recipe, "--check", "--one-process", *words)
    assert "the states added up, as they take turns" in said
    # 24 problems x 12 completions x 25 rounds; by itself a node writes half
    said = " ".join(said.split())
    for kind, count, completions in (
        ("half", 2, "7,200"),
        ("half-problems", 2, "7,200"),
        ("alone", 2, "14,400"),
        ("own-part", 1, "7,200"),
    ):
        assert (
            f"control {kind!r}, after the run: {count} more, of 25 rounds each; {completions} "
            f"completions, the run 7,200"
        ) in said


def test_a_run_a_look_at_it_and_a_resume_of_it(desk, recipe, potluck_says):
    code, out, err = potluck_says(*RUN, *sets(*ONE_ROUND))
    assert (code, err) == (0, "")
    assert out.splitlines()[-2:] == [
        "potluck show runs/digits",
        "does sharing help? a control tells: potluck run runs/digits/recipe.json --out runs/digits "
        "--resume --control half",
    ]
    for node in ("small", "large"):
        metrics = (desk / "runs/digits" / node / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["round"] for line in metrics] == [0]
        assert (desk / "runs/digits" / node / "checkpoints/000001/model.safetensors").exists()

    code, out, err = potluck_says("show", "runs/digits")
    assert (code, err) == (0, "")
    for shown in ("1 of 1", "small", "large", "LWS"):
        assert shown in out
    # What only reports may change.
    again = [*RUN, "--resume", *sets(*ONE_ROUND, "objective.alignment_every=5")]
    code, out, err = potluck_says(*again)
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    "words, key, value",
    [
        (["--check"], "name", "{}"),
        (["--check"], "sampling.stop", "[{}]"),
        (["--one-process", *sets(*ONE_ROUND)], "name", "{}"),
    ],
)
def test_neither_a_check_nor_a_run_prints_an_escape(recipe, potluck_says, words, key, value):
    words = [*words, *sets(f"{key}={value.format(ESCAPE_IN_TOML)}")]
    _, out, err = potluck_says("run", recipe, *words)
    assert "red" in out + err
    assert not {"\x1b", "\x07"} & set(out + err)


def test_the_version_is_said(potluck_says):
    assert potluck_says("--version") == (0, f"potluck {potluck.__version__}\n", "")


def test_an_export_is_a_model_in_the_format_asked_for(desk, potluck_says):
    code, said, _ = potluck_says("export", "builtin:digits-small", "model", "--dtype", "bfloat16")
    size = (desk / "model" / "model.safetensors").stat().st_size / 1e6
    assert (code, said.splitlines()[0]) == (0, f"wrote model, {size:.1f} MB in bfloat16")
    assert "potluck evaluate model --task NAME" in said
    with safe_open(desk / "model" / "model.safetensors", "pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.bfloat16}  # noqa: SIM118
    assert (desk / "model" / "tokenizer.json").exists()


@pytest.mark.parametrize("exported, asked, told", [
    (("float32", "bfloat16", 0.1), "auto",
     ", as bfloat16, in which it came, would keep 10% of what was trained; --dtype bfloat16 "
     "halves it"),
    (("float32", "bfloat16", None), "auto",
     ", as bfloat16, in which it came, may lose what was trained; --dtype bfloat16 halves it"),
    (("bfloat16", "bfloat16", 0.97), "auto",
     ", as it came, which keeps 97% of what was trained; --dtype float32 keeps all digits"),
    (("bfloat16", "bfloat16", 0.1), "bfloat16",
     ", which keeps 10% of what was trained; --dtype float32 keeps all digits"),
])  # fmt: skip
def test_the_share_of_the_training_that_is_kept_is_told(exported, asked, told):
    assert told_of_type(Exported(*exported, size_bytes=1, notes=[]), asked) == told


@pytest.mark.parametrize("came, chosen, digits, told", [
    (torch.bfloat16, [], 8, "in bfloat16, as it came"),
    (torch.float16, [], 8, "in float16, as it came"),
    (torch.float32, [], 8, "in float32; --dtype bfloat16 halves it"),
    (torch.float32, ["float32"], 24, "in float32; --dtype bfloat16 halves it"),
    (torch.float32, ["bfloat16"], 24, "in bfloat16; --dtype float32 keeps all digits"),
    (torch.float16, ["float32"], 8, "in float32; --dtype bfloat16 halves it"),
    (torch.float32, ["auto"], 24, "in float32; --dtype bfloat16 halves it"),
])  # fmt: skip
def test_the_last_line_of_an_export_tells_its_type_and_what_another_one_would_do(
    desk, potluck_says, came, chosen, digits, told
):
    network = tiny.policy().network
    for weight in network.parameters():
        weight.data = weight.data.bfloat16().float() if digits == 8 else weight.data
    network.to(came).save_pretrained(desk / "came")
    tiny.tokenizer().save_pretrained(desk / "came")
    options = [each for name in chosen for each in ("--dtype", name)]
    code, said, _ = potluck_says("export", "came", "model", *options)
    assert code == 0
    assert re.fullmatch(rf"wrote model, \d+\.\d MB {re.escape(told)}", said.splitlines()[0])
    dtype = getattr(torch, told.split()[1].rstrip(",;"))
    with safe_open(desk / "model" / "model.safetensors", "pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {dtype}  # noqa: SIM118
