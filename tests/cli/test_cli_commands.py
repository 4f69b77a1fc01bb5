"""Commands of other distributions, never in the way of ours; and ``potluck env check``."""

from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

from potluck.cli.base import add_commands
from potluck.tasks.environments.check import Checked
from potluck.types import PotluckError


def app_with(*entries):
    app = typer.Typer()
    app.command("ours")(lambda: print("ours runs"))
    add_commands(app, [EntryPoint(name, value, "potluck.commands") for name, value in entries])
    return app


def said(app, *words):
    return CliRunner().invoke(app, words, env={"COLUMNS": "200"})


def test_a_command_of_another_distribution_is_added_under_its_name():
    app = app_with(
        ("theirs", "fractions:gcd_of_nothing"), ("reproduce", "cli.test_cli_commands:theirs")
    )
    assert said(app, "ours").stdout == "ours runs\n"
    assert said(app, "reproduce", "7").stdout == "theirs runs 7\n"
    assert "Do theirs." in said(app, "--help").stdout


def theirs(number: int) -> None:
    """Do theirs."""
    print(f"theirs runs {number}")


@pytest.mark.parametrize("value", ["no_such_module:command", "fractions:no_such_function"])
def test_one_that_is_broken_says_so_in_a_line_and_breaks_no_other(value):
    app = app_with(("theirs", value))
    assert said(app, "ours").stdout == "ours runs\n"
    assert f"Broken: {value}" in said(app, "--help").stdout
    error = said(app, "theirs", "--any", "thing").exception
    assert isinstance(error, PotluckError)
    assert "'potluck theirs' is broken" in str(error)
    assert "\n" not in str(error)


# Env check.

CLASSES = """
import time
class taxi:  # in lower case: between colons, that is a picture in some terminals
    def reset(self, seed): return str(seed)
    def step(self, text): return f"{text} {time.time()}", 0.0, False
class steady:
    seeded = False
    actions = ["a"]
    def reset(self, start=0): self.said = start
    def step(self, text):
        self.said += len(text)
        return str(self.said), 1.0, False
"""


def test_the_grade_is_told_and_ends_with_1_where_it_is_own(potluck_says, desk):
    (desk / "own.py").write_text(CLASSES)
    code, out, err = potluck_says("env", "check", "own.py:taxi")
    assert (code, err) == (1, "")
    grade, why = out.splitlines()
    assert grade.startswith("own.py:taxi (game): grade 'own': it does not repeat")
    assert why.startswith("  again a second later, without a network: to turn 1, '1', it said '1 ")


def test_rows_actions_and_the_kind_reach_the_check_and_a_doubt_is_no_failure(
    potluck_says, desk, monkeypatch
):
    asked = []

    def check(spec, limits, rows, actions):
        asked.append((spec.kind, spec.name, rows, actions))
        doubts = {"why": ("other rows differ",), "warnings": ("try --action",)}
        return Checked(spec.kind or "game", "replay", **doubts)

    monkeypatch.setattr("potluck.tasks.environments.check.check", check)
    (desk / "rows.jsonl").write_text('{"start": 1}\n{"start": 5}\n')
    code, out, err = potluck_says("env", "check", "own.py:steady")
    assert (code, err) == (0, "potluck: try --action\n")
    assert out.startswith("own.py:steady (game): grade 'replay': others' episodes are played again")
    assert out.endswith("\n  other rows differ\n")
    more = ("--rows", "rows.jsonl", "--action", "a", "--action", "bb", "--environment")
    assert potluck_says("env", "check", "own.py:steady", *more)[0] == 0
    assert asked == [
        (None, "own.py:steady", [{}], ()),  # its kind is found where it is played
        ("environment", "own.py:steady", [{"start": 1}, {"start": 5}], ["a", "bb"]),
    ]


def test_what_cannot_be_played_is_one_line_and_ends_with_2(potluck_says, desk):
    (desk / "own.py").write_text(CLASSES)
    for words in (("own.py:steady", "--rows", "no.jsonl"), ("no.py:steady",)):
        code, out, err = potluck_says("env", "check", *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
