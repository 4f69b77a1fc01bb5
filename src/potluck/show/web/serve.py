"""Serving the page from this process: an address, uvicorn, and an end.

The first line that is printed is the address, or the run that started this process reads an error.
"""

import asyncio
import errno
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

import uvicorn

from potluck.show.web.feed import Feed
from potluck.show.web.guard import Guard, WebAddressError, choose_token
from potluck.show.web.server import Server

HOST, PORT = "127.0.0.1", 8420
NEARBY_PORTS = 20
SEND_BUFFER_BYTES = 1 << 18
"""Memory of the system for each reader that does not read."""
MOST_CONNECTIONS = 600
LAST_WORDS_S = 1.0
"""Time for the last messages at the end."""


def split_address(address: str) -> tuple[str, int | None]:
    """Return (host, port) of HOST:PORT, HOST or PORT; None for a port that was not given. Raise
    WebAddressError.

    >>> split_address("0.0.0.0:80"), split_address("9000"), split_address(""), split_address("::1")
    (('0.0.0.0', 80), ('127.0.0.1', 9000), ('127.0.0.1', None), ('::1', None))
    >>> split_address("[::1]:80")
    ('::1', 80)
    """
    if address.isdecimal():
        address = f":{address}"
    elif address.count(":") > 1 and not address.startswith("["):
        address = f"[{address}]"
    try:
        place = urlsplit(f"//{address}")
        return place.hostname or HOST, place.port
    except ValueError:
        raise WebAddressError(
            f"the page's address {address!r}: {address.rpartition(':')[2]!r} is no port; give "
            f"HOST:PORT"
        ) from None


def open_socket(host: str, port: int | None) -> socket.socket:
    """Listen there; where no port is given, at 8420 or one that is free. Raise WebAddressError."""
    tries = [port] if port is not None else [*range(PORT, PORT + NEARBY_PORTS), 0]
    for each in tries:
        try:
            return _listen(host, each)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise WebAddressError(
                    f"the page at {host}:{each}: {error.strerror or error}; give an address of "
                    f"this machine, or leave it out"
                ) from None
    raise WebAddressError(
        f"the page at {host}:{port}: the port is in use; name another one, or leave it out and one "
        f"that is free is taken"
    )


def _listen(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, *_, place = found[0]
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    made = socket.create_server(place[:2], family=family, backlog=128, dualstack_ipv6=both)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return made


def serve(
    feed: Feed,
    address: str = "",
    *,
    make_token: bool = False,
    until_stdin_ends: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the page until Ctrl-C, or until stdin ends. Raise WebAddressError if it cannot."""
    host, port = split_address(address)
    token = choose_token(host, make=make_token)
    listening = open_socket(host, port)
    number = listening.getsockname()[1]
    with listening:
        asyncio.run(_serve(feed, listening, host, number, token, until_stdin_ends, say))


async def _serve(
    feed: Feed,
    listening: socket.socket,
    host: str,
    port: int,
    token: str,
    until_stdin_ends: bool,
    say: Callable[[str], None],
) -> None:
    # A page must never take the processor from training.
    with suppress(OSError, AttributeError):
        os.nice(10)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    app = Server(feed)
    guard = Guard(app, host=host, port=port, token=token, drop=lambda one: _drop(running, one))
    running = uvicorn.Server(
        uvicorn.Config(
            guard,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=1,
        )
    )
    say(shown_address(host, port, token))
    if until_stdin_ends:
        waiting = (asyncio.get_running_loop(), partial(_end, app, running))
        threading.Thread(target=_wait_for_stdin, args=waiting, daemon=True).start()
    await running.serve([listening])


def shown_address(host: str, port: int, token: str) -> str:
    """Return what a user opens, by this machine's name if the server listens everywhere."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    place = f"[{name}]" if ":" in name else name
    given = f"?token={quote(token, safe='')}" if token else ""
    return f"http://{place}:{port}/{given}"


def _wait_for_stdin(
    loop: asyncio.AbstractEventLoop, end: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Wait until the process that started this one closes stdin, or is gone."""
    with suppress(OSError, ValueError):
        while os.read(sys.stdin.fileno(), 4096):
            pass
    if not loop.is_closed():
        asyncio.run_coroutine_threadsafe(end(), loop)


async def _end(app: Server, running: uvicorn.Server) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(LAST_WORDS_S):
            await app.close()
            while app.streams:
                await asyncio.sleep(0.02)
    running.should_exit = True


def _drop(running: uvicorn.Server, client: tuple[str, int] | None) -> None:
    """Abort a client's connection: to close it would wait until all was taken."""
    for each in list(running.server_state.connections):
        if getattr(each, "client", None) == client and (line := getattr(each, "transport", None)):
            line.abort()
