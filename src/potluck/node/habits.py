"""Habits that a node takes over from one author, as phrases of right answers.

A habit is a phrase, of three words at most, that stands in most of an author's right answers and in
few that this node wrote in its first rounds. It grows if this node writes it more often now. Only
right answers are compared, as a phrase of the solution grows by itself while a model learns.

It is reported and decides nothing: a better way to write grows like a bad one, and a person has to
look. Phrases are found in text, so that any tokenizer and any grader will do.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

WORDS = 3
"""Longest phrase, in words and marks."""
BEGIN = "^"
"""Mark of the beginning of an answer, in a phrase."""
FIRST_ROUNDS = 3
"""Rounds of a run that tell how this node wrote at first."""
MOST_CHARACTERS = 4000
"""Part of an answer that is looked at, from its beginning."""
FEWEST_ANSWERS = 4
FOREIGN = 0.25
"""Least difference between the author's share of a phrase and this node's first one."""

_WORD = re.compile(r"\d|\w+|[^\w\s]")


class Habit(NamedTuple):
    """A phrase, and the shares of right answers that have it, 0..1."""

    phrase: str
    share: float
    """Share of the author's."""
    own_first: float
    """Share of this node's in its first rounds."""
    own: float
    """Share of this node's now."""


def growing_habit(
    theirs: Sequence[str], own_first: Sequence[str], own: Sequence[str]
) -> Habit | None:
    """Return the author's phrase that has grown most in this node's right answers.

        argmax over phrases x of  own(x) - first(x),    theirs(x) >= 1/2
                                                        theirs(x) - first(x) >= FOREIGN

    Shares are of answers, each counted once. The longest of equals is returned. None if there is no
    such phrase, or one of the three has fewer than FEWEST_ANSWERS.

    >>> growing_habit(["#7", "#9"] * 2, ["2+5=7#7"] * 4, ["2+5=7#7", "#7"] * 2)
    Habit(phrase='^ #', share=1.0, own_first=0.0, own=0.5)
    """
    if min(map(len, (theirs, own_first, own))) < FEWEST_ANSWERS:
        return None
    foreign, first, now = map(_shares, (theirs, own_first, own))
    found = [
        Habit(phrase, share, float(first[phrase]), float(now[phrase]))
        for phrase, share in foreign.items()
        if share >= 0.5 and share - first[phrase] >= FOREIGN
    ]
    return max(found, key=_growth, default=None)


def right_answers(lines: Iterable[tuple[str, str, float]]) -> dict[str, list[str]]:
    """Return the texts of each author's right answers, from (author, text, reward): those that
    earn something, and no less than the mean of all lines."""
    lines, right = list(lines), defaultdict(list)
    mean = sum(reward for *_, reward in lines) / max(1, len(lines))
    for author, text, reward in lines:
        if reward > 0 and reward >= mean:
            right[author].append(text)
    return dict(right)


def _growth(habit: Habit) -> tuple[float, float, int, str]:
    length = len(habit.phrase.split())
    return habit.own - habit.own_first, habit.share, length, habit.phrase


def _shares(texts: Sequence[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        words = [BEGIN, *_WORD.findall(text[:MOST_CHARACTERS])]
        phrases = {
            " ".join(words[at : at + size])
            for size in range(1, WORDS + 1)
            for at in range(len(words) - size + 1)
        }
        counts.update(phrases - {BEGIN})
    return Counter({phrase: count / len(texts) for phrase, count in counts.items()})
