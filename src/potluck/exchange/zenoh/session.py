"""A Zenoh session set up as a swarm needs it; every setting was measured or learned from a failure.

    multicast scouting off     two users on one network would merge their swarms
    shared memory off          it drops messages under load and leaves files behind after a SIGKILL
    lease 4 s                  how long a frozen node counts as live
    messages <= 16 MiB         a claim beyond it is refused before memory is set aside
    connecting never ends      a node whose network is away trains on alone

With [swarm.tls] a node needs a certificate of the swarm's authority, and speaks as itself alone.
"""

import json
import logging
import os
import re
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import zenoh

from potluck.exchange.base import ExchangeError
from potluck.exchange.keys.keys import CERTIFIES, certificate_files, check_certificate
from potluck.types import NODE_NAME

ADDRESS = re.compile(r"(tcp|tls)/(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
"""How (with certificates or not), host and port; the host of IPv6 is in brackets."""
CALL_S = 3.0
"""Seconds that the doctor's call of an address may take."""
MESSAGE_BYTES = 1 << 24
LEASE_MS = 4000
HANDSHAKE_MS = 5000
"""Milliseconds in which a relay must answer before a client tries the next one."""
PAUSE_S = 1.0
"""Seconds between two tries of a client to reach any relay."""
LOG = "error,zenoh_link_tls=warn,zenoh::net::routing::interceptor::access_control=info"
"""Filter that leaves the refused connections of Zenoh's own log; RUST_LOG goes before it. From
Python its lines cannot be read or changed, so they keep a hint on open files that is wrong."""

RELAYS = ("relay", *(f"relay-{at}" for at in range(2, 9)))
"""Names in the certificates of routers, which may pass on all; with TLS, no node may have one."""
SPEAKING = ["put", "delete", "reply", "declare_queryable", "liveliness_token"]
ALONE = "live", "ann", "status"
"""Kinds of keys of which a node has one each, under its name."""
ASKING = ["declare_subscriber", "query", "liveliness_query", "declare_liveliness_subscriber"]

_SOURCE = re.compile(r"(\.?\s+at /\S*:\d+\.?)+")  # a place in Zenoh's source
_SYSTEM = re.compile(r"[^:\s][^:]*\(os error \d+\)")  # the system's words, without the address
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tls:
    """Certificates that decide which nodes may connect."""

    folder: Path
    """Folder of certificates: the node's own, or one that has it as ``name``."""
    name: str
    names: tuple[str, ...]
    """Nodes that may take part, by the names in their certificates. Others are refused."""


@dataclass(frozen=True)
class Endpoints:
    """Addresses to listen on and to call: ``tcp/HOST:PORT``; with TLS ``tls/HOST:PORT``."""

    listen: tuple[str, ...] = ()
    connect: tuple[str, ...] = ()
    tls: Tls | None = None


def open_session(
    endpoints: Endpoints, *, run: str, closing: threading.Event | None = None
) -> zenoh.Session:
    """Open a node's session: a peer if it listens, else a client of the routers it connects to.
    ``run`` is the prefix of all keys. Raise ExchangeError, of one line, for what cannot be used,
    or if ``closing`` was set: a client waits for its first router until then."""
    mode = "peer" if endpoints.listen else "client"
    return _open(_config(endpoints, mode, run), endpoints, closing or threading.Event())


def open_patiently(endpoints: Endpoints, *, run: str, waiting: Callable[[], None]) -> zenoh.Session:
    """Open a session in a thread; call ``waiting`` meanwhile, which may end that by an error."""
    closing = threading.Event()
    with ThreadPoolExecutor(max_workers=1) as pool:
        opening = pool.submit(open_session, endpoints, run=run, closing=closing)
        try:
            while not wait([opening], timeout=0.2).done:
                waiting()
        except BaseException:
            closing.set()
            with suppress(ExchangeError):
                opening.result().close()
            raise
        return opening.result()


def open_router(endpoints: Endpoints) -> zenoh.Session:
    """Open a relay, which passes on messages between nodes that cannot reach each other."""
    if endpoints.tls and endpoints.tls.name not in RELAYS:
        raise ExchangeError(
            f"a relay's certificate is for {endpoints.tls.name!r}, which nodes take for a node; "
            f"make it for one of {', '.join(RELAYS)}"
        )
    return _open(_config(endpoints, "router", "*"), endpoints, threading.Event())


def _config(endpoints: Endpoints, mode: str, run: str) -> zenoh.Config:
    check_endpoints("swarm.listen", endpoints.listen, tls=endpoints.tls is not None, listen=True)
    check_endpoints("swarm.connect", endpoints.connect, tls=endpoints.tls is not None, listen=False)
    settings: dict[str, object] = {
        "mode": mode,
        "listen/endpoints": endpoints.listen,
        "connect/endpoints": endpoints.connect,
        # A client with a timeout, or one without an end, stays with its first endpoint for ever.
        "connect/timeout_ms": 0 if mode == "client" else -1,
        "connect/exit_on_failure": False,
        "listen/exit_on_failure": True,
        "scouting/multicast/enabled": False,
        "transport/shared_memory/enabled": False,
        "transport/unicast/open_timeout": HANDSHAKE_MS,
        "transport/link/tx/lease": LEASE_MS,
        "transport/link/rx/max_message_size": MESSAGE_BYTES,
        "transport/link/protocols": ["tls" if endpoints.tls else "tcp"],
    }
    if endpoints.tls:
        settings["transport/link/tls"] = _certificates(endpoints.tls)
        settings["access_control"] = _access_control(endpoints.tls.names, run)
    config = zenoh.Config()
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    return config


def _certificates(tls: Tls) -> dict[str, object]:
    if taken := sorted({*RELAYS} & {*tls.names}):
        raise ExchangeError(f"{taken[0]!r} is a relay's name with [swarm.tls]; rename that node")
    if bad := [name for name in tls.names if not NODE_NAME.fullmatch(name)]:
        raise ExchangeError(f"{bad[0]!r} is no name of a node; expected {NODE_NAME.pattern}")
    # Zenoh tries again for ever where a file is missing.
    check_certificate(tls.folder, tls.name)
    ca, certificate, key = map(str, certificate_files(tls.folder, tls.name))
    return {
        "root_ca_certificate": ca, "enable_mtls": True, "verify_name_on_connect": True,
        "listen_certificate": certificate, "listen_private_key": key,
        "connect_certificate": certificate, "connect_private_key": key,
    }  # fmt: skip


def _access_control(names: Sequence[str], run: str) -> dict[str, object]:
    """Build Zenoh's access rules for ``run``, or ``*`` for all: a node, known by the name in its
    certificate, may publish under that name only, a relay under any, an unlisted one under none."""
    everything = [f"{run}/**"]
    own = {n: [*(f"{run}/{kind}/{n}" for kind in ALONE), f"{run}/q/{n}/**"] for n in names}
    speakers = own | dict.fromkeys(RELAYS, everything)
    rules = [(f"speak-{n}", "ingress", SPEAKING, keys) for n, keys in speakers.items()]
    rules.append(("ask", "ingress", ASKING, everything))
    rules.append(("out", "egress", SPEAKING + ASKING, everything))
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": [
            {"id": id, "permission": "allow", "flows": [flow], "messages": kinds, "key_exprs": keys}
            for id, flow, kinds, keys in rules
        ],
        "subjects": [{"id": n, "cert_common_names": [n]} for n in speakers],
        "policies": [{"rules": [f"speak-{n}", "ask", "out"], "subjects": [n]} for n in speakers],
    }


