"""``potluck reproduce``: what it lists, what it runs, and how it ends."""

import subprocess
import sys

import pytest
import typer

import potluck
from potluck_experiments import cli, render, run
from potluck_experiments.cells import cells_of, make_cell
from potluck_experiments.progress import Estimates, longest_first
from potluck_experiments.run import CellsOutcome
from small_suite import RECIPE, SCALE, finish, make_suite


@pytest.fixture
def suite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name in (
        *("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM"),
        *("HF_HUB_DISABLE_PROGRESS_BARS", "TRANSFORMERS_VERBOSITY", "HF_HUB_VERBOSITY"),
    ):
        monkeypatch.setenv(name, "")  # it sets them: put back what was there
    monkeypatch.setattr(cli, "CLONE", tmp_path.resolve())
    return make_suite(tmp_path)


@pytest.fixture
def page(monkeypatch):
    """Stands for the pages: a list of what was rendered."""
    rendered, written = [], ["docs/results.md", "docs/results/claims.png"]
    monkeypatch.setattr(render, "render", lambda suite: rendered.append(suite) or written)
    return rendered


@pytest.fixture
def asked(monkeypatch, page):
    """Runs nothing; a list of what was to be run, whose attribute ``outcome`` is what came."""

    class Asked(list):
        outcome = CellsOutcome()

        def __call__(self, suite, cells, *, jobs, console, **options):
            self.append(([cell.name for cell in cells], jobs, options))
            if isinstance(self.outcome, BaseException):
                raise self.outcome
            return self.outcome

    monkeypatch.setattr(run, "run_cells", asked := Asked())
    return asked


@pytest.fixture
def says(capsys):
    """(exit code, output, errors) of a command, as potluck's command line ends it."""
    app = typer.Typer()
    app.command()(cli.reproduce)

    def call(*words):
        code = 0
        try:
            code = app([*map(str, words)], standalone_mode=False) or 0
        except potluck.PotluckError as error:
            print(error, file=sys.stderr)
            code = 2
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def cell_of(suite, models, setting, seed=0):
    return make_cell(suite, "tiny", "digits", models, setting, seed)


FIG04 = ["digits.small+large.f-tis", "digits.small.alone", "digits.large.alone"]


def test_it_runs_what_is_asked_for_and_renders_the_pages(suite, says, asked, page):
    assert says("fig04", "--jobs", 3)[0] == 0
    options = {"runs": cli.RUNS, "again": False, "keep_runs": False}
    assert asked.pop() == ([f"{name}.{seed}" for seed in (0, 1) for name in FIG04], 3, options)
    assert len(page) == 1
    assert says("fig04", "--seeds", 1, "--keep-runs", "--experiments", suite.folder)[0] == 0
    cells, jobs, options = asked.pop()
    assert cells == [f"{name}.0" for name in FIG04]
    assert (jobs >= 1, options["keep_runs"]) == (True, True)
    assert says("fig13", "fig04", "fig04", "--seeds", 1, "--again")[0] == 0
    both, _, options = asked.pop()
    assert sorted(both) == sorted([*cells, "digits.small+twin.f-tis.0"])
    assert options["again"]


@pytest.mark.parametrize(
    "words, told",
    [
        ([], "name an experiment, as in 'potluck reproduce fig04', or --all; there are fig04_size"),
        (["fig05"], "there is no experiment 'fig05'; there are fig04, fig13"),
        (
            ["fig04", "--scale", "huge"],
            "no scale 'huge'; there are tiny, drawn, words, real,",
        ),
        (["fig04", "--scale", "paper"], "fig04_size: no cells at scale paper; [pairs] of"),
        (["--all", "--scale", "paper", "--check"], "fig04_size, fig13_same: no cells at scale"),
        (["fig04", "--check", "--render"], "--check and --render do not go together; give one"),
        (["fig04", "--all"], "names and --all do not go together"),
        (["fig04", "--render"], "names and --render do not go together"),
        (["--all", "--join", "other"], "--all and --join do not go together"),
        (["--check", "--join", "other"], "--check and --join do not go together"),
        (["--join", "other", "--again"], "--again and --keep-runs are for cells that run"),
        (["--join", "other"], "other has no cells/; name the experiments/ of another clone"),
        (["fig04", "--experiments", "elsewhere"], "elsewhere holds no experiments; run this in"),
    ],
)
def test_a_slip_is_one_line_and_runs_nothing(suite, says, asked, page, words, told):
    code, out, err = says(*words)
    assert (code, out, asked, page) == (2, "", [], [])
    assert told in err
    assert err.count("\n") == 1


