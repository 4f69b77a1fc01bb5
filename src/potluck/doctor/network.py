"""The network: addresses, whether they answer, and the nodes that are there already."""

import errno
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from potluck.doctor.credentials import peer_key, skew
from potluck.doctor.machine import Finding, Judged
from potluck.exchange import ExchangeError, Transport, WireError
from potluck.exchange.protocol.announcement import decode_announcement
from potluck.exchange.zenoh.session import CALL_S, Endpoints, open_session

LISTEN_S = 3.0
"""A node says what it has at least once a second or so."""
MOST = 1000
"""Nodes that are told of, at most; a hostile one may claim any number of names."""
WHY_NOT_HERE = {
    errno.EADDRINUSE: "a node of yours may be running; end it, or choose another port",
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM), "ports below 1024 are for root; choose another one"
    ),
    errno.EADDRNOTAVAIL: "it is no address of this machine; 0.0.0.0 stands for all it has",
}
WHY_NOT_THERE: dict[type[OSError], str] = {
    socket.gaierror: "no such host; look for a slip in its name",
    ConnectionRefusedError: "the machine is there, nothing listens; start the node or relay, check "
    "the port",
    TimeoutError: f"no answer in {CALL_S:g} s; a firewall, or the machine is off",
}


def spelling(
    by: Transport, where: str, addresses: Sequence[str], *, tls: bool, listen: bool
) -> Judged | None:
    """Find an address that is malformed, or not of the kind that [swarm.tls] asks for."""
    try:
        by.check_endpoints(where, addresses, tls=tls, listen=listen)
    except ExchangeError as error:
        return "FAIL", str(error)
    return None


def meeting(listen: Sequence[str], connect: Sequence[str], nodes: int, before: int) -> Judged:
    """Check by the addresses alone whether any node can be met; ``before``: nodes that stand before
    this one in the recipe, which it is the one to name."""
    named = len(connect)
    if not listen and not connect:
        return "FAIL", (
            "neither listen nor connect; --connect tcp/HOST:PORT names a relay, or --listen "
            "tcp/0.0.0.0:7447 and --connect for each node before it"
        )
    if listen and named < nodes - 1:
        return ("warn" if named < before else "ok"), (
            f"listens and names {named} of {nodes - 1} others; the rest must name it: two "
            f"that know each other only through a third do not reconnect after a loss"
        )
    if listen:
        return "ok", f"is reached, and names {named} others"
    if named == 1:  # a relay, or a node that passes on what others say: not known here
        return "ok", "through 1 address; with a second one it survives the loss of the first"
    return "ok", f"through {named} addresses"


def listening(address: str, complaint: OSError | None) -> Judged:
    """Check an address by the ``complaint`` when it was taken for a moment."""
    if complaint is None:
        return "ok", f"{address} is free; a firewall must let it in"
    out = WHY_NOT_HERE.get(complaint.errno or 0, "choose another address")
    return "FAIL", f"{address}: {complaint.strerror or complaint}; {out}"


def reaching(address: str, complaint: OSError | None) -> Judged:
    """Check an address by the ``complaint`` when it was called."""
    if complaint is None:
        return "ok", f"{address} answers"
    why = (out for kind, out in WHY_NOT_THERE.items() if isinstance(complaint, kind))
    # A node goes on trying and trains meanwhile, so an absent one may still come.
    return "warn", f"{address}: {next(why, complaint.strerror or str(complaint))}"


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
    found = [Finding("peer", *skew(node, by)) for node, by in sorted(seen.difference_s.items())]
    for node, public in sorted(seen.public.items()):
        if node != name and node in keys and (other := peer_key(node, public, keys[node])):
            found.append(Finding("peer", *other))
    heard = {*seen.difference_s, *seen.complaints}
    odd = [f"{node}: {why}" for node, why in sorted(seen.complaints.items())]
    odd += [f"{node} is there, and says nothing" for node in sorted(seen.live - heard)]
    found += [Finding("peer", "warn", text) for text in odd]
    if name in seen.live:
        taken = f"{name!r} is taking part already; each name is there once"
        found.append(Finding("peers", "FAIL", taken))
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
    other_ca = "tls/ here and tcp/ there, a certificate of another CA or host"
    why = other_ca if endpoints.tls else "tcp/ here and tls/ there"
    at = ", ".join(endpoints.connect)
    return f"{at} answers TCP but speaks no Potluck here: {why}, or a frozen process"
