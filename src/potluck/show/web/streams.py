"""Streams of a run to many pages: one look at the files for all of them, one text for equal ones.

Nobody looks at the files while no page is open. A page that does not take what it is sent is
dropped; it asks again when it can.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from potluck.show.web.feed import RunFeed
from potluck.show.web.guard import Send

LOOK_EVERY_S = 0.5
KEEP_ALIVE_S = 5.0
TAKE_S = 10.0
"""Time in which a reader takes each part of a message."""
PART_BYTES = 1 << 16
"""A part waits in this process for its reader; the whole message is there once for all."""
KEEP_ALIVE = b": keep-alive\n\n"
EVENT, EVENT_END = b"data: ", b"\n\n"


class SlowReaderError(Exception):
    """A reader that did not take what it was sent."""


async def send_parts(send: Send, body: bytes | memoryview, *, more: bool) -> None:
    """Send a body in parts; raise SlowReaderError if one is not taken in time."""
    for start in range(0, max(len(body), 1), PART_BYTES):
        part = bytes(body[start : start + PART_BYTES])
        is_last = start + PART_BYTES >= len(body)
        message = {"type": "http.response.body", "body": part, "more_body": more or not is_last}
        try:
            async with asyncio.timeout(TAKE_S):
                await send(message)
        except TimeoutError:
            raise SlowReaderError from None


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

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
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


async def stream(channel: RunChannel, send: Send, closing: asyncio.Event) -> None:
    """Send the whole run, then its changes until it is over or the server ends."""
    headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    step, is_over = 0, False
    async with channel.watched():
        while not is_over and not channel.failure:
            if not await channel.moved(step):
                await send_parts(send, KEEP_ALIVE, more=True)
                continue
            # The step is taken first: what changes meanwhile is sent again, never left out.
            now = channel.step
            if now > step:
                message, is_over = await channel.message(step)
                await send_parts(send, message, more=True)
                step = now
            is_over |= closing.is_set()
    await send_parts(send, b"", more=False)
