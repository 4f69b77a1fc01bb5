"""The server's answers: the page, its data as JSON, and streams of changes. It only reads.

    /                    the page
    /api/start           StartView
    /api/run             RunView: ?run=
    /api/events          the same, then its changes, as server-sent events
    /api/pair            PairView: ?run=&learner=&author=
    /api/texts           TextsView: ?run=&node=, &round= for another than the newest
    /api/search          TextsView: ?run=&node=&q=
    /api/experiment      ExperimentView: ?experiment=

An error is {"error": "one line"} with its status.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from potluck.files import one_line
from potluck.show.web.feed import Feed, NotHereError
from potluck.show.web.guard import Receive, Scope, Send
from potluck.show.web.page import live_page
from potluck.show.web.streams import RunChannel, SlowReaderError, send_parts, stream
from potluck.types import PotluckError

MOST_STREAMS = 256
MOST_CHANNELS = 32
"""Runs that are kept in memory; of more the one that was opened first goes, if nobody watches."""

Drop = Callable[[tuple[str, int] | None], None]
"""Ends the connection of a client at once, without what it has not taken."""


class _Answer:
    """A whole answer, sent in parts."""

    def __init__(
        self, body: bytes | memoryview, kind: str, status: int = 200, policy: str = ""
    ) -> None:
        self._body, self._status = body, status
        self._headers = [
            (b"content-type", kind.encode()),
            (b"content-length", str(len(body)).encode()),
        ]
        if policy:
            self._headers.append((b"content-security-policy", policy.encode()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": self._status, "headers": self._headers}
        await send(start)
        body = b"" if scope["method"] == "HEAD" else self._body
        await send_parts(send, body, more=False)


def _json(answer: object, status: int = 200) -> _Answer:
    return _Answer(msgspec.json.encode(answer), "application/json", status)


def _error(status: int, text: str) -> _Answer:
    return _json({"error": one_line(text, 500)}, status)


class _Stream:
    def __init__(self, server: "Server", channel: RunChannel) -> None:
        self._server, self._channel = server, channel

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server = self._server
        server.streams += 1
        sending = asyncio.create_task(stream(self._channel, send, server.closing))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            server.streams -= 1
            sending.cancel()
            leaving.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Server:
    """The page and its data as an ASGI app."""

    def __init__(self, feed: Feed, drop: Drop = lambda client: None) -> None:
        self.streams = 0
        self.closing = asyncio.Event()
        """Set: streams end after their next message."""
        self._feed, self._drop = feed, drop
        self._channels: dict[str, RunChannel] = {}
        answers: dict[str, Callable[[Request], Awaitable[Any]]] = {
            "/": self._page,
            "/api/start": self._start,
            "/api/run": self._run,
            "/api/events": self._events,
            "/api/pair": self._pair,
            "/api/texts": self._texts,
            "/api/search": self._search,
            "/api/experiment": self._experiment,
        }
        self._app = Starlette(
            routes=[Route(path, self._told(answer)) for path, answer in answers.items()],
            exception_handlers={404: self._nothing},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except SlowReaderError:
            self._drop(scope.get("client"))

    async def close(self) -> None:
        """Send everybody the last state, and end the streams."""
        for channel in list(self._channels.values()):
            if channel.watchers:
                await channel.refresh()
        self.closing.set()
        for channel in self._channels.values():
            channel.wake()

    @staticmethod
    def _told(answer: Callable[[Request], Awaitable[Any]]) -> Callable[[Request], Awaitable[Any]]:
        """Turn errors into answers with a line."""

        async def told(request: Request) -> Any:
            try:
                return await answer(request)
            except NotHereError as error:
                return _error(404, str(error))
            except (PotluckError, OSError) as error:
                return _error(500, str(error))

        return told

    @staticmethod
    async def _nothing(request: Request, error: Exception) -> Any:
        return _error(404, f"there is no {request.url.path[:80]!r} here")

    async def _page(self, request: Request) -> _Answer:
        page = live_page()
        return _Answer(page.html.encode(), "text/html; charset=utf-8", policy=page.policy)

    async def _start(self, request: Request) -> _Answer:
        return _json(await asyncio.to_thread(self._feed.start))

    async def _channel(self, request: Request) -> RunChannel:
        run = request.query_params.get("run", "")
        if run not in self._channels:
            feed = await asyncio.to_thread(self._feed.run, run)
            idle = [name for name, one in self._channels.items() if not one.watchers]
            for name in idle[: max(0, len(self._channels) + 1 - MOST_CHANNELS)]:
                del self._channels[name]
            self._channels.setdefault(run, RunChannel(feed))
        return self._channels[run]

    async def _run(self, request: Request) -> _Answer:
        channel = await self._channel(request)
        await channel.refresh()
        return _Answer(await channel.whole(), "application/json")

    async def _events(self, request: Request) -> Any:
        if self.streams >= MOST_STREAMS:
            return _error(503, f"{MOST_STREAMS} pages are open here; close one")
        return _Stream(self, await self._channel(request))

    async def _looked(self, request: Request) -> RunChannel:
        channel = await self._channel(request)
        if not channel.step:
            await channel.refresh()
        return channel

    async def _pair(self, request: Request) -> _Answer:
        ask, channel = request.query_params, await self._looked(request)
        names = ask.get("learner", ""), ask.get("author", "")
        return _json(await asyncio.to_thread(channel.feed.pair, *names))

    async def _texts(self, request: Request) -> _Answer:
        ask, channel = request.query_params, await self._looked(request)
        round = ask.get("round", "")
        if round and not (round.isdecimal() and len(round) < 10):
            return _error(400, f"round is {round[:40]!r}; give a number, or leave it out")
        number = int(round) if round else None
        return _json(await asyncio.to_thread(channel.feed.texts, ask.get("node", ""), number))

    async def _search(self, request: Request) -> _Answer:
        ask, channel = request.query_params, await self._looked(request)
        words = ask.get("node", ""), ask.get("q", "")
        return _json(await asyncio.to_thread(channel.feed.search, *words))

    async def _experiment(self, request: Request) -> _Answer:
        name = request.query_params.get("experiment", "")
        return _json(await asyncio.to_thread(self._feed.experiment, name))
