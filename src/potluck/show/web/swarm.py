"""A swarm as a feed: what an observer sees of a run now, and what it saw since it began.

There is no folder: curves, pairs and evaluations are built up from status lines, as they come.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from msgspec.structs import replace

from potluck.exchange.zenoh.observer import Observer
from potluck.reports.status import PeerLine
from potluck.show.web.bounds import MOST_EVENTS, MOST_NODES
from potluck.show.web.entries import WORST, entry_of
from potluck.show.web.feed import NotHereError, Sections
from potluck.show.web.states import ENDS, OBSERVER, Facts, node_views
from potluck.show.web.swarm_history import History
from potluck.show.web.views import (
    EventView,
    NodeView,
    PairView,
    RunEntry,
    RunView,
    StartView,
    TextsView,
)

LOOK_S = 1.0
"""Seconds between two looks while no page is open: lines come every five seconds."""
BEHIND = 1
"""Rounds that a node which came back may be behind the others."""
REFUSED_S = 30.0
"""Seconds between two events about messages refused under one name."""
MOST_CELLS = 200_000
"""Numbers of authors, and of rounds, that are kept of all nodes; of more, older rounds go first."""
LIVES = ("training", "recovering", "quarantined")


class SwarmFeed:
    """Feed of one run that is only listened to, and of nothing else."""

    def __init__(
        self, observer: Observer, name: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._observer, self._name, self._clock = observer, name, clock
        self._lock = threading.Lock()
        self._step, self._now_s, self._rounds = 0, 0.0, 0
        self._history: dict[str, History] = {}
        self._nodes: dict[str, NodeView] = {}
        self._behind: set[str] = set()
        """Nodes that came back, and have not reached the others yet."""
        self._refused: dict[str, tuple[float, int]] = {}
        self._events: deque[EventView] = deque(maxlen=MOST_EVENTS)
        self._was_connected: bool | None = None
        self._sections = Sections()

    def look(self) -> int:
        with self._lock:
            self._now_s, step = self._clock(), self._step + 1
            seen = self._shown(self._observer.seen())
            self._tell_of_connection()
            self._remember(seen, step)
            self._take_nodes(seen)
            made: dict[str, Any] = {
                "nodes": list(self._nodes.values()),
                "matrix": {
                    learner: {author: cell for author, cell in cells.items() if author in seen}
                    for learner, own in self._history.items()
                    if (cells := own.matrix())  # a signer can make up names of authors
                },
                "evaluations": {
                    n: own.evaluation_columns() for n, own in self._history.items() if own.accuracy
                },
                "events": list(self._events),
            }
            moved = {at for own in self._history.values() for at, _ in own.steps}
            if self._sections.take(made, step) or step in moved:
                self._step = step
            return self._step or 1

    def view(self, since: int = 0) -> RunView:
        with self._lock:
            return RunView(
                name=self._name,
                run="",
                now_s=self._now_s,
                rounds=self._rounds,
                has_texts=False,
                **self._sections.since(since, self._history),
            )

    def pair(self, learner: str, author: str) -> PairView:
        with self._lock:
            own = self._history.get(learner)
            if own and (columns := own.pair(author)):
                return PairView(learner=learner, author=author, columns=columns)
        raise NotHereError(f"{learner[:40]!r} has told nothing of {author[:40]!r} yet")

    def texts(self, node: str, round: int | None = None) -> TextsView:
        return TextsView(node=node)  # nobody sends texts to an observer

    def search(self, node: str, words: str) -> TextsView:
        return TextsView(node=node)

    def start(self) -> StartView:
        self.look()
        with self._lock:
            history = self._history.items()
            entry = entry_of(
                RunEntry(
                    run="",
                    name=self._name,
                    rounds=self._rounds,
                    reward={name: own.reward() for name, own in history},
                    accuracy={name: own.last_accuracy() for name, own in history},
                ),
                self._nodes.values(),
                ("training", "recovering", *WORST),
            )
        return StartView(place=self._name, runs=[entry])

    def run(self, run: str) -> Self:
        if run:
            raise NotHereError(f"there is no run {run[:40]!r} here; this one is watched alone")
        return self

    def experiment(self, experiment: str) -> object:
        raise NotHereError("a swarm has no experiments; potluck watch FOLDER shows them")

    def _shown(self, seen: Mapping[str, PeerLine]) -> dict[str, PeerLine]:
        """Return those of the roster first, then those that are connected, then others."""

        def rank(name: str) -> tuple[bool, bool, str]:
            return name not in self._observer.roster, not seen[name].live, name

        return {name: seen[name] for name in sorted(seen, key=rank)[:MOST_NODES]}

    def _remember(self, seen: Mapping[str, PeerLine], step: int) -> None:
        for name, one in seen.items():
            if one.line:
                self._history.setdefault(name, History()).add(one.line, step)
        for name in self._history.keys() - seen.keys():
            del self._history[name]
        while sum(own.cells for own in self._history.values()) > MOST_CELLS:
            for own in self._history.values():
                own.thin(step)
        # One that claims a run without end must not stretch every bar: the most common counts.
        told = Counter(one.line.rounds for one in seen.values() if one.line)
        self._rounds = told.most_common(1)[0][0] if told else self._rounds

    def _take_nodes(self, seen: Mapping[str, PeerLine]) -> None:
        before = self._nodes
        roster = [name for name in seen if name in self._observer.roster]
        facts = Facts(self._rounds, BEHIND, {}, self._now_s, observed=seen, roster=roster)
        self._nodes = {node.name: node for node in node_views({}, facts)}
        for name, node in self._nodes.items():
            was = before[name].state if name in before else None
            if node.state in LIVES and was in ("silent", *ENDS):
                self._behind.add(name)
            elif node.state == "training":
                self._behind.discard(name)
            if node.state == "recovering" and name not in self._behind:  # it is only slow
                self._nodes[name] = replace(node, state="training", why="")
            self._tell_of(node, was in LIVES)
        self._behind &= self._nodes.keys()
        self._refused = {n: told for n, told in self._refused.items() if n in self._nodes}

    def _tell_of_connection(self) -> None:
        if (is_connected := self._observer.is_connected()) != self._was_connected:
            self._was_connected = is_connected
            words = "connected" if is_connected else "no node or relay can be reached; trying on"
            self._tell(0, "message", words)

    def _tell_of(self, node: NodeView, was_here: bool) -> None:
        name, is_here = node.name, node.state in LIVES
        if is_here and not was_here:
            self._tell(node.round, "joined", f"{name} joined")
        elif was_here and not is_here:
            words = f"{name} has {node.state}" if node.state in ENDS else f"{name} is silent"
            self._tell(node.round, "left", words)
        last_s, told = self._refused.get(name, (float("-inf"), 0))
        count = sum(node.refused.values())
        if count > told and self._now_s - last_s >= REFUSED_S:
            reasons = ", ".join(sorted(node.refused))
            words = f"{count - told} messages under the name {name}: {reasons}"
            self._tell(node.round, "refused", words)
            self._refused[name] = self._now_s, count

    def _tell(self, round: int, kind: str, text: str) -> None:
        event = EventView(time_s=self._now_s, round=round, node=OBSERVER, kind=kind, text=text)
        self._events.append(event)


@contextmanager
def swarm_feed(observer: Observer, name: str) -> Iterator[SwarmFeed]:
    """Build the feed of a run up from now on, whether a page is open or not."""
    feed, closed = SwarmFeed(observer, name), threading.Event()

    def watch() -> None:
        while not closed.wait(LOOK_S):
            feed.look()

    thread = threading.Thread(target=watch, name="watch the swarm", daemon=True)
    thread.start()
    try:
        yield feed
    finally:
        closed.set()
        thread.join()
