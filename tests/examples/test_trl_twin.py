"""A script of TRL and its twin: run as a reader runs them, their rewards rise alike."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.page

REPOSITORY = Path(__file__).parents[2]


def test_the_twin_learns_what_the_script_of_trl_learns(tmp_path):
    scripts = {"trl_grpo.py": [], "trl_twin.py": [], "partner": ["--partner"]}
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1"}
    running = {}
    for name, options in scripts.items():
        script = REPOSITORY / "examples" / (name if name.endswith(".py") else "trl_twin.py")
        command = [sys.executable, str(script), str(tmp_path / name), *options]
        (tmp_path / name).mkdir()
        running[name] = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path
        )
    for name, process in running.items():
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, name
        first, *_, last = map(float, said.splitlines()[-1].removeprefix("mean reward:").split())
        assert first == pytest.approx(-0.9, abs=0.1), name  # one model, before it has learned
        assert last > -0.5, name
