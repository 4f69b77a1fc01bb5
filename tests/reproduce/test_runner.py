"""The runner: what is finished stays, what stopped goes on, and the same cell gives the same
numbers."""

import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from potluck.reproduce.cells import cells_of, make_cell
from potluck.reproduce.result import code_digests, read_result, result_file
from potluck.reproduce.suite import ExperimentError
from potluck.reproduce.work import child, runner, server
from potluck.reproduce.work.lock import locked
from potluck.reproduce.work.runner import Outcome, run_cells
from reproduce.small import RECIPE, make_suite

LIVELY = RECIPE
"""It learns fast and writes long, so that any difference grows into every number."""
for _old, _new in {
    "rounds = 2": "rounds = 4",
    "problems_per_round = 2": "problems_per_round = 4",
    "group_size = 2": "group_size = 4",
    "max_new_tokens = 6": "max_new_tokens = 48",
    "max_total_tokens = 64": "max_total_tokens = 96",
    'device = "cpu"': 'device = "cpu"\nlearning_rate = 1e-3',
}.items():
    LIVELY = LIVELY.replace(_old, _new)

LONG = RECIPE.replace("rounds = 2", "rounds = 1000")


class Told:
    """Writes down what the runner says; ``on_round`` is called after each round."""

    def __init__(self, on_round=lambda cell: None):
        self.waiting, self.said, self.why, self.on_round = [], [], {}, on_round

    def begin(self, cells, waiting):
        self.waiting = [cell.name for cell in waiting]

    def started(self, cell): ...
    def finished(self, cell, accuracy): ...

    def round_done(self, cell, rounds):
        self.on_round(cell)

    def ended(self, cell, why):
        self.why[cell.name] = why

    def say(self, text):
        self.said.append(text)


def pair(suite, seed=0):
    return make_cell(suite, "tiny", "digits", ("small", "large"), "f-tis", seed)


def alone(suite, model="small", seed=0):
    return make_cell(suite, "tiny", "digits", (model,), "alone", seed)


def numbers(suite, cell):
    """Everything that does not depend on how busy the machine is."""
    tree = json.loads(result_file(suite.folder, cell).read_text())
    del tree["cpu_s"]
    for node in tree["node"].values():
        del node["seconds"]
    return tree


def go(suite, cells, folder, told=None, *, jobs=2, **options):
    return run_cells(suite, cells, jobs=jobs, runs=folder / "runs", shown=told or Told(), **options)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class StoppedByHand:
    """A runner's end of the line, in the cell's own process: Ctrl-C after the second round."""

    def __init__(self):
        self.heard = []

    def send(self, message):
        self.heard.append(message)
        if message == ("round", 2):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_cell_gives_the_same_numbers_twice_and_when_it_was_stopped_half_way(tmp_path, threads):
    first, second = (make_suite(tmp_path / name, recipe=LIVELY) for name in ("1", "2"))
    cell, place = pair(first), tmp_path / "2" / "runs" / "tiny"
    (tmp_path / "1" / "runs" / "tiny" / cell.name).mkdir(parents=True)
    told = Told()
    assert go(first, [cell], tmp_path / "1", told) == Outcome(finished=[cell.name])
    why = "it was finished, or nothing says what it was begun with"
    assert told.said == [f"{cell.name}: begun anew, as it cannot go on: {why}"]
    assert not list((tmp_path / "1" / "runs").rglob("*.*"))  # neither folder, log nor lock

    place.mkdir(parents=True)
    line, log = StoppedByHand(), place / "log"
    what = child.order(
        cell,
        experiments=second.folder,
        runs=place.parent,
        code=code_digests(),
        keeps="all",
        keep_run=False,
    )
    with locked(place / f"{cell.name}.begun") as held:
        child._run_and_tell(what, cell, place / cell.name, held, log, line)
    assert line.heard == [("begun", None), ("round", 1), ("round", 2), ("stopped", None)]
    assert read_result(second.folder, cell) is None

    assert go(second, [cell], tmp_path / "2", keep_runs=True).finished == [cell.name]
    assert "going on after 2 rounds" in (place / f"{cell.name}.log").read_text()
    assert (place / cell.name / "recipe.json").is_file()
    # Nobody goes on with it: a cell that is run again is not that one once more.
    assert not (place / f"{cell.name}.begun").exists()

    assert numbers(first, cell) == numbers(second, cell)
    curves = numbers(first, cell)["node"]
    assert set(curves) == {"small", "large"}
    for node in curves.values():  # else they might be equal by chance
        assert len(set(node["tokens"])) > 1
        assert len(set(node["sampled"])) > 1


