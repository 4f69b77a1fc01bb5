"""The runner: finished cells stay, stopped ones go on, and the same cell gives the same numbers."""

import io
import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from filelock import FileLock
from rich.console import Console

from potluck_experiments import run
from potluck_experiments.cell_files import cell_file, read_result
from potluck_experiments.cells import make_cell
from potluck_experiments.run import CellsOutcome, run_cells
from small_suite import RECIPE, finish, make_suite

LIVELY = (
    RECIPE.replace("rounds = 2", "rounds = 3")
    .replace("per_round = 2\ngroup_size = 2", "per_round = 4\ngroup_size = 4")
    .replace("max_new_tokens = 6\nmax_total_tokens = 64", "max_new_tokens = 32")
    .replace('device = "cpu"', 'device = "cpu"\nlearning_rate = 1e-3')
)
"""It learns fast and writes long, so that any difference grows into every number."""
LONG = RECIPE.replace("rounds = 2", "rounds = 1000")


class Screen(Console):
    """Writes down what is printed."""

    def __init__(self):
        super().__init__(file=io.StringIO(), width=500)
        self.said = []

    def print(self, text, **options):
        self.said.append(text)


def pair(suite, seed=0, scale="tiny"):
    return make_cell(suite, scale, "digits", ("small", "large"), "f-tis", seed)


def alone(suite, model="small", seed=0, scale="tiny"):
    return make_cell(suite, scale, "digits", (model,), "alone", seed)


def go(suite, cells, screen=None, **options):
    options = {"jobs": 2, "runs": suite.folder.parent / "runs", **options}
    return run_cells(suite, cells, console=screen or Screen(), **options)


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in run.ENVIRONMENT:
        monkeypatch.setenv(name, "1")  # it sets them: put back what was there


def lines_of(suite):
    return [
        json.loads(line)
        for file in suite.folder.glob("cells/*/*.jsonl")
        for line in file.read_text().splitlines()
    ]


def numbers(suite, cell):
    """Everything that does not depend on how busy the machine is."""
    (tree,) = (its for its in lines_of(suite) if its["seed"] == cell.seed)
    del tree["cpu_s"]
    for node in tree["node"].values():
        del node["seconds"]
    return tree


@contextmanager
def pressing_ctrl_c_when(true, times=1):
    """Press it where the runner waits for its cells: it is heard before the wait goes on."""
    waits = run.wait

    def press(futures, timeout):
        nonlocal times
        if times and true():
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
            times = 0
        return waits(futures, 0.01)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "wait", press)
        yield


def wait_until(true):
    while not true():  # longer than any test may take where something is broken
        time.sleep(0.05)


def rounds_done(folder):
    file = folder / "small" / "metrics.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_a_cell_gives_the_same_numbers_twice_and_when_it_was_stopped_half_way(tmp_path):
    first, second = (make_suite(tmp_path / name, recipe=LIVELY) for name in ("1", "2"))
    cell, stopped = pair(first, scale="paper"), pair(second, scale="paper")
    leftover = tmp_path / "1/runs/paper" / cell.name
    leftover.mkdir(parents=True)
    (leftover / "half").write_text("of a run that nobody knows")
    screen = Screen()
    assert go(first, [cell], screen) == CellsOutcome(finished=[cell.name])
    assert f"{cell.name}: half of a run cannot go on, so it is begun anew" in screen.said
    assert [p.name for p in (tmp_path / "1/runs/paper").iterdir() if p.suffix != ".lock"] == [
        f"{cell.name}.before"
    ]

    folder = tmp_path / "2/runs/paper" / cell.name
    with pressing_ctrl_c_when(lambda: rounds_done(folder) >= 1):
        assert go(second, [stopped]) == CellsOutcome(interrupted=True)
    assert read_result(second.folder, stopped) is None
    done = rounds_done(folder)
    assert 1 <= done < 3
    assert go(second, [stopped], keep_runs=True).finished == [cell.name]
    assert f"going on after {done} round" in Path(f"{folder}.log").read_text()
    assert (folder / "recipe.json").is_file()
    assert not Path(f"{folder}.json").exists()  # a cell that is run again does not go on with it

    assert numbers(first, cell) == numbers(second, stopped)
    for node in numbers(first, cell)["node"].values():  # else they might be equal by chance
        assert len(set(node["tokens"])) > 1
        assert len(set(node["sampled"])) > 1
        assert node["pass_at_8"] is not None  # it is measured in a real run


