"""Streams of a run to many pages: one look at the files for all of them, one text for equal ones.

Nobody looks at the files while no page is open. A page that does not take what it is sent is
dropped (``guard.py``); it asks again when it can.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from potluck.show.web.feed import RunFeed

LOOK_EVERY_S = 0.5
KEEP_ALIVE_S = 5.0
KEEP_ALIVE = b": keep-alive\n\n"
EVENT, EVENT_END = b"data: ", b"\n\n"


class RunChannel:
    """One run's changes for all readers that watch it."""

    def __init__(self, feed: RunFeed) -> None:
        self.feed = feed
        self.step = 0
        self.watchers = 0
        self.failure = ""
        """Reason why looking ended; "": it goes on."""
        self._moved = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._messages: dict[int, asyncio.Task[tuple[bytes, bool]]] = {}
        """Encoded views of the present step, by the step that their readers have."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look at the files again and again until the last watcher has gone."""
        self.watchers += 1
        if self._looking is None or self._looking.done():
            self.failure = ""
            self._looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            self.watchers -= 1

    async def _look(self) -> None:
        while self.watchers:
            try:
                await self.refresh()
            except Exception as error:  # every watcher is told, and the server goes on
                self.failure = f"{type(error).__name__}: {error}"
                self.wake()
                raise
            await asyncio.sleep(LOOK_EVERY_S)

    async def refresh(self) -> None:
        """Look at the files once."""
        step = await asyncio.to_thread(self.feed.look)
        if step != self.step:
            self.step = step
            self._messages.clear()
            self.wake()

    def wake(self) -> None:
        """Let all streams go on at once."""
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def moved(self, after: int) -> bool:
        """Wait for a step after this one; return False if there was none for KEEP_ALIVE_S."""
        if self.step > after or self.failure:
            return True
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await self._moved.wait()
        except TimeoutError:
            return False
        return True

    async def whole(self) -> memoryview:
        """Return the whole run as JSON."""
        event, _ = await self.message(0)
        return memoryview(event)[len(EVENT) : -len(EVENT_END)]

    async def message(self, since: int) -> tuple[bytes, bool]:
        """Return (what changed since that step as an event, whether the run is over)."""
        making = self._messages.get(since)
        if making is None:
            making = asyncio.create_task(asyncio.to_thread(self._encoded, since))
            self._messages[since] = making
        # One reader that leaves must not take it from the others.
        return await asyncio.shield(making)

    def _encoded(self, since: int) -> tuple[bytes, bool]:
        view = self.feed.view(since)
        # Whole, as it is sent: 200 readers that make their own of it would hold 200 of them.
        return b"".join((EVENT, msgspec.json.encode(view), EVENT_END)), view.is_over


class Changes(StreamingResponse):
    """The whole run, then its changes until it is over or the server ends."""

    def __init__(self, channel: RunChannel, closing: asyncio.Event) -> None:
        super().__init__(self._events(), media_type="text/event-stream")
        self._channel, self._closing = channel, closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._channel.watched():
            await super().__call__(scope, receive, send)

    async def _events(self) -> AsyncIterator[bytes]:
        channel, step, is_over = self._channel, 0, False
        while not is_over and not channel.failure:
            if not await channel.moved(step):
                yield KEEP_ALIVE
                continue
            # The step is taken first: what changes meanwhile is sent again, never left out.
            now = channel.step
            if now > step:
                message, is_over = await channel.message(step)
                yield message
                step = now
            is_over |= self._closing.is_set()
