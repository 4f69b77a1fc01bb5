"""No command, and no process that it starts, runs a file because it lies in the current folder."""

import os
import shutil
import sys
from pathlib import Path

import pytest

import beside
import potluck
from beside import folder_with_code, start

SOURCE = Path(potluck.__file__).parents[1]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="marks are written through posix")


@pytest.fixture(scope="module")
def starts(programs):
    """Ways to start the command."""
    return {
        "console script": [sys.executable, str(programs / "potluck")],
        "python -P -m": [sys.executable, "-P", "-m", "potluck"],
        "python -m": [sys.executable, "-m", "potluck"],
    }


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """Such a folder, to which nobody writes."""
    return folder_with_code(tmp_path_factory.mktemp("shapes") / "downloaded")


def remove_what_python_itself_runs(folder):
    """Leave what Python does not import by itself from each place that PYTHONPATH names."""
    for name in ("encodings", "site", "potluck"):
        shutil.rmtree(folder / name)
    for name in ("sitecustomize", "usercustomize"):
        (folder / f"{name}.py").unlink()


IMPORTED = (*beside.MODULES, "secrets", *beside.PACKAGES)
IMPORT = "import sys; sys.modules.pop({0!r}, None); import {0}"
LOAD_COMMANDS = """
from importlib.metadata import entry_points

for entry in entry_points(group="potluck.commands"):
    if entry.name == "evil":
        entry.load()
"""
PLOT = "import matplotlib.pyplot as plot; plot.switch_backend(plot.rcParams['backend'])"
NAIVE = {
    **{name: (name, "-c", IMPORT.format(name)) for name in IMPORTED},
    "python -m": ("potluck/", "-m", "potluck"),
    "a folder of sites": ("evil.pth", "-c", "import site; site.addsitedir('.')"),
    "a distribution": ("evil_command", "-c", LOAD_COMMANDS),
    "a backend of matplotlib": ("evil_command", "-c", PLOT),
}
"""Name in a mark, and a program that is started without care."""


@pytest.mark.parametrize("name", NAIVE)
def test_each_kind_of_code_does_run_in_a_program_that_takes_no_care(folder, name):
    shape, *words = NAIVE[name]
    if name not in IMPORTED:  # the program is to come as far as what it is about
        for module in {*beside.MODULES} - {"evil_command", "conftest"}:
            (folder / f"{module}.py").unlink()
        shutil.rmtree(folder / "numpy")
    marks, done = start([sys.executable, *words], folder)
    assert any(mark.startswith(f"{shape}") for mark in marks), (marks, done.stderr)


@pytest.mark.parametrize("program", beside.PROGRAMS)
def test_each_program_does_run_for_a_shell_that_looks_in_the_folder(shapes, program):
    marks, _ = start(["/bin/sh", "-c", program], shapes, PATH=f".:{os.environ['PATH']}")
    assert [mark.split()[0] for mark in marks] == [program]


def test_python_itself_runs_what_pythonpath_names(shapes):
    marks, _ = start([sys.executable, "-c", ""], shapes, PYTHONPATH=".")
    assert marks
    assert marks[0].startswith("encodings/")


HASTY = {
    "help": ["--help"],
    "version": ["--version"],
    "completion": ["--show-completion"],
    "new": ["new", "fresh.toml"],
    "new game": ["new", "maze.toml", "--task", "maze"],
    "keys": ["keys", "small", "--out", "made.key"],
    "doctor": ["doctor"],
    "doctor of a recipe": ["doctor", "alone.toml"],
    "a file that is not there": ["show", "nowhere"],
    "an experiment": ["reproduce", "--check"],
    "relay": ["relay", "--listen", "nowhere"],
}
"""Commands that take no time, each of which has a way of its own to what it imports."""
REFUSED = {"a file that is not there", "an experiment", "relay"}


@pytest.mark.parametrize("name", HASTY)
def test_a_command_runs_no_file_beside_a_recipe(folder, starts, name):
    marks, done = start([*starts["console script"], *HASTY[name]], folder)
    codes = [2] if name in REFUSED else [0]
    if name == "completion":  # of the shell that has started the tests, which may have none
        codes = [0, 1]
    assert marks == []
    assert done.returncode in codes, done.stderr


@pytest.mark.parametrize("way", ["python -P -m", "python -m"])
def test_nor_does_the_module_of_that_name(folder, starts, way):
    if way == "python -m":  # then Python itself takes ``potluck`` from the current folder
        for name in ("contextlib.py", "importlib.py"):
            (folder / name).unlink()
        shutil.rmtree(folder / "potluck")
    marks, done = start([*starts[way], "doctor", "alone.toml"], folder)
    assert (marks, done.returncode) == ([], 0), done.stderr


@pytest.mark.parametrize("path", ["", ":", ".", "..:", "../downloaded:/nowhere", "/nowhere:"])
def test_an_entry_of_pythonpath_that_is_not_absolute_names_no_code(folder, starts, path):
    remove_what_python_itself_runs(folder)
    marks, done = start(
        [*starts["console script"], "doctor", "alone.toml"], folder, PYTHONPATH=path
    )
    assert (marks, done.returncode) == ([], 0), done.stderr


PROGRAM_OF_ITS_USER = """
import potluck
import statistics
import sys

potluck.load("alone.toml")
print(*sys.modules)
"""


def test_a_users_own_program_finds_its_modules_where_it_found_them_before(folder):
    remove_what_python_itself_runs(folder)
    for module in folder.glob("*.py"):
        if module.stem != "statistics":
            module.unlink()
    for name in ("numpy", "transformers"):
        shutil.rmtree(folder / name)
    command = [sys.executable, "-c", PROGRAM_OF_ITS_USER]
    marks, done = start(command, folder, PYTHONPATH=f":{SOURCE}")
    assert marks, done.stderr
    assert marks[0].startswith("statistics")
    assert "potluck.cli" not in done.stdout.split()


STARTS_OTHERS = """
from potluck.cli import main

import multiprocessing
import os

if __name__ == "__main__":
    for method in ("spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        process = context.Process(target=os.getpid)
        process.start()
        process.join()
        assert process.exitcode == 0
"""


def test_nor_do_processes_of_multiprocessing(folder, programs):
    (programs / "starts_others").write_text(STARTS_OTHERS)
    marks, done = start([sys.executable, str(programs / "starts_others")], folder)
    assert (marks, done.returncode) == ([], 0), done.stderr
