"""What a cell is of: its code, a commit and what differed from it, and base models, made once."""

import subprocess
from pathlib import Path

import pytest

from potluck_experiments import origin
from potluck_experiments.cells import make_cell
from potluck_experiments.origin import PATHS, UNKNOWN, Code, code_now
from potluck_experiments.suite import ExperimentError
from small_suite import RECIPE, SCALE, finish, make_suite

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


# Base models

PAIR = ("small", "large")


def alone(suite, model="small"):
    return make_cell(suite, "tiny", "digits", (model,), "alone", 0)


MAKES = """
import sys
from pathlib import Path
folder, only, name = sys.argv[1:]
assert only == "--only" and Path("experiments").is_dir()
Path("made.txt").open("a").write(name + "\\n")
if name == "one":
    print("step 0/2\\nhalf done\\nstep 1/2\\nstep 1/0", flush=True)
if name == "bad":
    print("first")
    sys.exit("no room left")
if name == "raced":
    Path("models/raced").mkdir()
    Path("models/raced/model.safetensors").write_text("another command's")
(Path(folder) / name).mkdir()
(Path(folder) / name / "model.safetensors").write_text(name)
"""


def suite_with_bases(tmp_path, small, large):
    recipe = RECIPE.replace("builtin:digits-small", small).replace("builtin:digits-terse", large)
    suite = make_suite(tmp_path, recipe=recipe, scale='bases = "make.py"\n' + SCALE)
    (tmp_path / "make.py").write_text(MAKES)
    return suite


def test_base_models_that_are_missing_are_made_once(tmp_path):
    suite = suite_with_bases(tmp_path, "models/one", "models/two")
    (tmp_path / "models" / "two").mkdir(parents=True)
    cells, said = [alone(suite), alone(suite, "large")], []
    for _ in range(2):
        origin.make_missing_bases(suite, cells, jobs=2, say=said.append)
    assert (tmp_path / "made.txt").read_text() == "one\n"
    assert (tmp_path / "models" / "one" / "model.safetensors").read_text() == "one"
    assert sorted(p.name for p in (tmp_path / "models").iterdir()) == ["one", "two"]
    steps = ["models/one: 0%", "models/one: 50%"]
    assert said == ["making 1 base models, once: models/one", *steps, "made models/one"]


def test_a_base_model_that_cannot_be_made_is_one_clear_error(tmp_path):
    suite = suite_with_bases(tmp_path, "models/bad", "builtin:digits-terse")
    with pytest.raises(ExperimentError, match=r"cannot make models/bad: make.py .* no room left"):
        origin.make_missing_bases(suite, [alone(suite)], jobs=1, say=print)
    assert list((tmp_path / "models").iterdir()) == []


def test_a_base_model_that_another_command_made_meanwhile_is_taken(tmp_path):
    suite = suite_with_bases(tmp_path, "models/raced", "builtin:digits-terse")
    origin.make_missing_bases(suite, [alone(suite)], jobs=1, say=print)
    (place,) = (tmp_path / "models").iterdir()
    assert (place / "model.safetensors").read_text() == "another command's"


def test_cells_that_would_begin_from_other_models_than_finished_ones_are_refused(tmp_path):
    suite = make_suite(tmp_path)
    finish(suite, alone(suite), base="00000000")
    told = "digits-small .* than the finished cell digits.small.alone.0 began from .00000000"
    with pytest.raises(ExperimentError, match=told):
        origin.require_same_bases(suite, [make_cell(suite, "tiny", "digits", PAIR, "f-tis", 0)])
    origin.require_same_bases(suite, [alone(suite, "large")])  # another model
    origin.require_same_bases(suite, [alone(suite)])  # it is itself replaced
