"""A script of TRL beside its twin: their rewards rise alike."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.page

EXAMPLES = Path(__file__).parents[2] / "examples"
HEAD = """
import torch, trl_grpo
torch.set_num_threads(1)
trl_grpo.STEPS = 12  # about a third
def say(rewards): print("mean reward:", rewards[0], rewards[-1])
"""
SCRIPTS = {
    "trl": "say(trl_grpo.main('trl'))",
    "twin": "import trl_twin; say(trl_twin.main('twin')); "
    "trl_grpo.STEPS = 1; trl_twin.main('partner', partner=True)",
}


def test_the_twin_learns_what_the_script_of_trl_learns(tmp_path):
    path = os.pathsep.join(map(str, (EXAMPLES, EXAMPLES.parent / "src")))
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    for folder in ("trl", "twin", "partner"):
        (tmp_path / folder).mkdir()
    options = {"env": environment, "stdout": subprocess.PIPE, "text": True, "cwd": tmp_path}
    running = {
        name: subprocess.Popen([sys.executable, "-c", HEAD + script], **options)
        for name, script in SCRIPTS.items()
    }
    for name, process in running.items():
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, name
        (told,) = [line for line in said.splitlines() if line.startswith("mean reward:")]
        first, last = map(float, told.removeprefix("mean reward:").split())
        assert first == pytest.approx(-0.9, abs=0.1), name  # one model, before it has learned
        assert last > -0.75, name
