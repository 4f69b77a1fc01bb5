"""Feeds: where the server gets the data of the page from. The server calls them from threads.
What is not here under an id or a name is a NotHereError."""

import threading
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

import msgspec

from potluck.show.web.rounds import NodeRounds
from potluck.show.web.views import ExperimentEntry, PairView, RunView, StartView, TextsView
from potluck.types import PotluckError


class NotHereError(PotluckError):
    """A run, node or experiment that was asked for and is not here."""


class RunFeed:
    """One run: sections of its view that each look makes anew, and the rounds of its nodes. All
    pages that show it share one look."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._step, self._now_s, self._looked_s = 0, 0.0, float("-inf")
        self._rounds: dict[str, NodeRounds] = {}
        self._sections: dict[str, Any] = {}
        self._changed: dict[str, int] = {}
        """Step in which each section was last another one."""
        self._messages: dict[int, tuple[bytes, bool]] = {}
        """Messages of the present step, by the step that their readers have."""

    def look(self, *, every_s: float = 0.0) -> int:
        """Take in what is new, unless this was done less than ``every_s`` ago; return the number of
        the present state, from 1."""
        # While one reader looks, which can take seconds, the others keep no thread waiting.
        if not self._lock.acquire(blocking=not (every_s and self._step)):
            return self._step
        try:
            if time.monotonic() - self._looked_s < every_s:
                return self._step
            self._now_s, step = time.time(), self._step + 1
            made = self._make(step)
            new = {name for name, it in made.items() if self._sections.get(name) != it}
            self._sections |= made
            self._changed |= dict.fromkeys(new, step)
            if new or any(its.newest_step == step for its in self._rounds.values()):
                self._step = step
                self._messages.clear()
            self._looked_s = time.monotonic()
            return self._step
        finally:
            self._lock.release()

    def _make(self, step: int) -> dict[str, Any]:
        """Take in what is new; return the sections that may be others now."""
        raise NotImplementedError

    def view(self, since: int = 0) -> RunView:
        """Return what changed after the state of number ``since``; all of it if that is 0."""
        with self._lock:
            rows = {name: its.since(since) for name, its in self._rounds.items()}
            return RunView(
                now_s=self._now_s,
                curves={name: its for name, its in rows.items() if its} or None,
                **{name: self._sections[name] for name, at in self._changed.items() if at > since},
            )

    def message(self, since: int) -> tuple[bytes, bool]:
        """Return (that view as JSON, whether the run is over). Readers share one: 200 readers that
        make their own would hold 200 of them."""
        with self._lock:
            if since not in self._messages:
                view = self.view(since)
                self._messages[since] = msgspec.json.encode(view), view.is_over
            return self._messages[since]

    def pair(self, learner: str, author: str) -> PairView:
        raise NotImplementedError

    def texts(self, node: str, round: int | None = None) -> TextsView:
        """Return a round's completions, of the newest round if it is not given."""
        return TextsView(node=node)


class Feed(Protocol):
    """All that one server shows: a folder of runs, or one run."""

    def start(self) -> StartView:
        """Return what there is; one run of id "" where nothing else is to be chosen from."""

    def run(self, run: str) -> RunFeed: ...

    def experiment(self, experiment: str) -> object: ...


class ExperimentFeed(Protocol):
    """Module of another distribution that shows folders which hold no runs: an entry point of the
    group ``potluck.feeds``."""

    def script(self) -> str:
        """Return JavaScript that adds ``pages.experiment``."""

    def is_here(self, folder: Path) -> bool:
        """Tell if it shows this folder."""

    def entries(self, folder: Path, name: str) -> list[ExperimentEntry]:
        """Return lines of the start page; ids begin with ``name``, that of the folder."""

    def view(self, folder: Path, name: str, experiment: str) -> object | None:
        """Return what the page asks for by the id of an entry, for JSON; None: it is no entry."""


def experiment_feeds() -> list[ExperimentFeed]:
    """Load the installed feeds; raise PotluckError for a broken one."""
    found = []
    for entry in entry_points(group="potluck.feeds"):
        try:
            found.append(entry.load())
        except Exception as error:  # of others' code
            raise PotluckError(
                f"the page's feed {entry.value} cannot be loaded ({type(error).__name__}: "
                f"{error}); install its distribution again, or remove it"
            ) from None
    return found
