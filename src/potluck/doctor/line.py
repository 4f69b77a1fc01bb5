"""The line: whether this node can be reached, and reaches those that it names."""

import errno
import socket
from collections.abc import Sequence

from potluck.doctor.finding import Finding
from potluck.exchange import ExchangeError
from potluck.exchange.session import check_endpoints

TIMEOUT_S = 3.0


def endpoint(address: str) -> tuple[str, int]:
    """Host and port of what ``check_endpoints`` has let through.

    >>> endpoint("tls/[::1]:7447"), endpoint("tcp/relay.example.org:80")
    (('::1', 7447), ('relay.example.org', 80))
    """
    host, _, port = address.partition("/")[2].rpartition(":")
    return host.strip("[]"), int(port)


def spelling(where: str, addresses: Sequence[str], *, tls: bool, listen: bool) -> Finding | None:
    """A finding only where an address is none, or is not of the kind that [swarm.tls] asks for."""
    try:
        check_endpoints(where, addresses, tls=tls, listen=listen)
    except ExchangeError as error:
        return Finding("addresses", "FAIL", str(error))
    return None


def meeting(listen: Sequence[str], connect: Sequence[str], nodes: int) -> Finding:
    """Whether anybody can be met at all, as far as addresses tell."""
    if not listen and not connect:
        return Finding(
            "meeting",
            "FAIL",
            "neither listen nor connect; --connect tcp/HOST:PORT names a relay, or --listen "
            "tcp/0.0.0.0:7447 and --connect for each other node",
        )
    if listen and len(connect) < nodes - 1:
        return Finding(
            "meeting",
            "warn",
            f"listens and names {len(connect)} of {nodes - 1} others; two nodes that learn of each "
            f"other only by hearsay do not find back after a loss: name all, or relays only",
        )
    if listen:
        return Finding("meeting", "ok", f"is reached, and names {len(connect)} others")
    if len(connect) == 1:  # of a relay, or of a node that passes on what others say: who knows
        once = "through 1 address; with a second one it survives the loss of the first"
        return Finding("meeting", "ok", once)
    return Finding("meeting", "ok", f"through {len(connect)} addresses")


def listening(address: str, complaint: OSError | None) -> Finding:
    """Args:
    complaint: of the system, when the address was taken for a moment; None: it was free.
    """
    if complaint is None:
        return Finding("listen", "ok", f"{address} is free; a firewall must let it in")
    if complaint.errno == errno.EADDRINUSE:
        out = "a node of yours may be running; end it, or choose another port"
    elif complaint.errno in (errno.EACCES, errno.EPERM):
        out = "ports below 1024 are for root; choose another one"
    elif complaint.errno == errno.EADDRNOTAVAIL:
        out = "it is no address of this machine; 0.0.0.0 stands for all it has"
    else:
        out = "choose another address"
    return Finding("listen", "FAIL", f"{address}: {complaint.strerror or complaint}; {out}")


def reaching(address: str, complaint: OSError | None) -> Finding:
    """Args:
    complaint: of the system, when a TCP connection was tried; None: there was one.
    """
    if complaint is None:
        return Finding("connect", "ok", f"{address} answers")
    if isinstance(complaint, socket.gaierror):
        out = "no such host; look for a slip in its name"
    elif isinstance(complaint, ConnectionRefusedError):
        out = "the machine is there, and nobody listens; start the node or relay, check the port"
    elif isinstance(complaint, TimeoutError):
        out = f"no answer in {TIMEOUT_S:g} s; a firewall, or the machine is off"
    else:
        out = complaint.strerror or str(complaint)
    # A node goes on trying and trains meanwhile, so an absent one may still come.
    return Finding("connect", "warn", f"{address}: {out}")


def reachable(findings: Sequence[Finding]) -> Finding | None:
    """A verdict on all addresses together: nobody at all is more than a warning."""
    if findings and all(finding.verdict != "ok" for finding in findings):
        return Finding("connect", "FAIL", "none of the addresses answers: it would train alone")
    return None


def try_listen(address: str) -> OSError | None:
    host, port = endpoint(address)
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as one:
            # As the node itself will: what a node that has just ended left behind is no hindrance.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(where)
            one.listen()
    except OSError as error:
        return error
    return None


def try_connect(address: str) -> OSError | None:
    try:
        socket.create_connection(endpoint(address), timeout=TIMEOUT_S).close()
    except OSError as error:
        return error
    return None