@pytest.fixture
def elsewhere(suite, monkeypatch):
    """The suite is in another clone than the command."""
    clone = suite.folder.parent / "installed"
    clone.mkdir()
    monkeypatch.setattr(cli, "CLONE", clone.resolve())
    return suite


@pytest.mark.parametrize("words", [["fig04"], ["--all"], ["fig04", "--again"]])
@pytest.mark.parametrize("named", ["experiments", "installed/../experiments", "link"])
def test_cells_of_another_clone_are_code_so_they_run_with_consent(
    elsewhere, says, asked, page, words, named
):
    (elsewhere.folder.parent / "link").symlink_to(elsewhere.folder)
    code, out, err = says(*words, "--experiments", named)
    assert (code, out, asked, page, err.count("\n")) == (2, "", [], [], 1)
    assert f"{elsewhere.folder} holds experiments of another clone" in err
    assert "add --trust-code" in err
    assert says(*words, "--experiments", named, "--trust-code")[0] == 0
    assert len(asked) == len(page) == 1


def test_cells_of_another_clone_are_added_without_running_its_code(suite, says, asked, page):
    other = make_suite(suite.folder.parent / "other")
    here, there = (cells_of(its, its.experiments, "tiny", 1) for its in (suite, other))
    finish(suite, here[0])
    finish(other, there[0], cpu_s=1.0)
    finish(other, there[1])
    code, out, err = says("--join", "other/experiments")
    assert (code, err, asked, page) == (0, "", [], [])
    assert "cells added: 1; potluck reproduce --render writes the pages" in out
    assert says("--all", "--check", "--seeds", 1)[1].count("finished") == 2


def test_cells_with_other_numbers_in_two_clones_are_named(suite, says):
    other = make_suite(suite.folder.parent / "other")
    (cell, *_), (its, *_) = (cells_of(s, s.experiments, "tiny", 1) for s in (suite, other))
    finish(suite, cell)
    finish(other, its)
    file = other.folder / "cells" / "tiny" / "digits.jsonl"
    file.write_text(file.read_text().replace("0.625", "0.875"))
    code, out, err = says("--join", "other/experiments")
    assert code == 0
    assert "cells added: 0" in out
    assert f"cells in both with other numbers, those here stay: 1, {cell.name}" in err


def test_a_look_at_another_clone_needs_none(elsewhere, says, asked, page):
    assert says("--all", "--check")[0] == 0
    assert says("--render")[0] == 0
    assert asked == []


def test_nor_does_a_copy_beside_the_experiments_of_this_clone(suite, says, asked, page):
    suite.folder.rename(suite.folder.with_name("copy"))
    assert says("fig04", "--experiments", "copy")[0] == 0
    assert len(asked) == 1


def test_the_command_is_installed_from_the_clone_that_has_the_experiments():
    assert (cli.CLONE / "experiments" / "settings.toml").is_file()


@pytest.mark.parametrize(
    ("outcome", "code", "told"),
    [
        (CellsOutcome(failed={"a.0": "no disk left"}), 1, "potluck: a.0: no disk left\n"),
        (CellsOutcome(busy=["a.0"]), 1, "1 cells are being run by another command"),
        (CellsOutcome(interrupted=True), 130, "the same command goes on"),
        (KeyboardInterrupt(), 130, "stopped at once; finished cells stay"),
    ],
)
def test_what_is_left_undone_is_told_and_has_a_code(suite, says, asked, outcome, code, told):
    asked.outcome = outcome
    ended, *said = says("fig04")
    assert (ended, told in "".join(said)) == (code, True)


