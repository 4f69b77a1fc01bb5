"""Findings of the habit test (``objective/habit.py``) in words, for a terminal and the page."""

from collections.abc import Sequence

from potluck.files import printable
from potluck.reports.authors import AuthorReport
from potluck.reports.statistics import mean

WINDOW = 5
"""Rounds in the share of answers; the newest test has counted what they earned, over ten."""
BEGINNING = "^ "
"""Head of a phrase that answers begin with."""


def habit_told(me: str, author: str, reports: Sequence[AuthorReport]) -> str:
    """Say what the last of ``me``'s reports on an author tell of the author's habit; "" if none was
    tested, as ``me`` never had the choice. The phrase has nothing that steers a terminal.

    >>> found = AuthorReport(
    ...     silenced_share=0.34, tested_habit="^ # 4", habit_gain=-0.21, habit_gain_error=0.05
    ... )
    >>> habit_told("small", "large", [found])[:67]
    "34% of large's right answers (last 5 rounds) are not learned from: "
    >>> habit_told("small", "large", [found])[67:]
    "they begin with '# 4', and small's own that do earn 0.21 less (standard error 0.05)"
    """
    last = reports[-WINDOW:]
    tested = next((each for each in reversed(last) if each.habit_gain is not None), AuthorReport())
    gain, error, phrase = tested.habit_gain, tested.habit_gain_error, tested.tested_habit
    if gain is None or error is None or not phrase:
        return ""
    begin = phrase.startswith(BEGINNING)
    have = f"{'begin with' if begin else 'have'} '{printable(phrase.removeprefix(BEGINNING), 60)}'"
    earned = f"earn {abs(gain):.2f} {'more' if gain >= 0 else 'less'} (standard error {error:.2f})"
    if gain >= error:  # objective/habit.py, PROVEN
        return f"{author}'s right answers that {have} are learned from: {me}'s own that do {earned}"
    share = mean(each.silenced_share for each in last)
    return (
        f"{share or 0:.0%} of {author}'s right answers (last {WINDOW} rounds) are not learned "
        f"from: they {have}, and {me}'s own that do {earned}"
    )
