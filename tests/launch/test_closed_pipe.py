"""A run whose reader goes away (``potluck run RECIPE | head``), or whose terminal is closed."""

import os
import pty
import signal
import subprocess
import sys

import pytest
from filelock import FileLock

from potluck.node.storage.folder import LOCK

RECIPE = """
name = "case"
rounds = 500
checkpoint_every = 400
problems_per_round = 2
group_size = 4
threads = 1
task = {name = "digits"}
sampling = {max_new_tokens = 8, max_total_tokens = 64}
evaluation = {problems = 0, out_of_distribution = 0}
node.a = {model = "builtin:digits-small", learning_rate = 1e-3}
"""


def is_of_a_round(line):
    return line.startswith("round ") or "round_done" in line


@pytest.mark.parametrize("display", ["live", "lines"])
def test_a_run_that_nobody_reads_any_more_is_saved_as_after_sigterm(tmp_path, display):
    (tmp_path / "case.toml").write_text(RECIPE)
    words = ["run", "case.toml", "--one-process", "--display", display, "--out", "out"]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "potluck", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stderr
        # Before its first round a run has nothing to save, and ends as any command does.
        while not is_of_a_round(process.stdout.readline()):
            assert process.poll() is None
        process.stdout.close()
        assert process.stderr.read() == ""

    assert process.returncode == 130
    checkpoints = list((tmp_path / "out" / "a" / "checkpoints").iterdir())
    assert len(checkpoints) == 1


@pytest.mark.parametrize("where", ["--one-process", "--display=live"])
def test_a_run_whose_terminal_is_closed_is_saved(tmp_path, where):
    recipe = f"{RECIPE}node.b = {{model = 'builtin:digits-small', learning_rate = 1e-3}}\n"
    (tmp_path / "case.toml").write_text(recipe)
    words = ["run", "case.toml", where, "--out", "out"]
    screen, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "potluck", *words],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,  # no SIGHUP comes: what is written fails, and nothing else tells
    ) as process:
        os.close(terminal)
        seen = b""
        while b"round 3" not in seen:
            seen += os.read(screen, 4096)
        os.close(screen)

    assert process.returncode == 130
    saved = [[*(tmp_path / "out" / node / "checkpoints").iterdir()] for node in "ab"]
    assert [len(each) for each in saved] == [1, 1]


def test_a_run_that_is_hung_up_is_saved_and_says_how_to_go_on(tmp_path):
    (tmp_path / "case.toml").write_text(RECIPE)
    with subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-m",
            "potluck",
            "run",
            "case.toml",
            "--one-process",
            "--out",
            "out",
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        # As a terminal starts it, whatever has started the tests.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    ) as process:
        assert process.stdout
        while not is_of_a_round(process.stdout.readline()):
            assert process.poll() is None
        process.send_signal(signal.SIGHUP)
        said = process.stdout.read()

    assert process.returncode == 130
    assert "saved; go on with:" in said
    assert len([*(tmp_path / "out" / "a" / "checkpoints").iterdir()]) == 1


def test_nodes_whose_starter_is_killed_save_and_end(tmp_path):
    recipe = f"{RECIPE}node.b = {{model = 'builtin:digits-small', learning_rate = 1e-3}}\n"
    (tmp_path / "case.toml").write_text(recipe.replace("rounds = 500", "rounds = 90_000"))
    words = ["run", "case.toml", "--set", "checkpoint_every=90000", "--out", "out"]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "potluck", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        while not is_of_a_round(process.stdout.readline()):
            assert process.poll() is None
        process.kill()

    for node in "ab":
        place = tmp_path / "out" / node
        with FileLock(place / LOCK, timeout=60):  # held until its process has ended
            (saved,) = (place / "checkpoints").iterdir()
            assert int(saved.name) < 90_000
