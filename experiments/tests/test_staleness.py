"""Staleness: told by the commit of a cell and git, never by a page."""

import subprocess
from pathlib import Path

import pytest

from potluck_experiments import origin
from potluck_experiments.cells import make_cell
from potluck_experiments.origin import PATHS, UNKNOWN, Code, changed_since, code_now
from potluck_experiments.results import read_result
from small_suite import finish, make_suite

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository with a suite, two files of the package, and a finished cell."""
    monkeypatch.setattr(origin.potluck, "__file__", str(tmp_path / "src/potluck/__init__.py"))
    suite = make_suite(tmp_path)
    for name in ("types.py", "cli/base.py"):
        (tmp_path / "src/potluck" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src/potluck" / name).write_text("one = 1\n")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    finish(suite, cell_of(suite))
    commit(tmp_path)
    return tmp_path, suite


def git(root, *words):
    told = {
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "PATH": "/usr/bin:/bin",
    }
    names = ("-c", "user.name=x", "-c", "user.email=x@y", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *names, *words], cwd=root, env=told, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit(root):
    git(root, "add", "-A")
    git(root, "commit", "-qm", "x")
    return git(root, "rev-parse", "HEAD")


def cell_of(suite):
    return make_cell(suite, "tiny", "digits", ("small",), "alone", 0)


def told(suite):
    cell = cell_of(suite)
    return changed_since(suite.folder, [(cell, read_result(suite.folder, cell))])[cell.name]


def test_a_cell_without_a_commit_has_that_of_its_file(clone):
    root, suite = clone
    assert told(suite) == ()
    (root / "src/potluck/cli/base.py").write_text("one = 2\n")  # decides no number
    assert told(suite) == ()
    (root / "src/potluck/types.py").write_text("one = 1\n# a comment\n")
    assert told(suite) == ("src/potluck/types.py",)
    commit(root)
    assert told(suite) == ("src/potluck/types.py",)


def test_a_cell_that_recorded_its_commit_is_compared_with_that_one(clone):
    root, suite = clone
    (root / "src/potluck/types.py").write_text("one = 2\n")
    assert code_now(root).uncommitted == ("src/potluck/types.py",)
    code = Code(commit(root))
    assert code_now(root) == code
    finish(suite, cell_of(suite), commit=code.commit)
    assert told(suite) == ()
    (root / "src/potluck/node").mkdir()
    (root / "src/potluck/node/new.py").write_text("")
    assert told(suite) == ("src/potluck/node/new.py",)
    finish(suite, cell_of(suite), commit=code.commit, uncommitted=("src/potluck/types.py",))
    assert told(suite) == ("src/potluck/node/new.py", "src/potluck/types.py")


def test_where_git_knows_nothing_nothing_is_claimed(clone, tmp_path, monkeypatch):
    root, suite = clone
    finish(suite, cell_of(suite), commit="0" * 40)
    assert told(suite) is None
    finish(suite, cell_of(suite), commit=UNKNOWN)
    assert told(suite) is None
    monkeypatch.setattr(origin.potluck, "__file__", "/elsewhere/potluck/__init__.py")
    assert code_now(root) == Code(UNKNOWN)
    monkeypatch.setenv("PATH", "")
    finish(suite, cell_of(suite))
    assert told(suite) is None


def test_a_clone_without_its_history_claims_nothing(clone, tmp_path):
    root, _ = clone
    git(root, "clone", "-q", "--depth", "1", f"file://{root}", str(root / "shallow"))
    suite = make_suite(root / "shallow")
    assert told(suite) is None


@pytest.mark.parametrize("path", PATHS)
def test_the_parts_that_decide_numbers_are_there(path):
    assert (REPOSITORY / path).exists(), f"{path} was moved: name its new place in origin.py"
