"""Files of finished cells: read back as written, added to by several, joined, refused when
damaged."""

import fcntl
import json
import multiprocessing
import re
import shutil
import threading

import msgspec
import pytest

from potluck_experiments.cell_files import (
    add_results,
    cell_file,
    join,
    read_lines,
    read_result,
    require_lines,
)
from potluck_experiments.cells import make_cell
from potluck_experiments.suite import ExperimentError
from small_suite import NODE, RECIPE, finish, make_suite, result_of


def one(suite, seed=0):
    return make_cell(suite, "tiny", "digits", ("small",), "alone", seed)


def file_of(suite):
    return cell_file(suite.folder, "tiny", "digits")


@pytest.fixture
def suite(tmp_path):
    return make_suite(tmp_path)


def test_a_result_is_read_as_it_was_written_and_that_of_another_recipe_is_none(suite, tmp_path):
    assert read_result(suite.folder, one(suite)) is None
    assert file_of(suite) == suite.folder / "cells" / "tiny" / "digits.jsonl"
    finish(suite, one(suite), cpu_s=61.5, base=NODE.base)
    result = read_result(suite.folder, one(suite))
    assert (result.cpu_s, result.node) == (61.5, {"small": NODE})
    assert read_result(suite.folder, one(suite, seed=1)) is None
    changed = make_suite(tmp_path, recipe=RECIPE.replace("rounds = 2", "rounds = 3"))
    assert read_result(changed.folder, one(changed)) is None


def test_a_cell_that_is_run_again_counts_as_it_ran_last_and_nothing_is_overwritten(suite):
    finish(suite, one(suite), cpu_s=1.0)
    before = file_of(suite).read_bytes()
    finish(suite, one(suite, seed=1))
    finish(suite, one(suite), cpu_s=2.0)
    assert file_of(suite).read_bytes().startswith(before)
    assert read_result(suite.folder, one(suite)).cpu_s == 2.0
    assert len(read_lines(file_of(suite))) == 2


def test_lines_of_two_recipes_stand_side_by_side(suite, tmp_path):
    changed = make_suite(tmp_path / "2", recipe=RECIPE.replace("rounds = 2", "rounds = 3"))
    for line in (
        result_of(one(changed)),
        result_of(one(suite), cpu_s=9.0),
        result_of(one(changed)),
    ):
        add_results(file_of(suite), [line])
    assert read_result(suite.folder, one(suite)).cpu_s == 9.0


def add_many(path, letter):
    for _ in range(20):
        add_results(path, [letter * 100_000])


