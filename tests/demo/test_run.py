"""The demo: which runs it makes, what it makes of them, and what it says when one breaks."""

import io
import json
import re

import pytest
from msgspec.structs import replace
from rich.console import Console
from typer.testing import CliRunner

from demo.results import result
from potluck.builder.memory import own_completions
from potluck.cli.training import app
from potluck.config.control import controls_of
from potluck.demo.run import _write_report, cells, demo, summarise
from potluck.objective.methods import method_of
from potluck.reports.answers import answers
from potluck.types import PotluckError
from show.terminal.run_folders import HOSTILE, STEERS
from show.web.run_files import append, completion, make_run


def console():
    return Console(file=io.StringIO(), width=100)


def plan_of(folder, rounds=None, seeds=range(3, 4)):
    return cells(folder, rounds=rounds, seeds=seeds)


def test_both_together_by_the_default_are_compared_with_their_controls(tmp_path):
    plan = plan_of(tmp_path)
    together = plan[0].run.config
    assert [cell.setting for cell in plan] == ["together", *["alone"] * 2, *["half"] * 2]
    assert (method_of(together.objective), together.plan) == ("lws", "horizontal")
    assert (together.seed, together.threads, together.control) == (3, 1, ())
    made = [cell.run.config for cell in plan[1:]]
    asked = controls_of(replace(together, control=("alone", "half")))
    assert made == [each.config for each in asked]
    for cell in plan[1:]:
        (node,) = cell.run.config.node
        part = own_completions(cell.run.config, node) / own_completions(together, node)
        assert part == {"half": 1, "alone": 2}[cell.setting]


def test_rounds_can_be_fewer_and_seeds_more(tmp_path):
    plan = plan_of(tmp_path, rounds=2, seeds=range(4, 6))
    assert [cell.run.config.rounds for cell in plan] == [2] * 10
    assert {cell.seed for cell in plan} == {cell.run.config.seed for cell in plan} == {4, 5}
    # Longest first, so that the cores are done at about the same time.
    assert [cell.setting for cell in plan[:2]] == ["together"] * 2
    assert len({cell.run.folder for cell in plan}) == 10
    assert len({cell.run.config.name for cell in plan}) == 10  # what the progress is told by


@pytest.mark.parametrize(
    ("given", "seeds"), [([], range(3)), (["--seed", "4", "--seeds", "2"], range(4, 6))]
)
def test_the_command_takes_a_first_seed_and_a_number_of_seeds(monkeypatch, given, seeds):
    taken = []
    monkeypatch.setattr("potluck.demo.run.demo", lambda *_, **options: taken.append(options))
    assert CliRunner().invoke(app, ["demo", "--rounds", "7", *given]).exit_code == 0
    assert [(its["rounds"], its["seeds"]) for its in taken] == [(7, seeds)]


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(PotluckError, match="exists; name another folder with --out"):
        demo(tmp_path, rounds=1, seeds=range(1), console=console())
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


@pytest.fixture
def plan(tmp_path):
    """Runs that are done: of two rounds, with an addition and two subtractions of each node."""
    made = plan_of(tmp_path, rounds=2)
    for at, cell in enumerate(made):
        make_run(cell.run.folder, *cell.run.config.node, rounds=0, name=cell.run.config.name)
        recipe = cell.run.folder / "recipe.json"
        recipe.write_text(json.dumps({**json.loads(recipe.read_text()), "rounds": 2}))
        for node in cell.run.config.node:
            own = cell.run.folder / node / "completions.jsonl"
            for round in range(2):
                right = {"problem": "chain/34+7", "reward": float(at == 0)}
                append(own, completion(round, node, text=HOSTILE, **right))
                for index in range(2):
                    wrong = {"problem": "chain/34-7", "reward": 0.0}
                    append(own, completion(round, node, index, **wrong))
                append(own, completion(round, "another", **right))
    return made


def test_the_summary_has_what_each_model_wrote_and_what_the_controls_tell(plan):
    found = summarise(plan, seconds=12.3)
    assert (found.seeds, found.seconds, [*found.nodes]) == ((3,), 12.3, ["adder", "subtractor"])
    for node, settings in found.nodes.items():
        for setting, (course,) in settings.items():
            assert course.written == ({"+": 1, "-": 2},) * 2
            assert [its["+"] for its in course.right] == [int(setting == "together")] * 2
        its = [each for each in found.answers if each.node == node]
        assert {each.control: (each.together, each.alone) for each in its} == {
            "alone": (0.5, 0.0),
            "half": (0.5, 0.0),
        }
    # `potluck show` of the run together tells it, too.
    assert set(answers(plan[0].run.folder)) == set(found.answers)


def test_the_report_is_the_page_of_the_runs_with_the_findings_and_their_table(plan, tmp_path):
    _write_report(result(seeds=(3,)), plan, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    (data,) = re.findall(r'<script type="application/json" id="kept">(.*?)</script>', page)
    kept = json.loads(data)
    assert kept["lead"][0].startswith("adder: 35% of subtractions right after 1,300 own")
    assert "potluck run my-run.toml --control half" in kept["lead"][-1]
    assert kept["table"]["rows"] == result().rows
    assert kept["labels"]["together"] == "together: adder, subtractor"
    assert kept["labels"]["control.half.adder"] == "half: adder"
    assert set(kept["runs"]) == {cell.run.folder.name for cell in plan}
    assert not re.search(r"""(src|href)\s*=\s*["']?\s*(\w+:)?//""", page)
    assert "<script>alert(1)" not in page
    assert not set(STEERS) & set(page)


def test_the_report_has_the_runs_of_the_first_seed(plan, tmp_path):
    others = plan_of(tmp_path / "other", rounds=2, seeds=range(4, 5))
    _write_report(result(seeds=(3, 4)), [*plan, *others], tmp_path / "report.html")
