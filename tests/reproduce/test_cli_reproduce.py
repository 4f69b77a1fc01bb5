"""``potluck reproduce``: what it lists, what it runs, and how it ends."""

import io
import subprocess
import sys
import types
from pathlib import Path

import pytest
from rich.console import Console

import potluck
from potluck.cli import main, reproducing
from potluck.reproduce.cells import cells_of, make_cell
from potluck.reproduce.result import result_file
from potluck.reproduce.work import runner
from potluck.reproduce.work.estimates import Estimates, Time, longest_first, standings
from potluck.reproduce.work.progress import CellsShown
from potluck.reproduce.work.runner import Outcome
from reproduce.results import result_of
from reproduce.small import RECIPE, make_suite


@pytest.fixture
def suite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name in (
        *("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM"),
        *("HF_HUB_DISABLE_PROGRESS_BARS", "TRANSFORMERS_VERBOSITY", "HF_HUB_VERBOSITY"),
    ):
        monkeypatch.setenv(name, "")  # it sets them: put back what was there
    return make_suite(tmp_path)


@pytest.fixture
def page(monkeypatch):
    """Stands for the pages: a list of what was rendered."""
    rendered = []

    def render(suite):
        rendered.append(suite.folder.name)
        return [Path("docs/results.md"), Path("docs/results/claims.png")]

    stand_in = types.SimpleNamespace(render=render)
    monkeypatch.setitem(sys.modules, "potluck.reproduce.page", stand_in)
    return rendered


@pytest.fixture
def asked(monkeypatch, page):
    """Runs nothing; a list of what was to be run, whose attribute ``outcome`` is what came."""

    class Asked(list):
        outcome = Outcome()

        def __call__(self, suite, cells, *, jobs, shown, **options):
            self.append(([cell.name for cell in cells], jobs, options))
            if isinstance(self.outcome, BaseException):
                raise self.outcome
            return self.outcome

    monkeypatch.setattr(runner, "run_cells", asked := Asked())
    return asked


