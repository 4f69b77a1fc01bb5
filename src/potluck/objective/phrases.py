"""Phrases of texts: what a habit is told by, for any tokenizer and any grader."""

import re
from collections import Counter
from collections.abc import Iterable

WORDS = 3
"""Longest phrase, in words and marks."""
BEGIN = "^"
"""Mark of the beginning of a text, in a phrase."""
MOST_CHARACTERS = 4000
"""Part of a text that is looked at, from its beginning."""

_WORD = re.compile(r"\d|\w{1,32}|[^\w\s]")  # a word without end would fill the line


def words_of(text: str) -> str:
    """Cut a text into words and marks with a space around each: it has a phrase if
    ``f" {phrase} "`` is in it.

    >>> words_of("#7 is")
    ' ^ # 7 is '
    """
    return " ".join(["", BEGIN, *_WORD.findall(text[:MOST_CHARACTERS]), ""])


def phrase_counts(cut: Iterable[str]) -> Counter[str]:
    """Count the texts that have each phrase; a text counts it once. They come from ``words_of``."""
    counts: Counter[str] = Counter()
    for each in cut:
        words = each.split()
        phrases = {
            " ".join(words[at : at + size])
            for size in range(1, WORDS + 1)
            for at in range(len(words) - size + 1)
        }
        counts.update(phrases - {BEGIN})
    return counts
