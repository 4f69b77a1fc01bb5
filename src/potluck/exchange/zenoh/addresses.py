"""Zenoh's addresses: ``tcp/HOST:PORT``, with certificates ``tls/HOST:PORT``."""

import re
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from potluck.exchange.base import ExchangeError

TIMEOUT_S = 3.0
ADDRESS = re.compile(r"(tcp|tls)/(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
"""How (with certificates or not), host and port; the host of IPv6 is in brackets."""


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
                f"'...' (potluck certificates), or use 'tcp/{endpoint[4:]}'"
            )


def free_endpoints(count: int, folder: Path) -> list[str]:
    # They differ, as all are held until all are found. Another program may still take one before
    # its node does; that node then says so.
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"tcp/127.0.0.1:{one.getsockname()[1]}" for one in sockets]


def try_endpoint(endpoint: str, *, listen: bool) -> OSError | None:
    host, port = host_and_port(endpoint)
    try:
        if not listen:
            socket.create_connection((host, port), timeout=TIMEOUT_S).close()
            return None
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as one:
            # As the node itself will: what a node that has just ended left behind is no hindrance.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(where)
            one.listen()
    except OSError as error:
        return error
    return None


def host_and_port(endpoint: str) -> tuple[str, int]:
    """Split an address that ``check_endpoints`` has let through.

    >>> host_and_port("tls/[::1]:7447"), host_and_port("tcp/relay.example.org:80")
    (('::1', 7447), ('relay.example.org', 80))
    """
    found = ADDRESS.fullmatch(endpoint)
    assert found
    return found[2].strip("[]"), int(found[3])
