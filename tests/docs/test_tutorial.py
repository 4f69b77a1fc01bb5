"""docs/tutorial.md, block by block in an empty folder, as a reader would type it, but for rounds.
That a reward rises is asked of the examples (tests/examples)."""

import os
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from forked import potluck_program
from potluck.config import load

pytestmark = pytest.mark.page

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(
    r"(?:`(?P<file>[\w.-]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)
ROUNDS = 12
"""Two more than one evaluation takes, and than a habit test needs."""
VERDICT = "A is better: greedy"
"""The line that more rounds have to earn."""
NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+(e-?\d+)?|[▁▂▃▄▅▆▇█]+")


def shape_of(line):
    """A printed line without its numbers, which differ between machines, and without its spaces."""
    return "".join(NUMBER.sub("0", line).split())


def is_printed(line, said):
    """Return whether ``said`` has such a line; one that ends in "..." is the beginning of one."""
    shape, printed = shape_of(line.removesuffix("...")), map(shape_of, said.splitlines())
    return any(p.startswith(shape) if line.endswith("...") else p == shape for p in printed)


@contextmanager
def environment_of(desk):
    """What a shell of a reader has: `python` and `potluck` are those of these tests."""
    programs = desk / "bin"
    programs.mkdir()
    python = programs / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    with potluck_program(programs / "potluck"):
        yield os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "COLUMNS": "200",
            "HF_HUB_OFFLINE": "1",
            "MPLBACKEND": "Agg",
        }


def typed(text, desk, environment):
    """Type a block of commands and return what they print."""
    done = subprocess.run(
        ["sh", "-ec", text], cwd=desk, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{text}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """The folder after the page: its files, its run, and what each block of commands printed."""
    desk = tmp_path_factory.mktemp("tutorial")
    with environment_of(desk) as environment:
        follow(desk, environment)
    return desk


def with_rounds(recipe, count):
    fewer, found = re.subn(r"^rounds = \d+", f"rounds = {count}", recipe, flags=re.M)
    assert found == 1
    return fewer


def follow(desk, environment):
    said = ""
    for block in BLOCK.finditer(PAGE):
        kind, text = block["kind"], block["text"]
        if kind == "sh":
            said = typed(text, desk, environment)
        elif kind == "text":
            lines = [line for line in text.splitlines() if line != VERDICT]
            missing = [line for line in lines if not is_printed(line, said)]
            assert not missing, f"the page says {missing}; printed was\n{said[-6000:]}"
        else:
            assert block["file"], f"a block of {kind} without the name of its file: {text[:80]}"
            text = with_rounds(text, ROUNDS) if kind == "toml" else text
            text = text.replace("steps=150", "steps=15")
            (desk / block["file"]).write_text(text, encoding="utf-8")


def test_every_block_runs_and_prints_and_leaves_what_the_page_says(desk):
    kinds = [block["kind"] for block in BLOCK.finditer(PAGE)]
    assert len(kinds) == PAGE.count("```") / 2
    assert (kinds.count("sh") >= 6, kinds.count("text") >= 5) == (True, True)
    assert (desk / "curve.png").read_bytes()[1:4] == b"PNG"
    assert "<html" in (desk / "ends.html").read_text(encoding="utf-8")[:500]
    assert (desk / "my-model" / "model.safetensors").exists()


def test_the_changes_that_the_page_proposes_change_the_recipe(tmp_path):
    changes = re.findall(r"--set ('[^']+'|[\w.=-]+)", PAGE.split("## 6. Run")[1])
    assert len(changes) >= 8
    recipe = tmp_path / "ends.toml"
    recipe.write_text(next(b["text"] for b in BLOCK.finditer(PAGE) if b["kind"] == "toml"))
    for change in changes:
        assert load(recipe, shlex.split(change)) != load(recipe)
