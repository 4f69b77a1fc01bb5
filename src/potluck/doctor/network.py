"""The network: addresses, whether they answer, and the nodes that are there already."""

import errno
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from potluck.doctor.credentials import peer_key, skew
from potluck.doctor.machine import Finding
from potluck.exchange import ExchangeError, Transport, WireError
from potluck.exchange.protocol.announcement import decode_announcement
from potluck.exchange.zenoh.addresses import TIMEOUT_S
from potluck.exchange.zenoh.session import Endpoints, open_session

LISTEN_S = 3.0
"""A node says what it has at least once a second or so."""
MOST = 1000
"""Nodes that are told of, at most; a hostile one may claim any number of names."""


def spelling(
    by: Transport, where: str, addresses: Sequence[str], *, tls: bool, listen: bool
) -> Finding | None:
    """Return a finding if an address is malformed, or not of the kind that [swarm.tls] asks for."""
    try:
        by.check_endpoints(where, addresses, tls=tls, listen=listen)
    except ExchangeError as error:
        return Finding("addresses", "FAIL", str(error))
    return None


def meeting(listen: Sequence[str], connect: Sequence[str], nodes: int, before: int) -> Finding:
    """Check by the addresses alone whether any node can be met.

    Args:
        before: nodes that stand before this one in the recipe: it is the one to name them.
    """
    if not listen and not connect:
        text = (
            "neither listen nor connect; --connect tcp/HOST:PORT names a relay, or --listen "
            "tcp/0.0.0.0:7447 and --connect for each node before it"
        )
        return Finding("meeting", "FAIL", text)
    if listen and len(connect) < nodes - 1:
        text = (
            f"listens and names {len(connect)} of {nodes - 1} others; the rest must name it: two "
            f"that know each other only through a third do not reconnect after a loss"
        )
        return Finding("meeting", "warn" if len(connect) < before else "ok", text)
    if listen:
        return Finding("meeting", "ok", f"is reached, and names {len(connect)} others")
    if len(connect) == 1:  # a relay, or a node that passes on what others say: not known here
        once = "through 1 address; with a second one it survives the loss of the first"
        return Finding("meeting", "ok", once)
    return Finding("meeting", "ok", f"through {len(connect)} addresses")


def listening(address: str, complaint: OSError | None) -> Finding:
    """Check an address by the ``complaint`` when it was taken for a moment."""
    if complaint is None:
        return Finding("listen", "ok", f"{address} is free; a firewall must let it in")
    match complaint.errno:
        case errno.EADDRINUSE:
            out = "a node of yours may be running; end it, or choose another port"
        case errno.EACCES | errno.EPERM:
            out = "ports below 1024 are for root; choose another one"
        case errno.EADDRNOTAVAIL:
            out = "it is no address of this machine; 0.0.0.0 stands for all it has"
        case _:
            out = "choose another address"
    return Finding("listen", "FAIL", f"{address}: {complaint.strerror or complaint}; {out}")


def reaching(address: str, complaint: OSError | None) -> Finding:
    """Check an address by the ``complaint`` when it was called."""
    match complaint:
        case None:
            return Finding("connect", "ok", f"{address} answers")
        case socket.gaierror():
            out = "no such host; look for a slip in its name"
        case ConnectionRefusedError():
            out = "the machine is there, nothing listens; start the node or relay, check the port"
        case TimeoutError():
            out = f"no answer in {TIMEOUT_S:g} s; a firewall, or the machine is off"
        case _:
            out = complaint.strerror or str(complaint)
    # A node goes on trying and trains meanwhile, so an absent one may still come.
    return Finding("connect", "warn", f"{address}: {out}")


def reachable(findings: Sequence[Finding]) -> Finding | None:
    """Return a failure if no address at all answers: that is more than a warning."""
    if findings and all(finding.verdict != "ok" for finding in findings):
        return Finding("connect", "FAIL", "none of the addresses answers: it would train alone")
    return None


@dataclass(frozen=True, slots=True)
class Seen:
    """Nodes and announcements that were heard, by name of the node."""

    live: frozenset[str]
    difference_s: dict[str, float]
    public: dict[str, bytes]
    """Key that signed a node's last announcement; each node of ``difference_s`` has one."""
    complaints: dict[str, str]


def look(endpoints: Endpoints, run: str, *, listen_s: float = LISTEN_S) -> Seen:
    """Listen at endpoints that answer TCP for ``listen_s`` once connected, which may take as long;
    raise ExchangeError if no node or relay answers there, or the line cannot be opened."""
    live: set[str] = set()
    seen = Seen(frozenset(), {}, {}, {})

    def heard(sample: Any) -> None:
        name, arrived_s = str(sample.key_expr).rpartition("/")[2], time.time()
        if len(seen.difference_s) + len(seen.complaints) >= MOST:
            return
        try:
            said = decode_announcement(sample.payload.to_bytes(), run=run, node=name)
            seen.difference_s[name], seen.public[name] = said.clock_s - arrived_s, said.public
        except WireError as error:
            seen.complaints.setdefault(name, str(error))

    def appeared(sample: Any) -> None:
        if len(live) < MOST:
            live.add(str(sample.key_expr).rpartition("/")[2])

    closing = threading.Event()
    timer = threading.Timer(listen_s, closing.set)
    timer.start()
    try:
        session = open_session(endpoints, run=run, closing=closing)
    except ExchangeError as error:
        if closing.is_set():  # nothing is wrong with the line itself
            raise ExchangeError(_no_potluck(endpoints)) from error
        raise
    finally:
        timer.cancel()
        timer.join()
    with session:
        session.liveliness().declare_subscriber(f"{run}/live/*", appeared, history=True)
        session.declare_subscriber(f"{run}/ann/*", heard)
        time.sleep(listen_s)
    return replace(seen, live=frozenset(live))


def peers(
    endpoints: Endpoints, run: str, name: str, *, members: Sequence[str], keys: Mapping[str, bytes]
) -> list[Finding]:
    """Check the nodes that ``name`` sees: absent members, and keys other than the roster's."""
    try:
        seen = look(endpoints, run)
    except ExchangeError as error:
        return [Finding("peers", "FAIL", str(error))]
    found = [skew(node, by) for node, by in sorted(seen.difference_s.items())]
    for node, public in sorted(seen.public.items()):
        if node != name and node in keys and (other := peer_key(node, public, keys[node])):
            found.append(other)
    heard = {*seen.difference_s, *seen.complaints}
    odd = [f"{node}: {why}" for node, why in sorted(seen.complaints.items())]
    odd += [f"{node} is there, and says nothing" for node in sorted(seen.live - heard)]
    found += [Finding("peer", "warn", text) for text in odd]
    if name in seen.live:
        text = f"{name!r} is taking part already; each name is there once"
        found.append(Finding("peers", "FAIL", text))
    absent = ", ".join(node for node in members if node not in {name, *seen.live, *heard})
    if not found:
        text = f"no node of run {run!r} is there yet{f' (not there: {absent})' if absent else ''}"
        if endpoints.tls:  # A node that is not listed gets a connection, and hears nothing.
            text += f", or the relay does not list {name!r} (--names)"
        found.append(Finding("peers", "warn", text))
    elif absent:
        found.append(Finding("peers", "warn", f"not there: {absent}"))
    return found


def _no_potluck(endpoints: Endpoints) -> str:
    why = "tcp/ here and tls/ there"
    if endpoints.tls:
        why = "tls/ here and tcp/ there, a certificate of another CA or host"
    at = ", ".join(endpoints.connect)
    return f"{at} answers TCP but speaks no Potluck here: {why}, or a frozen process"
