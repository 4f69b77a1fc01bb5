"""A Zenoh session set up as a swarm needs it; every setting was measured or learned from a failure.

    multicast scouting off     two users on one network would merge their swarms
    shared memory off          it drops messages under load and leaves files behind after a SIGKILL
    lease 4 s                  how long a frozen node counts as live
    messages <= 16 MiB         a claim beyond it is refused before memory is set aside
    connecting never ends      a node whose network is away trains on alone

With [swarm.tls], a connection needs a certificate of the swarm's authority, and access control
(access.py) lets each node speak under its own name only.
"""

import json
import logging
import os
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import zenoh

from potluck.exchange.access import RELAYS, access_control
from potluck.exchange.base import ExchangeError
from potluck.exchange.certificates import certificate_files, check_certificate
from potluck.types import NODE_NAME

MESSAGE_BYTES = 1 << 24
LEASE_MS = 4000
HANDSHAKE_MS = 5000
"""How long a relay may take to answer before a client tries the next one."""
PAUSE_S = 1.0
"""Between two tries of a client to reach any relay."""
LOG = "error,zenoh_link_tls=warn,zenoh::net::routing::interceptor::access_control=info"
"""Of Zenoh's own log what tells of connections that were refused; RUST_LOG goes before it. From
Python its lines cannot be had or changed, so they keep a hint on open files that is wrong."""

