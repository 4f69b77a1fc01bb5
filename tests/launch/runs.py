"""Displays that listen to a run or break it off, and readers of what a node leaves."""

import json

from displays import Listener


class Crash(Exception):
    """End of a process, in a test."""


class CrashesAfter(Listener):
    """Dies when the first node has learned from this round: nothing gets to clean up."""

    def __init__(self, round):
        self.round = round

    def round_done(self, node, report):
        if report.round == self.round:
            raise Crash


class Hears(Listener):
    """Keeps what the user is told."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


def lines(folder, node, name="metrics"):
    """The lines of a file that the node has left."""
    text = (folder / node / f"{name}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def numbers(folder, node):
    """Its metrics, seconds aside: they differ from run to run."""
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines(folder, node)]
