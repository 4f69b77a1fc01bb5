"""Where people look at curves: TensorBoard, W&B, trackio. Each is an extra, none is needed."""

from potluck.trackers.base import (
    About,
    Tracker,
    TrackerError,
    evaluation_values,
    round_values,
)
from potluck.trackers.tracked import TRACKERS, Tracked, require_trackers

__all__ = [
    "TRACKERS",
    "About",
    "Tracked",
    "Tracker",
    "TrackerError",
    "evaluation_values",
    "require_trackers",
    "round_values",
]
