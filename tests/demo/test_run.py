"""The demo: which runs it makes, what it makes of them, and what it says when one breaks."""

import io
import json
import re

import pytest
from msgspec.structs import replace
from rich.console import Console
from typer.testing import CliRunner

from potluck.builder.memory import own_completions
from potluck.cli.training import app
from potluck.config.control import controls_of
from potluck.demo.run import (
    OwnAnswers,
    Result,
    _write_report,
    cells,
    curve,
    demo,
    gain_of,
    summarise,
)
from potluck.objective.methods import method_of
from potluck.reports.answers import ControlAnswer, answers
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


def test_the_command_takes_a_first_seed_and_a_number_of_seeds(monkeypatch):
    taken = []
    monkeypatch.setattr("potluck.demo.run.demo", lambda *_, **options: taken.append(options))
    for given in ([], ["--seed", "4", "--seeds", "2"]):
        assert CliRunner().invoke(app, ["demo", "--rounds", "7", *given]).exit_code == 0
    seeds = range(3), range(4, 6)
    assert [(its["rounds"], its["seeds"]) for its in taken] == [(7, its) for its in seeds]


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
    others = plan_of(tmp_path / "other", rounds=2, seeds=range(4, 5))  # without their runs
    _write_report(result(seeds=(3, 4)), [*plan, *others], tmp_path / "report.html")
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


# What it finds, by hand: rounds of 960 completions, by itself with all of it of 1,920.

EACH = 480
"""Problems of a kind in a round of half of the writing: WINDOW lies within a round."""


def course(*shares, added=0.5, each=EACH):
    """Return a course with these shares of right subtractions, and one of additions."""
    right = tuple({"-": round(share * each), "+": round(added * each)} for share in shares)
    return OwnAnswers(right, ({"-": each, "+": each},) * len(shares))


def settings(**changes):
    return {
        "together": [course(0, 0.4, 0.8, 0.8)],
        "half": [course(0, 0, 0.5, 0.5)],
        "alone": [course(0, 0.2, 0.4, 0.6, each=2 * EACH)],
        **changes,
    }


def answer(control, alone, together=0.5, node="adder"):
    return ControlAnswer(node, control, together, alone, (0.0, 0.0, 0.0), 24, (8, 8))


def result(**changes):
    content = {
        "seeds": (7,),
        "seconds": 123.4,
        "nodes": {"adder": settings()},
        "answers": (answer("half", 0.25), answer("alone", 0.75)),
        **changes,
    }
    return Result(**content)


def test_a_curve_goes_over_the_completions_that_the_model_wrote_itself_in_the_mean_of_seeds():
    assert curve([course(0, 0.4)], "-") == [(480, 0.0), (1440, 0.4)]
    assert curve([course(0, 0.4, each=960)], "-") == [(960, 0.0), (2880, 0.4)]
    assert curve([course(0, 0.4, added=0.75)], "+") == [(480, 0.75), (1440, 0.75)]
    pooled = curve([course(0, 0.4), course(0.5, 0.2)], "-")
    assert pooled == [(480, 0.25), (1440, pytest.approx(0.3))]


def test_small_rounds_are_averaged_over_as_many_completions_as_large_ones():
    # Rounds of 160 completions: 480 around the middle are the round and both its neighbours.
    shares = [share for _, share in curve([course(0, 0, 0.75, 0, 0, each=80)], "-")]
    assert shares == pytest.approx([0, 0.25, 0.25, 0.25, 0])


def test_the_finding_is_when_three_quarters_of_the_weakest_end_are_reached():
    # .75 x .5 in whole steps of .05 is .35: together at 480 + .35 / .4 x 960 = 1,320; with half
    # of the writing at 1,440 + .35 / .5 x 960 = 2,112, with all of it later.
    found = gain_of("adder", settings())
    assert (found.level, found.together, found.by_itself) == pytest.approx((0.35, 1320, 2112))
    told = "right after 1,300 own completions together, by itself after 2,100 at best"
    assert str(found) == f"adder: 35% of subtractions {told}"
    assert found.way == "half"
    sooner = gain_of("adder", settings(alone=[course(0.4, 0.4, each=960)]))
    assert (sooner.way, sooner.by_itself) == ("alone", 960)
    # Each model is told of what only its partner can do.
    assert "additions right after 480 own" in str(gain_of("subtractor", settings()))
    found = gain_of("adder", dict.fromkeys(settings(), (course(0, 0.05),)))
    assert str(found) == "adder: too few rounds to learn subtractions"


def test_the_rows_have_levels_ratios_and_mean_rewards_over_the_seeds():
    more = answer("half", 0.35, 0.75), answer("alone", 0.85, 0.75), answer("half", 0, 0, "other")
    told = result(answers=(*result().answers, *more)).rows
    assert told == [
        ["adder", "35% of subtractions", "1,300", "2,100", "1.6", "0.62", "0.30", "0.80"]
    ]
