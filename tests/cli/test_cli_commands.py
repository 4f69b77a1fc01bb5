"""Commands of other distributions: found by their entry points, and never in the way of ours."""

from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

from potluck.cli.base import add_commands
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