_ENDPOINT = re.compile(r"(tcp|tls)/(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_SOURCE = re.compile(r"(\.?\s+at /\S*:\d+\.?)+")
"""Where in Zenoh's source an error arose: of no use here."""
_SYSTEM = re.compile(r"[^:\s][^:]*\(os error \d+\)")
"""What the system said, without the address that Zenoh puts before it, twice."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tls:
    """Who may connect."""

    folder: Path
    """Of ``potluck certificates``: this node's own, or the one that has it as ``name``."""
    name: str
    names: tuple[str, ...]
    """Nodes that may take part: those of the certificates that are listed. Others are refused."""


@dataclass(frozen=True)
class Line:
    """Where a node is reached and whom it calls: ``tcp/HOST:PORT``; with TLS ``tls/HOST:PORT``."""

    listen: tuple[str, ...] = ()
    connect: tuple[str, ...] = ()
    tls: Tls | None = None


def open_session(line: Line, *, run: str, closing: threading.Event | None = None) -> zenoh.Session:
    """This node's session: a peer where it listens, else a client of the routers it connects to.

    A peer comes back at once and looks for the others ever after. A client needs its first router
    to begin with: it waits here until one answers, so call it from a thread that may wait. Once it
    is there, it comes back after every loss of a router by itself.

    Args:
        run: what all keys begin with; access control lets nodes speak of nothing else.
        closing: ends the wait of a client.

    Raises:
        ExchangeError: an endpoint that is none, a port in use, a certificate that cannot be used,
            or ``closing`` was set; one line.
    """
    if not line.listen and not line.connect:
        raise ExchangeError(
            "swarm.listen and swarm.connect are both empty, so nobody can be met; a node that "
            "others reach has listen = ['tcp/0.0.0.0:7447'], one behind a NAT connects to a relay"
        )
    mode = "peer" if line.listen else "client"
    return _open(_config(line, mode, run), line, closing or threading.Event())


def open_patiently(line: Line, *, run: str, waiting: Callable[[], None]) -> zenoh.Session:
    """As ``open_session``, and ``waiting`` is called several times a second meanwhile.

    Raises:
        ExchangeError: as ``open_session``; and whatever ``waiting`` raises, which ends the wait.
    """
    closing = threading.Event()
    with ThreadPoolExecutor(max_workers=1) as pool:
        opening = pool.submit(open_session, line, run=run, closing=closing)
        try:
            while not wait([opening], timeout=0.2).done:
                waiting()
        except BaseException:
            closing.set()
            with suppress(ExchangeError):
                opening.result().close()
            raise
        return opening.result()


def open_router(line: Line) -> zenoh.Session:
    """A relay: passes on what nodes say that cannot reach each other, of any run.

    Raises:
        ExchangeError: as ``open_session``; or it listens nowhere.
    """
    if not line.listen:
        raise ExchangeError("a relay must be reached; tell it where: --listen tcp/0.0.0.0:7447")
    if line.tls and line.tls.name not in RELAYS:
        raise ExchangeError(
            f"a relay's certificate is for {line.tls.name!r}, which nodes take for a node; make "
            f"it for one of {', '.join(RELAYS)}"
        )
    return _open(_config(line, "router", "*"), line, threading.Event())


def check_endpoints(where: str, endpoints: Sequence[str], *, tls: bool, listen: bool) -> None:
    """Whether all are what Zenoh can use, and of the kind that [swarm.tls] asks for.

    Raises:
        ExchangeError: the first that is not.
    """
    for endpoint in endpoints:
        found = _ENDPOINT.fullmatch(endpoint)
        if not found or not (0 if listen else 1) <= int(found[3]) < 1 << 16:
            raise ExchangeError(f"{where} is {endpoint!r}; expected tcp/HOST:PORT or tls/HOST:PORT")
        if tls and found[1] == "tcp":
            raise ExchangeError(
                f"{where} is {endpoint!r}, but [swarm.tls] refuses what is not encrypted; expected "
                f"'tls/{endpoint[4:]}', or a recipe without [swarm.tls]"
            )
        if not tls and found[1] == "tls":
            raise ExchangeError(
                f"{where} is {endpoint!r}, which needs certificates: add [swarm.tls] folder = "
                f"'...' (potluck certificates), or use 'tcp/{endpoint[4:]}'"
            )


def _config(line: Line, mode: str, run: str) -> zenoh.Config:
    check_endpoints("swarm.listen", line.listen, tls=line.tls is not None, listen=True)
    check_endpoints("swarm.connect", line.connect, tls=line.tls is not None, listen=False)
    settings: dict[str, object] = {
        "mode": mode,
        "listen/endpoints": line.listen,
        "connect/endpoints": line.connect,
        # A client with a timeout, or one without an end, stays with its first endpoint for ever.
        "connect/timeout_ms": 0 if mode == "client" else -1,
        "connect/exit_on_failure": False,
        "listen/exit_on_failure": True,
        "scouting/multicast/enabled": False,
        "transport/shared_memory/enabled": False,
        "transport/unicast/open_timeout": HANDSHAKE_MS,
        "transport/link/tx/lease": LEASE_MS,
        "transport/link/rx/max_message_size": MESSAGE_BYTES,
        "transport/link/protocols": ["tls" if line.tls else "tcp"],
    }
    if line.tls:
        settings["transport/link/tls"] = _certificates(line.tls)
        settings["access_control"] = access_control(line.tls.names, run)
    config = zenoh.Config()
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    return config


def _certificates(tls: Tls) -> dict[str, object]:
    if taken := sorted({*RELAYS} & {*tls.names}):
        raise ExchangeError(f"{taken[0]!r} is a relay's name with [swarm.tls]; rename that node")
    if bad := [name for name in tls.names if not NODE_NAME.fullmatch(name)]:
        raise ExchangeError(f"{bad[0]!r} is no name of a node; expected {NODE_NAME.pattern}")
    files = certificate_files(tls.folder, tls.name)
    check_certificate(files, tls.name)  # Zenoh tries again for ever where a file is missing.
    return {
        "root_ca_certificate": str(files.ca),
        "enable_mtls": True,
        "listen_certificate": str(files.certificate),
        "listen_private_key": str(files.key),
        "connect_certificate": str(files.certificate),
        "connect_private_key": str(files.key),
        "verify_name_on_connect": True,
    }


def _open(config: zenoh.Config, line: Line, closing: threading.Event) -> zenoh.Session:
    if line.tls:
        _show_zenoh_log()
    told = False
    while not closing.is_set():
        try:
            session = zenoh.open(config)
        except zenoh.ZError as error:
            if "Unable to connect to any" in str(error):  # A client, and no router yet.
                if not told:
                    _log.warning("no node or relay at %s yet; trying on", ", ".join(line.connect))
                told = True
                closing.wait(PAUSE_S)
                continue
            raise ExchangeError(_why_closed(line, str(error))) from error
        if line.tls:
            _watch_door(session, {*line.tls.names, *RELAYS})
        return session
    raise ExchangeError(f"none of {', '.join(line.connect)} answered before this node left")


def _why_closed(line: Line, error: str) -> str:
    """One line for what Zenoh tells in several, which names an address up to three times."""
    told = _SOURCE.sub("", error).strip()
    named = [each for each in line.listen if f"{each[4:]}:" in told]
    where = ", ".join(named or line.listen or line.connect)
    if "Address already in use" in told:
        return f"{where} is in use: stop what listens there, or listen elsewhere (--listen)"
    system = _SYSTEM.search(told)
    return f"the line at {where} cannot be opened: {system[0] if system else told}"


def _show_zenoh_log() -> None:
    """Zenoh's own words on refused connections, on standard output; a second call does nothing."""
    before = os.environ.get("NO_COLOR")
    os.environ["NO_COLOR"] = "1"  # They land in files.
    try:
        zenoh.init_log_from_env_or(LOG)
    finally:
        if before is None:
            del os.environ["NO_COLOR"]
        else:
            os.environ["NO_COLOR"] = before


def _watch_door(session: zenoh.Session, names: set[str]) -> None:
    """Logs who connects with a certificate of the swarm's authority, but is not listed.

    Zenoh's own line tells such a session's random id only. The thread ends with the session.
    """
    links = session.info.declare_link_events_listener(zenoh.handlers.RingChannel(256), history=True)

    def watch() -> None:
        try:
            for event in links:
                name = event.link.auth_identifier
                if event.kind == zenoh.SampleKind.PUT and name not in names:
                    _log.warning(
                        "refused %r at %s: its certificate is good, but it is not listed; whoever "
                        "takes part is in the roster or the recipe: add it there to let it in",
                        *(name, event.link.dst),
                    )
        except zenoh.ZError:  # The session was closed.
            return

    threading.Thread(target=watch, name="potluck-door", daemon=True).start()
