"""Feeds: where the server gets the data of the page from.

    Feed       a folder of runs and experiments, one run, or a swarm that is only listened to
    RunFeed    one run of it

The server calls them from a thread, one call at a time for each run.
"""

from typing import Protocol

from potluck.types import PotluckError
from potluck.web.views import ExperimentView, PairView, RunView, StartView, TextsView


class NotHereError(PotluckError):
    """A run, node or experiment that was asked for and is not here."""


class RunFeed(Protocol):
    """One run, as far as it is known."""

    def look(self) -> int:
        """Take in what is new; return the number of the present state, from 1."""

    def view(self, since: int = 0) -> RunView:
        """Return what changed after the state of number ``since``; all of it if that is 0."""

    def pair(self, learner: str, author: str) -> PairView:
        """Return one learner's view of one author; raise NotHereError if there is none."""

    def texts(self, node: str, round: int | None = None) -> TextsView:
        """Return a round's completions, of the newest round if it is not given."""

    def search(self, node: str, words: str) -> TextsView:
        """Return completions that have ``words`` in them, the newest first."""


class Feed(Protocol):
    """All that one server shows."""

    def start(self) -> StartView:
        """Return what there is; one run of id "" where nothing else is to be chosen from."""

    def run(self, run: str) -> RunFeed:
        """Return a run by its id; raise NotHereError if there is none."""

    def experiment(self, experiment: str) -> ExperimentView:
        """Return an experiment by its id; raise NotHereError if there is none."""
