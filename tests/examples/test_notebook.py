"""The notebook: made from its script, and executed as a reader executes it."""

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
    pictures = [
        out
        for c in kept.cells
        for out in c.get("outputs", [])
        if "image/png" in out.get("data", {})
    ]
    assert len(pictures) >= 2, "python scripts/make_notebook.py keeps what was drawn"


def test_the_notebook_runs_and_its_curve_rises(tmp_path):
    (tmp_path / "notebook.ipynb").write_bytes(NOTEBOOK.read_bytes())
    last = nbformat.v4.new_code_cell("print(*frame.groupby('round')['reward/own'].mean())")
    asked = nbformat.read(tmp_path / "notebook.ipynb", as_version=4)
    asked.cells.append(last)
    nbformat.write(asked, tmp_path / "notebook.ipynb")
    command = [sys.executable, "-m", "jupyter", "execute", "--inplace", "notebook.ipynb"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=300)
    done = nbformat.read(tmp_path / "notebook.ipynb", as_version=4)
    rewards = [float(word) for word in done.cells[-1].outputs[0].text.split()]
    assert len(rewards) == 12
    assert sum(rewards[-4:]) > sum(rewards[:4]) + 0.2
