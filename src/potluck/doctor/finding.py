"""What a check found."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "FAIL"]
"""``warn``: it works, but could work better, or could not be looked at."""


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    """Of the check, short."""
    verdict: Verdict
    text: str
    """What is there; unless it is well, also the way out."""
