"""Checks before a run: will it work here, and what will it cost? Nothing is started."""
