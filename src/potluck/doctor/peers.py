"""Who is there already: a short look at the swarm, from outside."""

import threading
import time
from dataclasses import dataclass
from typing import Any

from potluck.doctor import papers
from potluck.doctor.finding import Finding
from potluck.exchange import ExchangeError, WireError
from potluck.exchange.announcement import decode_announcement
from potluck.exchange.session import Line, open_session

LISTEN_S = 3.0
"""A node says what it has at least once a second or so."""
MOST = 1000
"""Nodes that are told of; a hostile one may claim any number of names."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was heard, by name of the node."""

    live: frozenset[str]
    difference_s: dict[str, float]
    complaints: dict[str, str]


def look(line: Line, run: str, *, listen_s: float = LISTEN_S) -> Seen:
    """Listens for ``listen_s`` once connected, and as long again until then at most.

    Raises:
        ExchangeError: nobody answers, or the line cannot be opened.
    """
    live: set[str] = set()
    difference_s: dict[str, float] = {}
    complaints: dict[str, str] = {}

    def heard(sample: Any) -> None:
        name, arrived_s = str(sample.key_expr).rpartition("/")[2], time.time()
        if len(difference_s) + len(complaints) >= MOST:
            return
        try:
            said = decode_announcement(sample.payload.to_bytes(), run=run, node=name)
        except WireError as error:
            complaints.setdefault(name, str(error))
        else:
            difference_s[name] = said.clock_s - arrived_s

    def appeared(sample: Any) -> None:
        if len(live) < MOST:
            live.add(str(sample.key_expr).rpartition("/")[2])

    closing = threading.Event()
    timer = threading.Timer(listen_s, closing.set)
    timer.start()
    try:
        session = open_session(line, run=run, closing=closing)
    finally:
        timer.cancel()
        timer.join()
    with session:
        session.liveliness().declare_subscriber(f"{run}/live/*", appeared, history=True)
        session.declare_subscriber(f"{run}/ann/*", heard)
        time.sleep(listen_s)
    return Seen(frozenset(live), difference_s, complaints)


def findings(line: Line, run: str, name: str) -> list[Finding]:
    try:
        seen = look(line, run)
    except ExchangeError as error:
        return [Finding("peers", "FAIL", str(error))]
    found = [papers.skew(node, by) for node, by in sorted(seen.difference_s.items())]
    for node, why in sorted(seen.complaints.items()):
        found.append(Finding("peer", "warn", f"{node}: {why}"))
    for node in sorted(seen.live - {*seen.difference_s, *seen.complaints}):
        found.append(Finding("peer", "warn", f"{node} is there, and says nothing"))
    if name in seen.live:
        found.append(
            Finding("peers", "FAIL", f"{name!r} is taking part already; each name is there once")
        )
    if not found:
        found.append(Finding("peers", "warn", f"nobody of run {run!r} is there yet"))
    return found