def test_several_processes_add_at_the_same_time(suite):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=add_many, args=(file_of(suite), it)) for it in (b"a", b"b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    lines = file_of(suite).read_bytes().split(b"\n")
    assert sorted(lines) == [b"", *[b"a" * 100_000] * 20, *[b"b" * 100_000] * 20]


def test_half_a_line_that_a_killed_writer_left_is_not_read_and_gives_way(suite):
    finish(suite, one(suite))
    whole = file_of(suite).read_bytes()
    half = result_of(one(suite, seed=1))[:200]
    file_of(suite).write_bytes(whole + half)
    assert read_result(suite.folder, one(suite)) is not None
    assert read_result(suite.folder, one(suite, seed=1)) is None
    finish(suite, one(suite, seed=1))
    assert file_of(suite).read_bytes() == whole + result_of(one(suite, seed=1)) + b"\n"


def test_a_last_line_that_lacks_its_end_only_is_read_and_kept(suite):
    finish(suite, one(suite))
    file_of(suite).write_bytes(file_of(suite).read_bytes().rstrip(b"\n"))
    assert read_result(suite.folder, one(suite)) is not None
    finish(suite, one(suite, seed=1))
    assert len(read_lines(file_of(suite))) == 2


DEEP = b'{"more":' + b"[" * 200_000


@pytest.mark.parametrize("damaged", [b"0", b"{}", b"\xff", DEEP], ids=range(4))
def test_a_damaged_line_is_named_with_the_way_out(suite, damaged):
    finish(suite, one(suite))
    with file_of(suite).open("ab") as file:
        file.write(damaged + b"\n")
    finish(suite, one(suite, seed=1))
    told = r"cannot read .*digits\.jsonl, line 2: .*; remove the line to run its cell again"
    with pytest.raises(ExperimentError, match=told):
        read_result(suite.folder, one(suite))


def test_a_line_has_a_largest_size(suite):
    large = result_of(one(suite)) + b" " * 1_000_000
    with pytest.raises(ExperimentError, match=r"a cell for .*digits\.jsonl has 1,0.* more than"):
        add_results(file_of(suite), [large])
    assert not file_of(suite).exists()
    file_of(suite).parent.mkdir(parents=True)
    file_of(suite).write_bytes(large)
    with pytest.raises(ExperimentError, match=r"line 1: it is larger than 1,000,000 bytes; remove"):
        read_result(suite.folder, one(suite))
    with pytest.raises(ExperimentError, match="ends in a line of more than 1,000,000 bytes"):
        finish(suite, one(suite))
    assert file_of(suite).read_bytes() == large


def test_empty_lines_are_no_cells(suite):
    finish(suite, one(suite))
    file_of(suite).write_bytes(b"\n" + file_of(suite).read_bytes() + b"\n\n")
    finish(suite, one(suite, seed=1))
    assert len(read_lines(file_of(suite))) == 2


def test_what_is_no_file_is_told_in_one_line(suite):
    file_of(suite).parent.parent.mkdir()
    file_of(suite).parent.write_text("a file in the place of a folder")
    with pytest.raises(ExperimentError, match=r"cannot read .*digits\.jsonl: .*Not a directory"):
        read_result(suite.folder, one(suite))


def test_a_reader_waits_for_a_writer_that_cuts_off_half_a_line(suite):
    finish(suite, one(suite))
    with file_of(suite).open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        reader = threading.Thread(target=read_lines, args=(file_of(suite),))
        reader.start()
        reader.join(timeout=0.2)
        assert reader.is_alive()
    reader.join(timeout=60)
    assert not reader.is_alive()


def test_cells_in_a_file_each_are_told_of(suite):
    require_lines(suite.folder)
    finish(suite, one(suite))
    (file_of(suite).parent / "progress.json").write_text("{}")
    require_lines(suite.folder)
    (file_of(suite).parent / "digits.small.alone.0.json").write_bytes(result_of(one(suite)))
    with pytest.raises(ExperimentError, match=r"has 1 cells in a file each, such as digits\.small"):
        require_lines(suite.folder)


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
        ("scale", "paper", "it is a cell of paper, digits"),
        ("family", "sums", "it is a cell of tiny, sums"),
        ("node", {}, r"its nodes are \[\], expected \['small'\]"),
        ("cpu_s", -1.0, r"Expected `float` >= 0.0 - at `\$.cpu_s`"),
        ("node.small.sampled", [0.5], "small: sampled has 1 rounds, expected 2"),
        ("node.small.others_taken", [0.5], "small: others_taken has 1 rounds, expected 2"),
        ("node.small.entropy", [0.5], "small: entropy has 1 rounds, expected 2"),
        ("node.small.unreadable", [0, -1], r"Expected `int` >= 0 .*unreadable"),
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
    add_results(file_of(suite), [json.dumps(tree).encode()])
    with pytest.raises(ExperimentError) as caught:
        read_result(suite.folder, one(suite))
    said = str(caught.value)
    assert re.search(rf"^cannot (use|read) .*digits\.jsonl, line 1: .*{told}", said)
    assert said.endswith("; remove the line to run its cell again")
    assert "\n" not in said


# Joining


@pytest.fixture
def other(tmp_path):
    return make_suite(tmp_path / "other")


def test_what_the_other_folder_has_more_is_added_and_what_was_here_stays(suite, other):
    finish(suite, one(suite), cpu_s=1.0)
    finish(other, one(other), cpu_s=2.0)
    for seed in (1, 2):
        finish(other, one(other, seed=seed))
    joined = join(suite, other.folder)
    assert joined.added == ["digits.small.alone.1", "digits.small.alone.2"]
    assert joined.differ == []  # seconds tell how busy a machine was
    assert read_result(suite.folder, one(suite)).cpu_s == 1.0
    assert read_result(suite.folder, one(suite, seed=2)) is not None
    once = file_of(suite).read_bytes()
    assert join(suite, other.folder).added == []
    assert file_of(suite).read_bytes() == once


def test_a_cell_that_is_in_both_with_other_numbers_is_told_of(suite, other):
    finish(suite, one(suite))
    tree = msgspec.json.decode(result_of(one(other)))
    set_in(tree, "node.small.sampled", [0.5, 0.75])
    add_results(file_of(other), [msgspec.json.encode(tree)])
    before = file_of(suite).read_bytes()
    joined = join(suite, other.folder)
    assert (joined.added, joined.differ) == ([], ["digits.small.alone.0"])
    assert file_of(suite).read_bytes() == before


def test_cells_of_other_models_are_not_joined(suite, other):
    finish(suite, one(suite), base="1" * 16)
    shutil.copytree(suite.folder / "cells", other.folder / "cells")
    finish(other, one(other, seed=1), base="2" * 16)
    before = file_of(suite).read_bytes()
    with pytest.raises(ExperimentError, match=r"line 2: small began from another model \(2222"):
        join(suite, other.folder)
    assert file_of(suite).read_bytes() == before


def test_cells_of_two_models_of_one_name_are_not_joined_into_an_empty_folder(suite, other):
    finish(other, one(other), base="1" * 16)
    finish(other, one(other, seed=1), base="2" * 16)
    with pytest.raises(ExperimentError, match=r"line 2: small began from another model \(2222"):
        join(suite, other.folder)
    assert not file_of(suite).exists()


def test_a_cell_of_another_recipe_is_left_out_and_says_nothing_of_models(suite, tmp_path):
    changed = make_suite(tmp_path / "2", recipe=RECIPE.replace("rounds = 2", "rounds = 3"))
    add_results(file_of(suite), [result_of(one(changed), base="1" * 16)])  # of before a change
    finish(suite, one(suite), base="2" * 16)
    finish(changed, one(changed), base="1" * 16)
    add_results(file_of(changed), [result_of(one(suite, seed=1), base="2" * 16)])
    joined = join(suite, changed.folder)
    assert joined.added == ["digits.small.alone.1"]
    assert joined.of_other_recipes == ["digits.small.alone.0"]


def test_what_an_older_result_lacks_is_no_difference(suite, other):
    finish(suite, one(suite))
    tree = msgspec.json.decode(result_of(one(other)))
    set_in(tree, "node.small.entropy", [0.5, 0.25])
    add_results(file_of(other), [msgspec.json.encode(tree)])
    assert join(suite, other.folder).differ == []


def test_a_folder_without_cells_is_told(suite, tmp_path):
    with pytest.raises(ExperimentError, match="has no cells/; name the experiments/ of another"):
        join(suite, tmp_path)
