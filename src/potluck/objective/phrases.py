"""Phrases of texts: what a habit is told by, for any tokenizer and any grader."""

import re
from collections import Counter
from collections.abc import Sequence

WORDS = 3
"""Longest phrase, in words and marks."""
BEGIN = "^"
"""Mark of the beginning of a text, in a phrase."""
MOST_CHARACTERS = 4000
"""Part of a text that is looked at, from its beginning."""

_WORD = re.compile(r"\d|\w{1,32}|[^\w\s]")  # a word without end would fill the line


def phrase_shares(texts: Sequence[str]) -> Counter[str]:
    """Return the share of the texts, 0..1, that have each phrase; a text counts it once.

    >>> phrase_shares(["#7", "# 8"])["^ #"]
    1.0
    """
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
