"""Judges results: from curves to intervals, verdicts and costs. Pure functions."""
