"""A run whose reader goes away, as in ``potluck run RECIPE | head``."""

import subprocess
import sys

import pytest

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
