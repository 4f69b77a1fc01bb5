"""Makes examples/notebook.ipynb from examples/notebook.py, which is code that tests can read.

    python scripts/make_notebook.py        # executes it too, a minute: its outputs are kept

A cell begins with a line "# %%", one of text with "# %% [markdown]", as Jupytext and editors have
them.
"""

import re
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"
SOURCE, NOTEBOOK = EXAMPLES / "notebook.py", EXAMPLES / "notebook.ipynb"
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


def notebook_of(text: str) -> nbformat.NotebookNode:
    made = nbformat.v4.new_notebook(metadata=KERNEL)
    for number, cell in enumerate(re.split(r"^# %%", text, flags=re.M)[1:]):
        kind, _, body = cell.partition("\n")
        if kind.strip() == "[markdown]":
            new = nbformat.v4.new_markdown_cell(re.sub(r"^# ?", "", body.strip(), flags=re.M))
        else:
            new = nbformat.v4.new_code_cell(body.strip())
        new["id"] = f"cell-{number}"  # else drawn anew each time
        made.cells.append(new)
    return made


def main() -> None:
    made = notebook_of(SOURCE.read_text())
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(made, timeout=600, resources=resources).execute()
    for cell in made.cells:
        cell.metadata = {}  # when it was executed
        if cell.cell_type == "code":  # warnings of libraries are of this machine
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    made.metadata = KERNEL
    nbformat.write(made, NOTEBOOK)


if __name__ == "__main__":
    main()
