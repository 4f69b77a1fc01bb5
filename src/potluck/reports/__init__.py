"""A run as it is told and as it is left behind: reports, events, status lines, run folders."""

from potluck.reports.rounds import (
    AUTHOR_COLUMNS,
    BLOCKING_WEIGHT,
    AuthorReport,
    EvaluationReport,
    RewardReport,
    RoundReport,
    as_line,
    doubts,
    waited_share,
)

__all__ = [
    "AUTHOR_COLUMNS",
    "BLOCKING_WEIGHT",
    "AuthorReport",
    "EvaluationReport",
    "RewardReport",
    "RoundReport",
    "as_line",
    "doubts",
    "waited_share",
]
