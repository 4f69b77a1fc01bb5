"""Results: read back as written, refused when damaged, marked when the code has changed."""

import shutil
from pathlib import Path

import pytest

import potluck
from potluck.reproduce import result as result_module
from potluck.reproduce.cells import make_cell
from potluck.reproduce.result import ROOMS, code_digests, read_result, result_file
from potluck.reproduce.suite import ExperimentError
from reproduce.results import NODE, result_of
from reproduce.small import RECIPE, make_suite


def one(suite):
    return make_cell(suite, "tiny", "digits", ("small",), "alone", 0)


@pytest.fixture
def suite(tmp_path):
    made = make_suite(tmp_path)
    result_file(made.folder, one(made)).parent.mkdir(parents=True)
    return made


def test_a_result_is_read_as_it_was_written(suite):
    assert read_result(suite.folder, one(suite)) is None
    path = result_file(suite.folder, one(suite))
    assert path == suite.folder / "cells" / "tiny" / "digits.small.alone.0.json"
    path.write_bytes(result_of(one(suite), cpu_s=61.5, base=NODE.base))
    result = read_result(suite.folder, one(suite))
    assert (result.cpu_s, result.node) == (61.5, {"small": NODE})


def test_that_of_another_recipe_is_none(suite, tmp_path):
    result_file(suite.folder, one(suite)).write_bytes(result_of(one(suite)))
    changed = make_suite(tmp_path, recipe=RECIPE.replace("rounds = 2", "rounds = 3"))
    assert read_result(changed.folder, one(changed)) is None


@pytest.mark.parametrize("damaged", [b"", b"{", b"{}", b'{"scale":"huge"}', b"\xff"])
def test_a_damaged_one_is_named_with_the_way_out(suite, damaged):
    path = result_file(suite.folder, one(suite))
    path.write_bytes(damaged)
    with pytest.raises(ExperimentError, match=r"cannot read .*alone\.0\.json.*remove it to run"):
        read_result(suite.folder, one(suite))


def test_it_is_stale_where_the_code_that_decides_it_has_changed(suite):
    path = result_file(suite.folder, one(suite))
    path.write_bytes(result_of(one(suite), code={"node": "another"}))
    assert read_result(suite.folder, one(suite)).changed_since(code_digests()) == ["node"]
    path.write_bytes(result_of(one(suite)))
    assert read_result(suite.folder, one(suite)).changed_since(code_digests()) == []


def test_every_room_has_a_digest_that_changes_with_its_code_alone(tmp_path, monkeypatch):
    home, before = tmp_path / "potluck", code_digests()
    shutil.copytree(
        Path(potluck.__file__).parent, home, ignore=shutil.ignore_patterns("models", "__pycache__")
    )
    monkeypatch.setattr(result_module.potluck, "__file__", str(home / "__init__.py"))
    assert code_digests() == before
    assert set(before) == set(ROOMS)
    (home / "node" / "notes.txt").write_text("no code")
    (home / "dashboard" / "text.py").write_text("")  # it decides no number
    assert code_digests() == before
    (home / "node" / "new.py").write_text("")
    (home / "exchange" / "wire.py").write_text("# otherwise")
    after = code_digests()
    assert {room for room in ROOMS if after[room] != before[room]} == {"node", "exchange/wire.py"}
