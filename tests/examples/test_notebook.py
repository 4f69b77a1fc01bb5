"""The notebook is made from its script, and runs."""

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
