"""Who is there already: a short look at the swarm, from outside."""

import threading
import time
from collections.abc import Mapping, Sequence
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
    public: dict[str, bytes]
    """The key that a node's last announcement was signed with; whose clock was read has one."""
    complaints: dict[str, str]


def look(line: Line, run: str, *, listen_s: float = LISTEN_S) -> Seen:
    """Listens for ``listen_s`` once connected, and as long again until then at most.

    Args:
        line: to addresses where TCP is answered, as far as was tried.

    Raises:
        ExchangeError: no node or relay answers there, or the line cannot be opened.
    """
    live: set[str] = set()
    difference_s: dict[str, float] = {}
    public: dict[str, bytes] = {}
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
            difference_s[name], public[name] = said.clock_s - arrived_s, said.public

    def appeared(sample: Any) -> None:
        if len(live) < MOST:
            live.add(str(sample.key_expr).rpartition("/")[2])

    closing = threading.Event()
    timer = threading.Timer(listen_s, closing.set)
    timer.start()
    try:
        session = open_session(line, run=run, closing=closing)
    except ExchangeError as error:
        if closing.is_set():  # nothing is wrong with the line itself
            raise ExchangeError(_no_potluck(line)) from error
        raise
    finally:
        timer.cancel()
        timer.join()
    with session:
        session.liveliness().declare_subscriber(f"{run}/live/*", appeared, history=True)
        session.declare_subscriber(f"{run}/ann/*", heard)
        time.sleep(listen_s)
    return Seen(frozenset(live), difference_s, public, complaints)


def findings(
    line: Line, run: str, name: str, *, members: Sequence[str], keys: Mapping[str, bytes]
) -> list[Finding]:
    """Args:
    name: of the node that looks.
    members: of the recipe, whose absence is told.
    keys: of the roster, by name.
    """
    try:
        seen = look(line, run)
    except ExchangeError as error:
        return [Finding("peers", "FAIL", str(error))]
    found = [papers.skew(node, by) for node, by in sorted(seen.difference_s.items())]
    for node, public in sorted(seen.public.items()):
        if node != name and node in keys:
            found += filter(None, [papers.peer_key(node, public, keys[node])])
    for node, why in sorted(seen.complaints.items()):
        found.append(Finding("peer", "warn", f"{node}: {why}"))
    for node in sorted(seen.live - {*seen.difference_s, *seen.complaints}):
        found.append(Finding("peer", "warn", f"{node} is there, and says nothing"))
    if name in seen.live:
        found.append(
            Finding("peers", "FAIL", f"{name!r} is taking part already; each name is there once")
        )
    there = {*seen.live, *seen.difference_s, *seen.complaints}
    absent = [node for node in members if node != name and node not in there]
    if not found:
        found.append(_nobody(line, run, name, absent))
    elif absent:
        found.append(Finding("peers", "warn", f"not there: {', '.join(absent)}"))
    return found


def _nobody(line: Line, run: str, name: str, absent: list[str]) -> Finding:
    text = f"nobody of run {run!r} is there yet"
    if absent:
        text += f" (not there: {', '.join(absent)})"
    if line.tls:  # Whoever is not listed gets a connection, and hears nothing.
        text += f", or the relay does not list {name!r} (--names)"
    return Finding("peers", "warn", text)


def _no_potluck(line: Line) -> str:
    if line.tls:
        why = "tls/ here and tcp/ there, a certificate of another CA or host"
    else:
        why = "tcp/ here and tls/ there"
    return (
        f"{', '.join(line.connect)} answers TCP but speaks no Potluck here: {why}, or a frozen "
        f"process"
    )
