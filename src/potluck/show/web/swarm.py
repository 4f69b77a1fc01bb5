"""A swarm as a feed: what an observer sees of a run now, and what it saw since it began.

There is no folder: curves, pairs and evaluations are built up from status lines, as they come.
"""

import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from potluck.exchange.zenoh.observer import Observer
from potluck.reports.status import PeerLine, StatusLine
from potluck.show.web import views
from potluck.show.web.feed import NotHereError, RunFeed
from potluck.show.web.rounds import NodeRounds, pair_columns
from potluck.show.web.states import ENDS, MOST_NODES, OBSERVER, Facts, node_views

LOOK_S = 1.0
"""Seconds between two looks while no page is open: lines come every five seconds."""
MOST_EVENTS, MOST_ROUNDS = 500, 2000
MOST_CELLS = 200_000
"""Numbers of authors, and of rounds, that are kept of all nodes; of more, older rounds go first."""
LIVES = ("training", "quarantined")


class SwarmFeed(RunFeed):
    """Feed of one run that is only listened to, and of nothing else. Nobody sends texts to it."""

    def __init__(self, observer: Observer, name: str) -> None:
        super().__init__()
        self._observer, self._name, self._end = observer, name, 0
        self._accuracies: dict[str, NodeRounds] = {}
        """Accuracies of each node by the rounds done."""
        self._matrix: views.Matrix = {}
        self._nodes: dict[str, views.NodeView] = {}
        self._events: deque[views.EventView] = deque(maxlen=MOST_EVENTS)
        self._was_connected: bool | None = None

    def _make(self, step: int) -> dict[str, Any]:
        seen = self._shown(self._observer.seen())
        self._tell_of_connection()
        self._remember(seen, step)
        self._take_nodes(seen)
        return {
            "name": self._name,
            "rounds": self._end,
            "has_texts": False,
            "nodes": list(self._nodes.values()),
            "matrix": {
                learner: {author: cell for author, cell in cells.items() if author in seen}
                for learner, cells in self._matrix.items()  # a signer can make up authors
            },
            "evaluations": {
                name: found.shown() for name, found in self._accuracies.items() if found.done
            },
            "events": list(self._events),
        }

    def pair(self, learner: str, author: str) -> views.PairView:
        with self._lock:
            own = self._rounds.get(learner)
            if own and (reports := own.authors.get(author)):
                return views.PairView(learner=learner, author=author, columns=pair_columns(reports))
        raise NotHereError(f"{learner[:40]!r} has told nothing of {author[:40]!r} yet")

    def start(self) -> views.StartView:
        entry = views.RunEntry(run="", name=self._name)  # the page opens at the run itself
        return views.StartView(place=self._name, runs=[entry])

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
        """Add the rounds that are new."""
        lines = {name: one.line for name, one in seen.items() if one.line}
        new = [name for name, line in lines.items() if self._add(name, line, step)]
        for gone in self._rounds.keys() - seen.keys():
            for of in (self._rounds, self._accuracies, self._matrix):
                del of[gone]
        both = [*self._rounds.values(), *self._accuracies.values()]
        while sum(own.cells for own in both) > MOST_CELLS:
            for own in both:
                own.thin(step)
        self._matrix |= {name: self._rounds[name].matrix() for name in new}
        # One that claims a run without end must not stretch every bar: the most common counts.
        told = Counter(line.rounds for line in lines.values())
        self._end = told.most_common(1)[0][0] if told else self._end

    def _add(self, name: str, line: StatusLine, step: int) -> bool:
        """Add what a node's newest line tells; return whether it has done another round."""
        own = self._rounds.setdefault(name, NodeRounds(MOST_ROUNDS))
        graded = self._accuracies.setdefault(name, NodeRounds())
        self._matrix.setdefault(name, {})
        if line.accuracy not in (None, *graded.columns.get("validation", ())[-1:]):
            graded.add(step, line.round, {"validation": line.accuracy})
        if line.round in (0, own.done):
            return False
        numbers = {
            "own_reward_mean": line.reward,
            "sent_bytes": line.sent_bytes,
            "received_bytes": line.received_bytes,
        }
        own.add(step, line.round - 1, numbers, line.authors)
        return own.done == line.round  # a round beyond its bound was left out

    def _take_nodes(self, seen: Mapping[str, PeerLine]) -> None:
        before = {name: node.state for name, node in self._nodes.items()}
        roster = [name for name in seen if name in self._observer.roster]
        facts = Facts(self._end, 0, {}, self._now_s, observed=seen, roster=roster)
        self._nodes = {node.name: node for node in node_views({}, facts)}
        for name, node in self._nodes.items():
            is_here, was_here = node.state in LIVES, before.get(name) in LIVES
            if is_here and not was_here:
                self._tell(node.round, "joined", f"{name} joined")
            elif was_here and not is_here:
                words = f"{name} has {node.state}" if node.state in ENDS else f"{name} is silent"
                self._tell(node.round, "left", words)

    def _tell_of_connection(self) -> None:
        if (is_connected := self._observer.is_connected()) != self._was_connected:
            self._was_connected = is_connected
            words = "connected" if is_connected else "no node or relay can be reached; trying on"
            self._tell(0, "message", words)

    def _tell(self, round: int, kind: str, text: str) -> None:
        event = views.EventView(
            time_s=self._now_s, round=round, node=OBSERVER, kind=kind, text=text
        )
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