@pytest.fixture
def says(monkeypatch, capsys):
    def call(*words):
        monkeypatch.setattr(sys, "argv", ["potluck", "reproduce", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        return end.value.code or 0, said.out, said.err

    return call


def finish(suite, cell, **changes):
    path = result_file(suite.folder, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(result_of(cell, **changes))


def cell_of(suite, models, setting, seed=0):
    return make_cell(suite, "tiny", "digits", models, setting, seed)


FIG04 = ["digits.small+large.f-tis", "digits.small.alone", "digits.large.alone"]


def test_it_runs_an_experiment_with_the_scales_seeds_and_renders_the_pages(
    suite, says, asked, page
):
    assert says("fig04", "--jobs", 3)[0] == 0
    ((cells, jobs, options),) = asked
    assert cells == [f"{name}.{seed}" for seed in (0, 1) for name in FIG04]
    assert jobs == 3
    assert (options["keeps"], options["keep_runs"]) == ("all", False)
    assert page == ["experiments"]


def test_every_option_reaches_the_runner(suite, says, asked):
    assert (
        says("fig04", "--seeds", 1, "--stale", "--keep-runs", "--experiments", suite.folder)[0] == 0
    )
    ((cells, jobs, options),) = asked
    assert cells == [f"{name}.0" for name in FIG04]
    assert jobs >= 1
    assert (options["keeps"], options["keep_runs"]) == ("fresh", True)
    assert says("fig13", "fig04", "fig04", "--seeds", 1)[0] == 0
    assert sorted(asked[1][0]) == sorted([*asked[0][0], "digits.small+twin.f-tis.0"])
    assert says("fig04", "--seeds", 1, "--again")[0] == 0
    assert asked[2][0] == asked[0][0]
    assert asked[2][2]["keeps"] == "none"


@pytest.mark.parametrize(
    "words, told",
    [
        ([], "name an experiment, as in 'potluck reproduce fig04'; --list shows what there is"),
        (["fig05"], "there is no experiment 'fig05'; there are fig04, fig13"),
        (["fig04", "--scale", "huge"], "there is no scale 'huge'; there are tiny, paper"),
        (["fig04", "--scale", "paper"], "fig04_size: no cells at scale paper; [pairs] of"),
        (["--all", "--scale", "paper", "--check"], "fig04_size, fig13_same: no cells at scale"),
        (["--list", "--check"], "--list and --check do not go together; give one of them"),
        (["fig04", "--check", "--render"], "--check and --render do not go together"),
        (["fig04", "--all"], "names and --all do not go together"),
        (["fig04", "--render"], "names and --render do not go together"),
        (["fig04", "--experiments", "elsewhere"], "elsewhere holds no experiments; run this in"),
    ],
)
def test_a_slip_is_one_line_and_runs_nothing(suite, says, asked, page, words, told):
    code, out, err = says(*words)
    assert (code, out, asked, page) == (2, "", [], [])
    assert told in err
    assert err.count("\n") == 1


def test_what_failed_is_named_and_is_exit_code_1(suite, says, asked, page):
    asked.outcome = Outcome(finished=["a"], failed={"digits.small.alone.0": "no disk left"})
    code, _, err = says("fig04")
    assert code == 1
    assert "potluck: digits.small.alone.0: no disk left\n" in err
    assert "1 cells failed; the same command tries them again" in err
    assert page == ["experiments"]


def test_cells_that_are_busy_elsewhere_are_told_and_are_exit_code_1(suite, says, asked):
    asked.outcome = Outcome(finished=["a"], busy=["digits.small.alone.0"])
    code, _, err = says("fig04")
    assert (code, "1 cells are being run by another command" in err) == (1, True)


def test_a_system_without_locks_is_told_in_one_line(suite, says, asked, monkeypatch):
    monkeypatch.setattr(reproducing, "find_spec", lambda name: None)
    code, out, err = says("fig04")
    assert (code, out, asked) == (2, "", [])
    assert "needs Linux or macOS" in err
    assert err.count("\n") == 1


def test_a_gpu_takes_one_cell_at_a_time_but_tiny_ones_run_on_the_cpu(monkeypatch):
    monkeypatch.setattr(reproducing.os, "sched_getaffinity", lambda process: {0, 1, 2})
    monkeypatch.setattr(reproducing, "_has_gpu", lambda: True)
    assert (reproducing._jobs("tiny"), reproducing._jobs("paper")) == (3, 1)
    monkeypatch.setattr(reproducing, "_has_gpu", lambda: False)
    assert (reproducing._jobs("tiny"), reproducing._jobs("paper")) == (3, 3)


def test_ctrl_c_is_exit_code_130_and_says_how_to_go_on(suite, says, asked):
    asked.outcome = Outcome(interrupted=True)
    code, out, _ = says("fig04")
    assert (code, "the same command goes on" in out) == (130, True)
    asked.outcome = KeyboardInterrupt()
    code, _, err = says("fig04")
    assert (code, "stopped at once; what is finished stays" in err) == (130, True)


def test_the_list_tells_what_is_finished_and_counts_a_shared_cell_once(suite, says, asked, page):
    finish(suite, cell_of(suite, ("small",), "alone"), cpu_s=60)
    finish(suite, cell_of(suite, ("large",), "alone"), cpu_s=120, code={"node": "another"})
    finish(suite, cell_of(suite, ("small", "large"), "f-tis"), cpu_s=240)
    code, out, _ = says("--list")
    rows = {line.split()[0]: line.split()[-5:] for line in out.splitlines()}
    assert code == 0
    # All: two seeds of the pair (240 s), small (60), large (120) and the twins (240).
    # Left: the pair, small and large of seed 1: 240 + 60 + 120 s; both twins: 240 s each.
    assert rows["fig04_size"] == ["6", "3", "1", "14", "7"]
    assert rows["fig13_same"] == ["4", "1", "0", "10", "9"]
    assert rows["together"] == ["8", "3", "1", "22", "15"]
    # The stale one too: 120 s.
    _, out, _ = says("--list", "--stale")
    rows = {line.split()[0]: line.split()[-5:] for line in out.splitlines()}
    assert rows["together"] == ["8", "2", "1", "22", "17"]
    _, out, _ = says("--list", "--again")
    rows = {line.split()[0]: line.split()[-5:] for line in out.splitlines()}
    assert rows["together"] == ["8", "0", "1", "22", "22"]
    assert (asked, page) == ([], [])
    assert "fig13" not in says("fig04", "--list")[1]


def test_the_check_tells_each_cell_and_starts_nothing(suite, says, asked, page):
    finish(suite, cell_of(suite, ("small",), "alone"), code={"node": "another"})
    finish(suite, cell_of(suite, ("large",), "alone"))
    code, out, _ = says("fig04", "--seeds", 1, "--check")
    assert code == 0
    assert out.splitlines()[:3] == [
        "to run    digits.small+large.f-tis.0",
        "stale     digits.small.alone.0",
        "finished  digits.large.alone.0",
    ]
    assert "1 of 3 cells to run, ? core-minutes" in out
    _, out, _ = says("fig04", "--seeds", 1, "--check", "--stale")
    assert [line.split()[0] for line in out.splitlines()[:3]] == ["to", "to", "finished"]
    assert "2 of 3 cells to run, >= 1 core-minutes" in out
    assert "3 of 3 cells to run, >= 2 " in says("fig04", "--seeds", 1, "--check", "--again")[1]
    assert (asked, page) == ([], [])


def test_rendering_needs_no_name_and_runs_nothing(suite, says, asked, page):
    assert says("--render") == (0, "results: docs/results.md\n", "")
    assert (asked, page) == ([], ["experiments"])


def test_an_estimate_is_of_other_seeds_or_else_by_the_rounds_of_as_many_models(suite):
    small = cell_of(suite, ("small",), "alone")
    assert Estimates(suite, "tiny").of(small) is None
    finish(suite, cell_of(suite, ("small",), "alone", 1), cpu_s=10)
    finish(suite, cell_of(suite, ("small",), "alone", 2), cpu_s=30)
    finish(suite, cell_of(suite, ("small",), "half", 2), cpu_s=2)
    estimates = Estimates(suite, "tiny")
    assert estimates.of(small) == 20
    # Of two rounds, the last one of half the problems: 5, 15 and 2 s a round.
    assert estimates.of(cell_of(suite, ("large",), "alone")) == pytest.approx(2 * 22 / 3)
    assert estimates.of(cell_of(suite, ("large",), "half")) == pytest.approx(22 / 3)
    long = make_suite(suite.folder.parent, recipe=RECIPE.replace("rounds = 2", "rounds = 6"))
    assert estimates.of(cell_of(long, ("large",), "alone")) == pytest.approx(6 * 22 / 3)
    assert estimates.of(cell_of(suite, ("small", "large"), "f-tis")) is None


def test_what_is_known_to_take_longest_is_run_first(suite):
    finish(suite, cell_of(suite, ("small",), "alone", 9), cpu_s=50)
    finish(suite, cell_of(suite, ("large",), "alone", 9), cpu_s=500)
    finish(suite, cell_of(suite, ("small", "large"), "f-tis", 9), cpu_s=100)
    size = suite.experiments[0]
    ordered = longest_first(suite, cells_of(suite, [size], "tiny", 2))
    names = ["digits.large.alone", "digits.small+large.f-tis", "digits.small.alone"]
    assert [cell.name for cell in ordered] == [f"{n}.{seed}" for seed in (0, 1) for n in names]


def test_nothing_left_takes_no_time(suite):
    for cell in cells_of(suite, suite.experiments, "tiny", 1):
        finish(suite, cell)
    _, together = standings(suite, suite.experiments, "tiny", 1)
    assert (together.cells, together.finished, together.remaining) == (4, 4, Time(0, unknown=0))


def test_without_a_terminal_there_is_a_line_for_each_cell_that_ends(suite):
    now_s = [0.0]
    console = Console(file=io.StringIO(), width=200)
    cells = cells_of(suite, suite.experiments, "tiny", 1)
    pair, small, large, _ = cells
    with CellsShown(console, clock=lambda: now_s[0]) as shown:
        shown.begin(5, cells)  # another one is finished
        shown.started(pair)
        shown.started(small)
        now_s[0] = 60.0
        shown.round_done(small, 1)
        shown.finished(pair, {"small": 0.5, "large": 0.25})
        now_s[0] = 90.0
        shown.ended(small, "no disk left")
        shown.started(large)
        shown.finished(large, {})
    said = console.file.getvalue().splitlines()
    # Of 2 + 1 + 1 + 2 parts of work 2.5 are done in a minute.
    assert said == [
        "5 cells, 1 of them are finished",
        "2/5 digits.small+large.f-tis.0: small 0.500, large 0.250 (0:01:00, about 0:01:24 left)",
        "digits.small.alone.0: no disk left",
        "3/5 digits.large.alone.0: done (0:01:30, about 0:01:00 left)",
    ]


def test_whoever_lists_or_waits_never_imports_torch():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import potluck.cli, "
        "potluck.reproduce.work.runner, potluck.reproduce.work.progress, "
        "potluck.reproduce.work.collect; "
        "print({'torch', 'transformers', 'matplotlib'} & set(sys.modules))"
    )
    source = str(potluck.STARTING_RECIPE.parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code, source], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("set()\n", "")
