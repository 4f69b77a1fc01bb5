"""The notebook, made from its script, and a script of TRL beside its twin: both are run."""

import os
import subprocess
import sys

import nbformat
import pytest

from make_notebook import NOTEBOOK, SOURCE, notebook_of

pytestmark = pytest.mark.page

REPOSITORY = NOTEBOOK.parents[1]


def cells(notebook):
    return [(cell["id"], cell.cell_type, cell.source) for cell in notebook.cells]


def test_the_notebook_is_that_of_its_script():
    kept = nbformat.read(NOTEBOOK, as_version=4)
    assert cells(kept) == cells(notebook_of(SOURCE.read_text()))
    outputs = [out.get("data", {}) for c in kept.cells for out in c.get("outputs", [])]
    pictures = sum("image/png" in data for data in outputs)
    assert pictures >= 2, "python scripts/make_notebook.py keeps what was drawn"


def test_the_notebook_runs(tmp_path):
    """As a small run: that rewards rise is asked of the twins of TRL."""
    asked = nbformat.read(NOTEBOOK, as_version=4)
    (recipe,) = [cell for cell in asked.cells if '"rounds": 12,' in cell.source]
    changes = {'rounds": 12': 'rounds": 2', 'round": 12': 'round": 4', ": 40": ": 4"}
    for usual, small in changes.items():
        assert usual in recipe.source
        recipe.source = recipe.source.replace(usual, small)
    asked.cells.append(nbformat.v4.new_code_cell("print(frame['round'].nunique())"))
    nbformat.write(asked, tmp_path / "notebook.ipynb")
    command = [sys.executable, "-m", "jupyter", "execute", "--inplace", "notebook.ipynb"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=300)
    done = nbformat.read(tmp_path / "notebook.ipynb", as_version=4)
    assert done.cells[-1].outputs[0].text.strip() == "2"


# A script of TRL and its twin: their rewards rise alike.

EXAMPLES = NOTEBOOK.parent
HEAD = """
import torch, trl_grpo
torch.set_num_threads(1)
trl_grpo.STEPS = 16  # about half
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
