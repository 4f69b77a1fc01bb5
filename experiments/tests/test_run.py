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

import potluck_experiments
from potluck_experiments import run
from potluck_experiments.cells import make_cell
from potluck_experiments.results import read_result, result_file
from potluck_experiments.run import CellsOutcome, run_cells
from small_suite import RECIPE, finish, make_suite

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


class Screen(Console):
    """Writes down what is printed; ``on_line`` is called with each line."""

    def __init__(self, on_line=lambda line: None):
        super().__init__(file=io.StringIO(), width=500)
        self.said, self.on_line = [], on_line

    def print(self, text, **options):
        self.said.append(text)
        self.on_line(text)


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


def numbers(suite, cell):
    """Everything that does not depend on how busy the machine is."""
    tree = json.loads(result_file(suite.folder, cell).read_text())
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
    assert 1 <= done < 4
    assert go(second, [stopped], keep_runs=True).finished == [cell.name]
    assert f"going on after {done} round" in Path(f"{folder}.log").read_text()
    assert (folder / "recipe.json").is_file()
    assert not Path(f"{folder}.json").exists()  # a cell that is run again does not go on with it

    assert numbers(first, cell) == numbers(second, stopped)
    for node in numbers(first, cell)["node"].values():  # else they might be equal by chance
        assert len(set(node["tokens"])) > 1
        assert len(set(node["sampled"])) > 1
        assert node["pass_at_8"] is not None  # it is measured in a real run


def test_ctrl_c_ends_what_runs_and_begins_nothing_new_and_a_tiny_cell_is_run_again(tmp_path):
    suite = make_suite(tmp_path, recipe=LONG)
    cell, following = alone(suite), alone(suite, seed=1)
    folder = tmp_path / "runs/tiny" / cell.name
    with pressing_ctrl_c_when(lambda: rounds_done(folder) >= 1):
        assert go(suite, [cell, following], jobs=1) == CellsOutcome(interrupted=True)
    assert not (folder.parent / following.name).exists()
    assert is_free(folder)
    screen = Screen()
    with pressing_ctrl_c_when(lambda: any("begun anew" in line for line in screen.said)):
        assert go(suite, [cell], screen).interrupted


def test_a_second_ctrl_c_ends_everything_at_once(tmp_path):
    suite = make_suite(tmp_path, recipe=LONG)
    folder = tmp_path / "runs/tiny" / alone(suite).name
    pressing = pressing_ctrl_c_when(lambda: rounds_done(folder), times=2)
    with pressing, pytest.raises(KeyboardInterrupt):
        go(suite, [alone(suite)])
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
    made = result_file(suite.folder, good).read_text()
    assert str(tmp_path) not in made
    assert str(Path(potluck_experiments.__file__).parents[2]) not in made


def test_what_another_command_runs_is_left_to_it(tmp_path):
    suite = make_suite(tmp_path)
    held = tmp_path / "runs/tiny" / f"{alone(suite).name}.lock"
    held.parent.mkdir(parents=True)
    with FileLock(held):
        screen = Screen()
        assert go(suite, [alone(suite)], screen) == CellsOutcome(busy=[alone(suite).name])
    assert any("another command" in line for line in screen.said)
    assert read_result(suite.folder, alone(suite)) is None


def test_a_command_that_is_killed_loses_no_finished_cell_and_leaves_no_process(tmp_path):
    suite = make_suite(tmp_path)
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
from contextlib import suppress
from pathlib import Path
from small_suite import read_suite
from test_run import alone, go, make_cell
if __name__ == "__main__":
    suite = read_suite(Path({str(suite.folder)!r}))
    go(suite, [alone(suite), make_cell(suite, "tiny", "digits", ("large",), "long", 1)], jobs=1)
"""
    settings = (suite.folder / "settings.toml").read_text()
    (suite.folder / "settings.toml").write_text(
        settings + '[long]\ntitle = "long"\nalone = true\nset = ["rounds=1000"]\n'
    )
    (tmp_path / "killed.py").write_text(script)
    place = tmp_path / "runs/tiny/digits.large.long.1"
    killed = subprocess.Popen([sys.executable, tmp_path / "killed.py"])
    try:
        wait_until(lambda: (place / "large/metrics.jsonl").exists() or killed.poll() is not None)
        assert killed.poll() is None
    finally:
        killed.kill()
        killed.wait()
    wait_until(lambda: is_free(place))
    assert read_result(suite.folder, alone(suite))
    screen = Screen()
    assert go(suite, [alone(suite)], screen) == CellsOutcome()
    assert screen.said == ["1 cells, 1 of them are finished"]


def is_free(folder):
    try:
        FileLock(f"{folder}.lock").acquire(timeout=0).lock.release()
    except TimeoutError:
        return False
    return True


class Refused(Exception):
    """Of a process that is not to be started."""


@pytest.fixture
def no_server(monkeypatch):
    def refuse():
        raise Refused

    monkeypatch.setattr(run, "_start_server", refuse)


def waiting(suite, cells, **options):
    """How many cells are to run."""
    screen = Screen()
    with suppress(Refused):
        assert go(suite, cells, screen, **options) == CellsOutcome()
    total, _, rest = screen.said[0].partition(" cells")
    return int(total) - int(rest.split()[1] if rest else 0)


def test_a_finished_cell_is_run_again_only_if_that_is_asked_for(tmp_path, no_server):
    suite = make_suite(tmp_path)
    cells = [alone(suite), alone(suite, "large")]
    finish(suite, cells[0])
    assert [waiting(suite, cells, again=again) for again in (False, True)] == [1, 2]
    changed = make_suite(tmp_path, recipe=RECIPE.replace("rounds = 2", "rounds = 3"))
    assert waiting(changed, [alone(changed), alone(changed, "large")]) == 2
