"""Replay: a run's rounds learned from once more, by one method after the other, on identical data:
an ordinary node whose exchange plays what was recorded (docs/replay.md)."""
