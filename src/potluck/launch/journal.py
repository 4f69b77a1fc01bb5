"""The journal of a process's nodes: what they are doing now, and what was told to the user.

<run>/<node>/status.json    once a second, from a thread: a page, or a person, sees a node that is
                            gone by the age of the file
<run>/<node>/events.jsonl   one line a message, and a checkpoint

Nothing of it decides anything, so a journal that cannot be written does not end a run.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import msgspec
from msgspec.structs import replace

from potluck.config import RunConfig
from potluck.exchange import Exchange
from potluck.files import one_line, write_atomically
from potluck.node.loop import Node
from potluck.node.participant import Participant
from potluck.reports import RoundReport, events
from potluck.reports.runs import STATUS
from potluck.reports.status import FolderStatus, PeerLine, StatusLine, author_status
from potluck.version import __version__

BEAT_S = 1.0
TELL_S = 5.0
"""Most seconds between two status lines to the swarm; one is told after each round, too."""
MOST_EVENTS = 5_000
MOST_PEERS = 256
"""Peers in status.json: those that were heard last."""


class Journal:
    """Display that writes down what it is shown, from ``with`` to the end of the block."""

    def __init__(self, config: RunConfig, folder: Path, names: Sequence[str], first: int) -> None:
        """Write in the folders ``names`` of ``folder``; ``first``: rounds done before."""
        self._folder, self._names = folder, tuple(names)
        now_s = time.time()
        self._lines = {
            name: StatusLine(
                node=name,
                run=config.name,
                time_s=now_s,
                version=__version__,
                model=one_line(config.node[name].title, 120),
                round=first,
                rounds=config.end,
            )
            for name in names
        }
        self._nodes: Sequence[Participant] = ()
        self._unwritten: list[events.Told] = []
        self._messages = 0
        self._told: dict[str, tuple[int, float]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="journal", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end_thread()
        for name in () if self._nodes else self._names:  # nothing was begun: it leaves no trace
            with suppress(OSError):
                (self._folder / name / STATUS).unlink(missing_ok=True)

    @contextmanager
    def of(self, nodes: Sequence[Participant]) -> Iterator[None]:
        """Take the nodes, whose records are ready; at the end of the block, while they can still be
        heard, tell that they have ended."""
        for node in nodes:
            if isinstance(node, Node):
                self._change(node.name, parameters=node.learner.parameters)
        self._nodes = tuple(nodes)
        for told in self._unwritten:
            self._write_down(told)
        try:
            yield
        finally:
            self._end_thread()
            for name, line in self._lines.items():
                phase = "ended" if line.round >= line.rounds else "stopped"
                self._change(name, phase=phase, done=0, total=0)
            self._told.clear()
            self._write()

    def _end_thread(self) -> None:
        self._over.set()
        self._thread.join()

    def show(self, event: events.Event) -> None:
        match event:
            case events.PhaseProgress(node=node, phase=phase, done=done, total=total):
                self._change(node, phase=phase, done=done, total=total)
            case events.RoundDone(node=node, report=report):
                self._change(node, phase="", done=0, total=0, **_of_round(node, report))
            case events.Evaluated(node=node, report=evaluation):
                self._change(node, phase="", done=0, total=0, accuracy=evaluation.validation)
                for name in self._names if evaluation.at_end else ():
                    self._change(name, rounds=evaluation.round)
            case events.Notice() | events.PeerNews() | events.Alert():
                if self._nodes:
                    self._write_down(event)
                else:
                    self._unwritten.append(event)

    def _change(self, node: str, **fields: object) -> None:
        if node in self._lines:
            self._lines[node] = replace(self._lines[node], **fields)

    def _write_down(self, told: events.Told) -> None:
        """Write news into the first node's folder; the others would only repeat it."""
        self._messages += 1
        if self._messages > MOST_EVENTS:
            return
        if self._messages == MOST_EVENTS:
            end = f"{MOST_EVENTS} messages are written down: no more, until a new start"
            told = events.Notice(end)
        kind = "alert" if isinstance(told, events.Alert) else "message"
        node, line = self._nodes[0], {"kind": kind, "text": one_line(told.text, 500)}
        if isinstance(told, events.PeerNews):
            line |= {"kind": told.kind, "peer": told.peer}
        now = {"round": self._lines[node.name].round, "time_s": round(time.time(), 3)}
        with suppress(OSError):
            node.record.add("events", [now | line])

    def _beat(self) -> None:
        self._write()
        while not self._over.wait(BEAT_S):
            self._write()

    def _write(self) -> None:
        exchanges = {node.name: node.exchange for node in self._nodes}
        for name in self._names:
            # Others' transports and their disk raise what they like; a page is not worth a run.
            with suppress(Exception):
                line, exchange = replace(self._lines[name], time_s=time.time()), exchanges.get(name)
                status = FolderStatus(own=line, peers=_peers(exchange) if exchange else {})
                if exchange:
                    self._tell(exchange, line)
                file, data = self._folder / name / STATUS, msgspec.json.encode(status)
                write_atomically(file, data, synced=False)

    def _tell(self, exchange: Exchange, line: StatusLine) -> None:
        round, told_s = self._told.get(line.node, (-1, 0.0))
        if line.round != round or line.time_s - told_s >= TELL_S:
            self._told[line.node] = line.round, line.time_s
            exchange.tell(line)


def _of_round(node: str, report: RoundReport) -> dict[str, object]:
    own, write_s = report.sources.get(node), report.seconds.get("write")
    return {
        "round": report.round + 1,
        "reward": report.own_reward_mean,
        "tokens_per_s": own.tokens / write_s if own and write_s else None,
        "sent_bytes": report.sent_bytes,
        "received_bytes": report.received_bytes,
        "authors": {name: author_status(its) for name, its in report.sources.items()},
    }


def _peers(exchange: Exchange) -> dict[str, PeerLine]:
    peers = exchange.status().peers
    latest = sorted(peers, key=lambda name: (peers[name].heard_s is None, peers[name].heard_s or 0))
    return {name: peers[name] for name in latest[:MOST_PEERS]}
