"""Results: read back as written, refused when damaged."""

import json
import re

import msgspec
import pytest

from potluck_experiments.cells import make_cell
from potluck_experiments.results import read_result, result_file
from potluck_experiments.suite import ExperimentError
from small_suite import NODE, RECIPE, make_suite, result_of


def one(suite):
    return make_cell(suite, "tiny", "digits", ("small",), "alone", 0)


@pytest.fixture
def suite(tmp_path):
    made = make_suite(tmp_path)
    result_file(made.folder, one(made)).parent.mkdir(parents=True)
    return made


def test_a_result_is_read_as_it_was_written_and_that_of_another_recipe_is_none(suite, tmp_path):
    assert read_result(suite.folder, one(suite)) is None
    path = result_file(suite.folder, one(suite))
    assert path == suite.folder / "cells" / "tiny" / "digits.small.alone.0.json"
    path.write_bytes(result_of(one(suite), cpu_s=61.5, base=NODE.base))
    result = read_result(suite.folder, one(suite))
    assert (result.cpu_s, result.node) == (61.5, {"small": NODE})
    changed = make_suite(tmp_path, recipe=RECIPE.replace("rounds = 2", "rounds = 3"))
    assert read_result(changed.folder, one(changed)) is None


DEEP = b'{"more":' + b"[" * 200_000


@pytest.mark.parametrize("damaged", [b"", b"{}", b"\xff", DEEP], ids=range(4))
def test_a_damaged_one_is_named_with_the_way_out(suite, damaged):
    path = result_file(suite.folder, one(suite))
    path.write_bytes(damaged)
    with pytest.raises(ExperimentError, match=r"cannot read .*alone\.0\.json.*remove it to run"):
        read_result(suite.folder, one(suite))
    path.write_bytes(result_of(one(suite)) + b" " * 1_000_000)
    with pytest.raises(ExperimentError, match=r"it is larger than 1,000,000 bytes; remove it"):
        read_result(suite.folder, one(suite))


def set_in(tree, place, value):
    """Of ``place`` a.b.0 the value, in nested dicts and lists."""
    *way, last = place.split(".")
    for key in way:
        tree = tree[int(key) if isinstance(tree, list) else key]
    if isinstance(value, dict) and value:  # some keys of it
        value = tree.get(last, {}) | value
    tree[int(last) if isinstance(tree, list) else last] = value


@pytest.mark.parametrize(
    "place, value, told",
    [
        ("scale", "paper", "scale is 'paper', expected 'tiny'"),
        ("family", "sums", "family is 'sums', expected 'digits'"),
        ("setting", "nois", "setting is 'nois', expected 'alone'"),
        ("seed", 1, "seed is 1, expected 0"),
        ("models", ["large"], r"models is \('large',\), expected \('small',\)"),
        ("node", {}, r"its nodes are \[\], expected \['small'\]"),
        ("cpu_s", -1.0, r"Expected `float` >= 0.0 - at `\$.cpu_s`"),
        ("node.small.sampled", [0.5], "small: sampled has 1 rounds, expected 2"),
        ("node.small.others_taken", [0.5], "small: others_taken has 1 rounds, expected 2"),
        ("node.small.notations", {"terse": [[1], [1, 0]]}, "small: terse written has 1 rounds"),
        ("node.small.notations", {"terse": [[1, 1], [1]]}, "small: terse right has 1 rounds"),
        ("node.small.greedy", [0.5, 0.5], "small: greedy has 2 values at 3 eval_rounds"),
        ("node.small", {"eval_rounds": [], "greedy": []}, r"eval_rounds is \[\], expected to rise"),
        ("node.small.eval_rounds", [0, 0, 2], "small: eval_rounds is .0, 0, 2., expected to rise"),
        ("node.small.eval_rounds", [0, 1, 3], "small: eval_rounds is .0, 1, 3., .* to 2;"),
        ("node.small.greedy.1", 1.5, r"Expected `float` <= 1.0 .*greedy"),
        ("node.small.tokens.0", 10**30, r"tokens"),
    ],
)
def test_what_no_run_of_the_cell_leaves_is_refused_in_one_line(suite, place, value, told):
    tree = msgspec.json.decode(result_of(one(suite)))
    set_in(tree, place, value)
    path = result_file(suite.folder, one(suite))
    path.write_bytes(msgspec.json.encode(tree) if value != 10**30 else json.dumps(tree).encode())
    with pytest.raises(ExperimentError) as caught:
        read_result(suite.folder, one(suite))
    assert re.search(rf"^cannot (use|read) .*alone\.0\.json: .*{told}", str(caught.value))
    assert str(caught.value).endswith("; remove it to run it again")
    assert "\n" not in str(caught.value)
