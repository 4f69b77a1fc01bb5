"""Replay: a run's rounds learned from once more, by one method after the other, on identical data.

A replay is an ordinary node whose exchange plays what was recorded, so with the method that the run
had it ends with the run's weights to the bit. docs/replay.md says what the numbers mean.
"""
