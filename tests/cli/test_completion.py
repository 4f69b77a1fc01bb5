"""Completion in a shell, asked as bash asks."""

import shutil

import pytest

from potluck import STARTING_RECIPE


@pytest.mark.parametrize(
    "words, expected",
    [
        ("potluck exp", ["export"]),
        ("potluck show ", ["runs/digits", "runs/digits/small"]),
        ("potluck show r", ["runs/digits", "runs/digits/small"]),
        ("potluck show mine/", ["mine/first"]),
        ("potluck export runs/digits/", ["runs/digits/small"]),
        ("potluck evaluate ", ["runs/digits", "runs/digits/small"]),
        ("potluck join first.toml --as ", ["small", "large"]),
        ("potluck doctor first.toml --as l", ["large"]),
        ("potluck replay runs/digits --node s", ["small"]),
        ("potluck join absent.toml --as ", []),
        ("potluck join --as ", []),
    ],
)
def test_words_are_completed(desk, potluck_says, monkeypatch, words, expected):
    for run in ("runs/digits", "mine/first"):
        (desk / run).mkdir(parents=True)
        (desk / run / "recipe.json").write_text('{"node": {"small": {}, "tall": {}}}')
    (desk / "runs/digits/small/checkpoints").mkdir(parents=True)
    (desk / "runs/notes").mkdir()
    shutil.copy(STARTING_RECIPE, desk / "first.toml")
    monkeypatch.setenv("_POTLUCK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    code, out, err = potluck_says()
    assert (code, out.split(), err) == (0, expected, "")
