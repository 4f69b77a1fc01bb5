"""Habits that a node takes over from one author, as phrases of its answers.

A habit is a phrase, of three words at most, that stands in most of an author's right answers and in
few right ones of this node's first rounds: what belongs to any right answer, and so grows while a
model learns, is none. It grows if more of all this node's answers have it now, right or wrong.

It is reported and decides nothing: a better way to write grows like a bad one, and a person has to
look.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from potluck.objective.phrases import phrase_counts, words_of

FIRST_ROUNDS = 3
"""Rounds of a run that tell how this node wrote at first."""
FEWEST_ANSWERS = 4
FOREIGN = 0.25
"""Least difference between the shares of a phrase in right answers, the author's less this node's
first ones."""

GradedText = tuple[str, bool]
"""An answer's text, and whether it is right."""


class GrownHabit(NamedTuple):
    """A phrase, and the shares of answers that have it, 0..1."""

    phrase: str
    share: float
    """Share of the author's right answers."""
    own_first: float
    """Share of this node's answers in its first rounds."""
    own: float
    """Share of this node's answers now."""


def growing_habit(
    theirs: Sequence[GradedText], own_first: Sequence[GradedText], own: Sequence[GradedText]
) -> GrownHabit | None:
    """Return the author's phrase that has grown most in this node's answers.

        argmax over phrases x of  own(x) - first(x),    theirs(x) >= 1/2
                                                        theirs(x) - first_right(x) >= FOREIGN

    Shares are of answers, each counted once: theirs and first_right of the right ones. The longest
    of equals is returned. None if there is no such phrase, or fewer than FEWEST_ANSWERS of any of
    the four.

    >>> right, wrong = [("2+5=7#7", True)] * 4, [("#9", False)] * 4
    >>> growing_habit([("#7", True)] * 4, right, right + wrong)
    GrownHabit(phrase='^ #', share=1.0, own_first=0.0, own=0.5)
    """
    kinds = [
        [text for text, is_right in theirs if is_right],
        [text for text, is_right in own_first if is_right],
        [text for text, _ in own_first],
        [text for text, _ in own],
    ]
    if min(map(len, kinds)) < FEWEST_ANSWERS:
        return None
    foreign, first_right, first, now = map(_shares, kinds)
    found = [
        GrownHabit(phrase, share, float(first[phrase]), float(now[phrase]))
        for phrase, share in foreign.items()
        if share >= 0.5 and share - first_right[phrase] >= FOREIGN
    ]
    return max(found, key=_growth, default=None)


def habits_by_round(
    lines: Iterable[Mapping[str, Any]], me: str
) -> dict[int, dict[str, GrownHabit]]:
    """Return, by round and author, the phrase of each other author that has grown most in what
    ``me`` writes; ``lines`` are those of its completions.jsonl."""
    first: list[GradedText] = []
    found = {}
    for at, (round, of_round) in enumerate(groupby(lines, itemgetter("round"))):
        answers = answers_by_author((x["author"], x["text"], x["reward"]) for x in of_round)
        own = answers.pop(me, [])
        first += own if at < FIRST_ROUNDS else []
        grown = {author: growing_habit(theirs, first, own) for author, theirs in answers.items()}
        found[round] = {author: habit for author, habit in grown.items() if habit}
    return found


def answers_by_author(lines: Iterable[tuple[str, str, float]]) -> dict[str, list[GradedText]]:
    """Return each author's answers, from (author, text, reward). Right are those that earn
    something, and no less than the mean of all lines."""
    lines, answers = list(lines), defaultdict(list)
    mean = sum(reward for *_, reward in lines) / max(1, len(lines))
    for author, text, reward in lines:
        answers[author].append((text, reward > 0 and reward >= mean))
    return dict(answers)


def _shares(texts: Sequence[str]) -> Counter[str]:
    """Return the share of the texts, 0..1, that have each phrase."""
    counts = phrase_counts(map(words_of, texts))
    return Counter({phrase: count / len(texts) for phrase, count in counts.items()})


def _growth(habit: GrownHabit) -> tuple[float, float, int, str]:
    length = len(habit.phrase.split())
    return habit.own - habit.own_first, habit.share, length, habit.phrase
