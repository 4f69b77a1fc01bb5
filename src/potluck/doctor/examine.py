"""All checks in their order: of the machine, of a node's credentials, and of its network."""

import errno
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from potluck.builder.consent import BUCKET, notes_on_reach
from potluck.doctor.checks import OF_MACHINE, OF_NODE, Finding, Judged, Target
from potluck.exchange import ExchangeError, Transport, WireError, transport
from potluck.exchange.keys.keys import public_text, read_roster
from potluck.exchange.protocol.signed import decode_announcement
from potluck.exchange.zenoh.session import CALL_S, Endpoints, open_session

LISTEN_S = 3.0
"""A node says what it has at least once a second or so."""
SKEW_WARN_S = 60.0
MOST = 1000
"""Nodes that are told of, at most; a hostile one may claim any number of names."""
WHY_NOT_HERE = {
    errno.EADDRINUSE: "a node of yours may be running; end it, or choose another port",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "ports below 1024 are for root; choose another"),
    errno.EADDRNOTAVAIL: "it is no address of this machine; 0.0.0.0 stands for all it has",
}
WHY_NOT_THERE: dict[type[OSError], str] = {
    socket.gaierror: "no such host; look for a slip in its name",
    ConnectionRefusedError: "the machine is there, nothing listens; start the node or relay, check "
    "the port",
    TimeoutError: f"no answer in {CALL_S:g} s; a firewall, or the machine is off",
}


def examine(target: Target) -> Iterator[Finding]:
    """Yield the finding of every check as soon as it is made."""
    joins = target.config and target.name
    for name, check in (OF_MACHINE | OF_NODE if joins else OF_MACHINE).items():
        yield Finding(name, *check(target))
    for note in notes_on_reach(target.config) if target.config else ():
        yield Finding("recipe", "warn" if "--allow-key" in note else "ok", note)
    if target.listen or target.connect or joins:
        yield from _network(target)


def _network(target: Target) -> Iterator[Finding]:
    line, is_zenoh = transport(target.swarm.transport), target.swarm.transport == "zenoh"
    with_tls = target.swarm.tls is not None
    if not target.config:  # only addresses were given: each may be of its own kind
        with_tls = any(each.startswith("tls/") for each in (*target.listen, *target.connect))
    try:
        line.check_endpoints("listen", target.listen, tls=with_tls, listen=True)
        line.check_endpoints("connect", target.connect, tls=with_tls, listen=False)
    except ExchangeError as error:
        yield Finding("addresses", "FAIL", str(error))
        return
    if target.config and is_zenoh:
        yield Finding("meeting", *meeting(target))
    for address in target.listen:
        yield Finding("listen", *listening(address, line.try_endpoint(address, listen=True)))
    there = []
    for address in target.connect:
        found = Finding("connect", *_calling(target, line, address))
        there += [address] if found.verdict == "ok" else []
        yield found
    if target.connect and not there:  # more than a warning
        yield Finding("connect", "FAIL", "none of the addresses answers: it would train alone")
    elif there and target.config and is_zenoh and (target.tls or not with_tls):
        # As a client, whatever it will be: a look needs no address of its own.
        yield from peers(target, Endpoints((), tuple(there), target.tls))


def meeting(target: Target) -> Judged:
    """Check by the addresses alone whether the node can meet any other one."""
    listen, named = target.listen, len(target.connect)
    if not listen and not named:
        return "FAIL", (
            "neither listen nor connect; --connect tcp/HOST:PORT names a relay, or --listen "
            "tcp/0.0.0.0:7447 and --connect for each node before it"
        )
    names = list(target.config.node) if target.config else []
    # Of two nodes, that which is later in the recipe is the one to name the other.
    before = names.index(target.name) if target.name in names else 0
    if listen and named < before:
        return "warn", (
            f"listens and names {named} of {before} nodes before it: two that know each other only "
            f"through a third do not reconnect after a loss"
        )
    waits = "listens, so nodes after it can name it, and " if listen else ""
    return "ok", f"{waits}names {named} other address{'es' if named != 1 else ''}"


def listening(address: str, complaint: OSError | None) -> Judged:
    if complaint is None:
        return "ok", f"{address} is free; a firewall must let it in"
    out = WHY_NOT_HERE.get(complaint.errno or 0, "choose another address")
    return "FAIL", f"{address}: {complaint.strerror or complaint}; {out}"