def _open(config: zenoh.Config, endpoints: Endpoints, closing: threading.Event) -> zenoh.Session:
    if endpoints.tls:
        _show_zenoh_log()
    warned = False
    while not closing.is_set():
        try:
            session = zenoh.open(config)
            if endpoints.tls:
                _log_unlisted_peers(session, {*endpoints.tls.names, *RELAYS})
            return session
        except zenoh.ZError as error:
            if "Unable to connect to any" in str(error):  # A client, and no router yet.
                if not warned:
                    where = ", ".join(endpoints.connect)
                    _log.warning("no node or relay at %s yet; trying on", where)
                warned = True
                closing.wait(PAUSE_S)
                continue
            raise ExchangeError(_why_closed(endpoints, str(error))) from error
    raise ExchangeError(f"none of {', '.join(endpoints.connect)} answered before this node left")


def _why_closed(endpoints: Endpoints, error: str) -> str:
    """Return one line for Zenoh's several, which name an address up to three times."""
    message = _SOURCE.sub("", error).strip()
    named = [each for each in endpoints.listen if f"{each[4:]}:" in message]
    where = ", ".join(named or endpoints.listen or endpoints.connect)
    if "Address already in use" in message:
        return f"{where} is in use: stop what listens there, or listen elsewhere (--listen)"
    system = _SYSTEM.search(message)
    return f"the line at {where} cannot be opened: {system[0] if system else message}"


def _show_zenoh_log() -> None:
    """Let Zenoh log refused connections to standard output; a second call does nothing."""
    before = os.environ.get("NO_COLOR")
    os.environ["NO_COLOR"] = "1"  # They land in files.
    try:
        zenoh.init_log_from_env_or(LOG)
    finally:
        if before is None:
            del os.environ["NO_COLOR"]
        else:
            os.environ["NO_COLOR"] = before


def check_endpoints(where: str, endpoints: Sequence[str], *, tls: bool, listen: bool) -> None:
    for endpoint in endpoints:
        found = ADDRESS.fullmatch(endpoint)
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
                f"'...' ({CERTIFIES}), or use 'tcp/{endpoint[4:]}'"
            )


def free_endpoints(count: int, folder: Path) -> list[str]:
    # They differ, as all are held until all are found. Another program may still take one before
    # its node does; that node then says so.
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [f"tcp/127.0.0.1:{one.getsockname()[1]}" for one in taken]


def try_endpoint(endpoint: str, *, listen: bool) -> OSError | None:
    found = ADDRESS.fullmatch(endpoint)
    assert found  # ``check_endpoints`` has let it through
    host, port = found[2].strip("[]"), int(found[3])
    try:
        if not listen:
            socket.create_connection((host, port), timeout=CALL_S).close()
            return None
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # As the node itself will: what a node that has just ended left behind is no hindrance, and
        # [::] takes addresses of version 4 too.
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        socket.create_server(where, family=family, dualstack_ipv6=both).close()
    except OSError as error:
        return error
    return None


def _log_unlisted_peers(session: zenoh.Session, names: set[str]) -> None:
    """Log each peer whose certificate is of the swarm's authority, but is not listed. Zenoh's own
    line tells such a session's random id only. The thread ends with the session."""
    links = session.info.declare_link_events_listener(zenoh.handlers.RingChannel(256), history=True)

    def watch() -> None:
        with suppress(zenoh.ZError):  # The session was closed.
            for event in links:
                name = event.link.auth_identifier
                if event.kind == zenoh.SampleKind.PUT and name not in names:
                    where = f"refused {name!r} at {event.link.dst}"
                    why = "its certificate is good, but it is not listed"
                    way_out = "add it to the roster or the recipe to let it in"
                    _log.warning("%s: %s; %s", where, why, way_out)

    threading.Thread(target=watch, name="potluck-door", daemon=True).start()
