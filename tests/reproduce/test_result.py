"""Results: read back as written, refused when damaged, marked when the code has changed."""

import json
import re
import shutil
from pathlib import Path

import msgspec
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


DEEP = b'{"more":' + b"[" * 200_000


@pytest.mark.parametrize(
    "damaged", [b"", b"{", b"{}", b'{"scale":"huge"}', b"\xff", DEEP], ids=range(6)
)
def test_a_damaged_one_is_named_with_the_way_out(suite, damaged):
    path = result_file(suite.folder, one(suite))
    path.write_bytes(damaged)
    with pytest.raises(ExperimentError, match=r"cannot read .*alone\.0\.json.*remove it to run"):
        read_result(suite.folder, one(suite))


def test_one_that_is_larger_than_any_result_is_not_read(suite):
    path = result_file(suite.folder, one(suite))
    path.write_bytes(result_of(one(suite)) + b" " * 1_000_000)
    with pytest.raises(ExperimentError, match=r"it is larger than 1,000,000 bytes; remove it"):
        read_result(suite.folder, one(suite))


def set_in(tree, place, value):
    """Of ``place`` a.b.0 the value, in nested dicts and lists."""
    *way, last = place.split(".")
    for key in way:
        tree = tree[int(key) if isinstance(tree, list) else key]
    tree[int(last) if isinstance(tree, list) else last] = value


@pytest.mark.parametrize(
    "place, value, told",
    [
        ("scale", "paper", "scale is 'paper', expected 'tiny'"),
        ("family", "sums", "family is 'sums', expected 'digits'"),
        ("models", ["large"], r"models is \('large',\), expected \('small',\)"),
        ("setting", "nois", "setting is 'nois', expected 'alone'"),
        ("seed", 1, "seed is 1, expected 0"),
        ("node", {}, r"its nodes are \[\], expected \['small'\]"),
        ("node.large", msgspec.to_builtins(NODE), "its nodes are .'large', 'small'., expected"),
        ("cpu_s", -1.0, "cpu_s is -1.0, expected 0 to 1e"),
        ("cpu_s", 1e300, "cpu_s is 1e.300, expected 0 to 1e"),
        ("node.small.sampled", [0.5], "small: sampled has 1 rounds, expected 2"),
        ("node.small.tokens", [1, 2, 3], "small: tokens has 3 rounds, expected 2"),
        ("node.small.seconds", [], "small: seconds has 0 rounds, expected 2"),
        ("node.small.filtered_share", [0.0], "small: filtered_share has 1 rounds"),
        ("node.small.greedy", [0.5, 0.5], "small: greedy has 2 values at 3 eval_rounds"),
        ("node.small.eval_rounds", [0, 0, 2], "small: eval_rounds is .0, 0, 2., expected to rise"),
        ("node.small.eval_rounds", [-1, 0, 2], "small: eval_rounds is .-1, 0, 2., expected"),
        ("node.small.eval_rounds", [0, 1, 3], "small: eval_rounds is .0, 1, 3., .* to 2;"),
        ("node.small.greedy.1", 1.5, "small: greedy has 1.5, expected 0 to 1;"),
        ("node.small.out_of_distribution", -0.1, "small: out_of_distribution has -0.1"),
        ("node.small.sampled.0", 1.01, "small: sampled has 1.01, expected 0 to 1;"),
        ("node.small.filtered_share.0", -0.01, "small: filtered_share has -0.01"),
        ("node.small.tokens.0", 10**30, "small: tokens has 10*, expected 0 to 1e"),
        ("node.small.tokens.0", -1, "small: tokens has -1, expected 0"),
        ("node.small.seconds.0", 1e300, "small: seconds has 1e.300, expected 0 to 1e"),
    ],
)
def test_what_no_run_of_the_cell_leaves_is_refused_in_one_line(suite, place, value, told):
    tree = msgspec.json.decode(result_of(one(suite)))
    set_in(tree, place, value)
    path = result_file(suite.folder, one(suite))
    path.write_bytes(msgspec.json.encode(tree) if value != 10**30 else json.dumps(tree).encode())
    with pytest.raises(ExperimentError) as caught:
        read_result(suite.folder, one(suite))
    assert re.search(rf"^cannot use .*alone\.0\.json: .*{told}", str(caught.value))
    assert str(caught.value).endswith("; remove it to run it again")
    assert "\n" not in str(caught.value)


def test_a_result_without_an_evaluation_is_refused(suite):
    tree = msgspec.json.decode(result_of(one(suite)))
    tree["node"]["small"] |= {"eval_rounds": [], "greedy": []}
    result_file(suite.folder, one(suite)).write_bytes(msgspec.json.encode(tree))
    with pytest.raises(ExperimentError, match=r"eval_rounds is \[\], expected to rise"):
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
