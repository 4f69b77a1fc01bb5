"""The server: the page, its data as JSON, and streams of changes. It only reads.

An error is {"error": "one line"} with its status. The first line that is printed is the address, or
the run that started this process reads an error.
"""

import asyncio
import errno
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import lru_cache
from urllib.parse import quote, urlsplit

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from potluck.files import one_line
from potluck.show.web.folder import NotHereError, WatchedRun
from potluck.show.web.guard import Guard, choose_token, error
from potluck.show.web.page import live_page
from potluck.show.web.place import Place
from potluck.types import PotluckError

LOOK_EVERY_S = 0.5
KEEP_ALIVE_S = 5.0
MOST_RUNS = 32
"""Runs that are kept in memory; of more the one that was asked for longest ago goes."""
HOST, PORT = "127.0.0.1", 8420
NEARBY_PORTS = 20
MOST_CONNECTIONS, MOST_STREAMS = 600, 256


class Server(Starlette):
    """The page and its data as an ASGI app; streams end after a last message if ``is_ending``."""

    def __init__(self, place: Place, is_ending: Callable[[], bool] = lambda: False) -> None:
        self._is_ending, self._streams, self._lock = is_ending, 0, threading.Lock()
        self._feed_of = lru_cache(MOST_RUNS)(place.run)
        answers = {
            "/": self._page,
            "/api/start": lambda ask: _json(place.start()),
            "/api/run": self._run,
            "/api/events": self._events,
            "/api/pair": self._pair,
            "/api/texts": self._texts,
            "/api/experiment": lambda ask: _json(place.experiment(_given(ask, "experiment"))),
        }
        super().__init__(
            # Functions that are not async run in threads.
            routes=[Route(path, answer) for path, answer in answers.items()],
            exception_handlers={
                404: lambda ask, _: error(404, f"there is no {ask.scope['path'][:80]!r} here"),
                NotHereError: lambda _, wrong: error(404, one_line(str(wrong), 500)),
                PotluckError: lambda _, wrong: error(500, one_line(str(wrong), 500)),
                OSError: lambda _, wrong: error(500, one_line(str(wrong), 500)),
            },
        )

    def _page(self, request: Request) -> Response:
        page = live_page()
        policy = {"content-security-policy": page.policy}
        return Response(page.html, media_type="text/html", headers=policy)

    def _looked(self, request: Request) -> WatchedRun:
        with self._lock:  # or requests at once would make feeds of their own
            run = self._feed_of(_given(request, "run"))
        run.look(every_s=LOOK_EVERY_S)
        return run

    def _run(self, request: Request) -> Response:
        whole, _ = self._looked(request).message(0)
        return Response(whole, media_type="application/json")

    def _events(self, request: Request) -> Response:
        if self._streams >= MOST_STREAMS:
            return error(503, f"{MOST_STREAMS} pages are open here; close one")
        changes = self._changes(self._looked(request))
        return StreamingResponse(changes, media_type="text/event-stream")

    async def _changes(self, run: WatchedRun) -> AsyncIterator[bytes]:
        """Yield the whole run, then its changes until it is over or the server ends."""
        step, is_over, told_s = 0, False, time.monotonic()
        self._streams += 1
        try:
            while not is_over:
                is_over = self._is_ending()
                # The step is taken first: what changes meanwhile is sent again, never left out.
                now = await run_in_threadpool(run.look, every_s=0.0 if is_over else LOOK_EVERY_S)
                if now > step:
                    message, has_ended = await run_in_threadpool(run.message, step)
                    for part in (b"data: ", message, b"\n\n"):
                        yield part
                    del message  # old texts are not kept while this reader waits
                    step, is_over, told_s = now, is_over or has_ended, time.monotonic()
                elif time.monotonic() - told_s > KEEP_ALIVE_S:
                    yield b": keep-alive\n\n"
                    told_s = time.monotonic()
                if not is_over:
                    await asyncio.sleep(LOOK_EVERY_S)
        finally:
            self._streams -= 1

    def _pair(self, request: Request) -> Response:
        run = self._looked(request)
        return _json(run.pair(_given(request, "learner"), _given(request, "author")))

    def _texts(self, request: Request) -> Response:
        round = _given(request, "round")
        if round and not (round.isdecimal() and len(round) < 10):
            return error(400, f"round is {round[:40]!r}; give a number, or leave it out")
        number = int(round) if round else None
        return _json(self._looked(request).texts(_given(request, "node"), number))


def _given(request: Request, name: str) -> str:
    return request.query_params.get(name, "")


def _json(answer: object) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")


def split_address(address: str) -> tuple[str, int | None]:
    """Return (host, port) of HOST:PORT, HOST or PORT; None for a port that was not given. Raise
    PotluckError.

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
        raise PotluckError(
            f"--web-at {address!r}: {address.rpartition(':')[2]!r} is no port; give HOST:PORT"
        ) from None


def open_socket(host: str, port: int | None) -> socket.socket:
    """Listen there; where no port is given, at 8420 or one that is free. Raise PotluckError."""
    tries = [port] if port is not None else [*range(PORT, PORT + NEARBY_PORTS), 0]
    for each in tries:
        try:
            return _listen(host, each)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise PotluckError(
                    f"the page at {host}:{each}: {error.strerror or error}; give an address of "
                    f"this machine, or leave it out"
                ) from None
    raise PotluckError(
        f"the page at {host}:{port}: the port is in use; name another, or none for a free one"
    )


def _listen(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, *_, address = found[0]
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    return socket.create_server(address[:2], family=family, backlog=128, dualstack_ipv6=both)


def shown_address(host: str, port: int, token: str) -> str:
    """Return what a user opens, by this machine's name if the server listens everywhere."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    place = f"[{name}]" if ":" in name else name
    given = f"?token={quote(token, safe='')}" if token else ""
    return f"http://{place}:{port}/{given}"


def serve(
    place: Place,
    address: str = "",
    *,
    make_token: bool = False,
    until_stdin_ends: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the page until Ctrl-C, or until stdin ends. Raise PotluckError if it cannot."""
    host, asked = split_address(address)
    token = choose_token(host, make=make_token)
    listening = open_socket(host, asked)
    port = listening.getsockname()[1]
    # A page must never take the processor from training.
    with suppress(OSError, AttributeError):
        os.nice(10)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)

    def end_with_stdin() -> None:
        with suppress(OSError, ValueError):  # the process that started this one is gone
            while os.read(sys.stdin.fileno(), 4096):
                pass
        running.should_exit = True

    app = Server(place, lambda: running.should_exit)
    running = uvicorn.Server(
        uvicorn.Config(
            Guard(app, host=host, port=port, token=token),
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
    with listening:
        say(shown_address(host, port, token))
        if until_stdin_ends:
            threading.Thread(target=end_with_stdin, daemon=True).start()
        asyncio.run(running.serve([listening]))
