"""A TCP relay in user space: what a bad network does, without root and without the kernel.

    node a --connect--> relay --connect--> node b

    delay       each byte comes ``delay_s`` later, in each direction
    loss        TCP hides what is lost and shows a pause: a part of the chunks is held back for
                the time after which a sender sends again, and what follows waits behind them
    bandwidth   bytes a second, in each direction
    cut         a partition: nothing passes, nothing is closed, nothing is refused. What was sent
                meanwhile passes after ``heal``, as TCP would send it again

All relays of a ``Network`` share one thread. Standard library only.
"""

import asyncio
import contextlib
import random
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

CHUNK_BYTES = 1 << 14
HELD_BYTES = 1 << 20
"""On their way in one direction of a connection; beyond it the sender has to wait."""
RESEND_S = 0.2
"""The least time after which Linux sends again what was not acknowledged."""
PATIENCE_S = 10.0
"""How long the thread may take to do what it is told: far longer than it needs."""


@dataclass(frozen=True, slots=True)
class Weather:
    """What happens to all that passes."""

    delay_s: float = 0.0
    """One way."""
    loss: float = 0.0
    """Part of the chunks that come ``RESEND_S`` and a round trip later."""
    bytes_per_s: float = float("inf")
    """Of all connections together, in each direction."""


CALM = Weather()


class Network:
    """Relays, and the thread they live in. Use it in a ``with`` block."""

    def __init__(self, seed: int = 0) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._dice, self._relays = random.Random(seed), list["Relay"]()

    def __enter__(self) -> "Network":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.call(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def relay(self, port: int, weather: Weather = CALM) -> "Relay":
        """A new one, to ``port`` of this machine. Nobody need listen there yet."""
        relay = Relay(self, port, weather, self._dice)
        self.call(relay.listen())
        self._relays.append(relay)
        return relay

    def call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    async def _shut(self) -> None:
        for relay in self._relays:
            await relay.shut()
        mine = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)


class Relay:
    """One address that leads to another."""

    port: int
    """Where it listens, on loopback."""

    def __init__(
        self, network: Network, target: int, weather: Weather, generator: random.Random
    ) -> None:
        self._network, self._target, self._dice = network, target, generator
        self.weather = weather
        """May be replaced at any time."""
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._free_at = {"there": 0.0, "back": 0.0}
        """Of each direction, when the line has carried all that was put on it."""

    def cut(self) -> None:
        self._network.call(self._set(open=False))

    def heal(self) -> None:
        self._network.call(self._set(open=True))

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        self._server.close()
        self._open.set()
        for writer in self._writers:
            writer.transport.abort()

    async def _set(self, *, open: bool) -> None:
        (self._open.set if open else self._open.clear)()

    async def _serve(self, near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        self._keep(to_near)
        to_far = None
        try:
            await self._open.wait()
            far, to_far = await asyncio.open_connection("127.0.0.1", self._target)
            self._keep(to_far)
            await asyncio.gather(
                self._carry("there", near, to_far), self._carry("back", far, to_near)
            )
        except (OSError, asyncio.CancelledError):
            pass  # One of the two has gone, and so does the other; or all is over.
        finally:
            for writer in filter(None, (to_near, to_far)):
                writer.close()

    def _keep(self, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(0)  # so that ``drain`` means: all has left
        self._writers.add(writer)

    async def _carry(
        self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Bytes from one to the other until the end, which is carried too."""
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(HELD_BYTES // CHUNK_BYTES)
        leaving = asyncio.create_task(self._deliver(held, writer))
        try:
            chunk = b"-"
            while chunk and not leaving.done():
                await self._open.wait()
                chunk = await reader.read(CHUNK_BYTES)
                await _either(held.put((self._due(way, len(chunk)), chunk)), leaving)
            await leaving
        finally:
            leaving.cancel()

    async def _deliver(
        self, held: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter
    ) -> None:
        while True:
            due, chunk = await held.get()
            if (early := due - asyncio.get_running_loop().time()) > 0:
                await asyncio.sleep(early)
            await self._open.wait()
            if not chunk:
                with contextlib.suppress(OSError):
                    writer.write_eof()
                return
            writer.write(chunk)
            await writer.drain()

    def _due(self, way: str, size_bytes: int) -> float:
        """When bytes that come now are to leave."""
        now, weather = asyncio.get_running_loop().time(), self.weather
        begins = max(now, self._free_at[way])
        self._free_at[way] = begins + size_bytes / weather.bytes_per_s
        lost = self._dice.random() < weather.loss
        return self._free_at[way] + weather.delay_s + lost * (RESEND_S + 2 * weather.delay_s)


async def _either(work: Coroutine[Any, Any, None], other: "asyncio.Task[None]") -> None:
    """Until one of both is done; ``work`` is given up where it is the slower one."""
    task = asyncio.create_task(work)
    await asyncio.wait((task, other), return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
