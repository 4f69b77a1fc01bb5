import io

from rich.console import Console

from potluck.dashboard import CellsDisplay


def said(*moves, terminal=False):
    """What is on the screen after ``(seconds, run, rounds done)`` each."""
    now = 0.0
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    with CellsDisplay(console, {"alone": 5, "[red]together": 5}, clock=lambda: now) as display:
        for now, name, done in moves:  # noqa: B007  (the clock reads it)
            display.update(name, done)
    return console.file.getvalue()


def test_without_a_terminal_all_runs_share_a_line_every_ten_seconds():
    text = said((1, "alone", 1), (11, "[red]together", 2), (12, "alone", 3), (22, "alone", 4))
    assert text.splitlines() == ["alone 1/5  [red]together 2/5", "alone 4/5  [red]together 2/5"]


def test_in_a_terminal_each_run_has_a_bar():
    text = said((1, "alone", 1), (2, "[red]together", 5), terminal=True)
    assert "alone" in text
    assert "1/5" in text
    assert "[red]together" in text
    assert "5/5" in text
