"""Each command that does something, with all that it starts, runs no file of the current folder.
``test_beside.py`` has the commands that take no time, and shows that such files can run."""

import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

import potluck
from beside import console_environment, ran, start

MAZE = Path(potluck.__file__).with_name("recipe-maze.toml")
SHORT = [
    *("--set", "rounds=1", "--set", "problems_per_round=2", "--set", "group_size=4"),
    *("--set", "evaluation.problems=2", "--set", "evaluation.out_of_distribution=0"),
]
OWN_REWARD = """
name = "own"
rounds = 1
problems_per_round = 2
group_size = 4
threads = 1

[task]
name = "jsonl"
path = "sums.jsonl"
grading = "math"
tags = false
system_prompt = "Add."

[[reward]]
function = "task"

[[reward]]
function = "pays.py:length"

[sampling]
max_new_tokens = 8
max_total_tokens = 64

[evaluation]
problems = 2
out_of_distribution = 0

[log]
to = ["tensorboard", "trackio", "wandb"]
wandb_mode = "offline"

[node.small]
model = "builtin:digits-small"
"""
PAYS = """\
def length(completions, **columns):
    return [1.0 / (1 + len(text)) for text in completions]
"""
TORCHRUN = ["torchrun", "--nproc-per-node", "2", "--no-python"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="marks are written through posix")


@pytest.fixture
def runs_nothing(folder, programs):
    """A function that calls a command, which does what it is to do and runs nothing of the folder:
    its output."""

    def call(*words):
        marks, done = start([str(programs / "potluck"), *words], folder)
        assert (marks, done.returncode) == ([], 0), f"{words}: {done.stderr}"
        return done.stdout

    return call


def test_a_run_in_one_process_and_all_that_is_done_with_it_afterwards(folder, runs_nothing):
    runs_nothing("run", "tiny.toml", "--check")
    runs_nothing("run", "tiny.toml", "--one-process", "--out", "runs/tiny")
    runs_nothing("show", "runs/tiny", "--html", "tiny.html")
    runs_nothing("export", "runs/tiny/small", "exported")
    runs_nothing("evaluate", "exported", "--recipe", "tiny.toml", "--problems", "2")
    runs_nothing("replay", "runs/tiny", "--method", "lws", "--node", "small")
    runs_nothing("compare", "runs/tiny", "runs/tiny")
    assert (folder / "tiny.html").is_file()
    assert (folder / "exported" / "model.safetensors").is_file()
    assert (folder / "runs" / "tiny" / "replay").is_dir()


def test_a_run_of_processes_and_its_page(folder, runs_nothing):
    said = runs_nothing("run", "tiny.toml", "--web")
    assert "watch it: http://" in said
    assert (folder / "runs" / "tiny" / "terse" / "completions.jsonl").is_file()


def test_a_game_and_the_processes_that_play_it(folder, runs_nothing):
    one_node, _, _ = MAZE.read_text().partition("[node.large]")
    (folder / "maze.toml").write_text(one_node)
    runs_nothing("run", "maze.toml", "--one-process", *SHORT)
    assert (folder / "runs" / "maze" / "small" / "completions.jsonl").is_file()


def test_a_class_that_the_command_names_is_run_and_nothing_beside_it(folder, runs_nothing):
    assert "repeat exactly" in runs_nothing("env", "check", "guess.py:Guess")


@pytest.mark.parametrize("way", ["network", "folder"])
def test_a_node_that_joins(folder, runs_nothing, way):
    (folder / "shared").mkdir()
    meets = {
        "network": ["--listen", "tcp/127.0.0.1:0"],
        "folder": [
            *("--set", "swarm.transport=folder"),
            *("--set", f"swarm.connect=['file://{folder}/shared']"),
        ],
    }
    runs_nothing("join", "alone.toml", "--as", "small", "--out", "joined", *meets[way])
    assert (folder / "joined" / "small" / "completions.jsonl").is_file()


def test_a_page_that_shows_runs(folder, programs):
    (folder / "runs").mkdir()
    process = subprocess.Popen(
        [str(programs / "potluck"), "watch", "--web", "127.0.0.1:0"],
        cwd=folder,
        env=console_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            address = process.stdout.readline().split()[2]
            with urlopen(address) as page:  # with what other distributions add
                assert b"<html" in page.read()
        finally:
            process.send_signal(signal.SIGINT)
    assert ran(folder.parent / f"{folder.name}.ran") == []


@pytest.mark.page  # each takes many seconds
def test_controls_and_the_runs_of_a_comparison(folder, runs_nothing):
    runs_nothing("run", "tiny.toml", "--control", "alone")
    runs_nothing("compare", "alone.toml", "alone.toml", "--seeds", "1")
    assert (folder / "runs" / "compare" / "compare.json").is_file()


@pytest.mark.page
def test_the_demo(folder, runs_nothing):
    runs_nothing("demo", "--rounds", "1", "--seeds", "1")
    assert (folder / "potluck-demo" / "report.html").is_file()


@pytest.mark.page
def test_a_recipe_whose_code_is_trusted_runs_the_file_that_it_names_alone(
    folder, runs_nothing, monkeypatch
):
    (folder / "own.toml").write_text(OWN_REWARD)
    (folder / "pays.py").write_text(PAYS)
    rows = [f'{{"question": "{i}+1", "answer": "{i + 1}"}}\n' for i in range(40)]
    (folder / "sums.jsonl").write_text("".join(rows))
    monkeypatch.setenv("TRACKIO_DIR", str(folder / "trackio"))
    runs_nothing("run", "own.toml", "--trust-code", "--out", "runs/own")
    assert (folder / "runs" / "own" / "small" / "completions.jsonl").is_file()
    trackers = ("runs/own/tensorboard", "runs/own/wandb", "trackio")
    assert all((folder / place).is_dir() for place in trackers)


@pytest.mark.page
def test_several_processes_of_one_node(folder, programs):
    words = [*TORCHRUN, str(programs / "potluck"), "run", "alone.toml", "--out", "runs/both"]
    marks, done = start([str(Path(sys.executable).with_name(words[0])), *words[1:]], folder)
    assert (marks, done.returncode) == ([], 0), done.stderr
    assert (folder / "runs" / "both" / "small" / "completions.jsonl").is_file()
