"""Folders as a feed: runs, found without following what an id says."""

import os
from importlib.metadata import EntryPoint

import pytest

from potluck.show.web import place as place_module
from potluck.show.web.folder import NotHereError
from potluck.show.web.place import Place
from potluck.show.web.views import ExperimentEntry
from potluck.types import PotluckError
from show.web.run_files import make_run, write_status


def test_one_run_is_the_whole_of_it(tmp_path):
    place = Place([make_run(tmp_path / "r", "small")])
    (entry,) = place.start().runs
    assert (entry.run, entry.name, entry.done, entry.rounds) == ("", "my-run", 3, 40)
    assert (entry.reward, entry.accuracy) == ({"small": 0.5}, {"small": 0.25})
    assert place.run("").look() == 1


def test_a_run_that_ended_before_its_page_was_first_opened_is_over(tmp_path):
    place = Place([tmp_path / "r"], begins=True)
    write_status(make_run(tmp_path / "r", "small"), "small", phase="ended", round=40)
    feed = place.run("")
    feed.look()
    assert feed.view().is_over


def test_runs_of_a_folder_and_below_the_newest_first(tmp_path):
    make_run(tmp_path / "old", "small")
    make_run(tmp_path / "more" / "new", "small", rounds=4)
    place = Place([tmp_path])
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
    assert place.start().runs[0].state == "training"


def test_what_is_shown_is_bounded_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(place_module, "MOST_RUNS", 2)
    for at in range(3):
        make_run(tmp_path / str(at), "small", rounds=1)
    start = Place([tmp_path]).start()
    assert (len(start.runs), start.is_cut) == (2, True)
    monkeypatch.setattr(place_module, "MOST_FOLDERS", 2)  # the folder itself is one
    start = Place([tmp_path]).start()
    assert (len(start.runs), start.is_cut) == (1, True)


def test_a_run_without_a_status_is_read_once_until_it_changes(tmp_path, monkeypatch):
    folder = make_run(tmp_path / "a", "small")
    read, reads = place_module.read_recipe, []
    monkeypatch.setattr(place_module, "read_recipe", lambda f: reads.append(f) or read(f))
    place = Place([tmp_path])
    assert place.start() == place.start()
    assert len(reads) == 1
    (folder / "small" / "metrics.jsonl").touch()
    place.start()
    write_status(folder, "small")  # old a second later
    place.start(), place.start()
    assert len(reads) == 4


def test_the_folder_that_is_watched_has_no_name_in_an_id(tmp_path, monkeypatch):
    class Cells:
        is_here = staticmethod(lambda folder: folder == tmp_path)
        entries = staticmethod(
            lambda _, name: [ExperimentEntry(experiment=f"{name}:family", name="", done=1)]
        )

    monkeypatch.setattr(place_module, "experiment_feeds", lambda: [Cells])
    assert [each.experiment for each in Place([tmp_path]).start().experiments] == [":family"]


def test_a_broken_feed_of_another_distribution_is_told_in_a_line(tmp_path, monkeypatch):
    entry = EntryPoint("experiments", "no_such_module", "potluck.feeds")
    monkeypatch.setattr("potluck.show.web.page.entry_points", lambda group: [entry])
    with pytest.raises(PotluckError, match=r"feed no_such_module cannot.*install its distribution"):
        Place([tmp_path])