def test_ctrl_c_ends_what_runs_with_its_round_and_begins_nothing_new(tmp_path):
    suite = make_suite(tmp_path, recipe=LONG)
    cell, next = alone(suite), alone(suite, seed=1)

    def stop(ran):
        if not told.said:
            os.kill(os.getpid(), signal.SIGINT)

    told = Told(on_round=stop)
    assert go(suite, [cell, next], tmp_path, told, jobs=1) == Outcome(interrupted=True)
    assert list(told.why) == [cell.name]
    assert "same command goes on" in told.why[cell.name]
    folder = tmp_path / "runs" / "tiny" / cell.name
    assert len(list(folder.glob("small/checkpoints/*"))) == 1
    assert is_free(folder.with_name(f"{cell.name}.begun"))
    assert not (folder.parent / next.name).exists()


def test_one_that_breaks_down_is_told_in_a_line_and_the_others_go_on(tmp_path):
    broken = LIVELY.replace("builtin:digits-terse", "no-model")
    suite = make_suite(tmp_path, recipe=broken)
    (tmp_path / "no-model").mkdir()  # looked up from the parent of experiments/ on
    good, bad = alone(suite), alone(suite, "large")
    told = Told()
    outcome = go(suite, [bad, good], tmp_path, told)
    assert outcome.finished == [good.name]
    assert set(outcome.failed) == {bad.name}
    assert "'no-model'" in told.why[bad.name]
    assert "\n" not in told.why[bad.name]
    log = (tmp_path / "runs" / "tiny" / f"{bad.name}.log").read_text()
    assert "'no-model'" in log
    made = result_file(suite.folder, good).read_text()
    assert str(tmp_path) not in made
    assert str(Path(runner.__file__).parents[3]) not in made


def test_a_second_ctrl_c_ends_everything_at_once(tmp_path):
    suite = make_suite(tmp_path, recipe=LONG)

    def stop(ran):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        go(suite, [alone(suite)], tmp_path, Told(on_round=stop))
    assert is_free(tmp_path / "runs" / "tiny" / f"{alone(suite).name}.begun")


def test_what_another_command_runs_is_left_to_it(tmp_path):
    suite = make_suite(tmp_path)
    cell = alone(suite)
    held = tmp_path / "runs" / "tiny" / f"{cell.name}.begun"
    held.parent.mkdir(parents=True)
    with held.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        told = Told()
        assert go(suite, [cell], tmp_path, told) == Outcome(busy=[cell.name])
    assert "another command" in told.why[cell.name]
    assert read_result(suite.folder, cell) is None


def test_a_runner_that_is_killed_leaves_no_process_behind(tmp_path):
    suite = make_suite(tmp_path, recipe=LONG)
    cell = alone(suite)
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from reproduce.small import read_suite
from reproduce.test_runner import Told, alone, go, server
if __name__ == "__main__":
    suite = read_suite(Path({str(suite.folder)!r}))
    server.PRELOAD[:] = []  # the first process is there at once
    go(suite, [alone(suite)], Path({str(tmp_path)!r}))
