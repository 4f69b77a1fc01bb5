"""Completions that are recorded token by token, a few of each round: the lines of recorded.jsonl,
which the page decodes. A token takes three characters beside its text.
"""

import string
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

Measure = Literal["log-ratio", "ln p"]
"""Meaning of the numbers of tokens: ln pi_gen - ln pi_start, author minus learner; or ln pi_start
alone, as the author told no log-probabilities. Nats."""
DIGITS = string.digits + string.ascii_letters + "-_"
STEP = 0.01
"""Resolution of a number, nats."""
FARTHEST = len(DIGITS) ** 2 // 2 - 1
"""Largest distance from 0 that is written, in steps: 20.47 nats."""
LONGEST_PIECE = len(DIGITS) - 1
"""Characters of a token's text that are written."""


class Recorded(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One completion as one learner read it."""

    round: int
    problem: str
    author: str
    index: int
    """Position among its author's completions for this problem; see ``Completion``."""
    advantage: float
    kept: float
    """Advantage as it was learned from, after filter and weights; 0: not at all."""
    reward: float | None = None
    """Reward; None: release 0.2.0 recorded none."""
    likelihood: float | None = None
    """P: see ``objective/weights.py``; None: it was not read."""
    why: str = ""
    """Reason for a ``kept`` other than the advantage, in words."""
    question: str = ""
    """The prompt's beginning."""
    surprise: float | None = None
    """Largest distance of a token's number from 0, nats; None: it was not read."""
    measure: Measure = "log-ratio"
    text: str = ""
    """Texts of the tokens, one after the other."""
    lengths: str = ""
    """A digit for each token: characters of it in ``text``."""
    turns: tuple[int, ...] = ()
    """Tokens of each turn of an episode, those that are not written included."""
    numbers: str = ""
    """Two digits for each token: its number, in steps from -FARTHEST; empty: it was not read."""


def columns_of(pieces: Sequence[str], numbers: Sequence[float]) -> dict[str, str]:
    """Return ``text``, ``lengths`` and ``numbers`` of a line; no numbers: they are not known.

    >>> columns_of(["1", "+1", "<end>"], [-0.25, 0.0, -99.0])
    {'text': '1+1<end>', 'lengths': '125', 'numbers': 'vCv_00'}
    """
    cut = [piece[:LONGEST_PIECE] for piece in pieces]
    steps = (round(min(max(x / STEP, -FARTHEST), FARTHEST)) + FARTHEST for x in numbers)
    return {
        "text": "".join(cut),
        "lengths": "".join(DIGITS[len(piece)] for piece in cut),
        "numbers": "".join(DIGITS[at // len(DIGITS)] + DIGITS[at % len(DIGITS)] for at in steps),
    }
