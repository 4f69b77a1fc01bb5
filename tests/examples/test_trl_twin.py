"""A script of TRL and its twin: run as a reader runs them, their rewards rise alike."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.page

EXAMPLES = Path(__file__).parents[2] / "examples"
TWINS = """
import sys, torch, trl_twin
torch.set_num_threads(1)
for partner in (False, True):
    print("mean reward:", *trl_twin.main(sys.argv[1] + str(partner), partner=partner)[::29])
"""


def test_the_twin_learns_what_the_script_of_trl_learns(tmp_path):
    path = os.pathsep.join(map(str, (EXAMPLES, EXAMPLES.parent / "src")))
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    for name in ("trl", "twinFalse", "twinTrue"):
        (tmp_path / name).mkdir()
    words = [str(EXAMPLES / "trl_grpo.py"), "trl"], ["-c", TWINS, "twin"]
    running = [
        subprocess.Popen(
            [sys.executable, *its], env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path
        )
        for its in words
    ]
    said = [process.communicate(timeout=300)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    told = [line for text in said for line in text.splitlines() if line.startswith("mean reward:")]
    assert len(told) == 3
    for line in told:
        first, *_, last = map(float, line.removeprefix("mean reward:").split())
        assert first == pytest.approx(-0.9, abs=0.1)  # one model, before it has learned
        assert last > -0.5
