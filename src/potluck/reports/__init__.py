"""A run as it is told and as it is left behind: reports, events, status lines, run folders."""

from potluck.reports.doubts import Doubts, nothing_in_words
from potluck.reports.rounds import (
    BLOCKING_WEIGHT,
    AuthorReport,
    EvaluationReport,
    RewardReport,
    RoundReport,
    as_line,
    waited_share,
)
from potluck.reports.statistics import Stat, mean, stats_of

__all__ = [
    "BLOCKING_WEIGHT", "AuthorReport", "Doubts", "EvaluationReport", "RewardReport", "RoundReport",
    "Stat", "as_line", "mean", "nothing_in_words", "stats_of", "waited_share",
]  # fmt: skip