"""
    (tmp_path / "killed.py").write_text(script)
    killed = subprocess.Popen([sys.executable, tmp_path / "killed.py"])
    held = tmp_path / "runs" / "tiny" / f"{cell.name}.begun"
    try:
        wait_until(lambda: held.exists() and not is_free(held))
        assert killed.poll() is None
    finally:
        killed.kill()
        killed.wait()
    wait_until(lambda: is_free(held))


def wait_until(true):
    for _ in range(1200):  # a minute, on a machine that is very busy
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come to that")


def is_free(path):
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.fixture
def no_server(monkeypatch):
    def refuse():
        raise AssertionError("nothing is to be run")

    monkeypatch.setattr(server, "ready", refuse)


def finish(suite, cell, **changes):
    """A result as if the cell had been run."""
    from reproduce.results import result_of

    path = result_file(suite.folder, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(result_of(cell, **changes))


def test_a_finished_cell_is_not_run_again(tmp_path, no_server):
    suite = make_suite(tmp_path)
    finish(suite, alone(suite))
    told = Told()
    assert go(suite, [alone(suite)], tmp_path, told) == Outcome()
    assert told.waiting == []


def test_one_whose_recipe_has_changed_is(tmp_path, no_server):
    suite = make_suite(tmp_path)
    finish(suite, alone(suite))
    changed = make_suite(tmp_path, recipe=RECIPE.replace("rounds = 2", "rounds = 3"))
    told = Told()
    with pytest.raises(AssertionError, match="nothing is to be run"):
        go(changed, [alone(changed), alone(changed, "large")], tmp_path, told)
    assert told.waiting == ["digits.small.alone.0", "digits.large.alone.0"]


def test_one_whose_code_has_changed_is_run_again_when_that_is_asked_for(tmp_path, no_server):
    suite = make_suite(tmp_path)
    cell, other = alone(suite), alone(suite, "large")
    finish(suite, cell, code={"node": "another"})
    finish(suite, other)
    assert go(suite, [cell, other], tmp_path) == Outcome()
    told = Told()
    with pytest.raises(AssertionError, match="nothing is to be run"):
        go(suite, [cell, other], tmp_path, told, keeps="fresh")
    assert told.waiting == [cell.name]


def test_every_cell_is_run_again_when_that_is_asked_for_whatever_it_began_from(tmp_path, no_server):
    suite = make_suite(tmp_path)
    cells = [alone(suite), alone(suite, "large")]
    for cell in cells:
        finish(suite, cell, base="00000000")
    told = Told()
    with pytest.raises(AssertionError, match="nothing is to be run"):
        go(suite, cells, tmp_path, told, keeps="none")
    assert told.waiting == [cell.name for cell in cells]
    with pytest.raises(ExperimentError, match=r"began from .00000000"):  # another one stays
        go(suite, [pair(suite)], tmp_path, told, keeps="none")


def order_of(suite, cell, *, keeps="all"):
    return child.order(
        cell,
        experiments=suite.folder,
        runs=suite.folder.parent / "runs",
        code=code_digests(),
        keeps=keeps,
        keep_run=False,
    )


@pytest.mark.parametrize("keeps, runs", [("all", False), ("fresh", False), ("none", True)])
def test_a_process_runs_a_finished_cell_only_where_it_is_not_kept(
    tmp_path, monkeypatch, keeps, runs
):
    suite, line, ran = make_suite(tmp_path), StoppedByHand(), []
    cell = alone(suite)
    finish(suite, cell)
    monkeypatch.setattr(child, "_speak_into", lambda log: None)
    monkeypatch.setattr(child, "_run_and_tell", lambda *all: ran.append(all))
    child._work(order_of(suite, cell, keeps=keeps), cell, line)
    assert (len(ran), line.heard) == ((1, []) if runs else (0, [("done", None)]))


def test_a_place_that_cannot_be_made_is_one_clear_error_before_anything_runs(tmp_path, no_server):
    suite = make_suite(tmp_path)
    (tmp_path / "runs").write_text("a file in its way")
    with pytest.raises(ExperimentError, match=r"cannot write into .*runs/tiny: Not a directory; "):
        go(suite, [alone(suite)], tmp_path)


@pytest.mark.parametrize("place", ["runs/tiny", "experiments/cells/tiny"])
def test_a_full_disk_is_found_by_writing_to_it(tmp_path, no_server, monkeypatch, place):
    def full(dir):
        if dir == tmp_path / place:
            raise OSError(28, "No space left on device")
        return io.BytesIO()

    monkeypatch.setattr(runner.tempfile, "TemporaryFile", full)
    suite = make_suite(tmp_path)
    with pytest.raises(ExperimentError, match=f"{place}: No space left on device; make room"):
        go(suite, [alone(suite)], tmp_path)


def test_a_place_that_goes_away_later_is_told_by_the_process(tmp_path, monkeypatch):
    suite, line = make_suite(tmp_path), StoppedByHand()
    (tmp_path / "runs").write_text("a file in its way")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(child.os, "setpgid", lambda process, group: None)
    monkeypatch.setattr(child, "_end_with_parent", lambda: None)
    child.work(order_of(suite, alone(suite)), line)
    ((what, why),) = line.heard
    assert (what, "Not a directory" in why) == ("failed", True)


def test_what_cannot_be_removed_after_the_result_was_written_fails_nothing(tmp_path, monkeypatch):
    suite, line = make_suite(tmp_path), StoppedByHand()
    cell, held, log = alone(suite), tmp_path / "held", tmp_path / "log"
    finish(suite, cell)
    done = read_result(suite.folder, cell)
    monkeypatch.setattr(child, "_run", lambda *all: done)

    def refuse(folder):
        raise OSError(f"cannot remove {folder}")

    monkeypatch.setattr(child.shutil, "rmtree", refuse)
    with locked(held) as file:
        file.write("what it was begun with")
        file.flush()
        child._run_and_tell(order_of(suite, cell), cell, tmp_path, file, log, line)
    assert line.heard == [("done", {"small": 0.75})]
    assert held.read_text() == ""  # nobody goes on with what is left of it


def test_a_tiny_cell_has_one_thread_of_the_cpu_and_is_saved_at_its_end_whatever_its_recipe_says(
    tmp_path,
):
    recipe = RECIPE.replace("threads = 1", "threads = 4\ncheckpoint_every = 1")
    recipe = recipe.replace('device = "cpu"', 'device = "cuda"')
    suite = make_suite(tmp_path, recipe=recipe)
    run = child.as_run(alone(suite))
    assert (run.threads, run.checkpoint_every) == (1, 0)
    assert [node.device for node in child.as_run(pair(suite)).node.values()] == ["cpu", "cpu"]
    assert pair(suite).config.node["small"].device == "cuda"
    large = make_cell(suite, "paper", "digits", ("small",), "alone", 0)
    assert child.as_run(large) == large.config


def test_the_longest_are_run_first_seed_by_seed(tmp_path):
    suite = make_suite(tmp_path)
    ordered = runner.longest_first(suite, cells_of(suite, suite.experiments, "tiny", 2))
    assert [cell.seed for cell in ordered] == [0] * 4 + [1] * 4
    assert [len(cell.models) for cell in ordered] == [2, 2, 1, 1] * 2


def test_cells_that_would_begin_from_other_models_than_finished_ones_are_refused(
    tmp_path, no_server
):
    suite = make_suite(tmp_path)
    finish(suite, alone(suite), base="00000000")
    told = "digits-small .* than the finished cell digits.small.alone.0 began from .00000000"
    with pytest.raises(ExperimentError, match=told):
        go(suite, [pair(suite)], tmp_path)
    with pytest.raises(AssertionError, match="nothing is to be run"):  # another model
        go(suite, [alone(suite, "large")], tmp_path)
    finish(suite, alone(suite), base="00000000", code={"node": "another"})
    with pytest.raises(AssertionError, match="nothing is to be run"):  # it is itself replaced
        go(suite, [alone(suite)], tmp_path, keeps="fresh")
