"""Folders as a feed: runs and experiments, found without following what an id says."""

import json
import time

import pytest

from potluck.show.web import place as place_module
from potluck.show.web.feed import NotHereError
from potluck.show.web.place import Place
from potluck.types import RunFolderError
from show.web.run_files import make_run, write_status


def write_cell(folder, name, **changes):
    family, models, setting, seed = name.split(".")
    cell = {"family": family, "models": models.split("+"), "setting": setting, "seed": int(seed)}
    node = {"eval_rounds": [0, 2], "greedy": [0.25, 0.5], "sampled": [0.25, 0.5, 0.75]}
    tree = {**cell, "node": {"small": {**node, "tokens": [9, 9, 9]}}, **changes}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(tree))


def test_one_run_is_the_whole_of_it(tmp_path):
    place = Place([make_run(tmp_path / "r", "small")])
    (entry,) = place.start().runs
    assert (entry.run, entry.name, entry.done, entry.rounds) == ("", "my-run", 3, 40)
    assert (entry.reward, entry.accuracy) == ({"small": 0.5}, {"small": 0.25})
    assert place.run("").look() == 1


def test_runs_of_a_folder_and_below_the_newest_first(tmp_path):
    make_run(tmp_path / "old", "small")
    make_run(tmp_path / "more" / "new", "small", rounds=4)
    place = Place([tmp_path])
    import os

    os.utime(tmp_path / "old" / "small" / "metrics.jsonl", (1, 1))
    os.utime(tmp_path / "old", (1, 1))
    assert [entry.run for entry in place.start().runs] == ["more/new", "old"]
    assert place.run("more/new").look() == 1


@pytest.mark.parametrize("run", ["../secret", "/etc", "a/../../secret", "", ".", "nothing"])
def test_no_id_leads_out_of_the_folder(tmp_path, run):
    make_run(tmp_path / "secret", "small")
    make_run(tmp_path / "here" / "a", "small")
    (tmp_path / "here" / "link").symlink_to(tmp_path / "secret")
    place = Place([tmp_path / "here"])
    with pytest.raises(NotHereError):
        place.run(run)
    with pytest.raises(NotHereError):
        place.experiment(run)
    assert [entry.run for entry in place.start().runs] == ["a"]


def test_two_folders_of_one_name_stay_apart(tmp_path):
    folders = [tmp_path / side / "runs" for side in ("a", "b")]
    for folder in folders:
        make_run(folder / "x", "small")
    runs = [entry.run for entry in Place(folders).start().runs]
    assert sorted(runs) == ["runs/x", "runs/x~"]


def test_a_run_that_cannot_be_read_is_told(tmp_path):
    make_run(tmp_path / "a", "small")
    (tmp_path / "a" / "recipe.json").write_text("{")
    (entry,) = Place([tmp_path]).start().runs
    assert "recipe.json" in entry.error


def test_the_state_of_a_run_is_that_of_its_worst_node(tmp_path):
    folder = make_run(tmp_path / "a", "small", "large")
    write_status(folder, "small", round=3)
    write_status(folder, "large", round=3, age_s=60)
    place = Place([tmp_path])
    assert place.start().runs[0].state == "silent"
    write_status(folder, "large", round=3)
    place._start = None
    assert place.start().runs[0].state == "training"


def test_what_is_shown_is_bounded_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(place_module, "MOST_RUNS", 2)
    for at in range(3):
        make_run(tmp_path / str(at), "small", rounds=1)
    start = Place([tmp_path]).start()
    assert (len(start.runs), start.is_cut) == (2, True)


def test_a_folder_that_is_not_there_is_told_in_a_line(tmp_path):
    with pytest.raises(RunFolderError, match="there is no folder"):
        Place([tmp_path / "nothing"])


def test_experiments_are_the_families_of_a_scale(tmp_path):
    cells = tmp_path / "cells" / "tiny"
    for seed in range(2):
        write_cell(cells, f"digits.small+large.lws.{seed}")
    write_cell(cells, "chain.small.alone.0")
    (cells / "digits.small.alone.9.json").write_text("damaged")
    place = Place([tmp_path])
    found = {entry.experiment: entry for entry in place.start().experiments}
    assert {name: entry.done for name, entry in found.items()} == {
        "cells/tiny:chain": 1, "cells/tiny:digits": 3,
    }  # fmt: skip
    assert found["cells/tiny:chain"].total is None
    view = place.experiment("cells/tiny:digits")
    assert [(cell.group, cell.setting, cell.seed) for cell in view.cells] == [
        ("digits: small + large", "lws", 0), ("digits: small + large", "lws", 1),
    ]  # fmt: skip
    columns = view.cells[0].nodes["small"]
    assert (columns["round"], columns["greedy_round"]) == ([0, 1, 2], [0, 2])
    assert (columns["sampled"], columns["greedy"]) == ([0.25, 0.5, 0.75], [0.25, 0.5])


@pytest.mark.parametrize("age_s, total", [(0, 8), (3600, None)])
def test_progress_is_told_while_it_is_fresh(tmp_path, age_s, total):
    cells = tmp_path / "cells" / "tiny"
    write_cell(cells, "digits.small.alone.0")
    progress = {"total": {"digits": 8}, "running": ["digits.small.lws.0", "chain.small.lws.0"]}
    (cells / "progress.json").write_text(json.dumps({**progress, "time_s": time.time() - age_s}))
    (entry,) = Place([tmp_path]).start().experiments
    assert (entry.done, entry.total) == (1, total)
    assert entry.running == (["digits.small.lws.0"] if total else [])