def test_the_check_tells_each_cell_and_starts_nothing(suite, says, asked, page):
    for model in ("small", "large"):
        finish(suite, cell_of(suite, (model,), "alone"))
    code, out, _ = says("fig04", "--seeds", 1, "--check")
    assert (code, out.splitlines()[:3]) == (
        0,
        [
            "to run    digits.small+large.f-tis.0",
            "finished  digits.small.alone.0",
            "finished  digits.large.alone.0",
        ],
    )
    assert "1 of 3 cells to run, ? core-minutes" in out
    assert "3 of 3 cells to run, >= 2 " in says("fig04", "--seeds", 1, "--check", "--again")[1]
    finish(suite, cell_of(suite, ("small", "large"), "f-tis"), cpu_s=240)
    # Left of two seeds: the pair (240 s), small and large (60), and of the A/A pair both.
    told = "5 of 8 cells to run, 14 core-minutes"
    assert told in says("--all", "--check")[1]  # a shared cell counts once
    assert (asked, page) == ([], [])


def test_the_check_counts_the_making_of_base_models(tmp_path, says, monkeypatch):
    recipe = RECIPE.replace("builtin:digits-small", "models/small")
    made = make_suite(tmp_path, recipe=recipe, scale='bases = "make.py"\nbase_s = 90\n' + SCALE)
    monkeypatch.setattr("potluck_experiments.cli.read_suite", lambda folder: made)

    def is_told(*words):
        told = "and 2 core-minutes before them to make 1 base models, once\n"
        return told in says("fig04", "--seeds", 1, "--check", *words)[1]

    assert is_told()
    for cell in cells_of(made, made.experiments, "tiny", 1):
        finish(made, cell)
    assert (is_told(), is_told("--again")) == (False, True)  # what is finished needs none
    (tmp_path / "models/small").mkdir(parents=True)
    assert not is_told("--again")


def test_rendering_needs_no_name_and_runs_nothing(suite, says, asked, page):
    assert says("--render") == (0, "results: docs/results.md\n", "")
    assert (asked, len(page)) == ([], 1)


def test_an_estimate_is_of_other_seeds_or_else_by_the_rounds_of_as_many_models(suite):
    small = cell_of(suite, ("small",), "alone")
    assert Estimates(suite, "tiny").seconds(small) is None
    finish(suite, cell_of(suite, ("small",), "alone", 1), cpu_s=10)
    finish(suite, cell_of(suite, ("small",), "alone", 2), cpu_s=30)
    finish(suite, cell_of(suite, ("small",), "half", 2), cpu_s=2)
    estimates = Estimates(suite, "tiny")
    assert estimates.seconds(small) == 20
    # Of two rounds, the last one of half the problems: 5, 15 and 2 s a round.
    assert estimates.seconds(cell_of(suite, ("large",), "alone")) == pytest.approx(2 * 22 / 3)
    assert estimates.seconds(cell_of(suite, ("large",), "half")) == pytest.approx(22 / 3)
    long = make_suite(suite.folder.parent, recipe=RECIPE.replace("rounds = 2", "rounds = 6"))
    assert estimates.seconds(cell_of(long, ("large",), "alone")) == pytest.approx(6 * 22 / 3)
    assert estimates.seconds(cell_of(suite, ("small", "large"), "f-tis")) is None


def test_what_is_known_to_take_longest_is_run_first(suite):
    finish(suite, cell_of(suite, ("small",), "alone", 9), cpu_s=50)
    finish(suite, cell_of(suite, ("large",), "alone", 9), cpu_s=500)
    finish(suite, cell_of(suite, ("small", "large"), "f-tis", 9), cpu_s=100)
    size = suite.experiments[0]
    ordered = longest_first(suite, cells_of(suite, [size], "tiny", 2))
    names = ["digits.large.alone", "digits.small+large.f-tis", "digits.small.alone"]
    assert [cell.name for cell in ordered] == [f"{n}.{seed}" for seed in (0, 1) for n in names]


def test_whoever_lists_imports_neither_torch_nor_pandas():
    modules = ", ".join(f"potluck_experiments.{name}" for name in ("cli", "run", "progress"))
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, {modules}; print(*sys.modules)"],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert not {"torch", "transformers", "pandas", "scipy", "seaborn"} & {*done.stdout.split()}