def _calling(target: Target, line: Transport, address: str) -> Judged:
    if BUCKET.match(address) and address not in target.said_connect:
        return "ok", f"{address} is tried, with your account, by potluck doctor --connect {address}"
    return reaching(address, line.try_endpoint(address, listen=False))


def reaching(address: str, complaint: OSError | None) -> Judged:
    if complaint is None:
        return "ok", f"{address} answers"
    why = (out for kind, out in WHY_NOT_THERE.items() if isinstance(complaint, kind))
    # A node goes on trying and trains meanwhile, so an absent one may still come.
    return "warn", f"{address}: {next(why, complaint.strerror or str(complaint))}"


@dataclass(frozen=True, slots=True)
class Seen:
    """Nodes and announcements that were heard, by name of the node."""

    live: set[str] = field(default_factory=set)
    difference_s: dict[str, float] = field(default_factory=dict)
    """Clock of a node minus this one's, as its announcement arrived."""
    public: dict[str, bytes] = field(default_factory=dict)
    """Key that signed a node's last announcement; each node of ``difference_s`` has one."""
    complaints: dict[str, str] = field(default_factory=dict)


def look(endpoints: Endpoints, run: str, *, listen_s: float = LISTEN_S) -> Seen:
    """Listen at endpoints that answer TCP for ``listen_s`` once connected, which may take as long;
    raise ExchangeError if no node or relay answers there, or the line cannot be opened."""
    seen = Seen()

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
        if len(seen.live) < MOST:
            seen.live.add(str(sample.key_expr).rpartition("/")[2])

    closing = threading.Event()
    timer = threading.Timer(listen_s, closing.set)
    timer.start()
    try:
        session = open_session(endpoints, run=run, closing=closing)
    except ExchangeError as error:
        if not closing.is_set():
            raise
        other_ca = "tls/ here and tcp/ there, a certificate of another CA or host"
        raise ExchangeError(
            f"{', '.join(endpoints.connect)} answers TCP but speaks no Potluck here: "
            f"{other_ca if endpoints.tls else 'tcp/ here and tls/ there'}, or a frozen process"
        ) from error
    finally:
        timer.cancel()
        timer.join()
    with session:
        session.liveliness().declare_subscriber(f"{run}/live/*", appeared, history=True)
        session.declare_subscriber(f"{run}/ann/*", heard)
        time.sleep(listen_s)
    return seen


def peers(target: Target, endpoints: Endpoints) -> Iterator[Finding]:
    """Check the nodes that are there: their clocks, keys other than the roster's, and who lacks."""
    assert target.config
    run, me, keys = target.config.name, target.name, dict[str, bytes]()
    with suppress(ExchangeError):  # as the check of the roster has said
        keys = read_roster(target.roster) if target.roster else {}
    try:
        seen = look(endpoints, run)
    except ExchangeError as error:
        yield Finding("peers", "FAIL", str(error))
        return
    for node, by in sorted(seen.difference_s.items()):
        text = f"{node} is there; its clock is {by:+.1f} s from this one's"
        if abs(by) > SKEW_WARN_S:
            yield Finding("peer", "warn", f"{text}; set the one that is wrong (NTP)")
        else:
            yield Finding("peer", "ok", text)
    for node, public in sorted(seen.public.items()):
        if node != me and keys.get(node, public) != public:
            yield Finding("peer", "FAIL", (
                f"{node!r} signs with {public_text(public)}, but the roster has "
                f"{public_text(keys[node])}; ask it for the line of `potluck keys {node}`"
            ))  # fmt: skip
    heard = {*seen.difference_s, *seen.complaints}
    for node, why in sorted(seen.complaints.items()):
        yield Finding("peer", "warn", f"{node}: {why}")
    for node in sorted(seen.live - heard):
        yield Finding("peer", "warn", f"{node} is there, and says nothing")
    if me in seen.live:
        yield Finding("peers", "FAIL", f"{me!r} is taking part already; each name is there once")
    there = {*heard, *seen.live}
    absent = ", ".join(node for node in target.members if node not in {me, *there})
    if not there:
        text = f"no node of run {run!r} is there yet{f' (not there: {absent})' if absent else ''}"
        if endpoints.tls:  # A node that is not listed gets a connection, and hears nothing.
            text += f", or the relay does not list {me!r} (--names)"
        yield Finding("peers", "warn", text)
    elif absent:
        yield Finding("peers", "warn", f"not there: {absent}")
