"""Runs shown to people: on a terminal, in trackers of others, on a page in a browser."""
