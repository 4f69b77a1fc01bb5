"""The server's answers: the page, its data as JSON, and streams of changes. It only reads.

    /                    the page
    /api/start           StartView
    /api/run             RunView: ?run=
    /api/events          the same, then its changes, as server-sent events
    /api/pair            PairView: ?run=&learner=&author=
    /api/texts           TextsView: ?run=&node=, &round= for another than the newest
    /api/search          TextsView: ?run=&node=&q=
    /api/experiment      a view of another feed: ?experiment=

An error is {"error": "one line"} with its status.
"""

import asyncio
from collections.abc import Callable

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from potluck.files import one_line
from potluck.show.web.bounds import MOST_STREAMS
from potluck.show.web.feed import Feed, NotHereError
from potluck.show.web.guard import error
from potluck.show.web.page import live_page
from potluck.show.web.streams import Changes, RunChannel
from potluck.types import PotluckError

MOST_CHANNELS = 32
"""Runs that are kept in memory; of more the one that was opened first goes, if nobody watches."""


class Server:
    """The page and its data as an ASGI app."""

    def __init__(self, feed: Feed) -> None:
        self.closing = asyncio.Event()
        """Set: streams end after their next message."""
        self._feed = feed
        self._channels: dict[str, RunChannel] = {}
        answers = {
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
            routes=[Route(path, answer) for path, answer in answers.items()],
            exception_handlers={
                404: lambda ask, _: error(404, f"there is no {ask.scope['path'][:80]!r} here"),
                NotHereError: _told(404),
                PotluckError: _told(500),
                OSError: _told(500),
            },
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    @property
    def streams(self) -> int:
        return sum(channel.watchers for channel in self._channels.values())

    async def close(self) -> None:
        """Send everybody the last state, and end the streams."""
        for channel in list(self._channels.values()):
            if channel.watchers:
                await channel.refresh()
        self.closing.set()
        for channel in self._channels.values():
            channel.wake()

    async def _page(self, request: Request) -> Response:
        page = live_page()
        policy = {"content-security-policy": page.policy}
        return Response(page.html, headers=policy, media_type="text/html")

    async def _start(self, request: Request) -> Response:
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

    async def _run(self, request: Request) -> Response:
        channel = await self._channel(request)
        await channel.refresh()
        return Response(await channel.whole(), media_type="application/json")

    async def _events(self, request: Request) -> Response:
        if self.streams >= MOST_STREAMS:
            return error(503, f"{MOST_STREAMS} pages are open here; close one")
        return Changes(await self._channel(request), self.closing)

    async def _looked(self, request: Request) -> RunChannel:
        channel = await self._channel(request)
        if not channel.step:
            await channel.refresh()
        return channel

    async def _pair(self, request: Request) -> Response:
        ask, channel = request.query_params, await self._looked(request)
        names = ask.get("learner", ""), ask.get("author", "")
        return _json(await asyncio.to_thread(channel.feed.pair, *names))

    async def _texts(self, request: Request) -> Response:
        ask, channel = request.query_params, await self._looked(request)
        round = ask.get("round", "")
        if round and not (round.isdecimal() and len(round) < 10):
            return error(400, f"round is {round[:40]!r}; give a number, or leave it out")
        number = int(round) if round else None
        return _json(await asyncio.to_thread(channel.feed.texts, ask.get("node", ""), number))

    async def _search(self, request: Request) -> Response:
        ask, channel = request.query_params, await self._looked(request)
        words = ask.get("node", ""), ask.get("q", "")
        return _json(await asyncio.to_thread(channel.feed.search, *words))

    async def _experiment(self, request: Request) -> Response:
        name = request.query_params.get("experiment", "")
        return _json(await asyncio.to_thread(self._feed.experiment, name))


def _json(answer: object) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")


def _told(status: int) -> Callable[[Request, Exception], Response]:
    return lambda request, wrong: error(status, one_line(str(wrong), 500))
