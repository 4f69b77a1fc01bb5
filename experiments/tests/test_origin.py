"""The code of a cell: a commit, and what differed from it."""

import subprocess
from pathlib import Path

import pytest

from potluck_experiments import origin
from potluck_experiments.origin import PATHS, UNKNOWN, Code, code_now

REPOSITORY = Path(__file__).parents[2]


def git(root, *words):
    none = "/dev/null"
    told = {"GIT_CONFIG_GLOBAL": none, "GIT_CONFIG_SYSTEM": none, "PATH": "/usr/bin:/bin"}
    names = ("-c", "user.name=x", "-c", "user.email=x@y", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *names, *words], cwd=root, env=told, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_it_is_the_commit_and_the_files_that_differ_and_decide_numbers(tmp_path, monkeypatch):
    package = tmp_path / "src/potluck"
    monkeypatch.setattr(origin.potluck, "__file__", str(package / "__init__.py"))
    for name in ("types.py", "cli/base.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("one = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "x")
    head = git(tmp_path, "rev-parse", "HEAD")
    (package / "cli/base.py").write_text("one = 2\n")  # decides no number
    assert code_now(tmp_path) == Code(head)
    (package / "types.py").write_text("one = 2\n")
    (package / "node").mkdir()
    (package / "node/new.py").write_text("")
    assert code_now(tmp_path) == Code(head, ("src/potluck/node/new.py", "src/potluck/types.py"))
    monkeypatch.setattr(origin.potluck, "__file__", "/elsewhere/potluck/__init__.py")
    assert code_now(tmp_path) == Code(UNKNOWN)
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "")
    assert code_now(REPOSITORY) == Code(UNKNOWN)


@pytest.mark.parametrize("path", PATHS)
def test_the_parts_that_decide_numbers_are_there(path):
    assert (REPOSITORY / path).exists(), f"{path} was moved: name its new place in origin.py"