def test_ctrl_c_ends_what_runs_and_a_second_one_at_once_and_a_tiny_cell_is_begun_anew(tmp_path):
    suite = make_suite(tmp_path, recipe=LONG)
    cell, following = alone(suite), alone(suite, seed=1)
    folder = tmp_path / "runs/tiny" / cell.name
    with pressing_ctrl_c_when(lambda: rounds_done(folder) >= 1):
        assert go(suite, [cell, following], jobs=1) == CellsOutcome(interrupted=True)
    assert not (folder.parent / following.name).exists()
    assert is_free(folder)
    screen = Screen()
    pressing = pressing_ctrl_c_when(lambda: "begun anew" in f"{screen.said}", times=2)
    with pressing, pytest.raises(KeyboardInterrupt):
        go(suite, [cell], screen)
    assert is_free(folder)


def test_one_that_breaks_down_is_told_in_a_line_and_the_others_go_on(tmp_path):
    suite = make_suite(tmp_path, recipe=RECIPE.replace("builtin:digits-terse", "no-model"))
    (tmp_path / "no-model").mkdir()  # looked up from the parent of experiments/ on
    good, bad = alone(suite), alone(suite, "large")
    outcome = go(suite, [bad, good])
    assert outcome.finished == [good.name]
    assert set(outcome.failed) == {bad.name}
    assert "'no-model'" in outcome.failed[bad.name]
    assert "\n" not in outcome.failed[bad.name]
    assert "'no-model'" in (tmp_path / "runs/tiny" / f"{bad.name}.log").read_text()
    made = cell_file(suite.folder, "tiny", "digits").read_text()
    assert not [place for place in (tmp_path, Path(__file__).parents[2]) if str(place) in made]


def test_what_another_command_runs_is_left_to_it(tmp_path):
    suite = make_suite(tmp_path)
    held = tmp_path / "runs/tiny" / f"{alone(suite).name}.lock"
    held.parent.mkdir(parents=True)
    with FileLock(held):
        screen = Screen()
        assert go(suite, [alone(suite)], screen) == CellsOutcome(busy=[alone(suite).name])
    assert any("another command" in line for line in screen.said)
    assert read_result(suite.folder, alone(suite)) is None


def test_a_command_that_is_killed_leaves_no_process(tmp_path):
    suite = make_suite(tmp_path, recipe=LONG)
    (tmp_path / "killed.py").write_text(f"""
import sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from small_suite import read_suite
from test_run import alone, go
if __name__ == "__main__":
    suite = read_suite(Path({str(suite.folder)!r}))
    go(suite, [alone(suite)])
""")
    place = tmp_path / "runs/tiny" / alone(suite).name
    killed = subprocess.Popen([sys.executable, tmp_path / "killed.py"])
    try:
        wait_until(lambda: rounds_done(place) or killed.poll() is not None)
        assert killed.poll() is None
    finally:
        killed.kill()
        killed.wait()
    wait_until(lambda: is_free(place))


def is_free(folder):
    try:
        FileLock(f"{folder}.lock").acquire(timeout=0).lock.release()
    except TimeoutError:
        return False
    return True


def waiting(suite, cells, **options):
    """How many cells are to run."""
    screen = Screen()
    with suppress(ZeroDivisionError):
        assert go(suite, cells, screen, **options) == CellsOutcome()
    total, _, rest = screen.said[0].partition(" cells")
    return int(total) - int(rest.split()[1] if rest else 0)


def test_a_finished_cell_is_run_again_only_if_that_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "_start_server", lambda: 1 / 0)
    suite = make_suite(tmp_path)
    cells = [alone(suite), alone(suite, "large")]
    finish(suite, cells[0])
    assert [waiting(suite, cells, again=again) for again in (False, True)] == [1, 2]
    changed = make_suite(tmp_path, recipe=RECIPE.replace("rounds = 2", "rounds = 3"))
    assert waiting(changed, [alone(changed), alone(changed, "large")]) == 2
