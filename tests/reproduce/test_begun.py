"""Half of a run: when it goes on, and what becomes of it when it cannot."""

import io
import json

import pytest

from potluck.config import as_tree
from potluck.reproduce.cells import make_cell
from potluck.reproduce.work import begun
from potluck.reproduce.work.lock import locked
from reproduce.small import make_suite


def alone(suite):
    return make_cell(suite, "tiny", "digits", ("small",), "alone", 0)


def half_done(folder, cell, *, rounds=(1,)):
    """A run folder with checkpoints, as far as is looked at."""
    for node in cell.config.node:
        for done in rounds:
            place = folder / node / "checkpoints" / f"{done:06d}"
            place.mkdir(parents=True)
            (place / "state.json").write_text(json.dumps({"round": done}))
    folder.mkdir(exist_ok=True)
    (folder / "recipe.json").write_text(json.dumps(as_tree(cell.config)))


@pytest.mark.parametrize(
    "rounds, noted, why",
    [
        ((1,), {"recipe": "r", "code": {}, "cpu_s": 3.5}, ""),
        ((), {"recipe": "r", "code": {}, "cpu_s": 3.5}, "no round was saved"),
        (
            (1,),
            {"recipe": "another", "code": {}, "cpu_s": 3.5},
            "recipe changed since it was begun",
        ),
        ((1,), {"recipe": "s", "code": {"node": "x"}, "cpu_s": 1}, "recipe and code changed since"),
        ((1,), None, "it was finished, or nothing says what it was begun with"),
    ],
)
def test_what_was_begun_goes_on_only_if_it_is_of_the_same_cell_and_was_saved(
    tmp_path, rounds, noted, why
):
    cell = alone(make_suite(tmp_path))
    folder, note = tmp_path / "run", io.StringIO(json.dumps(noted) if noted else "")
    half_done(folder, cell, rounds=rounds)
    spent_s, told = begun.go_on(folder, cell.config, note, {"recipe": "r", "code": {}})
    assert spent_s == (0.0 if why else 3.5)
    assert told.startswith(why)
    assert bool(told) == bool(why)
    never = begun.go_on(tmp_path / "never", cell.config, note, {"recipe": "r", "code": {}})
    assert never == (0.0, "")


def test_one_that_cannot_go_on_is_removed_but_at_paper_scale_moved_aside(tmp_path):
    cell, folder = alone(make_suite(tmp_path)), tmp_path / "cell.0"
    half_done(folder, cell)
    assert begun.make_room(folder, "tiny") == "begun anew"
    assert not folder.exists()
    for rounds in (1,), (2,):
        half_done(folder, cell, rounds=rounds)
        assert begun.make_room(folder, "paper").endswith("what was done is cell.0.before now")
    assert not folder.exists()
    saved = tmp_path / "cell.0.before" / "small" / "checkpoints"
    assert [place.name for place in saved.iterdir()] == ["000002"]  # the newest half


def test_what_a_run_was_begun_with_is_never_lost_while_it_is_written(tmp_path):
    class Dies(io.StringIO):
        def truncate(self, size=None):
            raise OSError("killed in between")

    old = json.dumps({"recipe": "another", "cpu_s": 123456.75})
    cell, folder, note = alone(make_suite(tmp_path)), tmp_path / "run", Dies(old)
    half_done(folder, cell)
    with pytest.raises(OSError, match="killed"):
        begun.note(note, {"recipe": "r"}, 1.5)
    assert begun.go_on(folder, cell.config, note, {"recipe": "r"}) == (1.5, "")


def test_what_was_noted_in_a_file_that_is_locked_is_replaced_as_a_whole(tmp_path):
    for text in "a longer one", "r":
        with locked(tmp_path / "note") as file:
            begun.note(file, {"recipe": text}, 1.5)
    assert json.loads((tmp_path / "note").read_text()) == {"recipe": "r", "cpu_s": 1.5}
